//! Validation of a stored response by the answer to a passed HEAD (RFC 9111 §4.3.5).
//!
//! ```text
//!  HEAD ─ pass ─▶ origin ─ 200 ─▶ validators, length ──Message::Heard──▶ owner: the same as stored? ─ no ─▶ stale from now on
//! ```
//! HEAD is answered from the stored answer to GET; if that is stale, the origin is asked as for GET. HEAD is
//! passed only if it has a condition that only the origin can judge (`If-Match`), or asks for `no-store`. The
//! origin's answer shows whether the stored response is still current. If not, the next request makes a
//! fetch. If it is, the stored head is kept, although a newer one could be built: a passed request carries
//! its client's cookies and fields that are in no key, and with them a client could choose what all others
//! get.

use std::sync::Arc;

use engine::{cores::clock, store::NewHead};
use wire::http1::{fields::EntityTag, head::ResponseHead, known::KnownHeader};

use crate::{
    core::{Core, HeadAnswer, Message, store_s, with_core_of},
    counters::Counter,
    head::{response_head::StoredMeta, sent_fields::SentFields},
    policy::{self, PassReason, Recv, http_date_s},
    request::Request,
    states::hit,
};

/// Age in seconds below which a stored answer stays fresh, whatever a HEAD shows. A client could use fields
/// that are in no key to make the origin answer differently each time. With this limit such a client turns
/// only one hit in this time into a fetch, instead of every hit.
const AGE_S_MIN: u64 = 10;

/// Compares the stored response with the answer to a passed request, if that answer allows a comparison.
pub(crate) fn check_against_head(request: &Arc<Request>, answer: &ResponseHead<'_, '_>) {
    if request.head().method == "HEAD" && answer.status == 200 {
        with_core_of(request, |core| compare(core, request, answer));
    }
}

fn compare(core: &Core, request: &Arc<Request>, answer: &ResponseHead<'_, '_>) {
    // A request that bypasses the store because of its visitor or its path may get an answer that is stored
    // for no client.
    let facts = core.facts_of(request);
    let is_passed =
        matches!(policy::recv(&facts), Recv::Pass(PassReason::Precondition | PassReason::NoStore));
    if !is_passed || facts.ruled.pass.is_some() || facts.authorization {
        return;
    }
    let headers = &answer.headers;
    let heard = HeadAnswer {
        request: Arc::clone(request),
        etag: headers.known(KnownHeader::Etag).map(<[u8]>::to_vec),
        last_modified_s: headers.known(KnownHeader::LastModified).and_then(http_date_s),
        length: headers.known(KnownHeader::ContentLength).and_then(number),
    };
    let owner = core.storage.store.owner(core.storage.store.hash(request.primary()));
    if owner == core.index {
        mark_stale_if_changed(core, &heard);
    } else if core.give(owner, Message::Heard(Box::new(heard))).is_err() {
        core.count(Counter::CoreRingFull);
    }
}

fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// Makes the response stored for a request stale, if it differs from the origin's. Runs on the owner's core.
pub(crate) fn mark_stale_if_changed(core: &Core, heard: &HeadAnswer) {
    let HeadAnswer { request, .. } = heard;
    let core = &*core.of_request(request);
    let mut key = request.primary().to_vec();
    let now_s = clock::unix_s();
    let facts = core.facts_of(request);
    let turn = core.storage.reader.turn();
    let mut hash = core.storage.store.hash(&key);
    let sent = request.head();
    let fields = SentFields { head: &sent, visitor: request.visitor, manner: core.manner(request.site) };
    let found = hit::chosen(&turn, &fields, &mut hash, &mut key);
    let Ok((object, meta)) = found else { return };
    let is_chosen = meta.is_response() && meta.may_answer(&facts, core.config.cookies);
    if !is_chosen || meta.fresh_until_s() <= now_s || meta.age_s(now_s) < AGE_S_MIN {
        return;
    }
    let (mut head, mut extra) = (Vec::new(), Vec::new());
    object.head().copy_to(&mut head);
    let bytes = meta.body_bytes.unwrap_or_else(|| object.body_bytes());
    if is_current(heard, &meta, &head, bytes) {
        return;
    }
    object.extra().copy_to(&mut extra);
    let expires_s = object.expires_s();
    drop(turn);
    let lifetime_s = store_s(meta.age_s(now_s)).min(meta.lifetime_s);
    let meta = StoredMeta { lifetime_s, ..meta };
    let new = NewHead { head: &head, extra: &extra, meta: meta.pack(), expires_s };
    match core.shard_mut().replace_head(hash, &key, new) {
        Ok(true) => core.count(Counter::HeardStale),
        // The object has been removed in the meantime.
        Ok(false) => {}
        Err(refused) => {
            core.count(Counter::of_refusal(refused));
            core.shard_mut().unlink(hash, &key);
        }
    }
}

/// Returns whether all validators of the origin's answer, and its length, match the stored response.
fn is_current(heard: &HeadAnswer, meta: &StoredMeta, head: &[u8], bytes: u64) -> bool {
    let stored = meta.validators(head);
    let is_tag = |said: &[u8]| {
        EntityTag::parse(said)
            .is_some_and(|said| stored.etag.is_some_and(|stored| said.weakly_equals(&stored)))
    };
    heard.etag.as_deref().is_none_or(is_tag)
        && heard.last_modified_s.is_none_or(|said_s| stored.last_modified_s == Some(said_s))
        && heard.length.is_none_or(|length| length == bytes)
}

#[cfg(test)]
mod tests {
    use engine::store::Hash;

    use super::*;
    use crate::{
        config::{Config, Origin},
        head::response_head::BLANK,
        request::{active_config::ActiveConfig, test_requests},
    };

    fn request() -> Arc<Request> {
        let in_force = ActiveConfig::of_test(Config::new(Origin::http("a", 9)), 1);
        let text = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
        Arc::new(test_requests::request(text, |key| Hash::seeded(key, 0), &in_force))
    }

    #[test]
    fn every_head_validator_must_match_the_stored_object() {
        let head = b"HTTP/1.1 200 OK\r\nETag: \"x\"\r\n";
        let meta = StoredMeta {
            head_bytes: head.len() as u32,
            etag_at: 23,
            etag_bytes: 3,
            last_modified_s: Some(7),
            status: 200,
            ..BLANK
        };
        let untagged = StoredMeta { etag_bytes: 0, last_modified_s: None, ..meta };
        let request = request();
        for (etag, last_modified_s, length, want) in [
            (None, None, None, (true, true)),
            (Some("\"x\""), None, None, (true, false)),
            (Some("W/\"x\""), Some(7), Some(5), (true, false)),
            (Some("\"y\""), None, None, (false, false)),
            (Some("x"), None, None, (false, false)),
            (None, Some(8), None, (false, false)),
            (None, None, Some(5), (true, true)),
            (Some("\"x\""), Some(7), Some(6), (false, false)),
        ] {
            let etag = etag.map(|etag| etag.as_bytes().to_vec());
            let heard = HeadAnswer { request: Arc::clone(&request), etag, last_modified_s, length };
            let got = (is_current(&heard, &meta, head, 5), is_current(&heard, &untagged, head, 5));
            assert_eq!(got, want, "{:?} {last_modified_s:?} {length:?}", heard.etag);
        }
    }
}
