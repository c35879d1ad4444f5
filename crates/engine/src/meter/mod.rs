//! Counters and histograms per core, summed when read.
//!
//! ```text
//!   core 0 ──add──▶ row 0 │ own cache lines      ┐
//!   core 1 ──add──▶ row 1 │ own cache lines      ├──read──▶ Registry::snapshot ──▶ prometheus::encode, rows (JSON, table)
//!   core 0 ─record▶ histogram 0 │ own memory     ┘           (admin thread)
//! ```
//!
//! Every value has one writer: the core that holds the row's handle. A write is a load and a store without a
//! lock prefix, and no other core writes to its line. A reader sums up the rows at approximately one moment
//! and stops no core. No function here allocates after startup, except those that read.
//!
//! - [`counters!`](crate::counters) declares a table of counters and gauges; [`CounterSet`] holds them per core.
//! - [`Histogram`]: fixed log-linear buckets; [`Histograms`] has one per core.
//! - [`Registry`] has all [`Source`]s; a [`Snapshot`] holds their values.
//! - [`prometheus`]: the snapshot as OpenMetrics text.

mod counters;
mod figure;
mod histogram;
pub mod prometheus;
mod snapshot;

pub use counters::{CoreCounters, CounterSet, CounterTable, Kind, Spec};
pub use figure::{Figure, counter, gauge};
pub use histogram::{Distribution, Histogram, HistogramSpec, Histograms, Recorder};
pub use snapshot::{Family, Labels, Point, Registry, Snapshot, Source, Unit, Value};
