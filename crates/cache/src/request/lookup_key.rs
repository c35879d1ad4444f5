//! Key under which a request was looked up.

use engine::store::Hash;

use crate::site::SiteId;

/// Properties of the key that was looked up last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupKey {
    /// Hash of the key.
    pub(crate) hash: Hash,
    /// Length of the part of the key that all variants share.
    pub(crate) primary_bytes: usize,
    /// Site whose origin may be asked.
    pub(crate) site: SiteId,
    /// The client has presented a certificate to the site, and the origin is told about it.
    pub(crate) is_known: bool,
}
