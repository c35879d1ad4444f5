//! Whether what visitors with cookies share is the same for all of them.
//!
//! By `--cookies safe` an answer that says only `max-age` is shared although it was asked for with a cookie, because
//! pictures and scripts are fetched with cookies and say no more. An origin that says so of a page with its visitor's
//! name in it shows it to others. Nobody can know that from one answer: so a sample of such addresses is compared each
//! time they are fetched anew. Where two fetches in a row, each by another visitor, bring something else than the one
//! before, the log names the address, once a site.
//!
//! Bounds: [`SAMPLES`] addresses a core; of a body that has no validator [`COMPARED_BYTES_MAX`] are compared, at most
//! once for each fetch.

use std::{collections::HashMap, sync::atomic::Ordering};

use engine::store::{Hash, Lookup, Object};
use wire::http1::known::KnownHeader;

use crate::{
    core::{Core, store_s},
    counters::Counter,
    key,
    request::Request,
    response_head::StoredMeta,
};

/// Addresses that a core compares.
const SAMPLES: usize = 256;
/// Bytes of a body that are compared, where no entity tag tells.
const COMPARED_BYTES_MAX: usize = 64 << 10;
/// An address that nobody fetched anew for so long gives its place to another.
const KEPT_S: u32 = 600;
/// Fetches in a row that differ before it is said: a page may just have been changed.
const DIFFERENCES: u8 = 2;

/// What an address's last visitor with a cookie was answered.
#[derive(Debug, Clone, Copy)]
struct Sample {
    cookie: u64,
    content: u64,
    fetched_s: u32,
    differences: u8,
}

/// The addresses that one core compares.
#[derive(Default)]
pub(crate) struct SharedPages(HashMap<u64, Sample>);

impl SharedPages {
    /// Whether what visitors were answered at an address differs so often by now that it has to be said.
    fn differs(&mut self, address: u64, now: Sample) -> bool {
        if self.0.len() == SAMPLES && !self.0.contains_key(&address) {
            self.0.retain(|_, sample| now.fetched_s.saturating_sub(sample.fetched_s) < KEPT_S);
            if self.0.len() == SAMPLES {
                return false;
            }
        }
        let place = self.0.entry(address).or_insert(now);
        let differences = if place.content == now.content {
            0
        } else if place.cookie == now.cookie {
            // The same visitor got something new: it changes with time, and tells nothing.
            place.differences
        } else {
            place.differences.saturating_add(1)
        };
        *place = Sample { differences, ..now };
        differences >= DIFFERENCES
    }
}

/// Compares an answer that a visitor with a cookie was given, and that all others get now, with the one before it. Runs
/// on the owner's core, after the answer was stored under this hash and key.
pub(crate) fn compare(core: &Core, request: &Request, hash: Hash, key: &[u8]) {
    let head = request.head();
    let Some(cookie) = head.known(KnownHeader::Cookie).map(|cookie| core.store.hash(cookie)) else { return };
    let turn = core.reader.turn();
    let Lookup::Hit(object) = turn.lookup(hash, key) else { return };
    let Some(content) = content_of(core, &object) else { return };
    let fetched_s = store_s(engine::cores::clock::unix_s());
    let sample = Sample { cookie: cookie.word(), content, fetched_s, differences: 0 };
    if !core.shared_pages.borrow_mut().differs(hash.word(), sample) {
        return;
    }
    core.count(Counter::SharedPagesDiffer);
    if core.sites.is_told_of_shared_pages(request.site).swap(true, Ordering::Relaxed) {
        return;
    }
    let primary = request.primary();
    // A query may hold what is nobody's business.
    let path = key::path(primary).split(|&b| b == b'?').next().unwrap_or_default();
    tracing::warn!(
        host = %String::from_utf8_lossy(key::authority(primary)),
        path = %String::from_utf8_lossy(path),
        "visitors with different cookies are answered differently, and by its max-age all of them share one answer: \
         if it is personal, let the origin say private, or use --cookies strict (said once a site)"
    );
}

/// A number that two contents share by chance alone: of the entity tag, or of the first bytes.
fn content_of(core: &Core, object: &Object<'_>) -> Option<u64> {
    let meta = StoredMeta::unpack(&object.meta())?;
    let mut bytes = Vec::new();
    if meta.etag_bytes > 0 {
        let etag = meta.etag_at as usize..meta.etag_at as usize + usize::from(meta.etag_bytes);
        object.head().slice(etag).copy_to(&mut bytes);
    } else if !object.is_in_parts() {
        let mut left = COMPARED_BYTES_MAX.min(usize::try_from(object.body_bytes()).unwrap_or(usize::MAX));
        let mut at = 0;
        while left > 0 {
            let run = object.body(at);
            let taken = run.len().min(left);
            run.slice(0..taken).copy_to(&mut bytes);
            at += taken as u64;
            left -= taken;
        }
    }
    Some(core.store.hash(&bytes).word())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(fetches: &[(u64, u64)]) -> Option<usize> {
        let mut pages = SharedPages::default();
        let sample = |(at, &(cookie, content))| Sample {
            cookie,
            content,
            fetched_s: u32::try_from(at).expect("few"),
            differences: 0,
        };
        fetches.iter().enumerate().map(sample).position(|sample| pages.differs(7, sample))
    }

    #[test]
    fn what_differs_by_visitor_is_told_the_second_time() {
        assert_eq!(told(&[(1, 10), (2, 20), (3, 30)]), Some(2), "(cookie, content)");
        assert_eq!(told(&[(1, 10), (2, 20), (1, 10)]), Some(2));
        assert_eq!(told(&[(1, 10), (2, 10), (3, 10), (4, 10)]), None, "all the same");
        assert_eq!(told(&[(1, 10), (1, 11), (1, 12), (1, 13)]), None, "one visitor, and time");
        assert_eq!(told(&[(1, 10), (2, 20), (3, 20), (4, 30), (5, 30)]), None, "it was changed twice");
    }

    #[test]
    fn an_address_keeps_its_place_while_it_is_fetched() {
        let mut pages = SharedPages::default();
        let sample = |fetched_s| Sample { cookie: 1, content: 1, fetched_s, differences: 0 };
        for address in 0..SAMPLES as u64 {
            pages.differs(address, sample(u32::from(address > 0)));
        }
        let other = SAMPLES as u64;
        pages.differs(other, sample(KEPT_S - 1));
        assert!(pages.0.contains_key(&0) && !pages.0.contains_key(&other));
        pages.differs(other, sample(KEPT_S));
        assert!(!pages.0.contains_key(&0) && pages.0.contains_key(&other));
    }
}
