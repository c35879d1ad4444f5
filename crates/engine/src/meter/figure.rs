//! Figures of which each is a field of what somebody knows of himself, as a table.

use super::{Family, Labels, Point, Unit, Value};

/// One figure of a `U`, with its name and what it says.
#[derive(Debug)]
pub struct Figure<U> {
    /// As monitoring calls it; ends in its unit.
    pub name: &'static str,
    /// A sentence.
    pub help: &'static str,
    /// Of the value.
    pub unit: Unit,
    is_gauge: bool,
    of: fn(&U) -> u64,
}

/// What is so many at the moment.
pub const fn gauge<U>(name: &'static str, help: &'static str, unit: Unit, of: fn(&U) -> u64) -> Figure<U> {
    Figure { name, help, unit, is_gauge: true, of }
}

/// What happened so many times since the start.
pub const fn counter<U>(name: &'static str, help: &'static str, unit: Unit, of: fn(&U) -> u64) -> Figure<U> {
    Figure { name, help, unit, is_gauge: false, of }
}

impl<U> Figure<U> {
    /// As it is now.
    pub fn family(&self, of: &U) -> Family {
        let value = (self.of)(of);
        let value = if self.is_gauge {
            // Exact up to 2^53, which is more than anybody holds of anything.
            Value::Gauge(value as f64)
        } else {
            Value::Counter(value)
        };
        let points = vec![Point { labels: Labels::default(), value }];
        Family { name: self.name, help: self.help, unit: self.unit, points }
    }
}
