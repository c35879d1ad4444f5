//! An object while it arrives: where its bytes go, and which of them may be read already.
//!
//! ```text
//! origin ─recv─▶ Extent (arena, or heap at first) ◀─read─ followers on any core, below the published count
//!                  └─ finish: linked as a whole, or never
//! ```
//! A length that is known gives one record of exactly that size, or extents of exactly that size together. One
//! that is not known starts on the heap ([`HEAP_BYTES`]), because most such bodies are small and would leave holes
//! behind; from there on each extent is as large as all before it, up to the most.

use std::{fmt, sync::Arc};

use smallvec::SmallVec;

use super::{
    hash::Hash,
    record::{Lengths, META_WORDS, Place, Record, UNIT},
    shard::Shard,
    shared::{Local, Pin},
    space::Log,
};
use crate::sys::span::{Span, WordBuffer};

/// Bytes of a body of unknown length that are gathered on the heap.
pub const HEAP_BYTES: usize = 16 << 10;

/// How long a body will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// Exactly so many bytes.
    Exact(u64),
    /// It ends when it ends.
    Unknown,
}

/// An object to be stored.
#[derive(Debug, Clone, Copy)]
pub struct NewObject<'a> {
    /// [`Store::hash`](super::Store::hash) of the key; the shard must own it.
    pub hash: Hash,
    /// What it is found by.
    pub key: &'a [u8],
    /// Bytes of the caller's that go before the body.
    pub head: &'a [u8],
    /// More bytes of the caller's before the body, which a hit need not read (tags, what later versions add).
    pub extra: &'a [u8],
    /// Words of the caller's.
    pub meta: [u64; META_WORDS],
    /// Length of the body.
    pub body: BodyLength,
    /// When it expires, in seconds of the store's time; `u32::MAX`: never.
    pub expires_s: u32,
    /// The time now; with `expires_s` it says which lifetime class the object belongs to.
    pub now_s: u32,
}

impl<'a> NewObject<'a> {
    /// A key and a body alone, for ever.
    pub const fn bare(hash: Hash, key: &'a [u8], body: BodyLength) -> Self {
        let (head, extra): (&[u8], &[u8]) = (&[], &[]);
        Self { hash, key, head, extra, meta: [0; META_WORDS], body, expires_s: u32::MAX, now_s: 0 }
    }

    /// The lengths of what is known before the body.
    pub(super) fn names(&self) -> Lengths {
        Lengths { key: self.key.len(), head: self.head.len(), extra: self.extra.len(), rest: 0, tail: 0 }
    }
}

/// Why an object is not stored. Each is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InsertRefusal {
    /// No segment can be freed now (all are filling, pinned or draining), or the index is full.
    #[error("no room in the store")]
    NoRoom,
    /// The object is larger than the store takes, or longer than it was said to be.
    #[error("the object is too large")]
    TooLarge,
    /// The body ended before the length that was said.
    #[error("the body is shorter than was said")]
    Short,
}

/// A piece of space for body bytes. Written by the core that fills the object; others read what has been published. It
/// stays as long as the `Arc` that it comes in.
pub struct Extent {
    memory: Memory,
    first: u64,
}

enum Memory {
    Arena { pin: Pin, start: usize, len: usize },
    Heap(WordBuffer),
}

impl Extent {
    /// All of its bytes.
    pub fn span(&self) -> Span<'_> {
        match &self.memory {
            Memory::Arena { pin, start, len } => Span::new(&pin.local.store.arena, *start..*start + *len),
            Memory::Heap(buffer) => buffer.span(),
        }
    }

    /// Where in the body it begins.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        match &self.memory {
            Memory::Arena { len, .. } => *len,
            Memory::Heap(buffer) => buffer.span().len(),
        }
    }

    /// Whether the store has run out of room and this is part of why, as with
    /// [`PinnedObject::wanted`](super::PinnedObject::wanted).
    pub fn wanted(&self) -> bool {
        match &self.memory {
            Memory::Arena { pin, .. } => pin.is_wanted(),
            Memory::Heap(_) => false,
        }
    }

    /// Whether it has none: that of an empty body.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extent").field("first", &self.first).field("len", &self.len()).finish()
    }
}

/// Keeps eviction away from a segment in which something unfinished lies.
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

/// An extent of an unfinished object.
#[derive(Debug)]
pub(super) struct FillingPart {
    pub(super) extent: Arc<Extent>,
    /// Its record, unless it is on the heap.
    pub(super) record: Option<(Place, Hold)>,
}

impl FillingPart {
    pub(super) fn on_heap(first: u64, len: usize) -> Self {
        Self { extent: Arc::new(Extent { memory: Memory::Heap(WordBuffer::new(len)), first }), record: None }
    }

    /// `len` bytes from byte `offset` of the record at `place` are where the body's bytes go.
    pub(super) fn in_arena(local: &Arc<Local>, place: Place, offset: usize, len: usize, first: u64) -> Self {
        let segment = local.store.geometry.segment_of(place.location);
        let start = place.location as usize * UNIT + offset;
        let memory = Memory::Arena { pin: Pin::take(local, segment), start, len };
        Self { extent: Arc::new(Extent { memory, first }), record: Some((place, Hold::take(local, place))) }
    }
}

/// An object that is being filled. Dropping it gives it up: its space is dead.
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
    /// The record that has key, head and body in one, if the body's length is known and small.
    pub(super) is_whole: bool,
    pub(super) parts: SmallVec<[FillingPart; 2]>,
    /// Parts that the caller has been given.
    pub(super) handed: usize,
    /// Body bytes that all parts have room for.
    pub(super) room: u64,
    pub(super) written: u64,
    pub(super) linked: bool,
}

impl ObjectWriter {
    /// The next contiguous space for body bytes, after all that was given before. It need not be filled before more
    /// is asked for, but bytes go into the spaces in order, without gaps.
    ///
    /// # Errors
    /// [`InsertRefusal::NoRoom`]; [`InsertRefusal::TooLarge`] when the body grows beyond what was said or is allowed.
    pub fn extend(&mut self, shard: &mut Shard) -> Result<Arc<Extent>, InsertRefusal> {
        if self.handed == self.parts.len() {
            shard.extend_filling(self)?;
        }
        let part = &self.parts[self.handed];
        self.handed += 1;
        Ok(Arc::clone(&part.extent))
    }

    /// Says that `bytes` more were written.
    ///
    /// # Panics
    /// If that is more than was given space for.
    pub fn written(&mut self, bytes: u64) {
        self.written += bytes;
        let room: u64 = self.parts[..self.handed].iter().map(|part| part.extent.len() as u64).sum();
        assert!(self.written <= room, "{} body bytes written where {room} have room", self.written);
    }

    /// Body bytes written so far.
    pub fn body_bytes(&self) -> u64 {
        self.written
    }

    /// The hash.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Places of its records.
    pub(super) fn records(&self) -> impl Iterator<Item = Place> {
        self.parts.iter().filter_map(|part| part.record.as_ref().map(|(place, _)| *place))
    }

    /// The record that has it all.
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
