//! The experiments. Each has a claim, a measurement, a figure and a verdict.

pub mod again;
pub mod allocations;
pub mod bheap_layout;
pub mod bheap_paging;
pub mod bheap_sim;
pub mod big_o;
pub mod cache_vs_peers;
pub mod contended_store;
pub mod counters;
pub mod explained;
pub mod feed_cores;
pub mod feed_lan;
pub mod http_cores;
pub mod locality;
pub mod loopback_latency;
pub mod mail_day;
pub mod mail_lan;
pub mod memory_ladder;
pub mod page_rent;
pub mod queue_beyond;
pub mod scratch;
pub mod servers;
pub mod store_pressure;

use crate::experiment::Experiment;

/// Returns all experiments, in the order in which `nighttrain lab all` runs them.
#[must_use]
pub fn all() -> &'static [Experiment] {
    const ALL: &[Experiment] = &[
        bheap_layout::EXPERIMENT,
        bheap_sim::EXPERIMENT,
        queue_beyond::EXPERIMENT,
        bheap_paging::EXPERIMENT,
        page_rent::EXPERIMENT,
        memory_ladder::EXPERIMENT,
        store_pressure::EXPERIMENT,
        cache_vs_peers::EXPERIMENT,
        loopback_latency::EXPERIMENT,
        feed_cores::EXPERIMENT,
        http_cores::EXPERIMENT,
        feed_lan::EXPERIMENT,
        mail_day::EXPERIMENT,
        mail_lan::EXPERIMENT,
        allocations::EXPERIMENT,
        contended_store::EXPERIMENT,
        big_o::EXPERIMENT,
        locality::EXPERIMENT,
    ];
    ALL
}

/// Returns the experiment of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Experiment> {
    all().iter().find(|experiment| experiment.name == name)
}
