//! A body that can be read while it arrives.
//!
//! ```text
//!   fetching core                                   any core that follows
//!   ─────────────                                   ─────────────────────
//!   Chunk 0 ──next──▶ Chunk 1 ──next──▶ Chunk 2 ◀── cursor of the slowest … of the fastest
//!   published         published         published ▲ stored (Release) by the fetching core, then `progress`
//! ```
//!
//! Where the data lives: in the store's segments (pinned by the extent) for what is kept; on the heap for what is
//! only passed on. The chunk list belongs to those who still need it: a follower holds the chunk that it reads, the
//! in-flight table holds the first one as long as others may join, and what is behind the slowest is freed by itself.
//! Nobody waits on a lock; a follower that has caught up waits on `progress`.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering},
};

use engine::{
    store::Extent,
    sys::span::{Span, WordBuffer},
};
use tokio::sync::Notify;

/// Bytes of one chunk that is only passed on, not stored.
pub(crate) const PASSING_CHUNK_BYTES: usize = 64 * 1024;
/// Chunks of one body that may be on their way at once when it is only passed on: the fetch waits for its readers.
pub(crate) const PASSING_CHUNKS_MAX: usize = 8;
/// … while too much waits for all readers: the one that a reader has read, and keeps until there is another behind it,
/// and that other.
const PASSING_CHUNKS_MIN: usize = 2;
/// Bytes of such a chunk when nearly all is used that passing chunks may take.
const SMALL_CHUNK_BYTES: usize = 4 * 1024;
/// Bytes that a body takes at least as it is passed on.
pub(crate) const PASSING_BYTES_MIN: usize = PASSING_CHUNKS_MIN * SMALL_CHUNK_BYTES;

/// Where a chunk's bytes are.
enum Space {
    /// In the store; the extent pins its segment.
    Stored(Arc<Extent>),
    /// On the heap, freed when the last reader has moved on.
    Passing(WordBuffer, Arc<Window>),
    /// On the heap, of one reader alone: the store wanted its memory back.
    Copied(WordBuffer, usize),
    /// Nowhere: the body is empty.
    Empty,
}

/// The bytes of all fetches' passing chunks. A thousand readers that do not read would fill a thousand windows:
/// while half of the budget is used, each has two chunks, so that it goes on, and no more; and new chunks are a quarter
/// as large then, and a sixteenth while three quarters are used.
pub(crate) struct PassingBudget {
    bytes: AtomicUsize,
    max: usize,
}

impl PassingBudget {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicUsize::new(0), max })
    }

    fn is_scarce(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.max / 2
    }

    /// Bytes of a new chunk at most.
    fn chunk_bytes(&self) -> usize {
        match self.bytes.load(Ordering::Relaxed) {
            used if used <= self.max / 2 => PASSING_CHUNK_BYTES,
            used if used <= self.max / 4 * 3 => PASSING_CHUNK_BYTES / 4,
            _ => SMALL_CHUNK_BYTES,
        }
    }
}

/// How many passing chunks are alive; the fetch waits here for its readers.
pub(crate) struct Window {
    alive: AtomicUsize,
    freed: Notify,
    budget: Arc<PassingBudget>,
}

impl Window {
    pub(crate) fn new(budget: &Arc<PassingBudget>) -> Arc<Self> {
        Arc::new(Self { alive: AtomicUsize::new(0), freed: Notify::new(), budget: Arc::clone(budget) })
    }

    /// Waits until one more chunk may be made; whether it waited although its own readers were not behind.
    pub(crate) async fn room(&self) -> bool {
        let mut is_narrowed = false;
        loop {
            let freed = self.freed.notified();
            let alive = self.alive.load(Ordering::Acquire);
            let is_scarce = self.budget.is_scarce();
            let most = if is_scarce { PASSING_CHUNKS_MIN } else { PASSING_CHUNKS_MAX };
            if alive < most {
                return is_narrowed;
            }
            is_narrowed |= alive < PASSING_CHUNKS_MAX;
            freed.await;
        }
    }
}

/// A contiguous part of a body; its first `published` bytes are there.
pub(crate) struct Chunk {
    space: Space,
    /// Bytes from the start of `space` that may be read. Written by the fetching core only.
    published: AtomicU32,
    next: OnceLock<Arc<Chunk>>,
}

impl Chunk {
    /// A chunk in the store.
    pub(crate) fn stored(extent: Arc<Extent>) -> Arc<Self> {
        Self::with(Space::Stored(extent))
    }

    /// A chunk on the heap, counted in `window`.
    pub(crate) fn passing(window: &Arc<Window>, bytes: usize) -> Arc<Self> {
        window.alive.fetch_add(1, Ordering::AcqRel);
        let buffer = WordBuffer::new(bytes.min(window.budget.chunk_bytes()));
        window.budget.bytes.fetch_add(buffer.span().len(), Ordering::Relaxed);
        Self::with(Space::Passing(buffer, Arc::clone(window)))
    }

    /// The only chunk of an empty body.
    pub(crate) fn empty() -> Arc<Self> {
        Self::with(Space::Empty)
    }

    fn with(space: Space) -> Arc<Self> {
        Arc::new(Self { space, published: AtomicU32::new(0), next: OnceLock::new() })
    }

    fn whole(&self) -> Option<Span<'_>> {
        match &self.space {
            Space::Stored(extent) => Some(extent.span()),
            Space::Passing(buffer, _) => Some(buffer.span()),
            Space::Copied(buffer, bytes) => Some(buffer.span().slice(0..*bytes)),
            Space::Empty => None,
        }
    }

    /// The part that is still to be written; `None` when the chunk is full.
    pub(crate) fn vacant(&self) -> Option<Span<'_>> {
        let whole = self.whole()?;
        let at = self.published.load(Ordering::Relaxed) as usize;
        (at < whole.len()).then(|| whole.slice(at..whole.len()))
    }

    /// Bytes that may be read.
    fn published(&self) -> usize {
        self.published.load(Ordering::Acquire) as usize
    }

    /// Makes `bytes` more readable. Only the fetching core calls it, after it has written them.
    pub(crate) fn publish(&self, bytes: usize) {
        let now = self.published.load(Ordering::Relaxed) as usize + bytes;
        assert!(self.whole().is_some_and(|whole| now <= whole.len()), "published beyond the chunk");
        #[expect(clippy::cast_possible_truncation, reason = "an extent is at most a segment, 4 MiB")]
        self.published.store(now as u32, Ordering::Release);
    }

    /// Hangs the next chunk behind this one.
    pub(crate) fn append(&self, next: Arc<Chunk>) {
        assert!(self.next.set(next).is_ok(), "a chunk has one successor");
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Space::Passing(buffer, window) = &self.space {
            window.budget.bytes.fetch_sub(buffer.span().len(), Ordering::Relaxed);
            window.alive.fetch_sub(1, Ordering::AcqRel);
            window.freed.notify_waiters();
        }
        // A long list is dropped in a loop: by recursion it could exhaust the stack.
        let mut next = self.next.take();
        while let Some(chunk) = next {
            next = Arc::into_inner(chunk).and_then(|mut alone| alone.next.take());
        }
    }
}

/// How far a fetch has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// More may come.
    Open,
    /// All is there.
    Whole,
    /// The origin broke off; what was published is a beginning, not the body.
    Broken,
}

/// The state of a growing body that all its followers share.
pub(crate) struct GrowingState {
    /// The body is an event stream.
    is_event_stream: bool,
    end: AtomicU8,
    /// Trailer lines as they came (each ended by CRLF), set before the end is.
    trailers: OnceLock<Vec<u8>>,
    progress: Notify,
    /// How many cursors there are.
    readers: AtomicUsize,
    /// Notified when the last cursor has gone.
    unread: Notify,
}

impl GrowingState {
    pub(crate) fn new(is_event_stream: bool) -> Self {
        Self {
            is_event_stream,
            end: AtomicU8::new(End::Open as u8),
            trailers: OnceLock::new(),
            progress: Notify::new(),
            readers: AtomicUsize::new(0),
            unread: Notify::new(),
        }
    }

    /// Waits until no cursor is left. Only for a body that has had its reader and that no other reader joins later.
    pub(crate) async fn wait_until_unread(&self) {
        // `Notify` keeps a permit where the last cursor goes first, so no departure is missed.
        while self.readers.load(Ordering::Acquire) > 0 {
            self.unread.notified().await;
        }
    }

    /// Tells the followers that more was published in the chunks.
    pub(crate) fn grown(&self) {
        self.progress.notify_waiters();
    }

    /// Says that nothing more comes.
    pub(crate) fn finish(&self, end: End, trailers: &[u8]) {
        if !trailers.is_empty() {
            // Set once: the fetch ends once.
            let _ = self.trailers.set(trailers.to_vec());
        }
        self.end.store(end as u8, Ordering::Release);
        self.progress.notify_waiters();
    }

    pub(crate) fn end(&self) -> End {
        match self.end.load(Ordering::Acquire) {
            0 => End::Open,
            1 => End::Whole,
            _ => End::Broken,
        }
    }

    /// Trailer lines; complete once the end is [`End::Whole`].
    pub(crate) fn trailers(&self) -> &[u8] {
        self.trailers.get().map_or(&[], Vec::as_slice)
    }
}

/// One reader's place in a growing body.
pub(crate) struct Cursor {
    growing: Arc<GrowingState>,
    chunk: Arc<Chunk>,
    /// Bytes of `chunk` that were read.
    at: usize,
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if self.growing.readers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.growing.unread.notify_one();
        }
    }
}

/// What a reader finds.
pub(crate) enum Available<'c> {
    /// Bytes that can be read now; never empty.
    Bytes(Span<'c>),
    /// The end, whole or broken.
    End(End),
}

impl Cursor {
    pub(crate) fn new(growing: Arc<GrowingState>, first: Arc<Chunk>) -> Self {
        growing.readers.fetch_add(1, Ordering::Relaxed);
        Self { growing, chunk: first, at: 0 }
    }

    pub(crate) fn trailers(&self) -> &[u8] {
        self.growing.trailers()
    }

    pub(crate) fn is_event_stream(&self) -> bool {
        self.growing.is_event_stream
    }

    /// Moves on over full chunks; true if something can be read.
    fn settle(&mut self) -> bool {
        loop {
            let published = self.chunk.published.load(Ordering::Acquire) as usize;
            if self.at < published {
                return true;
            }
            match self.chunk.next.get() {
                Some(next) => {
                    // A successor is hung on only after the last byte of this chunk was published.
                    if self.at < self.chunk.published.load(Ordering::Acquire) as usize {
                        return true;
                    }
                    self.chunk = Arc::clone(next);
                    self.at = 0;
                }
                None => return false,
            }
        }
    }

    /// Waits for bytes or for the end.
    pub(crate) async fn available(&mut self) -> Available<'_> {
        loop {
            // The order matters: first say that we wait, then look, so that no progress falls in between.
            let growing = Arc::clone(&self.growing);
            let progress = growing.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            let end = self.growing.end();
            if self.settle() {
                break;
            }
            if end != End::Open {
                return Available::End(end);
            }
            progress.await;
        }
        Available::Bytes(self.ready().unwrap_or_else(|| unreachable!("settled on bytes")))
    }

    /// The bytes that can be read without waiting.
    pub(crate) fn ready(&self) -> Option<Span<'_>> {
        let published = self.chunk.published.load(Ordering::Acquire) as usize;
        if self.at >= published {
            return None;
        }
        self.chunk.whole().map(|whole| whole.slice(self.at..published))
    }

    /// Bytes `from..to` of what is still to be read, if they lie in one piece and are there.
    pub(crate) fn whole(&self, from: u64, to: u64) -> Option<Span<'_>> {
        let (from, to) = (usize::try_from(from).ok()?, usize::try_from(to).ok()?);
        let ready = self.ready()?;
        (to <= ready.len()).then(|| ready.slice(from..to))
    }

    /// Waits until all of the body is in the store; `false` if it goes elsewhere, breaks off, or is longer than that.
    pub(crate) async fn is_stored_whole(&self, bytes_max: u64) -> bool {
        loop {
            // As in `available`.
            let progress = self.growing.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            let end = self.growing.end();
            let is_stored = |chunk: &Chunk| matches!(chunk.space, Space::Stored(_) | Space::Empty);
            let bytes: usize = self.held().map(Chunk::published).sum();
            if !self.held().all(is_stored) || bytes as u64 > bytes_max {
                return false;
            }
            match end {
                End::Whole => return true,
                End::Broken => return false,
                End::Open => progress.await,
            }
        }
    }

    /// What this reader still holds: its chunk and those behind it.
    fn held(&self) -> impl Iterator<Item = &Chunk> {
        std::iter::successors(Some(&*self.chunk), |chunk| chunk.next.get().map(|next| &**next))
    }

    /// Whether the store has run out of room and this reader pins some of the memory that it wants back.
    pub(crate) fn wanted(&self) -> bool {
        self.held().any(|chunk| matches!(&chunk.space, Space::Stored(extent) if extent.wanted()))
    }

    /// Bytes that are still to be read, once all of them are there.
    pub(crate) fn unread(&self) -> Option<usize> {
        let is_whole = self.growing.end() == End::Whole;
        is_whole.then(|| self.held().map(Chunk::published).sum::<usize>() - self.at)
    }

    /// Copies what is still to be read, which must all be there, and lets go of the store's memory.
    pub(crate) fn copy_out(&mut self) {
        let mut copy = Vec::new();
        let mut at = self.at;
        for chunk in self.held() {
            if let Some(whole) = chunk.whole() {
                whole.slice(at..chunk.published()).copy_to(&mut copy);
            }
            at = 0;
        }
        if copy.is_empty() {
            self.chunk = Chunk::empty();
        } else {
            let buffer = WordBuffer::new(copy.len());
            buffer.span().slice(0..copy.len()).write_from(&copy);
            self.chunk = Chunk::with(Space::Copied(buffer, copy.len()));
            self.chunk.publish(copy.len());
        }
        self.at = 0;
    }

    /// Marks `bytes` as read.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }
}
