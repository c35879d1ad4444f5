//! Revalidation of stale objects with their origin (RFC 9111 §4.3), and the effect of its answer.
//!
//! ```text
//!  stored, stale ─ OwnerReply::of ▶ If-None-Match, If-Modified-Since ─▶ origin ─┬ 304: freshen ─▶ updated head, same body
//!                                                                           ├ 2xx … : replaces the object
//!                                                                           └ fails: served stale, if allowed
//! ```
//! Runs on the owner's core. The validators are copied for the duration of the exchange; the body stays in
//! the store.

use engine::{
    cores::clock,
    store::{Lookup, NewHead, Object},
};
use wire::http1::{
    fields::{EntityTag, append_field},
    head::{HeadLimits, HeaderSlots, Progress, ResponseHead, parse_response},
    known::KnownHeader,
};

use crate::{
    config::CookieRule,
    core::{Core, store_s},
    counters::Counter,
    fetch::judge::{self, ReceivedHead},
    head::response_head::{Flags, StoredMeta, append_updated, stored_values},
    origin::AnswerHead,
    policy::{self, ResponseFacts, Reuse, directives::RequestDirectives, vary::Vary},
    purging::invalidations::{KeyHashes, Verdict},
    request::Request,
    tags,
};

/// A stored object that is being revalidated.
pub(crate) struct StaleObject {
    /// Head of the object, as it is stored.
    head: Vec<u8>,
    extra: Vec<u8>,
    meta: StoredMeta,
    /// True if the object may be served when the origin fails (RFC 5861 §4).
    pub(crate) may_stand_in: bool,
}

/// Result of the owner's lookup for a request.
pub(crate) enum OwnerReply {
    /// A usable record: an answer that is fresh by now, or the names in `Vary`, with which the lookup
    /// continues.
    Usable,
    /// A stale object to revalidate, or to serve if the origin fails.
    Known(StaleObject),
    /// No usable object.
    Nothing,
}

impl OwnerReply {
    /// Looks up the object. With `bypass_stored`, even a fresh object does not answer the request. An object
    /// that matches a purge is dropped.
    pub(crate) fn of(core: &Core, request: &Request, bypass_stored: bool) -> Self {
        let turn = core.storage.reader.turn();
        let Lookup::Hit(object) = turn.lookup(request.hash, &request.key) else { return Self::Nothing };
        let now_s = clock::unix_s();
        // An object that readers cannot use must be missing for the owner too, or the lookup would repeat for
        // ever.
        let Some(mut meta) =
            StoredMeta::unpack(&object.meta()).filter(|_| object.expires_s() > store_s(now_s))
        else {
            return Self::Nothing;
        };
        let address = core.storage.store.hash(request.primary());
        let hashes = KeyHashes { own: request.hash, address };
        let asker = request.head().headers;
        if core.purges.invalidations.judge(&object, &mut meta, hashes, Some(&asker), now_s) == Verdict::Hard {
            drop(turn);
            core.shard_mut().unlink(request.hash, &request.key);
            core.count(Counter::InvalidatedDropped);
            return Self::Nothing;
        }
        if may_not_set_cookie(core, &object, &meta) {
            drop(turn);
            core.shard_mut().unlink(request.hash, &request.key);
            return Self::Nothing;
        }
        if !bypass_stored && (meta.fresh_until_s() > now_s || meta.flags.has(Flags::VARY_SPEC)) {
            return Self::Usable;
        }
        let reuse = policy::judge_reuse(meta.stored(now_s), &RequestDirectives::default());
        let may_stand_in = !matches!(reuse, Reuse::No(_)) && core.purges.cluster.membership.may_serve();
        if !meta.is_response() || !(may_stand_in || meta.has_validator()) {
            return Self::Nothing;
        }
        let (mut head, mut extra) = (Vec::new(), Vec::new());
        object.head().copy_to(&mut head);
        object.extra().copy_to(&mut extra);
        Self::Known(StaleObject { head, extra, meta, may_stand_in })
    }
}

impl StaleObject {
    /// Returns whether the fetch has conditions, so that a 304 is meaningful.
    pub(crate) fn has_validator(&self) -> bool {
        self.meta.has_validator()
    }

    /// Returns the origin's member that serves a sliced object; 0: any.
    pub(crate) fn member(&self) -> u32 {
        if self.meta.flags.has(Flags::IN_BLOCKS) { self.meta.member } else { 0 }
    }

    /// Returns the conditions of the fetch, as header lines.
    pub(crate) fn conditions(&self) -> Vec<u8> {
        conditions(&self.meta, &self.head)
    }
}

/// Returns whether a stored object has a `Set-Cookie` that must not be served: the object was stored by an
/// older version that allowed it, or while `cookies` was `rfc`.
#[inline]
pub(crate) fn may_not_set_cookie(core: &Core, object: &Object<'_>, meta: &StoredMeta) -> bool {
    core.config.cookies != CookieRule::Rfc
        && !meta.flags.has(Flags::NO_SET_COOKIE)
        && meta.is_response()
        && has_set_cookie(object)
}

#[cold]
fn has_set_cookie(object: &Object<'_>) -> bool {
    let mut head = Vec::new();
    object.head().copy_to(&mut head);
    stored_values(&head, "set-cookie").next().is_some()
}

/// Returns the conditions that revalidate an object (RFC 9110 §13.1), as header lines.
pub(crate) fn conditions(meta: &StoredMeta, head: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(etag) = meta.etag_of(head) {
        append_field(&mut out, "If-None-Match", etag);
    }
    // The value is sent exactly as received, because an origin may compare the text.
    if meta.last_modified_s.is_some()
        && let Some(value) = stored_values(head, "last-modified").next()
    {
        append_field(&mut out, "If-Modified-Since", value);
    }
    out
}

/// Effect of a 304. The 304 always refers to the object whose validators were sent, because no others were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FreshenOutcome {
    /// The stored object got an updated head. The lines are `Set-Cookie` fields of the 304 that are not
    /// stored: they are only for the client that asked.
    Yes { set_cookie: Vec<u8> },
    /// The object is no longer stored, or the 304 does not match it, or forbids storing: the object must be
    /// fetched whole.
    No,
}

/// Updates the head of an object with a 304 (RFC 9111 §3.2, §4.3.4). `bans` is the number of the latest purge
/// that was known when the request was sent.
pub(crate) fn freshen(
    core: &Core,
    request: &Request,
    known: &StaleObject,
    answer: &AnswerHead,
    bans: u64,
) -> FreshenOutcome {
    let head = &answer.head.head();
    if names_another(known, head) {
        core.shard_mut().unlink(request.hash, &request.key);
        return FreshenOutcome::No;
    }
    let stores_cookies = core.config.cookies == CookieRule::Rfc;
    if with_updated(known, head, stores_cookies, |head| store(core, request, known, head, answer, bans)) {
        core.count(Counter::Revalidated);
        let mut set_cookie = Vec::new();
        if !stores_cookies && !core.sites.rules(request.site).removes_set_cookie {
            head.headers("set-cookie").for_each(|value| append_field(&mut set_cookie, "Set-Cookie", value));
        }
        return FreshenOutcome::Yes { set_cookie };
    }
    // The object is dropped, so that it is not revalidated in this way again.
    core.shard_mut().unlink(request.hash, &request.key);
    FreshenOutcome::No
}

/// Returns whether a 304 is about another representation, and so updates nothing (RFC 9111 §4.3.4): its
/// entity tag is strong and differs from the stored one, and `If-Modified-Since` was sent, to which the 304
/// may refer. If only the tag was sent, a 304 can only mean that the stored representation is still good,
/// whatever tag the 304 has; the public test suite for RFC 9111 expects that.
fn names_another(known: &StaleObject, answer: &ResponseHead<'_, '_>) -> bool {
    let said = answer.headers.known(KnownHeader::Etag).and_then(EntityTag::parse);
    let stored = known.meta.etag_of(&known.head).and_then(EntityTag::parse);
    known.meta.last_modified_s.is_some()
        && said.is_some_and(|said| !said.weak && stored.is_none_or(|stored| stored.opaque != said.opaque))
}

/// Calls `then` with the stored head as updated by the answer.
fn with_updated(
    known: &StaleObject,
    answer: &ResponseHead<'_, '_>,
    takes_cookies: bool,
    then: impl FnOnce(&ResponseHead<'_, '_>) -> bool,
) -> bool {
    let mut updated = Vec::with_capacity(known.head.len() + 256);
    append_updated(&mut updated, &known.head, known.meta.received(), answer, takes_cookies);
    updated.extend_from_slice(b"\r\n");
    let limits = HeadLimits { line_bytes_max: updated.len(), head_bytes_max: updated.len() };
    match parse_response(&updated, &mut HeaderSlots::new(), &limits) {
        Ok(Progress::Complete((head, _))) => then(&head),
        // The updated head has too many fields.
        Ok(Progress::NeedMore) | Err(_) => false,
    }
}

/// Returns the tag of the member that answered; `None` if a peer answered.
pub(crate) fn member_of(core: &Core, request: &Request, answer: &AnswerHead) -> Option<u32> {
    answer.peer.is_none().then(|| core.sites.group(request.site).tag(answer.member()))
}

fn store(
    core: &Core,
    request: &Request,
    known: &StaleObject,
    head: &ResponseHead<'_, '_>,
    answer: &AnswerHead,
    bans: u64,
) -> bool {
    let times = judge::times(answer.requested_ms);
    let facts = ResponseFacts::of(head, core.config.cdn_cache_control);
    let asked = judge::asked(core, request);
    let Ok((mut freshness, tags)) = judge::storable(core, request.site, &asked, head, &facts, times) else {
        return false;
    };
    if answer.peer.is_some() {
        freshness = judge::of_peer(freshness);
    }
    // Tags are not stored with the head: these are the answer's, if it has any.
    let words = judge::tag_words(core, head);
    let omit = judge::omitted(core, request.site, &facts.directives.omit);
    let received = ReceivedHead { head, dates: facts.dates, times, length: known.meta.body_bytes };
    let kept = judge::stored_response(core, received, &omit, &freshness);
    let meta = if known.meta.flags.has(Flags::IN_BLOCKS) { kept.meta.in_blocks() } else { kept.meta };
    let meta = StoredMeta {
        origin_ms: known.meta.origin_ms,
        schemes: known.meta.schemes,
        member: member_of(core, request, answer).unwrap_or(known.meta.member),
        site: known.meta.site,
        bans,
        ..meta
    };
    if !meta.fits() {
        return false;
    }
    // A momentary answer whose tags are those of before would not be known to be current.
    let extra = tags.map_or_else(
        || known.extra.clone(),
        |tags| tags::extra(&tags, &words, judge::fetched_ms(&meta, &tags, answer)),
    );
    let expires_s = judge::kept_until_s(core, &freshness, times);
    let spec = facts.vary.as_ref().map(Vary::spec).unwrap_or_default();
    let primary = request.primary();
    let is_variant = primary.len() != request.key.len();
    // The variant must be reachable by the current names in `Vary`.
    let is_found = if is_variant {
        core.extend_spec(core.storage.store.hash(primary), primary, spec, expires_s).is_some()
    } else {
        spec.is_empty()
    };
    if !is_found {
        return false;
    }
    let new = NewHead { head: &kept.head, extra: &extra, meta: meta.pack(), expires_s };
    match core.shard_mut().replace_head(request.hash, &request.key, new) {
        Ok(is_there) => is_there,
        Err(refused) => {
            core.count(Counter::of_refusal(refused));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{head::response_head::BLANK, policy::test_heads::with_response};

    fn known(head: &str) -> StaleObject {
        let head = head.replace('\n', "\r\n").into_bytes();
        let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let etag = text.find("etag: ").map(|at| at + 6);
        let etag_bytes = etag.map_or(0, |at| text[at..].find('\r').unwrap_or(0));
        let meta = StoredMeta {
            head_bytes: head.len() as u32,
            etag_at: etag.unwrap_or(0) as u32,
            etag_bytes: etag_bytes as u16,
            last_modified_s: text.contains("last-modified: ").then_some(7),
            status: 200,
            ..BLANK
        };
        StaleObject { head, extra: Vec::new(), meta, may_stand_in: false }
    }

    #[test]
    fn conditions_are_the_stored_validators_as_they_came() {
        for (head, want) in [
            ("HTTP/1.1 200 OK\nX: 1\n", ""),
            ("HTTP/1.1 200 OK\nETag: W/\"x\"\n", "If-None-Match: W/\"x\"\r\n"),
            (
                "HTTP/1.1 200 OK\nLAST-Modified: Sun, 06 Nov 1994 08:49:37 GMT\nETag: \"y\"\n",
                "If-None-Match: \"y\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
            ),
        ] {
            assert_eq!(String::from_utf8_lossy(&known(head).conditions()), want);
        }
    }

    #[test]
    fn a_304_with_another_strong_tag_updates_nothing() {
        let dated = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\n";
        for (stored, said, is_another) in [
            ("ETag: \"a\"\n", "ETag: \"a\"", false),
            ("ETag: \"a\"\n", "ETag: W/\"b\"", false),
            ("ETag: \"a\"\n", "ETag: \"b\"", true),
            ("ETag: W/\"a\"\n", "ETag: \"b\"", true),
            ("ETag: \"a\"\n", "X: 1", false),
            ("", "ETag: \"b\"", true),
        ] {
            let known = known(&format!("HTTP/1.1 200 OK\n{dated}{stored}"));
            let names = with_response("304 Not Modified", said, |answer| names_another(&known, answer));
            assert_eq!(names, is_another, "{stored} / {said}");
        }
        // The tag was the only condition, so the 304 refers to the tag.
        let known = known("HTTP/1.1 200 OK\nETag: \"a\"\n");
        assert!(!with_response("304 Not Modified", "ETag: \"b\"", |answer| names_another(&known, answer)));
    }

    #[test]
    fn a_304_replaces_stored_header_fields() {
        let known = known("HTTP/1.1 200 Fine\nX: 1\nContent-Length: 5\nY: 2\nX: 3\nETag: \"t\"\n");
        with_response(
            "304 Not Modified",
            "x: new\nContent-Length: 0\nAge: 7\nConnection: Z\nZ: 1\nSet-Cookie: a=1",
            |answer| {
                let mut seen = Vec::new();
                assert!(with_updated(&known, answer, false, |head| {
                    assert_eq!((head.status, head.reason), (200, "Fine"));
                    seen = head
                        .headers
                        .iter()
                        .map(|(n, v)| format!("{n}: {}", String::from_utf8_lossy(v)))
                        .collect();
                    true
                }));
                assert_eq!(seen, ["Content-Length: 5", "Y: 2", "ETag: \"t\"", "x: new", "Age: 7"]);
            },
        );
    }
}
