//! What all sources say at one moment, in a shape that every output can be made from.

use std::{fmt, sync::Arc};

use super::histogram::Distribution;

/// What a number is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Pieces of what the name says.
    None,
    /// Bytes.
    Bytes,
    /// Seconds; histograms record nanoseconds, and the reader divides.
    Seconds,
}

impl Unit {
    /// The unit as a name's ending, without the underscore.
    #[must_use]
    pub const fn suffix(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Bytes => Some("bytes"),
            Self::Seconds => Some("seconds"),
        }
    }

    /// What a recorded value is divided by to be in this unit.
    #[must_use]
    pub const fn divisor(self) -> f64 {
        match self {
            Self::None | Self::Bytes => 1.0,
            Self::Seconds => 1e9,
        }
    }

    /// The name without the unit and its underscore.
    pub(super) fn strip(self, name: &'static str) -> &'static str {
        self.suffix()
            .and_then(|suffix| name.strip_suffix(suffix))
            .and_then(|name| name.strip_suffix('_'))
            .unwrap_or(name)
    }

    /// OpenMetrics wants the unit at the end of the name; a table that says otherwise is our mistake.
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

/// One number, or one histogram.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Only grows.
    Counter(u64),
    /// Goes up and down.
    Gauge(f64),
    /// Values as recorded: see [`Unit::divisor`].
    Histogram(Distribution),
}

/// A value and what sets it apart from the others of its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Which of them.
    pub labels: Labels,
    /// What it says.
    pub value: Value,
}

/// All points of one name. They are of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// The name as Prometheus has it, unit included, without `_total`.
    pub name: &'static str,
    /// One sentence for people.
    pub help: &'static str,
    /// What it is of.
    pub unit: Unit,
    /// At least one.
    pub points: Vec<Point>,
}

/// Something that can say its numbers.
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Appends the families as they are now. Called on the reader's thread; it must not wait for any loop.
    fn collect(&self, families: &mut Vec<Family>);
}

/// All sources of a process. Filled at the start, then shared and only read.
#[derive(Debug, Default)]
pub struct Registry {
    sources: Vec<Arc<dyn Source>>,
}

impl Registry {
    /// Knows nobody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a source.
    pub fn register(&mut self, source: Arc<dyn Source>) {
        self.sources.push(source);
    }

    /// Asks all sources. Families of one name from several sources become one; their labels must tell them apart.
    ///
    /// # Panics
    /// If two sources give one name different units.
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

/// What all sources said.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// In the order of registration, each name once.
    pub families: Vec<Family>,
}

/// The quantiles that [`Snapshot::rows`] gives, and the label's text for each.
const QUANTILES: [(f64, &str); 5] =
    [(0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99"), (0.999, "0.999"), (1.0, "1")];

impl Snapshot {
    /// Flat rows of name, labels and value, for JSON and tables. Counters end in `_total` as in Prometheus. A
    /// histogram gives `NAME_count`, `NAME_sum`, and `NAME` with the label `quantile` (0.5, 0.9, 0.99, 0.999, and 1
    /// for the maximum), in its unit.
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

    /// The one family of this name.
    #[must_use]
    pub fn family(&self, name: &str) -> Option<&Family> {
        self.families.iter().find(|family| family.name == name)
    }
}
