//! Nighttrain's metrics: `/metrics` of its admin port, summed over cores.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Sub;

/// A reading of the metrics; the difference of two readings is the change between them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Metrics {
    /// Counters and gauges by name, without the `_total` that OpenMetrics appends.
    values: BTreeMap<String, f64>,
    /// Cumulative histogram of the loops' lateness: samples at most this many microseconds late.
    late: BTreeMap<u64, f64>,
}

/// Lower and upper bound of a histogram bucket, in microseconds.
pub(crate) type Bounds = (f64, f64);

impl Metrics {
    /// Reads the metrics from the admin port; `None` if the server has none.
    pub(crate) fn of(admin_port: u16) -> Option<Self> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, admin_port)).ok()?;
        // The admin server rejects requests whose Host is not its own address.
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{admin_port}\r\nConnection: close\r\n\r\n")
            .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let metrics = Self::parse(&text);
        // The histogram may still be empty, because a loop that has just started has no lateness sample.
        (!metrics.values.is_empty()).then_some(metrics)
    }

    fn parse(text: &str) -> Self {
        let mut metrics = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let (name, labels) = name.split_once('{').unwrap_or((name, ""));
            if name == "loop_lateness_seconds_bucket" {
                let bound = labels.split_once("le=\"").and_then(|(_, rest)| rest.split_once('"'));
                if let Some(bound) = bound.and_then(|(bound, _)| bound.parse::<f64>().ok()) {
                    // "+Inf" parses as infinity, and the conversion saturates.
                    *metrics.late.entry((bound * 1e6).round() as u64).or_default() += value;
                }
                continue;
            }
            let name = name.strip_suffix("_total").unwrap_or(name);
            *metrics.values.entry(name.to_owned()).or_default() += value;
        }
        metrics
    }

    /// Returns a counter or gauge; 0 if there is none of this name.
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or(0.0)
    }

    /// Returns the number of lateness samples.
    pub(crate) fn looks(&self) -> u64 {
        self.late.values().copied().fold(0.0, f64::max) as u64
    }

    /// Returns the number of samples that were more than `bound_us` late; it must be one of the histogram's
    /// bounds.
    pub(crate) fn later_than_us(&self, bound_us: u64) -> u64 {
        self.looks() - (self.late.get(&bound_us).copied().unwrap_or(0.0) as u64).min(self.looks())
    }

    /// Returns the bounds between which a quantile of the lateness lies.
    pub(crate) fn lateness_us(&self, quantile: f64) -> Option<Bounds> {
        let wanted = (self.looks() as f64 * quantile).ceil().max(1.0);
        let mut below = 0.0;
        for (bound, count) in &self.late {
            if *count >= wanted {
                return Some((below, *bound as f64));
            }
            below = *bound as f64;
        }
        None
    }
}

impl Sub<&Self> for Metrics {
    type Output = Self;

    fn sub(mut self, before: &Self) -> Self {
        for (name, value) in &mut self.values {
            *value -= before.value(name);
        }
        for (bound, count) in &mut self.late {
            *count -= before.late.get(bound).copied().unwrap_or(0.0);
        }
        self
    }
}

impl std::ops::AddAssign<&Self> for Metrics {
    fn add_assign(&mut self, more: &Self) {
        for (name, value) in &more.values {
            *self.values.entry(name.clone()).or_default() += value;
        }
        for (bound, count) in &more.late {
            *self.late.entry(*bound).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_cores() {
        let metrics = Metrics::parse(
            "# TYPE loop_lateness_seconds histogram\n\
             loop_lateness_seconds_bucket{le=\"0.0001\",server=\"cache\",core=\"0\"} 5\n\
             loop_lateness_seconds_bucket{server=\"cache\",core=\"0\",le=\"0.001\"} 8\n\
             loop_lateness_seconds_bucket{server=\"cache\",core=\"0\",le=\"+Inf\"} 10\n\
             loop_lateness_seconds_bucket{server=\"cache\",core=\"1\",le=\"0.0001\"} 7\n\
             loop_lateness_seconds_bucket{server=\"cache\",core=\"1\",le=\"0.001\"} 7\n\
             loop_lateness_seconds_bucket{server=\"cache\",core=\"1\",le=\"+Inf\"} 7\n\
             store_reads_total{core=\"0\"} 3\nstore_reads_total{core=\"1\"} 4\n",
        );
        assert_eq!((metrics.looks(), metrics.later_than_us(1000)), (17, 2));
        assert_eq!(metrics.lateness_us(0.5), Some((0.0, 100.0)));
        assert_eq!(metrics.lateness_us(0.85), Some((100.0, 1000.0)));
        assert_eq!(metrics.lateness_us(0.9999).map(|bounds| bounds.0), Some(1000.0));
        assert_eq!(metrics.value("store_reads"), 7.0);
        let none = metrics.clone() - &metrics;
        assert_eq!((none.looks(), none.value("store_reads")), (0, 0.0));
        assert_eq!(Metrics::parse("nothing").lateness_us(0.5), None);
    }
}
