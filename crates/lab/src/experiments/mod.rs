//! The experiments: each a claim, a measurement, a figure and a verdict.

pub mod bheap_layout;
pub mod bheap_paging;
pub mod bheap_sim;
pub mod outcome;
pub mod plot;
pub mod queue_beyond;
