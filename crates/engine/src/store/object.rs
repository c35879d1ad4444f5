//! What a lookup hands out: an object for the length of a turn, or pinned for longer.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    index::Slot,
    record::{META_WORDS, Place, Record},
    segments::SegmentState,
    shared::Local,
};
use crate::sys::{arena::prefetch, span::Span};

/// A stored object, as it was when it was looked up; good for the turn.
#[derive(Debug, Clone, Copy)]
pub struct Object<'t> {
    pub(super) local: &'t Arc<Local>,
    pub(super) slot: Slot,
}

impl<'t> Object<'t> {
    #[inline]
    fn record(&self) -> Record<'t> {
        self.local.store.record(self.slot.location())
    }

    /// When it expires, in seconds of the store's time.
    #[inline]
    pub fn expires_s(&self) -> u32 {
        self.slot.expires_s()
    }

    /// Which of its shard's objects it is, counted by when they were linked.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.record().sequence()
    }

    /// Where its record is: what is stored in its place meanwhile is elsewhere, and has another place.
    #[inline]
    pub fn place(&self) -> u64 {
        self.slot.location()
    }

    /// The caller's words.
    #[inline]
    pub fn meta(&self) -> [u64; META_WORDS] {
        self.record().meta()
    }

    /// The caller's head bytes.
    #[inline]
    pub fn head(&self) -> Span<'t> {
        self.record().head()
    }

    /// The caller's extra bytes.
    pub fn extra(&self) -> Span<'t> {
        self.record().extra()
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> Span<'t> {
        self.record().key()
    }

    /// Bytes of the body; of one that is on the file in parts ([`Object::parts`]), those of the list of them.
    #[inline]
    pub fn body_bytes(&self) -> u64 {
        self.record().body_bytes()
    }

    /// Whether the body is on the file in parts, and only the list of them is here.
    #[inline]
    pub fn is_in_parts(&self) -> bool {
        !self.slot.is_chained() && self.record().is_in_parts()
    }

    /// Where the parts of the body are, if that is on the file in parts.
    #[cfg(not(feature = "loom"))]
    pub fn parts(&self) -> Option<super::tier::PartsList> {
        if !self.is_in_parts() {
            return None;
        }
        let mut list = Vec::new();
        self.record().body().copy_to(&mut list);
        super::tier::PartsList::parse(&list, self.slot.hash)
    }

    /// The longest contiguous run of body bytes from `at`; empty at the end.
    #[inline]
    pub fn body(&self, at: u64) -> Span<'t> {
        if self.slot.is_chained() { self.chained_body(at) } else { whole_body(&self.record(), at) }
    }

    fn chained_body(&self, at: u64) -> Span<'t> {
        let record = self.record();
        let number = record.extent_of(at);
        if number >= record.extents() {
            return record.key().slice(0..0);
        }
        let start = if number == 0 { 0 } else { record.extent(number - 1).1 };
        let (place, end) = record.extent(number);
        let extent = self.local.store.record(place.location);
        extent.extent_body((end - start) as usize).slice((at - start) as usize..(end - start) as usize)
    }

    /// The tail bytes (trailers).
    #[inline]
    pub fn tail(&self) -> Span<'t> {
        self.record().tail()
    }

    /// Places of the extents with the end of each in the body.
    pub(super) fn extents(&self) -> impl Iterator<Item = (Place, u64)> + use<'t> {
        let record = self.record();
        let extents = if self.slot.is_chained() { record.extents() } else { 0 };
        (0..extents).map(move |number| record.extent(number))
    }

    /// Keeps the object's bytes beyond the turn. `None` if a segment of it is being freed already: look it up again.
    /// Allocates nothing unless it lies in more than eight segments.
    pub fn pin(&self) -> Option<PinnedObject> {
        let store = &self.local.store;
        let geometry = &store.geometry;
        let mut segments: SmallVec<[PinnedSegment; 8]> = SmallVec::new();
        segments.push(PinnedSegment { segment: geometry.segment_of(self.slot.location()), until: u64::MAX });
        for (place, end) in self.extents() {
            let segment = geometry.segment_of(place.location);
            // Extents lie in few segments one after the other; an older one comes up again only after moves.
            match segments.iter_mut().rev().find(|pinned| pinned.segment == segment) {
                Some(pinned) => pinned.until = pinned.until.max(end),
                None => segments.push(PinnedSegment { segment, until: end }),
            }
        }
        // Not for safety (the turn holds everything): so that what is being freed does not stay for newcomers.
        if segments.iter().any(|pinned| store.segments.state(pinned.segment) == SegmentState::Draining) {
            return None;
        }
        for pinned in &segments {
            store.segments.pins.take(self.local.core, pinned.segment);
        }
        Some(PinnedObject { local: Arc::clone(self.local), slot: self.slot, segments, released: 0 })
    }

    /// Brings near what the reading functions will read first.
    #[inline]
    pub(super) fn prefetch(local: &Local, slot: &Slot) {
        let words = &local.store.arena[slot.location() as usize * 2..];
        // The header, and where the key and the head begin.
        for word in [0, 8, 17] {
            if let Some(word) = words.get(word) {
                prefetch(word);
            }
        }
    }
}

#[inline]
fn whole_body<'a>(record: &Record<'a>, at: u64) -> Span<'a> {
    let body = record.body();
    let at = usize::try_from(at).unwrap_or(usize::MAX).min(body.len());
    body.slice(at..body.len())
}

/// An object whose bytes stay as they are until this is dropped, on any core. It may have been replaced or unlinked
/// in the meantime: what is sent from it is the answer to a request that came before.
#[derive(Debug)]
pub struct PinnedObject {
    local: Arc<Local>,
    slot: Slot,
    /// Each pinned once for `local.core`.
    segments: SmallVec<[PinnedSegment; 8]>,
    /// Body bytes before this may be in segments that are not pinned any more.
    released: u64,
}

#[derive(Debug, Clone, Copy)]
struct PinnedSegment {
    segment: usize,
    /// Where in the body the last extent in this segment ends; no end for the one with the record and the table.
    until: u64,
}

impl PinnedObject {
    pub(super) fn object(&self) -> Object<'_> {
        Object { local: &self.local, slot: self.slot }
    }

    /// When it expires (as of the lookup), in seconds of the store's time.
    pub fn expires_s(&self) -> u32 {
        self.object().expires_s()
    }

    /// Which of its shard's objects it is.
    pub fn sequence(&self) -> u64 {
        self.object().sequence()
    }

    /// The caller's words.
    pub fn meta(&self) -> [u64; META_WORDS] {
        self.object().meta()
    }

    /// The caller's head bytes.
    pub fn head(&self) -> Span<'_> {
        self.object().head()
    }

    /// The caller's extra bytes.
    pub fn extra(&self) -> Span<'_> {
        self.object().extra()
    }

    /// The key.
    pub fn key(&self) -> Span<'_> {
        self.object().key()
    }

    /// Bytes of the body.
    pub fn body_bytes(&self) -> u64 {
        self.object().body_bytes()
    }

    /// The longest contiguous run of body bytes from `at`; empty at the end.
    ///
    /// # Panics
    /// If that was released.
    pub fn body(&self, at: u64) -> Span<'_> {
        assert!(at >= self.released, "body byte {at} was released (all before {})", self.released);
        self.object().body(at)
    }

    /// As [`PinnedObject::body`], to be sent from its pages without a copy: the kernel keeps the pages that it refers
    /// to, even when this is dropped and the store uses the place again.
    ///
    /// # Panics
    /// If that was released; if the store does not lend ([`Store::lends`](super::Store::lends)).
    pub fn lend(&self, at: u64) -> Span<'_> {
        let store = &self.local.store;
        assert!(store.lends(), "a store lends only what it can renew");
        // All that it lies in, where one would do: most lie in one.
        self.segments.iter().for_each(|pinned| store.segments.lend(pinned.segment));
        self.body(at)
    }

    /// The tail bytes (trailers).
    pub fn tail(&self) -> Span<'_> {
        self.object().tail()
    }

    /// Lets go of segments that hold only body bytes before `at`.
    pub fn release_before(&mut self, at: u64) {
        self.released = self.released.max(at);
        let Self { local, segments, .. } = self;
        segments.retain(|pinned| {
            let keep = pinned.until > at;
            if !keep {
                local.store.segments.pins.release(local.core, pinned.segment);
            }
            keep
        });
    }

    /// Whether the store has run out of room and this is part of why. The holder must then copy what it still needs
    /// (at most 64 KiB), or end its response within its grace time.
    pub fn wanted(&self) -> bool {
        let store = &self.local.store;
        self.segments.iter().any(|pinned| store.is_wanted(pinned.segment))
    }
}

impl Drop for PinnedObject {
    fn drop(&mut self) {
        for pinned in &self.segments {
            self.local.store.segments.pins.release(self.local.core, pinned.segment);
        }
    }
}
