//! The key under which a request was looked up.

use engine::store::Hash;

use crate::site::SiteId;

/// What is known of the key that was looked up last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupKey {
    /// Its hash.
    pub(crate) hash: Hash,
    /// Length of the part of it which is the same for all variants.
    pub(crate) primary_bytes: usize,
    /// Whose origin may be asked.
    pub(crate) site: SiteId,
    /// Its client has shown the site a certificate, of which the origin is told.
    pub(crate) is_known: bool,
}
