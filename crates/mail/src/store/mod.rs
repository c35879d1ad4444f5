//! Stored mail of each core: the log, the index of inboxes, and recovery at startup.

#[cfg(test)]
pub(crate) mod accept_path_tests;
pub mod annotations;
pub(crate) mod backlog;
pub(crate) mod compaction;
pub(crate) mod core;
pub(crate) mod delivery_refs;
pub(crate) mod index;
pub mod list_head;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod shared_bodies;
pub(crate) mod summary_cache;
