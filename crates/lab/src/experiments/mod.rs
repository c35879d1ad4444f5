//! The experiments: each a claim, a measurement, a figure and a verdict.

pub mod again;
pub mod bheap_layout;
pub mod bheap_paging;
pub mod bheap_sim;
pub mod counters;
pub mod memory_ladder;
pub mod page_rent;
pub mod queue_beyond;
pub mod scratch;

use crate::experiment::Experiment;

/// All of them, in the order in which `nighttrain lab all` runs them.
#[must_use]
pub fn all() -> &'static [Experiment] {
    const ALL: &[Experiment] = &[
        bheap_layout::EXPERIMENT,
        bheap_sim::EXPERIMENT,
        queue_beyond::EXPERIMENT,
        bheap_paging::EXPERIMENT,
        page_rent::EXPERIMENT,
        memory_ladder::EXPERIMENT,
    ];
    ALL
}

/// The one of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Experiment> {
    all().iter().find(|experiment| experiment.name == name)
}
