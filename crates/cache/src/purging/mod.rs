//! Purges and bans, remembered across restarts.

pub(crate) mod ban_lurker;
pub(crate) mod bans;
pub(crate) mod invalidations;
pub(crate) mod momentary;
pub(crate) mod purge_log;
pub(crate) mod spread;
