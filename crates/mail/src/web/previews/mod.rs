//! Previews of mails for lists, and a cache of rendered documents.

pub(crate) mod preview_cache;
pub(crate) mod preview_worker;
pub(crate) mod rendered_cache;
