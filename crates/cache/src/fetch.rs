//! Misses: one fetch for all who want the same object, by the core that owns its key.
//!
//! ```text
//!  core of the client                     core that owns the key
//!  ──────────────────                     ──────────────────────────────────────────────
//!  ask(request) ──── Message::Fetch ────▶ begin: fetch under way?  ─ yes ─▶ join it
//!       │                                    │ no
//!       │                                    ▼
//!       │                                 fetch: origin ─ head ─▶ may it be stored?
//!       │◀──── Start::Body (leader) ─────────┤ yes: stored as it arrives, all follow
//!       │◀──── Start::Alone (others) ────────┘ no: the leader alone reads it; the others ask for themselves
//!       ▼
//!  deliver: follows the chunks as they are published
//! ```
//!
//! Where the data lives: bytes go from the origin's socket into the segment that keeps them; what is not kept goes
//! through a bounded window of chunks on the heap. Bounds: [`FETCHES_MAX`] fetches a core, `PASSING_CHUNKS_MAX`
//! chunks for each that is not stored. A fetch that nobody reads any more and that is not stored is given up.

use std::sync::Arc;

use engine::store::{BodyLength, Filling, Hash, NewObject, Refused, tier::Cold};
use tokio::sync::oneshot;
use wire::http1::framing::Answered;

use crate::{
    cold,
    core::{Core, CorePools, Fetching, Message, with_core},
    counters::Counter,
    growing::{Chunk, Cursor, End, Growing, PASSING_CHUNK_BYTES, Window},
    large::Large,
    origin::{self, Answer, OriginError, Read},
    request::{Purpose, Request},
    response::{Judged, Response, judge, with_head},
    trailers::going_on,
};

/// Fetches under way on one core; a request beyond is passed through.
const FETCHES_MAX: usize = 10_000;

/// What a core asks of the owner of a key.
pub(crate) struct Want {
    pub(crate) request: Arc<Request>,
    /// What is stored already must not be used (RFC 9111 §5.2.1.4).
    pub(crate) anew: bool,
    pub(crate) reply: oneshot::Sender<Start>,
}

/// How a miss goes on.
pub(crate) enum Start {
    /// The answer: its head, and its body as it arrives.
    Body {
        /// The head and what is known of the body.
        response: Arc<Response>,
        /// The reader's place in the body.
        cursor: Cursor,
        /// Someone else's fetch was joined.
        collapsed: bool,
    },
    /// It is in the store by now: look again.
    Again,
    /// The answer is for one client only, or there is no room: ask the origin for yourself.
    Alone,
    /// The origin failed.
    Failed(OriginError),
}

/// Asks the owner of the request's key for the object.
pub(crate) async fn ask(request: &Arc<Request>, anew: bool) -> Start {
    let (reply, answer) = oneshot::channel();
    let want = Want { request: Arc::clone(request), anew, reply };
    let sent = with_core(|core| {
        let owner = core.store.owner(request.hash);
        if owner == core.index {
            begin(core, want);
            return true;
        }
        let sent = core.send(owner, Message::Fetch(Box::new(want)));
        if !sent {
            core.count(Counter::CoreRingFull);
        }
        sent
    });
    if !sent {
        return Start::Alone;
    }
    // The fetch ended without an answer: a bug of ours on its core. The request is served all the same.
    answer.await.unwrap_or(Start::Alone)
}

/// Joins the fetch under way for this key, or begins one. Runs on the owner's core.
pub(crate) fn begin(core: &Core, want: Want) {
    let mut fetching = core.fetching.borrow_mut();
    let hash = want.request.hash;
    if let Some(under_way) = fetching.get_mut(&hash) {
        if under_way.is_alone || under_way.key != want.request.key {
            // The object is being written to the file, and can be read when that is done. Or two keys have the same
            // 64-bit hash: still right.
            answer(want.reply, Start::Alone);
        } else if let Some((response, cursor)) = under_way.join() {
            core.count(Counter::Collapsed);
            answer(want.reply, Start::Body { response, cursor, collapsed: true });
        } else {
            core.count(Counter::Collapsed);
            under_way.waiting.push(want.reply);
        }
        return;
    }
    if !want.anew && core.is_fresh(hash, &want.request.key) {
        answer(want.reply, Start::Again);
        return;
    }
    if fetching.len() >= FETCHES_MAX {
        core.count(Counter::FetchTableFull);
        answer(want.reply, Start::Alone);
        return;
    }
    let number = core.next_fetch();
    let under_way = Fetching {
        key: want.request.key.clone(),
        primary: want.request.primary().to_vec(),
        waiting: Vec::new(),
        is_alone: false,
        started: None,
        number,
    };
    fetching.insert(hash, under_way);
    drop(fetching);
    let entry = Entry { hash, number };
    let cold = if want.anew { None } else { core.shard_mut().cold(hash, core.store_now_s()) };
    match cold {
        Some(cold) => tokio::spawn(load(want, entry, cold)),
        None => tokio::spawn(fetch(want, entry)),
    };
}

/// Takes the fetches for an object and its variants out of the table, because it was purged or has become invalid:
/// their responses are not stored, nobody joins them any more, and clients that wait for them ask again. A client that
/// reads one already goes on, as does the client that it was begun for: they asked before the purge. Runs on the
/// owner's core. Answers whether there was such a fetch.
pub(crate) fn forget(core: &Core, primary: &[u8]) -> bool {
    let mut fetching = core.fetching.borrow_mut();
    // A fetch of a variant has another hash than the URL; few are under way at once.
    let forgotten: Vec<_> = fetching.extract_if(|_, under_way| under_way.primary == primary).collect();
    drop(fetching);
    let any = !forgotten.is_empty();
    for (_, under_way) in forgotten {
        for other in under_way.waiting {
            answer(other, Start::Again);
        }
    }
    any
}

/// A client that has gone away does not want its answer any more: that is no error.
fn answer(reply: oneshot::Sender<Start>, start: Start) {
    let _ = reply.send(start);
}

/// A fetch's place in the table; it is taken out however the fetch ends. After a purge there may be another fetch in
/// that place: the number tells them apart.
struct Entry {
    hash: Hash,
    number: u64,
}

impl Entry {
    /// Takes the fetch out of the table, and returns the clients that waited for it.
    fn end(&self) -> Option<Fetching> {
        with_core(|core| {
            let mut fetching = core.fetching.borrow_mut();
            let is_ours = fetching.get(&self.hash).is_some_and(|under_way| under_way.number == self.number);
            if is_ours { fetching.remove(&self.hash) } else { None }
        })
    }

    /// Only the client that asked first gets the response body; the clients that waited are returned. The fetch stays
    /// in the table, so that the object is stored once, and not at all if it is purged meanwhile.
    fn go_alone(&self) -> Vec<oneshot::Sender<Start>> {
        with_core(|core| {
            let mut fetching = core.fetching.borrow_mut();
            match fetching.get_mut(&self.hash).filter(|under_way| under_way.number == self.number) {
                Some(under_way) => {
                    under_way.is_alone = true;
                    std::mem::take(&mut under_way.waiting)
                }
                None => Vec::new(),
            }
        })
    }

    /// Whether it was purged or became invalid meanwhile.
    fn is_forgotten(&self, core: &Core) -> bool {
        core.fetching.borrow().get(&self.hash).is_none_or(|under_way| under_way.number != self.number)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // A client that still waits finds its channel closed, and asks the origin by itself.
        self.end();
    }
}

/// Reads an object from the file into memory, once for all clients that want it; if that fails, it is fetched from the
/// origin.
async fn load(want: Want, entry: Entry, cold: Cold) {
    if !cold::restore(&want.request, cold).await {
        fetch(want, entry).await;
        return;
    }
    let waiting = entry.end().map(|ended| ended.waiting).unwrap_or_default();
    for other in waiting {
        answer(other, Start::Again);
    }
    answer(want.reply, Start::Again);
}

async fn fetch(want: Want, entry: Entry) {
    let Want { request, reply, .. } = want;
    match exchange(&request).await {
        Ok(answer) => receive(&request, answer, reply, entry).await,
        Err(error) => {
            let waiting = entry.end().map(|ended| ended.waiting).unwrap_or_default();
            with_core(|core| core.count(Counter::of_origin_error(&error)));
            for other in waiting {
                answer(other, Start::Failed(error.clone()));
            }
            answer(reply, Start::Failed(error));
        }
    }
}

/// Sends the request and waits for the head. A connection from the pool may have been closed by the origin in the
/// meantime; then a fresh one is tried, once: GET is safe to repeat (RFC 9110 §9.2.2).
async fn exchange(request: &Request) -> Result<Answer, OriginError> {
    let (config, head) = with_core(|core| {
        core.count(Counter::Fetches);
        (Arc::clone(&core.config), request.for_origin(Purpose::Store, &core.config.name))
    });
    let limits = &config.limits;
    let mut fresh = false;
    loop {
        let mut exchange = origin::connect(&CorePools, &config.origin, limits, fresh).await?;
        let reused = exchange.reused;
        if !reused {
            with_core(|core| core.count(Counter::OriginConnects));
        }
        let answered = match exchange.send(&head, limits.origin_first_byte_time_max).await {
            Ok(()) => exchange.answer(Answered::Other, limits).await,
            Err(error) => Err(error),
        };
        match answered {
            Err(error) if reused && !fresh && error.is_end() => fresh = true,
            answered => return answered,
        }
    }
}

/// Where the bytes of a body go.
enum Keep {
    /// Into the store.
    Stored(Box<Filling>),
    /// Through a window of chunks, to those who read it now.
    Passing(Arc<Window>),
    /// Likewise, and to the file in parts.
    Large(Box<Large>, Arc<Window>),
}

async fn receive(request: &Request, answer_: Answer, reply: oneshot::Sender<Start>, entry: Entry) {
    let growing = Arc::new(Growing::new());
    let (response, own, keep, first) = with_core(|core| {
        let Judged { mut response, mut own, keep } =
            judge(core, request, &answer_.head, answer_.framing, answer_.requested_ms);
        let (keep, first) = match keep.map(|object| reserve(core, &response, &object)) {
            Some(Ok(reserved)) => reserved,
            refused => {
                if let Some(Err(refused)) = refused {
                    core.count(Counter::of_refusal(refused));
                }
                response.stored = false;
                if let Some(own) = &mut own {
                    own.stored = false;
                }
                let window = Arc::new(Window::default());
                let first = passing_chunk(&window, response.length);
                (Keep::Passing(window), first)
            }
        };
        let response = Arc::new(response);
        let own = own.map_or_else(|| Arc::clone(&response), Arc::new);
        (response, own, keep, first)
    });
    let leader = Start::Body {
        response: own,
        cursor: Cursor::new(Arc::clone(&growing), Arc::clone(&first)),
        collapsed: false,
    };
    if matches!(keep, Keep::Stored(_)) {
        announce(&entry, &response, &growing, &first);
    } else {
        // Only the leader may read this answer. The clients that waited each ask the origin, all at once and not in
        // turn.
        let waiting = if matches!(keep, Keep::Large(..)) {
            entry.go_alone()
        } else {
            entry.end().map(|ended| ended.waiting).unwrap_or_default()
        };
        for other in waiting {
            answer(other, Start::Alone);
        }
    }
    answer(reply, leader);

    pump(answer_, keep, first, growing, Some(entry)).await;
}

/// The answer to a request that is only passed: its body as it arrives, for this one reader.
pub(crate) fn pass(answer: Answer, length: Option<u64>) -> Cursor {
    let growing = Arc::new(Growing::new());
    let window = Arc::new(Window::default());
    let first = passing_chunk(&window, length);
    let cursor = Cursor::new(Arc::clone(&growing), Arc::clone(&first));
    if answer.is_complete() {
        complete(None, &growing, Keep::Passing(window), answer, || ());
    } else {
        tokio::spawn(pump(answer, Keep::Passing(window), first, growing, None));
    }
    cursor
}

/// Moves a body from the origin to where it is kept, and ends the fetch.
async fn pump(
    mut answer: Answer,
    mut keep: Keep,
    first: Arc<Chunk>,
    growing: Arc<Growing>,
    entry: Option<Entry>,
) {
    let mut chunk = first;
    let mut unpublished = 0;
    let end = loop {
        let Some(vacant) = chunk.vacant() else {
            if answer.is_complete() {
                break Ok(());
            }
            let next = more_space(&mut keep, entry.as_ref()).await;
            chunk.append(Arc::clone(&next));
            chunk = next;
            continue;
        };
        match answer.read(vacant).await {
            Ok(Read::Bytes(bytes)) => {
                if let Keep::Stored(filling) = &mut keep {
                    filling.written(bytes as u64);
                    if answer.is_complete() {
                        // The object is linked before any reader can have read all of it, so that the next request
                        // finds it in the store.
                        unpublished = bytes;
                        with_core(|core| core.add(Counter::BytesFetched, bytes as u64));
                        break Ok(());
                    }
                }
                if let Keep::Large(large, window) = &mut keep {
                    if large.put(vacant.slice(0..bytes)).await.is_err() {
                        keep = Keep::Passing(Arc::clone(window));
                        if let Some(entry) = &entry {
                            entry.end();
                        }
                    } else if answer.is_complete() {
                        unpublished = bytes;
                        with_core(|core| core.add(Counter::BytesFetched, bytes as u64));
                        break Ok(());
                    }
                }
                chunk.publish(bytes);
                growing.grown();
                with_core(|core| core.add(Counter::BytesFetched, bytes as u64));
            }
            Ok(Read::End) => break Ok(()),
            Err(error) => break Err(error),
        }
        if matches!(keep, Keep::Passing(_)) && Arc::strong_count(&growing) == 1 {
            // Nobody reads on. The connection is closed with the rest of the answer in it.
            with_core(|core| core.count(Counter::FetchesGivenUp));
            return;
        }
    };
    if end.is_ok()
        && let Keep::Large(large, window) = keep
    {
        large.finish(|core| entry.as_ref().is_some_and(|entry| !entry.is_forgotten(core))).await;
        keep = Keep::Passing(window);
    }
    match end {
        Ok(()) => complete(entry.as_ref(), &growing, keep, answer, || {
            if unpublished > 0 {
                chunk.publish(unpublished);
            }
        }),
        Err(error) => {
            tracing::warn!(%error, "the origin broke off in the middle of a body");
            with_core(|core| {
                core.count(Counter::of_origin_error(&error));
                if let Keep::Stored(filling) = keep {
                    core.shard_mut().abandon(*filling);
                }
            });
            if let Some(entry) = &entry {
                entry.end();
            }
            growing.finish(End::Broken, &[]);
        }
    }
}

/// The first chunk of a body that is not stored, as large as it needs to be.
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

/// Reserves room in the store, and the first of it; on the file alone where it is larger than memory takes.
fn reserve(
    core: &Core,
    response: &Response,
    object: &crate::response::Keep,
) -> Result<(Keep, Arc<Chunk>), Refused> {
    if !response.meta.fits() {
        return Err(Refused::TooLarge);
    }
    let new = NewObject {
        hash: object.hash,
        key: &object.key,
        head: &response.head,
        extra: &[],
        meta: response.meta.pack(),
        body: response.length.map_or(BodyLength::Unknown, BodyLength::Exact),
        expires_s: object.expires_s,
        now_s: core.store_now_s(),
    };
    if response.length.is_some_and(|bytes| bytes > core.store.object_bytes_max())
        && let Some(large) = Large::begin(core, &new)
    {
        let window = Arc::new(Window::default());
        let first = passing_chunk(&window, response.length);
        return Ok((Keep::Large(Box::new(large), window), first));
    }
    let mut shard = core.shard_mut();
    let mut filling = shard.begin(new)?;
    if response.length == Some(0) {
        return Ok((Keep::Stored(Box::new(filling)), Chunk::empty()));
    }
    match filling.extend(&mut shard) {
        Ok(extent) => Ok((Keep::Stored(Box::new(filling)), Chunk::stored(extent))),
        Err(refused) => {
            shard.abandon(filling);
            Err(refused)
        }
    }
}

/// Tells all who waited that they may follow, and leaves the first chunk for those to come.
fn announce(entry: &Entry, response: &Arc<Response>, growing: &Arc<Growing>, first: &Arc<Chunk>) {
    let waiting = with_core(|core| {
        let mut fetching = core.fetching.borrow_mut();
        // The clients that waited when it was purged have asked again, and nobody may join.
        let under_way = fetching.get_mut(&entry.hash).filter(|under_way| under_way.number == entry.number)?;
        under_way.started = Some((Arc::clone(response), Arc::clone(growing), Arc::clone(first)));
        Some(std::mem::take(&mut under_way.waiting))
    });
    for other in waiting.unwrap_or_default() {
        let cursor = Cursor::new(Arc::clone(growing), Arc::clone(first));
        answer(other, Start::Body { response: Arc::clone(response), cursor, collapsed: true });
    }
}

/// The next chunk. A body that outgrows the store goes on through a window, for those who read it now.
async fn more_space(keep: &mut Keep, entry: Option<&Entry>) -> Arc<Chunk> {
    if let Keep::Stored(filling) = keep {
        let more = with_core(|core| filling.extend(&mut core.shard_mut()));
        match more {
            Ok(extent) => return Chunk::stored(extent),
            Err(refused) => {
                with_core(|core| core.count(Counter::of_refusal(refused)));
                // Nobody can join any more: the beginning of the body is going to be freed.
                if let Some(entry) = entry {
                    entry.end();
                }
                if let Keep::Stored(filling) = std::mem::replace(keep, Keep::Passing(Arc::default())) {
                    with_core(|core| core.shard_mut().abandon(*filling));
                }
            }
        }
    }
    let window = match keep {
        Keep::Passing(window) | Keep::Large(_, window) => window,
        Keep::Stored(_) => unreachable!("what could not be stored is passed by now"),
    };
    window.room().await;
    Chunk::passing(window, PASSING_CHUNK_BYTES)
}

/// The whole body is there: it is linked, unless it was purged while it arrived; then `publish` shows the last of it.
fn complete(entry: Option<&Entry>, growing: &Growing, keep: Keep, answer: Answer, publish: impl FnOnce()) {
    let trailers = match answer.trailers() {
        [] => Vec::new(),
        trailers => with_head(&answer.head, |head| going_on(trailers, &head.headers)),
    };
    if let (Keep::Stored(filling), Some(entry)) = (keep, entry) {
        with_core(|core| {
            let forgotten = entry.is_forgotten(core);
            let mut shard = core.shard_mut();
            if forgotten {
                shard.abandon(*filling);
            } else if let Err(refused) = shard.finish(*filling, &trailers) {
                core.count(Counter::of_refusal(refused));
            }
        });
    }
    // First into the store, then out of the table: a request in between finds one of the two.
    if let Some(entry) = entry {
        entry.end();
    }
    publish();
    growing.finish(End::Whole, &trailers);
    with_core(|core| answer.finish(&CorePools, &core.config.limits));
}
