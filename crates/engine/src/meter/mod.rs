//! Counters and histograms per core, summed when read.
