//! A body that can be read while it arrives.
//!
//! ```text
//!   fetching core                                   any core with a reader
//!   ─────────────                                   ──────────────────────
//!   Chunk 0 ──next──▶ Chunk 1 ──next──▶ Chunk 2 ◀── cursor of the slowest … of the fastest
//!   published         published         published ▲ stored (Release) by the fetching core, then `progress`
//! ```
//!
//! Location of the data: in the store's segments (pinned by the extent) if the body is stored, on the heap if it
//! is passed through. Chunks are reference-counted: a reader holds the chunk that it reads, the in-flight
//! table holds the first chunk as long as further requests may join, and chunks behind the slowest reader are
//! freed automatically. No reader takes a lock; a reader that has caught up waits on `progress`.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering},
};

use engine::{
    store::Extent,
    sys::span::{Span, WordBuffer},
};
use tokio::sync::Notify;

/// Size in bytes of one chunk of a body that is passed through without being stored.
pub(crate) const PASSING_CHUNK_BYTES: usize = 64 * 1024;
/// Maximum number of chunks in memory for a body that is passed through; at this number the fetch waits for
/// its readers.
pub(crate) const PASSING_CHUNKS_MAX: usize = 8;
/// Maximum number of chunks for a passed-through body while the memory budget is nearly used up: the chunk
/// that the reader has finished but still holds, and the next one.
const PASSING_CHUNKS_MIN: usize = 2;
/// Size in bytes of a new chunk while the budget for passed-through bodies is nearly used up.
const SMALL_CHUNK_BYTES: usize = 4 * 1024;
/// Minimum memory in bytes that a passed-through body needs.
pub(crate) const PASSING_BYTES_MIN: usize = PASSING_CHUNKS_MIN * SMALL_CHUNK_BYTES;

/// Location of a chunk's bytes.
enum Space {
    /// Memory in the store; the extent pins the segment.
    Stored(Arc<Extent>),
    /// Heap memory, freed when the last reader has moved on.
    Passing(WordBuffer, Arc<Window>),
    /// Heap memory: a copy for one reader, made because the store needed its segment back.
    Copied(WordBuffer, usize),
    /// No memory: the body is empty.
    Empty,
}

/// Memory budget for the chunks of all passed-through bodies. A thousand stalled readers would fill a
/// thousand windows. So above half of the budget each body is limited to two chunks, which keeps it moving,
/// and new chunks are a quarter as large; above three quarters they are a sixteenth as large.
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

    /// Returns the maximum size of a new chunk.
    fn chunk_bytes(&self) -> usize {
        match self.bytes.load(Ordering::Relaxed) {
            used if used <= self.max / 2 => PASSING_CHUNK_BYTES,
            used if used <= self.max / 4 * 3 => PASSING_CHUNK_BYTES / 4,
            _ => SMALL_CHUNK_BYTES,
        }
    }
}

/// Window of a passed-through body: counts its live chunks, and makes the fetch wait when there are too many.
pub(crate) struct Window {
    alive: AtomicUsize,
    freed: Notify,
    budget: Arc<PassingBudget>,
}

impl Window {
    pub(crate) fn new(budget: &Arc<PassingBudget>) -> Arc<Self> {
        Arc::new(Self { alive: AtomicUsize::new(0), freed: Notify::new(), budget: Arc::clone(budget) })
    }

    /// Waits until another chunk may be created. Returns true if it had to wait because the memory budget is
    /// nearly used up, not because readers of this body are slow.
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

/// A contiguous part of a body; its first `published` bytes may be read.
pub(crate) struct Chunk {
    space: Space,
    /// Bytes from the start of `space` that may be read. Written by the fetching core only.
    published: AtomicU32,
    next: OnceLock<Arc<Chunk>>,
}

impl Chunk {
    /// Creates a chunk in the store.
    pub(crate) fn stored(extent: Arc<Extent>) -> Arc<Self> {
        Self::with(Space::Stored(extent))
    }

    /// Creates a chunk on the heap, counted in `window`.
    pub(crate) fn passing(window: &Arc<Window>, bytes: usize) -> Arc<Self> {
        window.alive.fetch_add(1, Ordering::AcqRel);
        let buffer = WordBuffer::new(bytes.min(window.budget.chunk_bytes()));
        window.budget.bytes.fetch_add(buffer.span().len(), Ordering::Relaxed);
        Self::with(Space::Passing(buffer, Arc::clone(window)))
    }

    /// Creates the only chunk of an empty body.
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

    /// Returns the part that is still to be written; `None` when the chunk is full.
    pub(crate) fn vacant(&self) -> Option<Span<'_>> {
        let whole = self.whole()?;
        let at = self.published.load(Ordering::Relaxed) as usize;
        (at < whole.len()).then(|| whole.slice(at..whole.len()))
    }

    /// Returns the number of bytes that may be read.
    fn published(&self) -> usize {
        self.published.load(Ordering::Acquire) as usize
    }

    /// Makes `bytes` more bytes readable. Only the fetching core calls this, after it has written them.
    pub(crate) fn publish(&self, bytes: usize) {
        let now = self.published.load(Ordering::Relaxed) as usize + bytes;
        assert!(self.whole().is_some_and(|whole| now <= whole.len()), "published beyond the chunk");
        #[expect(clippy::cast_possible_truncation, reason = "an extent is at most a segment, 4 MiB")]
        self.published.store(now as u32, Ordering::Release);
    }

    /// Appends the next chunk to this one.
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
        // A long list is dropped in a loop, because recursion could exhaust the stack.
        let mut next = self.next.take();
        while let Some(chunk) = next {
            next = Arc::into_inner(chunk).and_then(|mut only| only.next.take());
        }
    }
}

/// State of a fetch: open, complete or broken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// More bytes may arrive.
    Open,
    /// The whole body has arrived.
    Whole,
    /// The origin broke off the transfer; the published bytes are only the beginning of the body.
    Broken,
}

/// State of a growing body that all its readers share.
pub(crate) struct GrowingState {
    /// True if the body is an event stream.
    is_event_stream: bool,
    end: AtomicU8,
    /// Trailer lines as received, each ended by CRLF; set before `end` is.
    trailers: OnceLock<Vec<u8>>,
    progress: Notify,
    /// Number of cursors.
    readers: AtomicUsize,
    /// Notified when the last cursor is dropped.
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

    /// Waits until no cursor is left. Call only for a body that has had a reader and that no further reader
    /// can join.
    pub(crate) async fn wait_until_unread(&self) {
        // `Notify` keeps a permit if the last cursor is dropped first, so no drop is missed.
        while self.readers.load(Ordering::Acquire) > 0 {
            self.unread.notified().await;
        }
    }

    /// Wakes the readers after more bytes were published.
    pub(crate) fn grown(&self) {
        self.progress.notify_waiters();
    }

    /// Sets the end of the body: nothing more arrives.
    pub(crate) fn finish(&self, end: End, trailers: &[u8]) {
        if !trailers.is_empty() {
            // A fetch ends once, so the trailers are set once.
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

    /// Returns the trailer lines; complete once the end is [`End::Whole`].
    pub(crate) fn trailers(&self) -> &[u8] {
        self.trailers.get().map_or(&[], Vec::as_slice)
    }
}

/// A reader's position in a growing body.
pub(crate) struct Cursor {
    growing: Arc<GrowingState>,
    chunk: Arc<Chunk>,
    /// Bytes of `chunk` that have been read.
    at: usize,
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if self.growing.readers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.growing.unread.notify_one();
        }
    }
}

/// Result of waiting for more of a body.
pub(crate) enum Available<'c> {
    /// Bytes that can be read now; never empty.
    Bytes(Span<'c>),
    /// The end of the body, whole or broken off.
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

    /// Skips chunks that have been read completely; returns true if bytes can be read.
    fn settle(&mut self) -> bool {
        loop {
            let published = self.chunk.published.load(Ordering::Acquire) as usize;
            if self.at < published {
                return true;
            }
            match self.chunk.next.get() {
                Some(next) => {
                    // The next chunk is appended only after this chunk's last byte was published.
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
            // The order matters: registering for `progress` before the check ensures that no progress is
            // missed in between.
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

    /// Returns the bytes that can be read without waiting.
    pub(crate) fn ready(&self) -> Option<Span<'_>> {
        let published = self.chunk.published.load(Ordering::Acquire) as usize;
        if self.at >= published {
            return None;
        }
        self.chunk.whole().map(|whole| whole.slice(self.at..published))
    }

    /// Returns bytes `from..to` of the unread data, if they have arrived and are contiguous.
    pub(crate) fn whole(&self, from: u64, to: u64) -> Option<Span<'_>> {
        let (from, to) = (usize::try_from(from).ok()?, usize::try_from(to).ok()?);
        let ready = self.ready()?;
        (to <= ready.len()).then(|| ready.slice(from..to))
    }

    /// Waits until all of the body is in the store. Returns `false` if the body is not stored, breaks off, or
    /// is longer than `bytes_max`.
    pub(crate) async fn is_stored_whole(&self, bytes_max: u64) -> bool {
        loop {
            // The order matters as in `available`.
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

    /// Iterates over the chunks that this reader keeps alive: its current chunk and all later ones.
    fn held(&self) -> impl Iterator<Item = &Chunk> {
        std::iter::successors(Some(&*self.chunk), |chunk| chunk.next.get().map(|next| &**next))
    }

    /// Returns true if the store has run out of room and needs memory back that this reader pins.
    pub(crate) fn wanted(&self) -> bool {
        self.held().any(|chunk| matches!(&chunk.space, Space::Stored(extent) if extent.wanted()))
    }

    /// Returns the number of unread bytes once the whole body has arrived.
    pub(crate) fn unread(&self) -> Option<usize> {
        let is_whole = self.growing.end() == End::Whole;
        is_whole.then(|| self.held().map(Chunk::published).sum::<usize>() - self.at)
    }

    /// Copies the unread bytes, which must all have arrived, and releases the store's memory.
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
