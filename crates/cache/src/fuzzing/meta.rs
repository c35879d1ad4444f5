//! Fuzz check of the metadata words stored with a record (`response_head::meta`).

use engine::store::META_WORDS;

use super::cut::Cut;
use crate::head::response_head::StoredMeta;

/// Unused bits of each word.
const UNUSED: [u64; META_WORDS] = [0, 0xfc << 56, 0xffc0, 0, 0, 0, 0, 0];

/// Checks eight words: they are refused, or the metadata read from them packs to the same words, and does not
/// depend on the unused bits, which a later version may write. Validators can be read from any head.
pub fn stored_meta(bytes: &[u8]) {
    let mut cut = Cut(bytes);
    let words: [u64; META_WORDS] = std::array::from_fn(|_| cut.u64());
    let head = cut.0;
    let Some(meta) = StoredMeta::unpack(&words) else { return };
    let meant: [u64; META_WORDS] = std::array::from_fn(|at| words[at] & !UNUSED[at]);
    assert!(meta.fits());
    assert_eq!(meta.pack(), meant);
    assert_eq!(StoredMeta::unpack(&meant), Some(meta));
    let later: [u64; META_WORDS] = std::array::from_fn(|at| words[at] | UNUSED[at]);
    assert_eq!(StoredMeta::unpack(&later), Some(meta), "bits of a later version");

    let (born_s, until_s) = (meta.born_s, meta.fresh_until_s());
    assert!(until_s >= born_s && until_s - born_s == u64::from(meta.lifetime_s));
    for now_s in [0, born_s, until_s, u64::MAX] {
        let stored = meta.stored(now_s);
        assert_eq!(stored.age_s < u64::from(stored.lifetime_s), now_s < until_s && stored.lifetime_s > 0);
    }
    let validators = meta.validators(head);
    assert_eq!((validators.last_modified_s, validators.date_s), (meta.last_modified_s, meta.date_s));
    if let Some(etag) = validators.etag {
        assert!(head.windows(etag.opaque.len().max(1)).any(|part| part.starts_with(etag.opaque)));
        assert!(etag.opaque.len() < usize::from(meta.etag_bytes));
    }
}
