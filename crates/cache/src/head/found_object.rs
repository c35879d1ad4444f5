//! A stored object, as a lookup has found it.

use engine::store::{Hash, Object};

use crate::head::response_head::StoredMeta;

/// Object that a lookup has found.
#[derive(Clone, Copy)]
pub(crate) struct FoundObject<'m, 'o> {
    pub(crate) object: Object<'o>,
    pub(crate) meta: &'m StoredMeta,
    /// Hash of the object's key.
    pub(crate) hash: Hash,
}
