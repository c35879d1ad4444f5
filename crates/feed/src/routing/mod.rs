//! Subscriptions, and the search for those that match a subject.

mod endings;
pub(crate) mod matching;
pub(crate) mod number_reuse;
pub(crate) mod overlap;
pub(crate) mod queue_groups;
pub(crate) mod slab;
pub(crate) mod small_bytes;
pub(crate) mod subjects;
pub(crate) mod trie;
