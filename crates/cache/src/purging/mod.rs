//! Purges and bans: what is no longer valid, remembered over restarts.

pub(crate) mod ban_lurker;
pub(crate) mod bans;
pub(crate) mod invalidations;
pub(crate) mod purge_log;
pub(crate) mod spread;
