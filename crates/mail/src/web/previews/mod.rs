//! What lists show of mails beyond their summaries, and rendered documents kept for the next reader.

pub(crate) mod preview_cache;
pub(crate) mod preview_worker;
pub(crate) mod rendered_cache;
