//! The experiments: each a claim, a measurement, a figure and a verdict.

pub mod bheap_sim;
