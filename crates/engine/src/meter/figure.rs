//! Metrics that are read from the fields of a status struct, declared as a table.

use super::{Family, Labels, Point, Unit, Value};

/// Metric that is read from a field of a `U`, with its name and help text.
#[derive(Debug)]
pub struct Figure<U> {
    /// Prometheus name; ends in its unit.
    pub name: &'static str,
    /// Help text, one sentence.
    pub help: &'static str,
    /// Unit of the value.
    pub unit: Unit,
    is_gauge: bool,
    of: fn(&U) -> u64,
}

/// Creates a gauge: a current amount.
pub const fn gauge<U>(name: &'static str, help: &'static str, unit: Unit, of: fn(&U) -> u64) -> Figure<U> {
    Figure { name, help, unit, is_gauge: true, of }
}

/// Creates a counter: a number of events since startup.
pub const fn counter<U>(name: &'static str, help: &'static str, unit: Unit, of: fn(&U) -> u64) -> Figure<U> {
    Figure { name, help, unit, is_gauge: false, of }
}

impl<U> Figure<U> {
    /// Returns the current value as a metric family.
    pub fn family(&self, of: &U) -> Family {
        let value = (self.of)(of);
        let value = if self.is_gauge {
            // The conversion is exact up to 2^53, which is more than any amount here.
            Value::Gauge(value as f64)
        } else {
            Value::Counter(value)
        };
        let points = vec![Point { labels: Labels::default(), value }];
        Family { name: self.name, help: self.help, unit: self.unit, points }
    }
}
