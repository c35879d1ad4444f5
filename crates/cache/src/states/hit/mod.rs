//! *recv*, *hash*, *hit*: answers from the store, within one turn of the loop.
//!
//! ```text
//!  request head ─▶ recv ─▶ key, hash ─▶ lookup ─▶ Vary? lookup of the variant ─▶ fresh? ─▶ the client has it? range?
//!                   │                     │                    │                   │              │
//!                   │ pass, purge, synth  │ miss               │ vary-miss         │ stale        ▼
//!                   └─────────────────────┴────────────────────┴───────────────────┴──▶ Slow    Answer
//! ```
//!
//! *Memory:* the request is in the thread's scratch buffer, the object in the store's memory, which the
//! reader's turn keeps unchanged. Nothing here waits, allocates, locks, or writes a cache line that another
//! core writes.

mod admission;
mod usable;

use std::ops::Range;

use engine::store::{EpochGuard, Hash, Lookup, Object};
use wire::http1::{
    head::{Headers, RequestHead},
    known::KnownHeader,
};

use crate::{
    body::{
        multipart_ranges::{MultipartRanges, Plan, Source},
        parts::InParts,
        slices::InBlocks,
    },
    coding::Coding,
    core::Core,
    counters::Counter,
    deliver::answer::{Answer, Body, Head, Length, Lines},
    encoding::encoded_variants::{self, Representation},
    error_page::Fault,
    fetch::{
        hit_for_miss::{self, NoteQuery},
        in_flight::FetchTerms,
    },
    head::{
        found_object::FoundObject,
        response_head::{CacheStatus, CodedHead, Flags, Fwd, StoredMeta, is_bodiless},
        sent_fields::SentFields,
    },
    policy::{self, Verdict, Why, vary::VARY_SPEC_BYTES_MAX},
    purging::invalidations::{self as purged, KeyHashes},
    request::{
        client_auth::{ClientAuth, ClientStanding},
        client_ip::Visitor,
        dependent::Dependent,
        key,
        lookup_key::LookupKey,
    },
    states::state::{DecodeFirst, FoundInBlocks, PartsOnFile, Slow, State, Trust},
};

use admission::LookupRules;
use usable::usable;

/// Largest body that is copied into the answer; larger ones are sent from the store's memory. A copy of 16
/// KiB costs about a microsecond, as much as the second buffer of a gathering write and its pin.
pub(crate) const COALESCE_BYTES_MAX: u64 = 16 * 1024;

/// Seconds by which the clock may be set back without new fetches of the objects that are already stored:
/// more than a time server corrects at once, and less than any lifetime that matters.
pub(crate) const CLOCK_BACK_S_MAX: u64 = 10;

/// A request to look up.
pub(crate) struct LookupRequest<'a> {
    pub(crate) head: &'a RequestHead<'a, 'a>,
    /// The request has a body.
    pub(crate) has_body: bool,
    pub(crate) trust: Trust,
    /// Client of the request.
    pub(crate) visitor: Visitor,
    /// TLS authentication of the client.
    pub(crate) came: &'a ClientAuth,
    pub(crate) showing: CodingChoice,
}

/// Choice of the coding in which an object is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodingChoice {
    /// A coding that the client accepts; if the object must be decoded first, the request waits.
    Accepted,
    /// A coding that the client accepts; the request has already waited, so an object that is still not
    /// decoded is sent as its origin sent it.
    Waited,
    /// The origin's coding: for a peer, which encodes for its own clients.
    AsSent,
}

/// Buffers of the thread for a lookup.
pub(crate) struct Buffers<'s> {
    /// Buffer for the key.
    pub(crate) key: &'s mut Vec<u8>,
    /// Buffer for a stored head that is not sent unchanged.
    pub(crate) head: &'s mut Vec<u8>,
}

/// Answers from the store, if possible. Afterwards `key` holds the key that was looked up last.
pub(crate) fn answer<'a>(
    core: &Core,
    turn: &'a EpochGuard<'_>,
    asked: &LookupRequest<'_>,
    now_s: u64,
    buffers: Buffers<'a>,
) -> Result<Answer<'a>, Slow> {
    let LookupRequest { head, has_body, trust, visitor, came, .. } = *asked;
    let Buffers { key, head: stored_head } = buffers;
    let site = key::of_request(head, &core.sites.table, key);
    let standing = core.standing(site, came, now_s);
    let is_known = standing == ClientStanding::Known;
    let mut keyed = LookupKey { hash: turn.hash(key), primary_bytes: key.len(), site, is_known };
    let facts = core.facts(head, has_body, keyed, key);
    let slow = |keyed, state, fwd| Err(Slow { keyed, state, fwd });
    let LookupRules { must_fetch, only_if_cached } =
        match admission::admit(core, head, &facts, standing, site, key) {
            Ok(rules) => rules,
            Err((state, fwd)) => return slow(keyed, state, fwd),
        };
    let fields = SentFields { head, visitor, manner: core.manner(site) };
    // A miss, or a pass if a hit-for-miss note says that a fetch would not be stored.
    let mut missed = |key: &[u8], keyed: LookupKey, bypass_stored, fwd| {
        let primary = &key[..keyed.primary_bytes];
        let query = NoteQuery { primary, facts: &facts, fields: &fields, now_s };
        let state = match hit_for_miss::of(core, turn, query, stored_head) {
            Some(note) if !only_if_cached && !note.is_due => {
                core.count(Counter::NotesUsed);
                let is_by_cookie = note.reason == Why::Cookie.name();
                hit_for_miss::count_page(core, site, primary, &head.headers, is_by_cookie);
                State::Pass(Some(note.reason))
            }
            note => State::Miss {
                terms: FetchTerms { bypass_stored, no_collapse: note.is_some() || facts.ruled.is_alone },
                only_if_cached,
            },
        };
        slow(keyed, state, fwd)
    };
    let address = keyed.hash;
    let found = chosen(turn, &fields, &mut keyed.hash, key);
    let (object, mut meta) = match found {
        Ok(found) => found,
        Err(fwd) => return missed(key, keyed, must_fetch, fwd),
    };
    let hashes = KeyHashes { own: keyed.hash, address };
    match core.purges.invalidations.judge(&object, &mut meta, hashes, Some(&head.headers), now_s) {
        purged::Verdict::Hard => return missed(key, keyed, must_fetch, Fwd::UriMiss),
        // The revalidation happened before the purge.
        purged::Verdict::Soft(_) if trust == Trust::Validated => {
            return missed(key, keyed, must_fetch, Fwd::Stale);
        }
        purged::Verdict::Soft(_) | purged::Verdict::Outdated | purged::Verdict::Valid => {}
    }
    let used = match usable(core, &object, &meta, &facts, keyed, trust, now_s) {
        Ok(used) => used,
        Err((bypass_stored, fwd)) => return missed(key, keyed, must_fetch || bypass_stored, fwd),
    };
    core.observers.last_clients.note(keyed.hash, visitor.address, now_s);
    let hsts_s = core.hsts_s(key, site);
    let buffers = Buffers { key, head: stored_head };
    let found = FoundObject { object, meta: &meta, hash: keyed.hash };
    let refresh = used.is_to_be_refreshed.then_some(keyed);
    match of_object(core, turn, found, asked, now_s, used.status, buffers) {
        Ok(answer) => {
            used.count(core);
            if trust == Trust::Fresh {
                count(core, &answer, &meta);
            }
            Ok(Answer { refresh, hsts_s, ..answer })
        }
        Err(NotNow::Undecoded) => {
            let undecoded = DecodeFirst { trust, said: None, set_cookie: Vec::new(), refresh };
            slow(keyed, State::Decode(Box::new(undecoded)), Fwd::UriMiss)
        }
        Err(NotNow::InParts(mut found)) => {
            used.count(core);
            found.answer.refresh = refresh;
            slow(keyed, State::Parts(Box::new(PartsOnFile { only_if_cached, ..*found })), Fwd::UriMiss)
        }
        Err(NotNow::InBlocks(mut found)) => {
            used.count(core);
            found.answer.refresh = refresh;
            slow(keyed, State::Blocks(Box::new(FoundInBlocks { only_if_cached, ..*found })), Fwd::UriMiss)
        }
        Err(NotNow::Gone) => {
            let terms = FetchTerms { bypass_stored: false, no_collapse: facts.ruled.is_alone };
            slow(keyed, State::Miss { terms, only_if_cached }, Fwd::UriMiss)
        }
        Err(NotNow::Unsatisfiable { complete }) => {
            slow(keyed, State::Synth(Fault::RangeNotSatisfiable { complete }), Fwd::Partial)
        }
    }
}

/// Counts a request that the store answers.
#[inline]
fn count(core: &Core, answer: &Answer<'_>, meta: &StoredMeta) {
    core.count(Counter::Hits);
    match answer.lines {
        Lines::All => {}
        Lines::NotModified => core.count(Counter::HitsNotModified),
        Lines::Partial => core.count(Counter::HitsRange),
    }
    let bytes = match &answer.body {
        Body::Stored { range, .. } | Body::Pinned { range, .. } => range.end - range.start,
        _ => 0,
    };
    core.add(Counter::BytesSaved, bytes);
    core.add(Counter::MillisSaved, u64::from(meta.origin_ms));
}

fn lookup<'t>(turn: &'t EpochGuard<'_>, hash: Hash, key: &[u8]) -> Option<(Object<'t>, StoredMeta)> {
    match turn.lookup(hash, key) {
        Lookup::Hit(object) => Some((object, StoredMeta::unpack(&object.meta())?)),
        // The owner is writing this slot at this moment. Only the owner knows the outcome, so it is asked, as
        // on a miss.
        Lookup::Miss | Lookup::Contended => None,
    }
}

/// Looks up the object for a request under this key, or under its variant's, and updates `hash` and `key`
/// accordingly.
#[inline]
pub(crate) fn chosen<'t>(
    turn: &'t EpochGuard<'_>,
    fields: &SentFields<'_>,
    hash: &mut Hash,
    key: &mut Vec<u8>,
) -> Result<(Object<'t>, StoredMeta), Fwd> {
    match lookup(turn, *hash, key) {
        Some((spec, meta)) if meta.flags.has(Flags::VARY_SPEC) => {
            *hash = variant(turn, &spec, &meta, fields, *hash, key);
            lookup(turn, *hash, key).ok_or(Fwd::VaryMiss)
        }
        found => found.ok_or(Fwd::UriMiss),
    }
}

/// Extends `key` to the key of this request's variant, and returns its hash.
fn variant(
    turn: &EpochGuard<'_>,
    spec: &Object<'_>,
    meta: &StoredMeta,
    fields: &SentFields<'_>,
    primary: Hash,
    key: &mut Vec<u8>,
) -> Hash {
    let mut names = [0; VARY_SPEC_BYTES_MAX];
    let names = &mut names[..(meta.head_bytes as usize).min(VARY_SPEC_BYTES_MAX)];
    spec.head().slice(0..names.len()).copy_to_slice(names);
    let variant = Dependent::Variant { generation: spec.sequence(), names, fields };
    variant.place(primary, key, |key| turn.hash(key))
}

/// Reason why a stored object cannot be sent within this turn.
enum NotNow {
    /// The object's memory is being freed.
    Gone,
    /// The object's body is in the file, in parts.
    InParts(Box<PartsOnFile>),
    /// The object's body is stored in slices.
    InBlocks(Box<FoundInBlocks>),
    /// The client does not accept the object's coding, and the object is not decoded yet.
    Undecoded,
    /// The requested range begins beyond the object's end.
    Unsatisfiable { complete: u64 },
}

/// Returns whether the answer depends on what the client has, or is a part.
#[inline]
fn is_conditional(headers: &Headers<'_, '_>) -> bool {
    headers.has(KnownHeader::IfNoneMatch)
        || headers.has(KnownHeader::IfModifiedSince)
        || headers.has(KnownHeader::Range)
}

/// Builds the answer from a stored object, or from an encoded variant of it.
#[inline]
fn of_object<'a>(
    core: &Core,
    turn: &'a EpochGuard<'_>,
    found: FoundObject<'_, 'a>,
    &LookupRequest { head, showing, .. }: &LookupRequest<'_>,
    now_s: u64,
    status: CacheStatus,
    Buffers { key, head: stored_head }: Buffers<'a>,
) -> Result<Answer<'a>, NotNow> {
    let FoundObject { object, meta, .. } = found;
    let is_get = head.method == "GET";
    let headers = &head.headers;
    let is_conditional = is_conditional(headers);
    let mut shown = Representation::Stored;
    if meta.is_negotiated() && showing != CodingChoice::AsSent {
        stored_head.clear();
        if is_conditional {
            object.head().copy_to(stored_head);
        }
        shown = encoded_variants::choose(core, turn, found, head, stored_head, key);
    }
    loop {
        let (content, coding) = content_of(core, &shown, object, showing)?;
        let coded = CodedHead::new(coding, meta);
        let mut earlier = 0;
        if is_conditional {
            stored_head.clear();
            earlier = coded.append_span(object.head(), stored_head);
        }
        // The origin stated the length of an object in parts. The list of parts is copied only when a part is
        // needed, which is never in this turn.
        let is_in_parts = content.is_in_parts();
        let is_in_blocks = meta.flags.has(Flags::IN_BLOCKS);
        let told = if is_in_parts || is_in_blocks { meta.body_bytes } else { Some(content.body_bytes()) };
        let complete = told.ok_or(NotNow::Gone)?;
        let verdict = if matches!(shown, Representation::Had(_)) {
            Verdict::NotModified
        } else if is_conditional {
            let validators = meta.with_tag(coding.tag_suffix(), earlier);
            let validators = validators.validators(stored_head);
            policy::evaluate(headers, is_get, meta.status, &validators, Some(complete))
        } else {
            Verdict::Whole
        };
        let is_several = matches!(verdict, Verdict::Several { .. }) && !is_in_parts;
        let plan = is_several.then(|| Plan::of(core, headers, stored_head, complete));
        let Part { lines, length, range } = part_of(verdict, meta, complete, is_get, plan.as_ref())?;
        let answer_with = |head, body| Answer {
            head,
            lines,
            length,
            age_s: Some(meta.age_s(now_s)),
            cache_status: Some(status),
            received: meta.received(),
            varies: meta.varies_unsaid(),
            hsts_s: None,
            body,
            refresh: None,
            reason: None,
        };
        if is_in_blocks && is_get && length != Length::None {
            return Err(in_blocks(&object, meta, complete, range, plan, answer_with));
        }
        if is_in_parts && length != Length::None {
            // HEAD describes what GET would send, so all parts must be there.
            let range = if is_get { range } else { 0..complete };
            let head = if is_conditional { Head::Copied(stored_head) } else { Head::Stored(object.head()) };
            let answer = answer_with(head, Body::None);
            return Err(in_parts(&object, meta, complete, range, is_get, answer));
        }
        if let Some(mut plan) = plan {
            let object = content.pin().ok_or(NotNow::Gone)?;
            let head = Head::Owned(std::mem::take(&mut plan.head));
            let body = Body::MultipartRanges(Box::new(MultipartRanges::new(plan, Source::Pinned(object))));
            return Ok(answer_with(head, body));
        }
        let body = if range.end - range.start > COALESCE_BYTES_MAX {
            match content.pin() {
                Some(object) => Body::Pinned { object, range },
                None if coding == Coding::AsSent => return Err(NotNow::Gone),
                None if coding == Coding::Decoded && showing == CodingChoice::Accepted => {
                    return Err(NotNow::Undecoded);
                }
                // Only the encoded variant's memory is being freed, not the object's.
                None => {
                    shown = Representation::Stored;
                    continue;
                }
            }
        } else if is_get && length != Length::None {
            Body::Stored { object: content, range }
        } else {
            Body::None
        };
        if let Representation::Coded(..) = shown {
            count_coded(core, &object, &content, coding, lines, is_get);
        }
        return Ok(answer_with(head_of(is_conditional, object, coded, coding, stored_head), body));
    }
}

/// Returns the stored object whose content is sent, and its coding.
#[inline]
fn content_of<'a>(
    core: &Core,
    shown: &Representation<'a>,
    object: Object<'a>,
    showing: CodingChoice,
) -> Result<(Object<'a>, Coding), NotNow> {
    match *shown {
        Representation::Stored => Ok((object, Coding::AsSent)),
        Representation::Coded(twin, coding) => Ok((twin, coding)),
        Representation::Had(coding) => Ok((object, coding)),
        Representation::ToBeDecoded if showing == CodingChoice::Accepted => Err(NotNow::Undecoded),
        Representation::ToBeDecoded => {
            core.count(Counter::DecodingsRefused);
            Ok((object, Coding::AsSent))
        }
    }
}

/// Returns the blocks of a sliced object that the answer needs.
fn in_blocks<'a>(
    object: &Object<'a>,
    meta: &StoredMeta,
    complete: u64,
    range: Range<u64>,
    plan: Option<Plan>,
    answer_with: impl FnOnce(Head<'a>, Body<'a>) -> Answer<'a>,
) -> NotNow {
    let mut copy = Vec::new();
    object.head().copy_to(&mut copy);
    let Some(mut blocks) = InBlocks::of(object, meta, complete, &copy) else { return NotNow::Gone };
    blocks.range = range;
    if let Some(plan) = &plan {
        copy.clone_from(&plan.head);
        blocks.range = plan.first();
    }
    let answer = answer_with(Head::Owned(copy), Body::None).into_owned();
    NotNow::InBlocks(Box::new(FoundInBlocks { answer, blocks, several: plan, only_if_cached: false }))
}

/// Returns the parts in the file that the answer needs.
fn in_parts(
    object: &Object<'_>,
    meta: &StoredMeta,
    complete: u64,
    range: Range<u64>,
    is_sent: bool,
    answer: Answer<'_>,
) -> NotNow {
    let Some(list) = object.parts().filter(|list| list.body_bytes() == complete) else {
        return NotNow::Gone;
    };
    let mut trailers = Vec::new();
    if answer.lines == Lines::All {
        object.tail().copy_to(&mut trailers);
    }
    let parts = InParts { list, range, trailers, origin_ms: meta.origin_ms, is_sent };
    NotNow::InParts(Box::new(PartsOnFile { answer: answer.into_owned(), parts, only_if_cached: false }))
}

/// Returns the object's head as it is sent, or the copy that conditions were evaluated on.
#[inline]
fn head_of<'a>(
    is_copied: bool,
    object: Object<'a>,
    coded: CodedHead,
    coding: Coding,
    copied: &'a [u8],
) -> Head<'a> {
    if is_copied {
        Head::Copied(copied)
    } else if coding == Coding::AsSent {
        Head::Stored(object.head())
    } else {
        Head::Coded(object.head(), coded)
    }
}

/// Counts a hit that is answered with an encoded variant.
fn count_coded(
    core: &Core,
    object: &Object<'_>,
    twin: &Object<'_>,
    coding: Coding,
    lines: Lines,
    is_get: bool,
) {
    if coding == Coding::Decoded {
        return core.count(Counter::HitsDecoded);
    }
    core.count(Counter::HitsCoded);
    if is_get && lines == Lines::All {
        core.add(Counter::CodedBytesSaved, object.body_bytes().saturating_sub(twin.body_bytes()));
    }
}

/// Part of the content that is sent.
struct Part {
    lines: Lines,
    length: Length,
    range: Range<u64>,
}

#[inline]
fn part_of(
    verdict: Verdict,
    meta: &StoredMeta,
    complete: u64,
    is_get: bool,
    plan: Option<&Plan>,
) -> Result<Part, NotNow> {
    let (lines, length, range) = match verdict {
        Verdict::Several { .. } if let Some(plan) = plan => {
            (Lines::Partial, Length::Exact(plan.bytes), 0..complete)
        }
        Verdict::Unsatisfiable { complete } => return Err(NotNow::Unsatisfiable { complete }),
        Verdict::NotModified => (Lines::NotModified, Length::None, 0..0),
        Verdict::Partial { first, last, complete } => {
            (Lines::Partial, Length::Part { first, last, complete }, first..last + 1)
        }
        Verdict::Whole if is_bodiless(meta.status) => (Lines::All, Length::None, 0..0),
        Verdict::Whole | Verdict::Several { .. } => {
            (Lines::All, Length::Exact(complete), if is_get { 0..complete } else { 0..0 })
        }
    };
    Ok(Part { lines, length, range })
}
