//! A snapshot as OpenMetrics text, the format that Prometheus and compatible systems read.
//!
//! The `prometheus-client` crate writes the text; its types are not on any hot path: a collector passes it
//! the values of the engine's own sources. Histograms are exported as Prometheus histograms (cumulative
//! buckets), not as summaries, because buckets can be added up over cores and machines and quantiles cannot.
//! The bounds are fixed: 1-2-5 steps from 1 µs to 100 s for times, powers of four from 1 to 4^16 for anything
//! else.

use std::sync::Arc;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::MetricType,
};

use super::snapshot::{Registry, Snapshot, Unit, Value};

/// Value of the response's `Content-Type` field.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the body of the response to a scrape, in OpenMetrics text.
#[must_use]
pub fn encode(registry: &Registry) -> String {
    encode_snapshot(registry.snapshot())
}

/// Encodes an existing snapshot as OpenMetrics text.
#[must_use]
pub fn encode_snapshot(snapshot: Snapshot) -> String {
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register_collector(Box::new(Arc::new(SnapshotCollector(snapshot))));
    let mut out = String::new();
    #[expect(clippy::expect_used, reason = "a String takes everything that is written to it")]
    text::encode(&mut out, &registry).expect("writing to a String");
    out
}

#[derive(Debug)]
struct SnapshotCollector(Snapshot);

impl Collector for SnapshotCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for family in &self.0.families {
            let Some(first) = family.points.first() else { continue };
            let kind = match first.value {
                Value::Counter(_) => MetricType::Counter,
                Value::Gauge(_) => MetricType::Gauge,
                Value::Histogram(_) => MetricType::Histogram,
            };
            let unit = match family.unit {
                Unit::None => None,
                Unit::Bytes => Some(prometheus_client::registry::Unit::Bytes),
                Unit::Seconds => Some(prometheus_client::registry::Unit::Seconds),
            };
            let name = family.unit.strip(family.name);
            let mut metric = encoder.encode_descriptor(name, family.help, unit.as_ref(), kind)?;
            for point in &family.points {
                if point.labels.is_empty() {
                    encode_value(&mut metric, family.unit, &point.value)?;
                } else {
                    encode_value(&mut metric.encode_family(&point.labels)?, family.unit, &point.value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_value(metric: &mut MetricEncoder<'_>, unit: Unit, value: &Value) -> Result<(), std::fmt::Error> {
    match value {
        Value::Counter(value) => metric.encode_counter::<NoLabelSet, u64, f64>(value, None),
        Value::Gauge(value) => metric.encode_gauge(value),
        Value::Histogram(distribution) => {
            let bounds = bounds(unit);
            let mut counts = distribution.counts_up_to(&bounds);
            let count = distribution.count();
            let within: u64 = counts.iter().sum();
            counts.push(count - within);
            let bounds = bounds.iter().map(|&bound| bound as f64 / unit.divisor()).chain([f64::INFINITY]);
            // The buckets passed here are not cumulative, because the encoder adds them up.
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            let sum = distribution.sum() as f64 / unit.divisor();
            metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        }
    }
}

/// Returns the upper bounds of the exported buckets, in recorded units (nanoseconds for times).
fn bounds(unit: Unit) -> Vec<u64> {
    match unit {
        Unit::Seconds => {
            let decades = (3..=10).map(|power| 10_u64.pow(power));
            decades.flat_map(|decade| [decade, 2 * decade, 5 * decade]).chain([100_000_000_000]).collect()
        }
        Unit::None | Unit::Bytes => (0..=16).map(|power| 4_u64.pow(power)).collect(),
    }
}
