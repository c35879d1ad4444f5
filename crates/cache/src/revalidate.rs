//! Stale objects whose origin is asked whether they are still the same (RFC 9111 §4.3), and what its answer makes of
//! them.
//!
//! ```text
//!  stored, stale ─ Known::of ─▶ If-None-Match, If-Modified-Since ─▶ origin ─┬ 304: freshen ─▶ younger head, same body
//!                                                                           ├ 2xx … : stored in its place
//!                                                                           └ fails: shown stale, where it may be
//! ```
//! Runs on the owner's core. Where the data lives: the validators are copied for the time of the exchange; the body
//! stays where it is.

use engine::{
    cores::clock,
    store::{Lookup, NewHead},
};
use wire::http1::head::{HeadLimits, HeaderSlots, Progress, ResponseHead, parse_response};

use crate::{
    core::Core,
    counters::Counter,
    judge,
    origin::Arrived,
    policy::{self, ResponseFacts, Reuse, Storable, directives::RequestDirectives, vary::Vary},
    request::Request,
    response_head::{Flags, For, LeftOut, StoredMeta, append_origin_head, append_updated},
    tags,
};

/// What is stored of an object that is asked for anew.
pub(crate) struct Known {
    /// Its head, as it is stored.
    head: Vec<u8>,
    extra: Vec<u8>,
    meta: StoredMeta,
    /// It may be shown if the origin fails (RFC 5861 §4).
    pub(crate) may_stand_in: bool,
}

impl Known {
    /// What is stored under a request's key, if it is of use: by a validator, or in the place of an error.
    pub(crate) fn of(core: &Core, request: &Request) -> Option<Self> {
        let turn = core.reader.turn();
        let Lookup::Hit(object) = turn.lookup(request.hash, &request.key) else { return None };
        let mut meta = StoredMeta::unpack(&object.meta())?;
        if !core.is_spared(&object, &mut meta, request) {
            return None;
        }
        if !meta.is_response() || object.expires_s() <= core.store_now_s() {
            return None;
        }
        let reuse = policy::may_reuse(meta.stored(clock::unix_s()), &RequestDirectives::default());
        let may_stand_in = !matches!(reuse, Reuse::No(_));
        let (mut head, mut extra) = (Vec::new(), Vec::new());
        object.head().copy_to(&mut head);
        object.extra().copy_to(&mut extra);
        Some(Self { head, extra, meta, may_stand_in })
    }

    /// The conditions by which the origin says whether the object is still the same (RFC 9110 §13.1), as lines.
    pub(crate) fn conditions(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(etag) = self.meta.etag_of(&self.head) {
            append_field(&mut out, b"If-None-Match: ", etag);
        }
        // As it was sent: an origin may compare the text.
        if self.meta.last_modified_s.is_some()
            && let Some(value) = lines(&self.head).find_map(|line| value_of(line, b"last-modified"))
        {
            append_field(&mut out, b"If-Modified-Since: ", value);
        }
        out
    }
}

fn append_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|&b| b == b'\n')
}

/// The value of a line, if it is that of this field.
fn value_of<'h>(line: &'h [u8], name: &[u8]) -> Option<&'h [u8]> {
    let (before, value) = line.split_at_checked(name.len())?;
    let value = value.strip_prefix(b":").filter(|_| before.eq_ignore_ascii_case(name))?;
    Some(value.trim_ascii())
}

/// What a 304 came to. It speaks of the object whose validators were sent, whatever else it says: no others were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshened {
    /// The object has the younger head.
    Yes,
    /// It is not there any more, or the answer does not speak of it, or may not be kept: it is to be fetched whole.
    No,
}

/// Gives an object the head that a 304 makes of its own (RFC 9111 §3.2, §4.3.4).
/// `bans` is the youngest purge that was known when it was asked.
pub(crate) fn freshen(
    core: &Core,
    request: &Request,
    known: &Known,
    answer: &Arrived,
    bans: u64,
) -> Freshened {
    let head = &answer.head.head();
    if with_updated(known, head, |head| store(core, request, known, head, (answer.requested_ms, bans))) {
        core.count(Counter::Revalidated);
        return Freshened::Yes;
    }
    // What was stored is not to be asked about in this way again.
    core.shard_mut().unlink(request.hash, &request.key);
    Freshened::No
}

/// Calls `then` with the stored head as the answer updates it.
fn with_updated(
    known: &Known,
    answer: &ResponseHead<'_, '_>,
    then: impl FnOnce(&ResponseHead<'_, '_>) -> bool,
) -> bool {
    let mut updated = Vec::with_capacity(known.head.len() + 256);
    append_updated(&mut updated, &known.head, known.meta.received(), answer);
    updated.extend_from_slice(b"\r\n");
    let limits = HeadLimits { line_bytes_max: updated.len(), head_bytes_max: updated.len() };
    match parse_response(&updated, &mut HeaderSlots::new(), &limits) {
        Ok(Progress::Complete((head, _))) => then(&head),
        // Too many fields by now.
        Ok(Progress::NeedMore) | Err(_) => false,
    }
}

fn store(
    core: &Core,
    request: &Request,
    known: &Known,
    head: &ResponseHead<'_, '_>,
    (requested_ms, bans): (u64, u64),
) -> bool {
    let times = judge::times(requested_ms);
    let facts = ResponseFacts::of(head, core.config.cdn_cache_control);
    let Storable::Yes(freshness) =
        policy::storable(&judge::asked(core, request), &facts, &judge::rules(core), times)
    else {
        return false;
    };
    // Tags were not stored with the head: these are the answer's, if it has any.
    let Ok(tags) = tags::of(head.headers.iter(), &core.config.tags, |tag| core.store.hash(tag)) else {
        core.count(Counter::TagsTooMany);
        return false;
    };
    let extra = tags.map_or_else(|| known.extra.clone(), |tags| tags::section(&tags));
    let mut bytes = Vec::with_capacity(1024);
    let left_out = LeftOut { omit: &facts.directives.omit, tags: &core.config.tags };
    let outline = append_origin_head(&mut bytes, head, For::Store, left_out, times.response_s);
    let meta = StoredMeta::of_response(head, &outline, &freshness, times, known.meta.body_bytes);
    let meta = StoredMeta {
        origin_ms: known.meta.origin_ms,
        schemes: known.meta.schemes,
        coding: known.meta.coding,
        site: known.meta.site,
        bans,
        ..meta
    };
    if !meta.fits() {
        return false;
    }
    let expires_s = judge::kept_until_s(core, &freshness, times);
    let spec = facts.vary.as_ref().map(Vary::spec).unwrap_or_default();
    if !keeps_variant(core, request, spec, expires_s) {
        return false;
    }
    let new = NewHead { head: &bytes, extra: &extra, meta: meta.pack(), expires_s };
    match core.shard_mut().replace_head(request.hash, &request.key, new) {
        Ok(is_there) => is_there,
        Err(refused) => {
            core.count(Counter::of_refusal(refused));
            false
        }
    }
}

/// Whether the object is found under its key by the names in `Vary` as they are now; keeps them as long as it.
fn keeps_variant(core: &Core, request: &Request, spec: &[u8], expires_s: u32) -> bool {
    let primary = request.primary();
    let is_variant = primary.len() != request.key.len();
    if !is_variant {
        return spec.is_empty();
    }
    let hash = core.store.hash(primary);
    let mut shard = core.shard_mut();
    let known = shard.lookup_owned(hash, primary).and_then(|known| {
        let is_spec = StoredMeta::unpack(&known.meta()).is_some_and(|meta| meta.flags.has(Flags::VARY_SPEC));
        (is_spec && known.head().eq(spec)).then(|| known.expires_s())
    });
    let Some(kept_s) = known else { return false };
    if kept_s < expires_s {
        shard.refresh(hash, primary, expires_s);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{policy::test_heads::with_response, response_head::BLANK};

    fn known(head: &str) -> Known {
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
        Known { head, extra: Vec::new(), meta, may_stand_in: false }
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
    fn the_answers_fields_take_the_place_of_the_stored() {
        let known = known("HTTP/1.1 200 Fine\nX: 1\nContent-Length: 5\nY: 2\nX: 3\nETag: \"t\"\n");
        with_response(
            "304 Not Modified",
            "x: new\nContent-Length: 0\nAge: 7\nConnection: Z\nZ: 1",
            |answer| {
                let mut seen = Vec::new();
                assert!(with_updated(&known, answer, |head| {
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
