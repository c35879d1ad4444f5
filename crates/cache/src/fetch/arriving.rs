//! Reception of an origin's answer: its bytes are stored or passed on, and clients read them as they arrive.
//!
//! ```text
//!  AnswerHead ─▶ judge ─▶ Sink::Stored   into the segment that keeps it, read from there by all
//!                      Sink::Large    through a window of chunks to the client that asked, and to the file in parts
//!                      Sink::Passing  through a window of chunks to the client that asked
//! ```
//! *Memory:* bytes to be stored go from the origin's socket into their segment; other bytes go through a
//! bounded window of chunks on the heap ([`PASSING_CHUNKS_MAX`](crate::body::growing::PASSING_CHUNKS_MAX) of
//! them for each answer). An answer that is not stored is given up once no client reads it.

use std::sync::Arc;

use engine::{
    cores::clock,
    store::{BodyLength, Hash, InsertRefusal, NewObject, ObjectWriter},
};

use crate::{
    admin::cookie_leak_check,
    body::{
        growing::{Chunk, Cursor, End, GrowingState, PASSING_CHUNK_BYTES, Window},
        large::Large,
        slice::{self, Block},
    },
    core::{Core, OfCore, with_core, with_core_of},
    counters::Counter,
    deliver::trailers::going_on,
    fetch::{
        fetch_entry::Entry,
        hit_for_miss,
        in_flight::{FetchOutcome, Reply, SharedAnswer, answer},
        judge::{Judgement, StorePlan, judge},
        response::{Response, ResponseRole, TOO_LARGE},
        revalidate,
    },
    head::response_head::{Flags, StoredMeta},
    origin::{AnswerHead, BodyRead, OriginError},
    peers,
    request::Request,
};

/// Target of a body's bytes.
enum Sink {
    /// The store.
    Stored(Box<ObjectWriter>),
    /// A bounded window of chunks, for the clients that are reading the body.
    Passing(Arc<Window>),
    /// A bounded window of chunks for the clients that are reading the body, which is also written to the
    /// store's file in parts.
    Large(Box<Large>, Arc<Window>),
}

/// Receives the answer to a fetch: decides whether it is stored, replies to the waiting requests, and moves
/// the body to its target.
pub(crate) async fn receive(request: &Request, mut arrived: Box<AnswerHead>, reply: Reply, entry: Entry) {
    let growing = Arc::new(GrowingState::new(lasts(&mut arrived)));
    let begun = with_core_of(request, |core| begin(core, request, &mut arrived, &entry));
    let Some(AnswerTarget { response, own, sink, first, compared }) = begun else {
        // The object is fetched in slices, so the connection is closed with its content unread.
        entry.end(|| FetchOutcome::Again);
        return answer(reply, FetchOutcome::Again);
    };
    let may_be_shared = response.may_be_late || response.is_fresh(clock::unix_s());
    let shared = SharedAnswer { response, growing: Arc::clone(&growing), first: Arc::clone(&first) };
    let leader = SharedAnswer { response: own, ..shared.clone() }.join(false);
    if matches!(sink, Sink::Stored(_)) && !may_be_shared {
        // Neither the waiting requests nor later ones may share this answer: each of them asks the origin,
        // all in parallel.
        if entry.go_alone() {
            with_core(|core| {
                core.count(Counter::WaitsInVain);
                core.fetches.waited_in_vain.note(request.hash, clock::monotonic_ms());
            });
        }
    } else if matches!(sink, Sink::Stored(_)) {
        entry.announce(&shared);
    } else if matches!(sink, Sink::Large(..)) {
        // Only the leader may read this answer. The waiting clients ask the origin, all in parallel.
        entry.go_alone();
    } else {
        entry.end(|| FetchOutcome::Alone);
    }
    drop(shared);
    if matches!(sink, Sink::Passing(_)) && !arrived.is_complete() {
        // The answer is delivered at its reader's pace and is not stored: if there is room, its exchange is
        // counted among the long-lived ones, so that it does not delay fetches for the store.
        arrived.count_as_lasting();
    }
    answer(reply, leader);
    pump(arrived, sink, first, growing, Some((request, entry))).await;
    if let Some((hash, key)) = compared {
        with_core_of(request, |core| cookie_leak_check::compare(core, request, hash, &key));
    }
}

/// Marks an object that is too large to store as hit-for-miss, so that requests for it are passed in
/// parallel. If the store has a file, no mark is left, because the file may accept the object next time.
fn note_refusal(core: &Core, request: &Request, refused: InsertRefusal, bans: u64) {
    if refused == InsertRefusal::TooLarge && core.storage.file.is_none() {
        hit_for_miss::leave(
            core,
            request.primary(),
            &core.facts_of(request),
            TOO_LARGE,
            clock::unix_s(),
            bans,
            None,
        );
    }
}

/// Target of an answer.
struct AnswerTarget {
    response: Arc<Response>,
    /// The response as sent to the client that caused the fetch.
    own: Arc<Response>,
    sink: Sink,
    first: Arc<Chunk>,
    /// Hash and key under which the complete answer is compared with the one that the previous visitor got.
    compared: Option<(Hash, Vec<u8>)>,
}

/// Decides where an answer goes. `None`: only the head is stored, and the content is fetched in slices.
fn begin(core: &Core, request: &Request, arrived: &mut AnswerHead, entry: &Entry) -> Option<AnswerTarget> {
    let bans = entry.bans();
    let Judgement { mut response, mut own, storing } = match &request.block {
        Some(block) => of_block(core, request, block, bans),
        None => judge(core, request, arrived, bans),
    };
    // An answer that a peer marked as private to one client was not stored there either.
    let is_wanted = |storing: &StorePlan| storing.is_kept || entry.is_waited_for(core);
    let storing = storing.filter(|storing| !arrived.is_for_one && is_wanted(storing));
    let is_for_waiters = storing.as_ref().is_some_and(|storing| !storing.is_kept);
    if arrived.is_for_one && response.is_stored() {
        response.standing = ResponseRole::Refused { too_large: false };
    }
    // Content to be decoded must be stored, because decoding works on stored objects.
    arrived.is_kept |= response.meta.flags.has(Flags::MAY_BE_DECODED);
    if let Some(storing) = &storing
        && own.is_none()
        && request.block.is_none()
        && storing.is_kept
        && slice::takes(&arrived.head.head(), response.length, blocks_from(core))
        && store_head(core, request, arrived, &response, storing, entry)
    {
        return None;
    }
    let reserved = storing.as_ref().map(|storing| reserve(core, &response, storing));
    let compared =
        storing.filter(|storing| storing.is_shared_by_age).map(|storing| (storing.hash, storing.key));
    let (sink, first) = match reserved {
        Some(Ok(reserved)) => {
            if !arrived.is_kept {
                core.count(Counter::PeerNotKept);
                mark_refused(&mut response, own.as_mut(), false);
            }
            if is_for_waiters {
                core.count(Counter::SharedLate);
                arrived.is_kept = false;
            }
            reserved
        }
        refused => {
            if let Some(Err(refused)) = refused {
                core.count(Counter::of_refusal(refused));
                if !is_for_waiters {
                    note_refusal(core, request, refused, bans);
                    mark_refused(&mut response, own.as_mut(), refused == InsertRefusal::TooLarge);
                }
            }
            let window = core.window();
            let first = passing_chunk(&window, response.length);
            (Sink::Passing(window), first)
        }
    };
    let response = Arc::new(response);
    let own = own.map_or_else(|| Arc::clone(&response), Arc::new);
    Some(AnswerTarget { response, own, sink, first, compared })
}

/// Marks an answer, and its copy for the client of the fetch, as refused by the store.
fn mark_refused(response: &mut Response, own: Option<&mut Response>, too_large: bool) {
    for response in [Some(response), own].into_iter().flatten() {
        response.standing = ResponseRole::Refused { too_large };
    }
}

/// Returns the minimum length of an answer whose content is fetched in slices. An answer that exceeds the
/// maximum object size is stored in slices or not at all; but the slices themselves must fit.
fn blocks_from(core: &Core) -> u64 {
    let object_bytes_max = core.storage.store.object_bytes_max();
    if object_bytes_max < 2 * slice::BLOCK_BYTES {
        return u64::MAX;
    }
    core.config.blocks_from.map_or(u64::MAX, |bytes| bytes.min(object_bytes_max + 1))
}

fn of_block(core: &Core, request: &Request, block: &Block, bans: u64) -> Judgement {
    let expires_s = block.kept_until_s(core.store_now_s());
    let key = request.key.clone();
    let storing = StorePlan { hash: request.hash, key, expires_s, is_kept: true, is_shared_by_age: false };
    let meta = block.meta(bans);
    let response = Response {
        head: Vec::new(),
        length: meta.body_bytes,
        meta,
        standing: ResponseRole::Stored,
        tags: Vec::new(),
        tag_words: Vec::new(),
        fetched_ms: None,
        variant: None,
        may_be_late: false,
    };
    Judgement { response, own: None, storing: Some(storing) }
}

/// Stores an answer's head without its content.
fn store_head(
    core: &Core,
    request: &Request,
    arrived: &AnswerHead,
    response: &Response,
    object: &StorePlan,
    entry: &Entry,
) -> bool {
    if entry.is_forgotten(core) || !response.meta.fits() {
        return false;
    }
    let member = revalidate::member_of(core, request, arrived).unwrap_or_default();
    let meta = StoredMeta { member, ..response.meta.in_blocks() };
    let extra = response.extra();
    let new = new_object(core, response, object, meta, &extra, BodyLength::Exact(0));
    match core.shard_mut().insert(new, &[], &[]) {
        Ok(()) => {
            core.count(Counter::ObjectsInBlocks);
            true
        }
        Err(refused) => {
            core.count(Counter::of_refusal(refused));
            false
        }
    }
}

fn new_object<'o>(
    core: &Core,
    response: &'o Response,
    object: &'o StorePlan,
    meta: StoredMeta,
    extra: &'o [u8],
    body: BodyLength,
) -> NewObject<'o> {
    NewObject {
        hash: object.hash,
        key: &object.key,
        head: &response.head,
        extra,
        meta: meta.pack(),
        body,
        expires_s: object.expires_s,
        now_s: core.store_now_s(),
    }
}

/// Returns whether an answer is an event stream, which lasts until its client leaves. Allows an event stream
/// to be silent for as long as a WebSocket.
fn lasts(arrived: &mut AnswerHead) -> bool {
    let is_event_stream = arrived.is_event_stream();
    if is_event_stream {
        arrived.wait_between_bytes(with_core(|core| {
            let limits = &core.config.limits;
            limits.pipe_idle_time_max.max(limits.origin_between_bytes_time_max)
        }));
    }
    is_event_stream
}

/// Content of an answer.
pub(crate) enum Content {
    /// The content may still be arriving.
    Growing(Cursor),
    /// The complete content.
    Whole(Vec<u8>),
}

/// Starts the delivery of a passed answer to its only reader. Bytes that have already arrived are sent with
/// the head; a small body is then complete, and no task has to wait for the rest.
pub(crate) fn pass(mut arrived: Box<AnswerHead>, length: Option<u64>) -> Content {
    if let Some(whole) = arrived.take_whole() {
        with_core(|core| {
            core.add(Counter::BytesFetched, whole.len() as u64);
            arrived.finish(&OfCore, &core.config.limits);
        });
        return Content::Whole(whole);
    }
    let growing = Arc::new(GrowingState::new(lasts(&mut arrived)));
    let window = with_core(Core::window);
    let first = passing_chunk(&window, length);
    let cursor = Cursor::new(Arc::clone(&growing), Arc::clone(&first));
    while let Some(vacant) = first.vacant()
        && let Some(Ok(BodyRead::Bytes(bytes))) = arrived.read_now(vacant)
    {
        with_core(|core| core.add(Counter::BytesFetched, bytes as u64));
        first.publish(bytes);
    }
    if arrived.is_complete() {
        complete(None, &growing, Sink::Passing(window), arrived, || ());
    } else {
        // If this read fails, the task that reads the rest gets the same error.
        arrived.count_as_lasting();
        tokio::task::spawn_local(pump(arrived, Sink::Passing(window), first, growing, None));
    }
    Content::Growing(cursor)
}

/// Moves a body from the origin to its target, and ends the fetch.
async fn pump(
    mut arrived: Box<AnswerHead>,
    mut sink: Sink,
    first: Arc<Chunk>,
    growing: Arc<GrowingState>,
    fetch: Option<(&Request, Entry)>,
) {
    let (request, entry) = fetch.unzip();
    let mut chunk = first;
    let (mut unpublished, mut came) = (0, 0);
    let end = loop {
        let Some(vacant) = chunk.vacant() else {
            if arrived.is_complete() {
                break Ok(());
            }
            // Boxed, because only large bodies need this future, and unboxed it would enlarge every fetch.
            let next = Box::pin(more_space(&mut sink, request, entry.as_ref())).await;
            chunk.append(Arc::clone(&next));
            chunk = next;
            continue;
        };
        let read = if let Sink::Passing(_) = sink {
            // A passed answer has one reader: once the reader is gone, a silent origin is not waited for.
            tokio::select! {
                biased;
                read = arrived.read(vacant) => read,
                () = growing.wait_until_unread() => return give_up(),
            }
        } else {
            arrived.read(vacant).await
        };
        let bytes = match read {
            Ok(BodyRead::Bytes(bytes)) => bytes,
            Ok(BodyRead::End) => break Ok(()),
            Err(error) => {
                // Boxed, because a peer rarely breaks off, and the future would enlarge every fetch.
                match Box::pin(rest(request, &mut arrived, came, &error)).await {
                    Some(going_on) => arrived = going_on,
                    None => break Err(error),
                }
                continue;
            }
        };
        came += bytes as u64;
        let counter = if arrived.peer.is_some() { Counter::PeerBytes } else { Counter::BytesFetched };
        with_core(|core| core.add(counter, bytes as u64));
        let is_kept = match &mut sink {
            Sink::Stored(filling) => {
                filling.written(bytes as u64);
                true
            }
            Sink::Large(large, window) => {
                let is_kept = Box::pin(large.put(vacant.slice(0..bytes))).await.is_ok();
                if !is_kept {
                    sink = Sink::Passing(Arc::clone(window));
                    if let Some(entry) = &entry {
                        entry.end(|| FetchOutcome::Alone);
                    }
                }
                is_kept
            }
            Sink::Passing(_) => false,
        };
        if is_kept && arrived.is_complete() {
            // The object is linked before any reader can have read all of it, so that the next request finds
            // it in the store.
            unpublished = bytes;
            break Ok(());
        }
        chunk.publish(bytes);
        growing.grown();
        if matches!(sink, Sink::Passing(_)) && Arc::strong_count(&growing) == 1 {
            return give_up();
        }
    };
    if let Err(error) = end {
        return broken(&error, sink, entry.as_ref(), &growing);
    }
    if let Sink::Large(large, window) = sink {
        let is_wanted = |core: &Core| entry.as_ref().is_some_and(|entry| !entry.is_forgotten(core));
        Box::pin(large.finish(is_wanted)).await;
        sink = Sink::Passing(window);
    }
    complete(entry.as_ref(), &growing, sink, arrived, || {
        if unpublished > 0 {
            chunk.publish(unpublished);
        }
    });
}

/// Counts a fetch that is given up because no client reads its answer any more. The origin's connection is
/// closed with the rest of the answer unread.
fn give_up() {
    with_core(|core| core.count(Counter::FetchesGivenUp));
}

/// Requests from the origin the rest of a body that a peer has broken off.
async fn rest(
    request: Option<&Request>,
    broken: &mut AnswerHead,
    came: u64,
    error: &OriginError,
) -> Option<Box<AnswerHead>> {
    broken.broke_off(error);
    peers::resume(request?, broken, came, error).await
}

/// Ends a fetch that failed in the middle of the body.
fn broken(error: &OriginError, sink: Sink, entry: Option<&Entry>, growing: &GrowingState) {
    tracing::warn!(%error, "fetch from the origin or a peer failed in the middle of a body");
    with_core(|core| {
        core.count(Counter::of_origin_error(error));
        if let Sink::Stored(filling) = sink {
            core.shard_mut().abandon(*filling);
        }
    });
    if let Some(entry) = entry {
        entry.end(|| FetchOutcome::Alone);
    }
    growing.finish(End::Broken, &[]);
}

/// Creates the first chunk of a body that is not stored, sized by the body's length if that is known.
fn passing_chunk(window: &Arc<Window>, length: Option<u64>) -> Arc<Chunk> {
    match length {
        Some(0) => Chunk::empty(),
        length => Chunk::passing(window, passing_bytes(length.unwrap_or(u64::MAX))),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most PASSING_CHUNK_BYTES")]
fn passing_bytes(left: u64) -> usize {
    left.min(PASSING_CHUNK_BYTES as u64) as usize
}

/// Reserves room in the store, and returns the sink with its first chunk. An object that is too large for
/// memory gets room in the file only.
fn reserve(
    core: &Core,
    response: &Response,
    object: &StorePlan,
) -> Result<(Sink, Arc<Chunk>), InsertRefusal> {
    if !response.meta.fits() {
        return Err(InsertRefusal::TooLarge);
    }
    let extra = response.extra();
    let body = response.length.map_or(BodyLength::Unknown, BodyLength::Exact);
    let new = new_object(core, response, object, response.meta, &extra, body);
    if object.is_kept
        && response.length.is_some_and(|bytes| bytes > core.storage.store.object_bytes_max())
        && let Some(large) = Large::begin(core, &new)
    {
        let window = core.window();
        let first = passing_chunk(&window, response.length);
        return Ok((Sink::Large(Box::new(large), window), first));
    }
    let mut shard = core.shard_mut();
    let mut filling = shard.begin(new)?;
    if response.length == Some(0) {
        return Ok((Sink::Stored(Box::new(filling)), Chunk::empty()));
    }
    match filling.extend(&mut shard) {
        Ok(extent) => Ok((Sink::Stored(Box::new(filling)), Chunk::stored(extent))),
        Err(refused) => {
            shard.abandon(filling);
            Err(refused)
        }
    }
}

/// Returns the next chunk. A body that outgrows the store continues through a window, for the clients that
/// are reading it.
async fn more_space(sink: &mut Sink, request: Option<&Request>, entry: Option<&Entry>) -> Arc<Chunk> {
    if let Sink::Stored(filling) = sink {
        let more = with_core(|core| filling.extend(&mut core.shard_mut()));
        match more {
            Ok(extent) => return Chunk::stored(extent),
            Err(refused) => {
                with_core(|core| {
                    core.count(Counter::of_refusal(refused));
                    if let (Some(request), Some(entry)) = (request, entry) {
                        note_refusal(core, request, refused, entry.bans());
                    }
                });
                // No request can join any more: the beginning of the body is about to be freed.
                if let Some(entry) = entry {
                    entry.end(|| FetchOutcome::Alone);
                }
                if let Sink::Stored(filling) = std::mem::replace(sink, Sink::Passing(with_core(Core::window)))
                {
                    with_core(|core| core.shard_mut().abandon(*filling));
                }
            }
        }
    }
    let window = match sink {
        Sink::Passing(window) | Sink::Large(_, window) => window,
        Sink::Stored(_) => unreachable!("what could not be stored is passed by now"),
    };
    if window.room().await {
        with_core(|core| core.count(Counter::PassesNarrowed));
    }
    Chunk::passing(window, PASSING_CHUNK_BYTES)
}

/// Completes a body: links the object into the store, unless it was purged since the fetch began; then
/// `publish` makes the last bytes readable.
fn complete(
    entry: Option<&Entry>,
    growing: &GrowingState,
    sink: Sink,
    arrived: Box<AnswerHead>,
    publish: impl FnOnce(),
) {
    let trailers = match arrived.trailers() {
        [] => Vec::new(),
        trailers => going_on(trailers, &arrived.head.head().headers),
    };
    if let (Sink::Stored(filling), Some(entry)) = (sink, entry) {
        with_core(|core| {
            let is_forgotten = entry.is_forgotten(core);
            let mut shard = core.shard_mut();
            if is_forgotten || !arrived.is_kept {
                shard.abandon(*filling);
            } else if let Err(refused) = shard.finish(*filling, &trailers) {
                core.count(Counter::of_refusal(refused));
            }
        });
    }
    // The object is stored before the fetch leaves the table: a request that arrives in between finds one or
    // the other.
    if let Some(entry) = entry {
        entry.end(|| FetchOutcome::Again);
    }
    publish();
    growing.finish(End::Whole, &trailers);
    with_core(|core| arrived.finish(&OfCore, &core.config.limits));
}
