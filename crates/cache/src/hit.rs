//! The hit path: a request's bytes become an answer's bytes, within one turn.
//!
//! ```text
//!  head ─ recv ─▶ key ─ hash ─▶ index ─▶ record: key equal? fresh? ─▶ variant? ─▶ 304 · 206 · 200 ─▶ out
//!           │ not a lookup          │ miss                 │ stale
//!           └───────────────────────┴──────────────────────┴──────────▶ Outcome::Slow
//! ```
//!
//! Where the data lives: the request in the thread's scratch, the object in the store's memory, which the turn keeps
//! as it is. Small bodies are copied behind their head into `out`, so that pipelined answers leave in one write;
//! larger ones are pinned and sent from where they are. Nothing here waits, allocates, locks, or writes a line that
//! another core writes.

use engine::{
    store::{Hash, Lookup, Object, PinnedObject, Turn, tier::PartsList},
    sys::span::{Part, Span},
};
use wire::http1::{
    fields::persists,
    framing::ChunkedEncoder,
    head::{RequestHead, Version},
    known::KnownHeader,
};

use crate::{
    client::{Client, Gone},
    core::{Core, store_s},
    counters::Counter,
    error_page::Fault,
    key,
    parts::InParts,
    policy::{self, PassReason, Recv, RecvRules, RequestFacts, Reuse, Verdict, vary::VARY_SPEC_BYTES_MAX},
    response_head::{
        CacheStatus, Dynamic, Flags, Framing, Fwd, Persistence, StoredMeta, append_dynamic,
        append_not_modified, append_partial,
    },
};

/// The longest request line; longer is answered 414. RFC 9112 §3 asks for 8,000 bytes at least.
pub(crate) const REQUEST_LINE_BYTES_MAX: usize = 16 * 1024;
/// Bodies up to this are copied into the answer; larger ones are sent from the store's memory. A copy of 16 KiB costs
/// about a microsecond, as much as the second buffer of a gathering write and its pin.
pub(crate) const COALESCE_BYTES_MAX: u64 = 16 * 1024;
/// Bodies from this on are lent to the socket instead of copied into it (`docs/decisions/009-reading-the-disk.md`).
const LENT_BYTES_MIN: u64 = 64 * 1024;
/// Runs of memory that one write of a large body may gather.
const GATHER_MAX: usize = 15;

/// What became of a request in its turn.
pub(crate) enum Outcome {
    /// The answer is in `out`.
    Written {
        /// The connection ends after it.
        close: bool,
    },
    /// The head is in `out`; bytes `from..to` of the body are sent from where they are.
    Large {
        /// Keeps the body where it is.
        object: PinnedObject,
        /// The first byte to send.
        from: u64,
        /// The byte behind the last.
        to: u64,
        /// It is sent as one chunk, and trailers follow.
        chunked: bool,
        /// The connection ends after it.
        close: bool,
    },
    /// The body is on the file in parts; `out` has nothing of this answer.
    InParts {
        /// The answer.
        answer: Box<InParts>,
        /// Hash of the key in the scratch.
        hash: Hash,
        /// Length of the part of the key that is the same for all variants.
        primary_bytes: usize,
    },
    /// It takes longer.
    Slow(Slow),
}

/// What is known of a request that is not a hit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slow {
    /// Hash of the key in the scratch.
    pub(crate) hash: Hash,
    /// Length of the part of the key that is the same for all variants.
    pub(crate) primary_bytes: usize,
    /// How it goes on.
    pub(crate) why: Why,
    /// What Cache-Status says of it (RFC 9211).
    pub(crate) fwd: Fwd,
}

/// How a request that is not a hit goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Why {
    /// To the origin, for the store.
    Miss {
        /// What is stored must not be used.
        anew: bool,
        /// The client wants nothing from the origin (RFC 9111 §5.2.1.7).
        only_if_cached: bool,
    },
    /// To the origin, past the store.
    Pass(PassReason),
    /// The client wants the object dropped.
    Purge,
    /// We answer by ourselves.
    Synth(Fault),
}

/// The buffers that an answer is made in; they belong to the thread.
pub(crate) struct Buffers<'s> {
    /// The key that is looked up.
    pub(crate) key: &'s mut Vec<u8>,
    /// A stored head, where it is not sent as it is.
    pub(crate) head: &'s mut Vec<u8>,
    /// The answer.
    pub(crate) out: &'s mut Vec<u8>,
}

/// How far the clock may be set back before what was stored until then is fetched anew: more than a server of time
/// corrects at once, and less than any lifetime that matters.
const CLOCK_BACK_S_MAX: u64 = 10;

/// Answers from the store, if it can. Afterwards `key` has the key that was looked up last.
pub(crate) fn answer(
    core: &Core,
    turn: &Turn<'_>,
    head: &RequestHead<'_, '_>,
    has_body: bool,
    now_s: u64,
    buffers: &mut Buffers<'_>,
) -> Outcome {
    let key = &mut *buffers.key;
    key::of_request(head, key);
    let primary_bytes = key.len();
    let mut hash = turn.hash(key);
    let facts = RequestFacts::of(head, has_body);
    let slow = |hash, why, fwd| Outcome::Slow(Slow { hash, primary_bytes, why, fwd });
    // Who may purge is asked when it is done.
    let (must_fetch, only_if_cached) = match policy::recv(&facts, &RecvRules { purge_allowed: true }) {
        Recv::Lookup { must_fetch, only_if_cached } => (must_fetch, only_if_cached),
        Recv::Pass(reason) => {
            let fwd = if reason == PassReason::Method { Fwd::Method } else { Fwd::Bypass };
            return slow(hash, Why::Pass(reason), fwd);
        }
        Recv::Purge => return slow(hash, Why::Purge, Fwd::Bypass),
        Recv::Synth(fault) => return slow(hash, Why::Synth(fault), Fwd::Bypass),
    };
    let miss = Why::Miss { anew: must_fetch, only_if_cached };
    let found = match lookup(turn, hash, key) {
        Some((spec, meta)) if meta.flags.has(Flags::VARY_SPEC) => {
            hash = variant(turn, &spec, &meta, head, hash, key);
            lookup(turn, hash, key).ok_or(Fwd::VaryMiss)
        }
        found => found.ok_or(Fwd::UriMiss),
    };
    let (object, meta) = match found {
        Ok(found) => found,
        Err(fwd) => return slow(hash, miss, fwd),
    };
    if object.expires_s() <= store_s(now_s) {
        return slow(hash, miss, Fwd::Stale);
    }
    // The object was stored later than now: the clock was set back, and nobody knows by how much. By the clock alone
    // the object would be used for longer than its lifetime.
    if meta.born_s > now_s + CLOCK_BACK_S_MAX {
        return slow(hash, Why::Miss { anew: true, only_if_cached }, Fwd::Stale);
    }
    let is_explicit = !meta.flags.has(Flags::NOT_EXPLICIT);
    if !policy::may_share(is_explicit, facts.cookie, core.config.cookies) {
        return slow(hash, Why::Miss { anew: true, only_if_cached }, Fwd::Request);
    }
    let ttl_s = match policy::may_reuse(meta.stored(now_s), &facts.directives) {
        Reuse::Fresh { ttl_s } => i64::from(ttl_s),
        // What is fresh by the store's clock and not by the request's wish is fetched anew.
        Reuse::StaleAccepted { .. } | Reuse::No(_) => {
            return slow(hash, Why::Miss { anew: true, only_if_cached }, Fwd::Request);
        }
    };
    let answered = send(core, &object, &meta, head, now_s, CacheStatus::hit(ttl_s), buffers);
    match answered {
        Ok(outcome) => {
            core.count(Counter::Hits);
            outcome
        }
        Err(Unsent::InParts(answer)) => {
            core.count(Counter::Hits);
            Outcome::InParts { answer, hash, primary_bytes }
        }
        Err(Unsent::Gone) => slow(hash, Why::Miss { anew: false, only_if_cached }, Fwd::UriMiss),
        Err(Unsent::Unsatisfiable { complete }) => {
            slow(hash, Why::Synth(Fault::RangeNotSatisfiable { complete }), Fwd::Partial)
        }
    }
}

fn lookup<'t>(turn: &'t Turn<'_>, hash: Hash, key: &[u8]) -> Option<(Object<'t>, StoredMeta)> {
    match turn.lookup(hash, key) {
        Lookup::Hit(object) => Some((object, StoredMeta::unpack(&object.meta())?)),
        // The owner is writing this slot just now. Only the owner knows the outcome, so it is asked, as on a miss.
        Lookup::Miss | Lookup::Contended => None,
    }
}

/// Makes `key` that of the variant for this request, and answers its hash.
fn variant(
    turn: &Turn<'_>,
    spec: &Object<'_>,
    meta: &StoredMeta,
    head: &RequestHead<'_, '_>,
    primary: Hash,
    key: &mut Vec<u8>,
) -> Hash {
    let mut names = [0; VARY_SPEC_BYTES_MAX];
    let names = &mut names[..(meta.head_bytes as usize).min(VARY_SPEC_BYTES_MAX)];
    spec.head().slice(0..names.len()).copy_to_slice(names);
    key::append_variant(key, spec.sequence(), names, &head.headers);
    key::hash_of_variant(primary, turn.hash(key))
}

/// Why a stored object was not sent after all.
enum Unsent {
    /// Its memory is being freed just now.
    Gone,
    /// Its body is on the file in parts.
    InParts(Box<InParts>),
    /// The range that was asked for begins beyond its end.
    Unsatisfiable { complete: u64 },
}

/// Writes the answer for a stored object.
fn send(
    core: &Core,
    object: &Object<'_>,
    meta: &StoredMeta,
    head: &RequestHead<'_, '_>,
    now_s: u64,
    status: CacheStatus,
    buffers: &mut Buffers<'_>,
) -> Result<Outcome, Unsent> {
    let is_get = head.method == "GET";
    let persistence = persistence(core, head);
    let close = persistence == Persistence::Close;
    let parts = if object.is_in_parts() { Some(object.parts().ok_or(Unsent::Gone)?) } else { None };
    let complete = parts.as_ref().map_or(object.body_bytes(), PartsList::body_bytes);
    let headers = &head.headers;
    let conditional = headers.has(KnownHeader::IfNoneMatch)
        || headers.has(KnownHeader::IfModifiedSince)
        || headers.has(KnownHeader::Range);
    let verdict = if conditional {
        buffers.head.clear();
        object.head().copy_to(buffers.head);
        policy::evaluate(headers, is_get, meta.status, &meta.validators(buffers.head), Some(complete))
    } else {
        Verdict::Whole
    };
    // A body with trailers is sent in chunks, so that they can follow it (RFC 9112 §7.1.2).
    let trailers = object.tail();
    let chunked = !trailers.is_empty() && head.version == Version::Http11 && verdict == Verdict::Whole;
    let (from, to) = match verdict {
        Verdict::Whole if is_get => (0, complete),
        Verdict::Partial { first, last, .. } => (first, last + 1),
        _ => (0, 0),
    };
    if let Verdict::Unsatisfiable { complete } = verdict {
        return Err(Unsent::Unsatisfiable { complete });
    }
    let large = parts.is_none() && to - from > COALESCE_BYTES_MAX;
    let pinned = if large { Some(object.pin().ok_or(Unsent::Gone)?) } else { None };
    let out = &mut *buffers.out;
    let before = out.len();
    match verdict {
        Verdict::NotModified => {
            core.count(Counter::HitsNotModified);
            append_not_modified(out, buffers.head);
        }
        Verdict::Partial { .. } => {
            core.count(Counter::HitsRange);
            append_partial(out, buffers.head);
        }
        _ => object.head().copy_to(out),
    }
    let framing = match verdict {
        Verdict::NotModified => Framing::Unstated,
        Verdict::Partial { first, last, complete } => Framing::Part { first, last, complete },
        _ if is_bodiless(meta.status) => Framing::Unstated,
        _ if chunked => Framing::Chunked,
        _ => Framing::Length(complete),
    };
    let age_s = Some(meta.age_s(now_s));
    append_dynamic(out, &core.identity, &Dynamic { age_s, cache_status: Some(status), persistence, framing });
    core.add(Counter::BytesSaved, to - from);
    core.add(Counter::MillisSaved, u64::from(meta.origin_ms));
    if let Some(object) = pinned {
        if lends(core, from, to) {
            core.count(Counter::BodiesLent);
        }
        if chunked {
            out.extend_from_slice(ChunkedEncoder::chunk_header(to - from).as_bytes());
        }
        return Ok(Outcome::Large { object, from, to, chunked, close });
    }
    if let Some(list) = parts.filter(|_| to > from) {
        let mut head = out.split_off(before);
        let mut suffix = Vec::new();
        if chunked {
            head.extend_from_slice(ChunkedEncoder::chunk_header(to - from).as_bytes());
            suffix.extend_from_slice(ChunkedEncoder::CHUNK_END);
            append_trailers(trailers, &mut suffix);
        }
        return Err(Unsent::InParts(Box::new(InParts { list, head, from, to, suffix, close })));
    }
    if is_get && chunked && to > from {
        out.extend_from_slice(ChunkedEncoder::chunk_header(to - from).as_bytes());
    }
    let mut at = from;
    while at < to {
        let run = object.body(at);
        let bytes = run.len().min(usize::try_from(to - at).unwrap_or(usize::MAX));
        run.slice(0..bytes).copy_to(out);
        at += bytes as u64;
    }
    if is_get && chunked {
        if to > from {
            out.extend_from_slice(ChunkedEncoder::CHUNK_END);
        }
        append_trailers(trailers, out);
    }
    Ok(Outcome::Written { close })
}

/// The end of a chunked body (RFC 9112 §7.1).
pub(crate) fn append_trailers(trailers: Span<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    trailers.copy_to(out);
    out.extend_from_slice(b"\r\n");
}

/// What happens to the connection after the answer to this request.
pub(crate) fn persistence(core: &Core, head: &RequestHead<'_, '_>) -> Persistence {
    if core.draining.get() || !persists(head.version, &head.headers) {
        Persistence::Close
    } else if head.version == Version::Http10 {
        Persistence::KeepAlive
    } else {
        Persistence::Implied
    }
}

/// Statuses that have neither a body nor a length (RFC 9110 §8.6).
pub(crate) const fn is_bodiless(status: u16) -> bool {
    matches!(status, 204 | 304)
}

/// Whether bytes `from..to` of a body are worth lending, and can be lent.
pub(crate) fn lends(core: &Core, from: u64, to: u64) -> bool {
    to - from >= LENT_BYTES_MIN && core.lender.borrow().is_some()
}

/// The longest run of a stored body from `from`, within `to`, to be copied or lent.
pub(crate) fn run_of(object: &PinnedObject, from: u64, to: u64, lend: bool) -> Part<'_> {
    let run = if lend { object.lend(from) } else { object.body(from) };
    let bytes = run.len().min(usize::try_from(to - from).unwrap_or(usize::MAX));
    let run = run.slice(0..bytes);
    if lend { Part::Lent(run) } else { Part::Shared(run) }
}

/// Sends a large answer as far as the socket takes it, without waiting; how much of `head` went out, and up to where
/// the body did.
pub(crate) fn send_large(
    core: &Core,
    client: &Client,
    head: &[u8],
    object: &PinnedObject,
    from: u64,
    to: u64,
) -> Result<(usize, u64), Gone> {
    let mut parts = [Part::Plain(&[]); 1 + GATHER_MAX];
    parts[0] = Part::Plain(head);
    let mut at = from;
    let mut used = 1;
    let lend = lends(core, from, to);
    while at < to && used < parts.len() {
        parts[used] = run_of(object, at, to, lend);
        at += parts[used].len() as u64;
        used += 1;
    }
    let sent = client.try_send(&parts[..used])?;
    let of_head = sent.min(head.len());
    Ok((of_head, from + (sent - of_head) as u64))
}
