//! An object while its body arrives: where its bytes are stored, and which of them may already be read.
//!
//! ```text
//! origin ─recv─▶ Extent (arena, or heap at first) ◀─read─ followers on any core, below the published count
//!                  └─ finish: linked as a whole, or never
//! ```
//! A body of known length gets one record of exactly that size, or extents of exactly that total size. A body
//! of unknown length starts on the heap ([`HEAP_BYTES`]), because most such bodies are small and would leave
//! holes in the arena. After that each extent is as large as all extents before it, up to the maximum.

use std::{fmt, sync::Arc};

use smallvec::SmallVec;

use super::{
    hash::Hash,
    record::{Lengths, META_WORDS, Place, Record, UNIT},
    shared::{Local, Pin},
    space::Log,
};
use crate::sys::span::{Span, WordBuffer};

/// Maximum bytes of a body of unknown length that are buffered on the heap.
pub const HEAP_BYTES: usize = 16 << 10;

/// Length of a body, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// The body has exactly this many bytes.
    Exact(u64),
    /// The length is known only at the end of the body.
    Unknown,
}

/// An object to be stored.
#[derive(Debug, Clone, Copy)]
pub struct NewObject<'a> {
    /// [`Store::hash`](super::Store::hash) of the key; the shard must own it.
    pub hash: Hash,
    /// Key under which the object is stored.
    pub key: &'a [u8],
    /// Head of the object: bytes that the caller stores before the body.
    pub head: &'a [u8],
    /// Additional bytes that the caller stores before the body, which a hit need not read (tags, fields of
    /// later versions).
    pub extra: &'a [u8],
    /// Words that the caller stores in the object's header.
    pub meta: [u64; META_WORDS],
    /// Length of the body.
    pub body: BodyLength,
    /// Expiry in seconds on the store's clock; `u32::MAX`: never.
    pub expires_s: u32,
    /// Current time in seconds on the store's clock; together with `expires_s` it determines the object's
    /// lifetime class.
    pub now_s: u32,
}

impl<'a> NewObject<'a> {
    /// Creates an object that has only a key and a body, and never expires.
    pub const fn bare(hash: Hash, key: &'a [u8], body: BodyLength) -> Self {
        let (head, extra): (&[u8], &[u8]) = (&[], &[]);
        Self { hash, key, head, extra, meta: [0; META_WORDS], body, expires_s: u32::MAX, now_s: 0 }
    }

    /// Returns the lengths of key, head and extra, which are known before the body.
    pub(super) fn names(&self) -> Lengths {
        Lengths { key: self.key.len(), head: self.head.len(), extra: self.extra.len(), rest: 0, tail: 0 }
    }
}

/// Reasons why an object is not stored. Each is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InsertRefusal {
    /// No segment can be freed now (all are being filled, pinned or draining), or the index is full.
    #[error("no room in the store")]
    NoRoom,
    /// The object is larger than the store accepts, or its body is longer than announced.
    #[error("the object is too large")]
    TooLarge,
    /// The body ended before its announced length.
    #[error("the body is shorter than announced")]
    Short,
}

/// Space for body bytes. The core that fills the object writes to it; other cores read the bytes that have
/// been published. The space stays as long as the `Arc` around it.
pub struct Extent {
    memory: Memory,
    first: u64,
}

enum Memory {
    Arena { pin: Pin, start: usize, len: usize },
    Heap(WordBuffer),
}

impl Extent {
    /// Returns all bytes of the extent.
    pub fn span(&self) -> Span<'_> {
        match &self.memory {
            Memory::Arena { pin, start, len } => Span::new(&pin.local.store.arena, *start..*start + *len),
            Memory::Heap(buffer) => buffer.span(),
        }
    }

    /// Returns the offset in the body at which the extent begins.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the length of the extent in bytes.
    pub fn len(&self) -> usize {
        match &self.memory {
            Memory::Arena { len, .. } => *len,
            Memory::Heap(buffer) => buffer.span().len(),
        }
    }

    /// Returns whether the store has run out of room and waits for the segment of this extent, like
    /// [`PinnedObject::wanted`](super::PinnedObject::wanted).
    pub fn wanted(&self) -> bool {
        match &self.memory {
            Memory::Arena { pin, .. } => pin.is_wanted(),
            Memory::Heap(_) => false,
        }
    }

    /// Returns whether the extent has no bytes, as for an empty body.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extent").field("first", &self.first).field("len", &self.len()).finish()
    }
}

/// Guard that prevents eviction of a segment that contains an unfinished object.
#[derive(Debug)]
pub(super) struct Hold {
    local: Arc<Local>,
    segment: usize,
}

impl Hold {
    pub(super) fn take(local: &Arc<Local>, place: Place) -> Self {
        let segment = local.store.geometry.segment_of(place.location);
        local.store.segments.filling_begins(segment);
        Self { local: Arc::clone(local), segment }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.local.store.segments.filling_ends(self.segment);
    }
}

/// One extent of an unfinished object, with its record.
#[derive(Debug)]
pub(super) struct FillingPart {
    pub(super) extent: Arc<Extent>,
    /// Record of the extent; `None` while the extent is on the heap.
    pub(super) record: Option<(Place, Hold)>,
}

impl FillingPart {
    pub(super) fn on_heap(first: u64, len: usize) -> Self {
        Self { extent: Arc::new(Extent { memory: Memory::Heap(WordBuffer::new(len)), first }), record: None }
    }

    /// Creates a part in the arena: its body bytes are the `len` bytes from offset `offset` of the record at
    /// `place`.
    pub(super) fn in_arena(local: &Arc<Local>, place: Place, offset: usize, len: usize, first: u64) -> Self {
        let segment = local.store.geometry.segment_of(place.location);
        let start = place.location as usize * UNIT + offset;
        let memory = Memory::Arena { pin: Pin::take(local, segment), start, len };
        Self { extent: Arc::new(Extent { memory, first }), record: Some((place, Hold::take(local, place))) }
    }
}

/// Writer of an object that is being filled. Dropping it abandons the object, whose space is then dead.
#[derive(Debug)]
pub struct ObjectWriter {
    pub(super) local: Arc<Local>,
    pub(super) hash: Hash,
    pub(super) key: Box<[u8]>,
    pub(super) head: Box<[u8]>,
    pub(super) extra: Box<[u8]>,
    pub(super) meta: [u64; META_WORDS],
    pub(super) length: BodyLength,
    pub(super) expires_s: u32,
    pub(super) log: Log,
    /// True if one record holds key, head and body, because the body's length is known and small.
    pub(super) is_whole: bool,
    pub(super) parts: SmallVec<[FillingPart; 2]>,
    /// Number of parts that have been handed to the caller.
    pub(super) handed: usize,
    /// Total room for body bytes in all parts.
    pub(super) room: u64,
    pub(super) written: u64,
    pub(super) linked: bool,
}

impl ObjectWriter {
    /// Records that `bytes` more body bytes were written.
    ///
    /// # Panics
    /// Panics if more was written than there is space for.
    pub fn written(&mut self, bytes: u64) {
        self.written += bytes;
        let room: u64 = self.parts[..self.handed].iter().map(|part| part.extent.len() as u64).sum();
        assert!(self.written <= room, "{} body bytes written, with room for {room}", self.written);
    }

    /// Returns the number of body bytes written so far.
    pub fn body_bytes(&self) -> u64 {
        self.written
    }

    /// Returns the hash of the object's key.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Returns the location and length of each of the object's records.
    pub(super) fn records(&self) -> impl Iterator<Item = Place> {
        self.parts.iter().filter_map(|part| part.record.as_ref().map(|(place, _)| *place))
    }

    /// Returns the record that holds the whole object, if the object has only one.
    pub(super) fn whole_record(&self) -> Option<(Place, Record<'_>)> {
        let place = self.records().next().filter(|_| self.is_whole)?;
        Some((place, self.local.store.record(place.location)))
    }
}

impl Drop for ObjectWriter {
    fn drop(&mut self) {
        if !self.linked {
            self.local.store.shards[self.local.core].tally.abandoned.add_shared(1);
        }
    }
}
