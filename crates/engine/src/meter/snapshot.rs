//! A snapshot of all metrics sources, from which every output format is produced.

use std::{fmt, sync::Arc};

use super::histogram::Distribution;

/// Unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A plain number of items; the name of the metric says which.
    None,
    /// Bytes.
    Bytes,
    /// Seconds; histograms record nanoseconds, which are divided when read.
    Seconds,
}

impl Unit {
    /// Returns the suffix that names of this unit must have, without the underscore.
    #[must_use]
    pub const fn suffix(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Bytes => Some("bytes"),
            Self::Seconds => Some("seconds"),
        }
    }

    /// Returns the divisor that converts a recorded value to this unit.
    #[must_use]
    pub const fn divisor(self) -> f64 {
        match self {
            Self::None | Self::Bytes => 1.0,
            Self::Seconds => 1e9,
        }
    }

    /// Returns the name of the metric without the unit and its underscore.
    pub(super) fn strip(self, name: &'static str) -> &'static str {
        self.suffix()
            .and_then(|suffix| name.strip_suffix(suffix))
            .and_then(|name| name.strip_suffix('_'))
            .unwrap_or(name)
    }

    /// Asserts that a name ends in its unit, as OpenMetrics requires; a metric with another name is a bug.
    pub(super) fn assert_ends(self, name: &'static str) {
        assert!(
            self == Self::None || self.strip(name) != name,
            "the name {name} does not end in its unit {self:?}"
        );
        assert!(!name.ends_with("_total"), "the ending of {name} is added when it is written");
    }
}

/// Labels and their values.
pub type Labels = Vec<(&'static str, String)>;

/// Value of a metric: one number, or one histogram.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A value that only increases.
    Counter(u64),
    /// A value that goes up and down.
    Gauge(f64),
    /// A distribution of recorded values, in units to be divided by [`Unit::divisor`].
    Histogram(Distribution),
}

/// A value with the labels that distinguish it from other values of the same metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Labels of the value.
    pub labels: Labels,
    /// The value itself.
    pub value: Value,
}

/// All values of the metric with this name, all of the same kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Prometheus name, including the unit, without `_total`.
    pub name: &'static str,
    /// Help text, one sentence.
    pub help: &'static str,
    /// Unit of the values.
    pub unit: Unit,
    /// Values of the metric, at least one.
    pub points: Vec<Point>,
}

/// A source of metrics, such as a server or a store.
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Appends the source's metrics with their current values. Called on the reader's thread; must not wait
    /// for any loop.
    fn collect(&self, families: &mut Vec<Family>);
}

/// All metrics sources of a process. Filled at startup, then shared and only read.
#[derive(Debug, Default)]
pub struct Registry {
    sources: Vec<Arc<dyn Source>>,
}

impl Registry {
    /// Creates a registry without metrics sources.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a source of metrics.
    pub fn register(&mut self, source: Arc<dyn Source>) {
        self.sources.push(source);
    }

    /// Collects the metrics of all sources. Families with the same name from several sources are merged;
    /// their labels must distinguish them.
    ///
    /// # Panics
    /// Panics if two sources give the same name different units.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut said = Vec::new();
        for source in &self.sources {
            source.collect(&mut said);
        }
        let mut families: Vec<Family> = Vec::with_capacity(said.len());
        for family in said {
            match families.iter_mut().find(|known| known.name == family.name) {
                Some(known) => {
                    assert_eq!(known.unit, family.unit, "{} in two units", family.name);
                    known.points.extend(family.points);
                }
                None => families.push(family),
            }
        }
        Snapshot { families }
    }
}

/// Values of all sources at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// Metric families in the order of registration, each name once.
    pub families: Vec<Family>,
}

/// Quantiles in [`Snapshot::rows`], each with the value of its `quantile` label.
const QUANTILES: [(f64, &str); 5] =
    [(0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99"), (0.999, "0.999"), (1.0, "1")];

impl Snapshot {
    /// Returns flat rows of name, labels and value, for JSON and tables. Counters end in `_total` as in
    /// Prometheus. A histogram gives `NAME_count`, `NAME_sum`, and `NAME` with the label `quantile` (0.5,
    /// 0.9, 0.99, 0.999, and 1 for the maximum), in its unit.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, Labels, f64)> {
        let mut rows = Vec::new();
        for family in &self.families {
            for point in &family.points {
                let labels = || point.labels.clone();
                match &point.value {
                    Value::Counter(value) => {
                        rows.push((format!("{}_total", family.name), labels(), *value as f64))
                    }
                    Value::Gauge(value) => rows.push((family.name.to_owned(), labels(), *value)),
                    Value::Histogram(distribution) => {
                        let divisor = family.unit.divisor();
                        rows.push((format!("{}_count", family.name), labels(), distribution.count() as f64));
                        rows.push((
                            format!("{}_sum", family.name),
                            labels(),
                            distribution.sum() as f64 / divisor,
                        ));
                        let values = distribution.quantiles(QUANTILES.map(|(quantile, _)| quantile));
                        for (value, (_, text)) in values.into_iter().zip(QUANTILES) {
                            let mut labels = labels();
                            labels.push(("quantile", text.to_owned()));
                            rows.push((family.name.to_owned(), labels, value as f64 / divisor));
                        }
                    }
                }
            }
        }
        rows
    }

    /// Returns the metric family of this name.
    #[must_use]
    pub fn family(&self, name: &str) -> Option<&Family> {
        self.families.iter().find(|family| family.name == name)
    }
}
