//! Check for shared answers that differ between visitors with cookies.
//!
//! Under `--cookies safe` an answer that has only a `max-age` is shared even if its request carried a cookie,
//! because browsers also send cookies when they request pictures and scripts. An origin that sends `max-age`
//! for a page with the visitor's name in it leaks that page to other visitors. A single answer cannot show
//! this, so the cache compares a sample of these addresses at every new fetch. If the content changes at
//! several fetches in a row, each by a visitor with a different cookie, the address is logged, once per site.
//!
//! Bounds: [`SAMPLES`](crate::admin::cookie_samples::SAMPLES) addresses per core; the first
//! [`COMPARED_BYTES_MAX`] bytes of a body without an entity tag are compared, at most once per fetch.

use std::sync::atomic::Ordering;

use engine::store::{Hash, Lookup, Object};
use wire::http1::known::KnownHeader;

use crate::{
    admin::cookie_samples::Sample,
    body::copy::copy_body,
    core::{Core, store_s},
    counters::Counter,
    head::response_head::StoredMeta,
    request::{Request, key},
};

/// Maximum number of body bytes that are compared if an answer has no entity tag.
const COMPARED_BYTES_MAX: u64 = 64 << 10;

/// Compares an answer that was fetched for a visitor with a cookie, and then shared, with the previous answer
/// for the same address. Runs on the owner's core, after the answer was stored under this hash and key.
pub(crate) fn compare(core: &Core, request: &Request, hash: Hash, key: &[u8]) {
    let head = request.head();
    let Some(cookie) = head.known(KnownHeader::Cookie).map(|cookie| core.storage.store.hash(cookie)) else {
        return;
    };
    let turn = core.storage.reader.turn();
    let Lookup::Hit(object) = turn.lookup(hash, key) else { return };
    let Some(content) = content_of(core, &object) else { return };
    let fetched_s = store_s(engine::cores::clock::unix_s());
    let sample = Sample { cookie: cookie.word(), content, fetched_s };
    if !core.observers.cookie_leaks.borrow_mut().differs(hash.word(), sample) {
        return;
    }
    core.count(Counter::SharedPagesDiffer);
    if core.sites.cookie_leak_flag(request.site).swap(true, Ordering::Relaxed) {
        return;
    }
    let primary = request.primary();
    // The log omits the query, which may hold private data.
    let path = key::path(primary).split(|&b| b == b'?').next().unwrap_or_default();
    tracing::warn!(
        host = %String::from_utf8_lossy(key::authority(primary)),
        path = %String::from_utf8_lossy(path),
        "responses vary with the visitor's cookie, but max-age lets all visitors share one: if the page is personal, let \
         the origin send Cache-Control: private, or set --cookies strict (logged once per site)"
    );
}

/// Returns a hash of the entity tag, or of the first bytes of the body if there is no entity tag. Different
/// contents have different hashes, except for chance collisions.
fn content_of(core: &Core, object: &Object<'_>) -> Option<u64> {
    let meta = StoredMeta::unpack(&object.meta())?;
    let mut bytes = Vec::new();
    if meta.etag_bytes > 0 {
        let etag = meta.etag_at as usize..meta.etag_at as usize + usize::from(meta.etag_bytes);
        object.head().slice(etag).copy_to(&mut bytes);
    } else if !object.is_in_parts() {
        copy_body(object, 0..object.body_bytes().min(COMPARED_BYTES_MAX), &mut bytes);
    }
    Some(core.storage.store.hash(&bytes).word())
}
