//! Encoded variants: the content of a stored object, encoded here for clients that accept the coding, or
//! decoded here for clients that do not accept the coding in which the origin sent it.
//!
//! ```text
//!  a hit ─▶ its object, checked as usual ─▶ may it be encoded? which coding does the client prefer? ─▶ variant stored?
//!                                                                          yes: its content, under the object's head
//!                                                                          no:  the object's, and the owner is asked for one
//!                                                            decoded, no: the request waits, and looks up again
//!  owner ─▶ in the file? already made, or being made? ─▶ coding_pool ─▶ inserted, if the object is still the same
//! ```
//! An encoded variant is a separate object in the store: content without a head, under the key of its object,
//! followed by the coding and the sequence number of exactly that object ([`Object::sequence`]). It is looked
//! up after its object, with the sequence number found there. So everything that hides the object (a purge, a
//! ban, a newer answer, cookies) hides the variant, and a newer head applies to the variant, too. A variant
//! whose object is gone expires or is evicted like any other object. For content that does not shrink, or
//! cannot be decoded, a variant without content is stored, so that the attempt is not repeated.
//!
//! *Bounds:* three variants per object, or the decoded one; those of the pool; a core asks for the same
//! variant at most once per second; a request waits for decoded content at most [`DECODE_WAIT_MAX`], and then
//! gets the content as stored.

use std::time::Duration;

use engine::{
    cores::clock,
    store::{
        BodyLength, EpochGuard, Hash, InsertRefusal as Rejected, Lookup, NewObject, Object, ObjectWriter,
        Shard,
    },
};
use tokio::{sync::oneshot, time::timeout};
use wire::http1::{
    fields::{EntityTag, directives},
    head::{Headers, RequestHead},
    known::KnownHeader,
};

use crate::{
    body::cold,
    coding::Coding,
    core::{Core, Message, ToCode, with_core},
    counters::Counter,
    encoding::{
        codec_pool::{
            COPIED_BYTES_MAX, CodecOutcome, Content, DecodeReply, Job, JobResult, PoolFull, Word, copied,
            tell,
        },
        decoders::decoded_bytes_max,
    },
    head::{
        found_object::FoundObject,
        response_head::{Flags, StoredMeta},
    },
    policy::{self, accept::AcceptedCodings},
    request::{Request, dependent::Dependent},
};

/// Maximum wait of a request for decoded content: the coding thread may be busy, and has a low priority.
const DECODE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Representation of an object that answers a request.
pub(crate) enum Representation<'t> {
    /// The object as stored.
    Stored,
    /// An encoded variant.
    Coded(Object<'t>, Coding),
    /// A decoded variant that is missing but required to answer the client.
    ToBeDecoded,
    /// The client already has this variant according to its `If-None-Match`: 304.
    Had(Coding),
}

/// Returns whether encoded variants may be made of an object.
fn has_twins(core: &Core, object: &Object<'_>, meta: &StoredMeta) -> bool {
    meta.flags.has(Flags::MAY_BE_CODED)
        && !object.is_in_parts()
        && !meta.flags.has(Flags::IN_BLOCKS)
        && core.config.compress.takes(object.body_bytes())
        && object.tail().is_empty()
}

/// Returns whether an object may be decoded.
pub(crate) fn is_decodable(core: &Core, object: &Object<'_>, meta: &StoredMeta) -> bool {
    meta.flags.has(Flags::MAY_BE_DECODED)
        && !object.is_in_parts()
        && !meta.flags.has(Flags::IN_BLOCKS)
        && object.body_bytes() <= core.config.compress.bytes_max
        && object.tail().is_empty()
}

/// Returns whether a client must get decoded content although the origin sent it encoded. A client that
/// accepts only codings that are unavailable, or demands the origin's representation, gets the content as
/// stored.
#[inline]
pub(crate) fn wants_decoded(headers: &Headers<'_, '_>, sent: Coding) -> bool {
    let accepted = AcceptedCodings::of(headers);
    !accepted.accepts(sent) && accepted.accepts(Coding::Decoded) && !says_no_transform(headers)
}

/// Representation that a request asks for.
enum VariantRequest {
    /// The object as stored.
    Plain,
    /// An encoded variant, which is made if it is missing.
    Twin(Coding),
    /// An encoded variant, only if it exists: the client already has a part of it.
    PartOf(Coding),
}

/// Returns whether the client demands the origin's representation (`no-transform`, RFC 9111 §5.2.1.6).
pub(crate) fn says_no_transform(headers: &Headers<'_, '_>) -> bool {
    headers.has(KnownHeader::CacheControl)
        && headers
            .known_all(KnownHeader::CacheControl)
            .flat_map(directives)
            .any(|directive| directive.is("no-transform"))
}

fn wanted(
    core: &Core,
    headers: &Headers<'_, '_>,
    etag: Option<EntityTag<'_>>,
    accepted: &AcceptedCodings,
) -> VariantRequest {
    if headers.has(KnownHeader::Range) {
        // Stored content can be read from any offset, so a range applies to the stored content unless the
        // client has a part of an encoded variant.
        let of_part = etag.and_then(|etag| policy::coding_of_part(headers, &etag));
        return match of_part.filter(|coding| accepted.accepts(*coding)) {
            None | Some(Coding::AsSent) => VariantRequest::Plain,
            Some(coding) => VariantRequest::PartOf(coding),
        };
    }
    match accepted.best(&core.config.compress.codings) {
        Some(coding) if !says_no_transform(headers) => VariantRequest::Twin(coding),
        Some(_) | None => VariantRequest::Plain,
    }
}

/// Chooses the representation of an object that may be encoded or decoded. `key` is the object's key, and
/// unchanged on return; `stored_head` is the object's head if the request has conditions.
#[inline(never)]
pub(crate) fn choose<'t>(
    core: &Core,
    turn: &'t EpochGuard<'_>,
    found: FoundObject<'_, '_>,
    request: &RequestHead<'_, '_>,
    stored_head: &[u8],
    key: &mut Vec<u8>,
) -> Representation<'t> {
    let FoundObject { object, meta, hash } = found;
    let headers = &request.headers;
    if meta.flags.has(Flags::MAY_BE_DECODED) {
        return choose_decoded(core, turn, found, headers, stored_head, key);
    }
    let accepted = AcceptedCodings::of(headers);
    let etag = meta.etag_of(stored_head).and_then(EntityTag::parse);
    if let Some(etag) = &etag
        && let Some(had) = policy::coding_had(headers, etag, &accepted)
    {
        return Representation::Had(had);
    }
    if !has_twins(core, &object, meta) {
        return Representation::Stored;
    }
    let (coding, is_made) = match wanted(core, headers, etag, &accepted) {
        VariantRequest::Plain => return Representation::Stored,
        VariantRequest::Twin(coding) => (coding, true),
        VariantRequest::PartOf(coding) => (coding, false),
    };
    let (twin, found) = lookup(turn, &object, hash, coding, key);
    match found {
        Lookup::Hit(twin) if coding_of(&twin) == Some(coding) => Representation::Coded(twin, coding),
        Lookup::Miss if is_made => {
            ask(core, twin, hash, key, coding);
            Representation::Stored
        }
        // The content does not shrink, or its owner is writing to this index entry.
        Lookup::Hit(_) | Lookup::Miss | Lookup::Contended => Representation::Stored,
    }
}

/// Looks up an encoded variant. Returns its hash and the result; `key` is unchanged on return.
#[inline]
fn lookup<'t>(
    turn: &'t EpochGuard<'_>,
    object: &Object<'_>,
    hash: Hash,
    coding: Coding,
    key: &mut Vec<u8>,
) -> (Hash, Lookup<'t>) {
    let bytes = key.len();
    let encoded = Dependent::Encoded { sequence: object.sequence(), coding };
    let twin = encoded.place(hash, key, |key| turn.hash(key));
    let found = turn.lookup(twin, key);
    key.truncate(bytes);
    (twin, found)
}

/// Chooses the representation of an object that may be decoded.
fn choose_decoded<'t>(
    core: &Core,
    turn: &'t EpochGuard<'_>,
    FoundObject { object, meta, hash }: FoundObject<'_, '_>,
    headers: &Headers<'_, '_>,
    stored_head: &[u8],
    key: &mut Vec<u8>,
) -> Representation<'t> {
    if !is_decodable(core, &object, meta) {
        return Representation::Stored;
    }
    let etag = || meta.etag_of(stored_head).and_then(EntityTag::parse);
    let accepts = |coding| AcceptedCodings::of(headers).accepts(coding);
    if headers.has(KnownHeader::IfNoneMatch)
        && accepts(Coding::Decoded)
        && etag().is_some_and(|etag| policy::has_decoded(headers, &etag))
    {
        return Representation::Had(Coding::Decoded);
    }
    let is_wanted = wants_decoded(headers, meta.coding);
    // A client that accepts both may have a part of the decoded variant and request another part.
    let is_part = || {
        let of_part = etag().and_then(|etag| policy::coding_of_part(headers, &etag));
        headers.has(KnownHeader::Range) && of_part == Some(Coding::Decoded) && accepts(Coding::Decoded)
    };
    if !is_wanted && !is_part() {
        return Representation::Stored;
    }
    match lookup(turn, &object, hash, Coding::Decoded, key).1 {
        Lookup::Hit(twin) if coding_of(&twin) == Some(Coding::Decoded) => {
            Representation::Coded(twin, Coding::Decoded)
        }
        // The content cannot be decoded.
        Lookup::Hit(_) => Representation::Stored,
        Lookup::Miss | Lookup::Contended if is_wanted => Representation::ToBeDecoded,
        Lookup::Miss | Lookup::Contended => Representation::Stored,
    }
}

/// Returns the coding in a variant's metadata; `None` for the placeholder of content that does not shrink.
fn coding_of(twin: &Object<'_>) -> Option<Coding> {
    StoredMeta::unpack(&twin.meta()).map(|meta| meta.coding)
}

/// State of an encoded variant, for explanations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VariantState {
    /// The variant exists, with this number of bytes.
    There(u64),
    /// The content would not shrink, or cannot be decoded.
    NotToBeHad,
    /// The variant has not been made.
    NotThere,
}

/// Returns the variant's state as a hit would find it. Runs on the owner's core.
pub(crate) fn peek(
    core: &Core,
    shard: &Shard,
    object: &Object<'_>,
    hash: Hash,
    coding: Coding,
) -> VariantState {
    let mut key = Vec::new();
    object.key().copy_to(&mut key);
    let encoded = Dependent::Encoded { sequence: object.sequence(), coding };
    let twin = encoded.place(hash, &mut key, |key| core.storage.store.hash(key));
    match shard.peek(twin, &key) {
        Some(twin) if coding_of(&twin) == Some(coding) => VariantState::There(twin.body_bytes()),
        Some(_) => VariantState::NotToBeHad,
        None => VariantState::NotThere,
    }
}

/// Asks the owner to make an encoded variant.
#[cold]
fn ask(core: &Core, twin: Hash, hash: Hash, key: &[u8], coding: Coding) {
    let now_ms = clock::monotonic_ms();
    if core.fetches.coders.is_none() || core.fetches.coded_lately.has(twin, now_ms) {
        return;
    }
    core.fetches.coded_lately.note(twin, now_ms);
    hand_over(core, ToCode { hash, key: key.to_vec(), coding, reply: None });
}

/// Sends the request to the owner of the key.
fn hand_over(core: &Core, to_code: ToCode) {
    let owner = core.storage.store.owner(to_code.hash);
    if owner == core.index {
        begin(core, to_code);
    } else if core.give(owner, Message::Code(Box::new(to_code))).is_err() {
        core.count(Counter::CoreRingFull);
    }
}

/// Waits until the object of a request has been decoded; returns `false` if that is not possible now.
pub(crate) async fn decode(request: &Request) -> bool {
    let (reply, told) = oneshot::channel();
    with_core(|core| {
        let (hash, key) = (request.hash, request.key.clone());
        hand_over(core, ToCode { hash, key, coding: Coding::Decoded, reply: Some(reply) });
    });
    // No reply comes if the ring is full, or the thread has ended.
    timeout(DECODE_WAIT_MAX, told).await == Ok(Ok(DecodeReply::LookAgain))
}

/// Makes an encoded variant, or reads it from the file, unless one of these is already in progress; replies
/// to the waiting request. Runs on the owner's core.
pub(crate) fn begin(core: &Core, ToCode { hash, key, coding, reply }: ToCode) {
    let Some(coders) = &core.fetches.coders else { return };
    let shard = core.storage.shard.borrow();
    let object = shard.peek(hash, &key);
    let meta = object.as_ref().and_then(|object| StoredMeta::unpack(&object.meta()));
    let (Some(object), Some(meta)) = (object, meta) else { return tell(reply, DecodeReply::LookAgain) };
    let is_decoded = coding == Coding::Decoded;
    if !(if is_decoded { is_decodable(core, &object, &meta) } else { has_twins(core, &object, &meta) }) {
        return tell(reply, DecodeReply::LookAgain);
    }
    let mut twin_key = key.clone();
    let encoded = Dependent::Encoded { sequence: object.sequence(), coding };
    let twin = encoded.place(hash, &mut twin_key, |key| core.storage.store.hash(key));
    if shard.peek(twin, &twin_key).is_some() {
        return tell(reply, DecodeReply::LookAgain);
    }
    match coders.enter(twin, reply) {
        Ok(true) => {}
        Ok(false) => return,
        Err(PoolFull) => return count_refused(core, coding),
    }
    let (bytes, sequence) = (object.body_bytes(), object.sequence());
    let content = if bytes <= COPIED_BYTES_MAX {
        Some(Content::Copied(copied(bytes, |at| object.body(at))))
    } else {
        object.pin().map(Content::Pinned)
    };
    drop(shard);
    let Some(content) = content else { return coders.leave(twin, DecodeReply::LookAgain) };
    if let Some(cold) = core.shard_mut().find_on_file(twin, core.store_now_s()) {
        tokio::task::spawn_local(async move {
            cold::restore(twin, &twin_key, cold).await;
            with_core(|core| leave(core, twin, DecodeReply::LookAgain));
        });
        return;
    }
    let decoded_bytes_max = decoded_bytes_max(bytes, core.config.compress.bytes_max);
    let sent = meta.coding;
    if coders.give(Job { hash, key, twin, coding, sent, sequence, content, decoded_bytes_max }).is_err() {
        count_refused(core, coding);
        coders.leave(twin, DecodeReply::Refused);
    }
}

/// Counts a refused job. Requests that wait for decoded content are counted where they are answered.
fn count_refused(core: &Core, coding: Coding) {
    if coding != Coding::Decoded {
        core.count(Counter::CodingsRefused);
    }
}

fn leave(core: &Core, twin: Hash, told: DecodeReply) {
    if let Some(coders) = &core.fetches.coders {
        coders.leave(twin, told);
    }
}

/// Stores the results of the coding thread.
pub(crate) async fn settle(mut results: engine::cores::mesh::Receiver<Word>) {
    let mut batch = Vec::new();
    loop {
        results.recv_batch(&mut batch).await;
        for word in batch.drain(..) {
            let Word::Made(made) = word else { unreachable!("cores are told results alone") };
            let twin = made.twin;
            let told = keep(*made).await;
            with_core(|core| leave(core, twin, told));
        }
    }
}

/// Stores an encoded variant if its object still exists. Returns the reply for waiting requests.
async fn keep(made: JobResult) -> DecodeReply {
    let JobResult { hash, ref key, coding, sequence, ref came, bytes, .. } = made;
    let content = match came {
        CodecOutcome::Content(content) => Some(&content[..]),
        CodecOutcome::Nothing => None,
        CodecOutcome::Refused => {
            with_core(|core| count_refused(core, coding));
            return DecodeReply::Refused;
        }
    };
    let object = with_core(|core| {
        core.count(match (coding, content) {
            (Coding::Decoded, Some(_)) => Counter::DecodedMade,
            (Coding::Decoded, None) => Counter::DecodedNotPossible,
            (_, Some(_)) => Counter::CodingsMade,
            (_, None) => Counter::CodingsNotShrunk,
        });
        let shard = core.storage.shard.borrow();
        let object = shard.peek(hash, key).filter(|object| object.sequence() == sequence)?;
        Some((StoredMeta::unpack(&object.meta())?, object.expires_s()))
    });
    let Some((meta, expires_s)) = object else { return DecodeReply::LookAgain };
    let is_made = content.is_some();
    let content = content.unwrap_or_default();
    assert!(coding == Coding::Decoded || content.len() as u64 <= bytes, "what is kept is shorter");
    let meta = StoredMeta {
        coding: if is_made { coding } else { Coding::AsSent },
        body_bytes: Some(content.len() as u64),
        flags: Flags::NONE,
        head_bytes: 0,
        etag_at: 0,
        etag_bytes: 0,
        ..meta
    };
    let mut twin_key = key.clone();
    let encoded = Dependent::Encoded { sequence, coding };
    let twin = with_core(|core| encoded.place(hash, &mut twin_key, |key| core.storage.store.hash(key)));
    let begun = with_core(|core| {
        let body = BodyLength::Exact(content.len() as u64);
        let (meta, now_s) = (meta.pack(), core.store_now_s());
        let (key, head, extra) = (&twin_key[..], &[][..], &[][..]);
        core.shard_mut().begin(NewObject { hash: twin, key, head, extra, meta, body, expires_s, now_s })
    });
    match fill(begun, content).await {
        Ok(()) => DecodeReply::LookAgain,
        Err(refused) => {
            with_core(|core| core.count(Counter::of_refusal(refused)));
            DecodeReply::Refused
        }
    }
}

/// Writes a variant's content in pieces, between which the event loop serves its clients.
async fn fill(begun: Result<ObjectWriter, Rejected>, content: &[u8]) -> Result<(), Rejected> {
    // Boxed to keep the task small.
    let mut filling = Box::new(begun?);
    let mut rest = content;
    while !rest.is_empty() {
        let extent = match with_core(|core| filling.extend(&mut core.shard_mut())) {
            Ok(extent) => extent,
            Err(refused) => {
                with_core(|core| core.shard_mut().abandon(*filling));
                return Err(refused);
            }
        };
        let (now, later) = rest.split_at(extent.len().min(rest.len()));
        extent.span().slice(0..now.len()).write_from(now);
        filling.written(now.len() as u64);
        rest = later;
        if !rest.is_empty() {
            tokio::task::yield_now().await;
        }
    }
    with_core(|core| core.shard_mut().finish(*filling, &[]))
}
