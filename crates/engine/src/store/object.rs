//! Results of a lookup: an object that is valid for one epoch, and an object that is pinned for longer.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    index::Slot,
    record::{META_WORDS, Place, Record},
    segments::SegmentState,
    shared::Local,
};
use crate::sys::{arena::prefetch, span::Span};

/// A stored object, as it was when it was looked up; valid until the epoch guard is dropped.
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

    /// Returns the object's expiry in seconds on the store's clock.
    #[inline]
    pub fn expires_s(&self) -> u32 {
        self.slot.expires_s()
    }

    /// Returns the object's sequence number: each shard numbers its objects in the order of linking.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.record().sequence()
    }

    /// Returns the location of the object's record. An object stored later under the same key has another
    /// location.
    #[inline]
    pub fn place(&self) -> u64 {
        self.slot.location()
    }

    /// Returns the words that the caller stored in the object's header.
    #[inline]
    pub fn meta(&self) -> [u64; META_WORDS] {
        self.record().meta()
    }

    /// Returns the head: bytes that the caller stored before the body.
    #[inline]
    pub fn head(&self) -> Span<'t> {
        self.record().head()
    }

    /// Returns the additional bytes that the caller stored before the body.
    pub fn extra(&self) -> Span<'t> {
        self.record().extra()
    }

    /// Returns the key under which the object is stored.
    #[inline]
    pub fn key(&self) -> Span<'t> {
        self.record().key()
    }

    /// Returns the length of the body in bytes; if the body is stored in the file in parts
    /// ([`Object::parts`]), the length of the list that names the parts.
    #[inline]
    pub fn body_bytes(&self) -> u64 {
        self.record().body_bytes()
    }

    /// Returns whether the body is stored in the file in parts, with only the list of parts in memory.
    #[inline]
    pub fn is_in_parts(&self) -> bool {
        !self.slot.is_chained() && self.record().is_in_parts()
    }

    /// Returns the list of the body's parts and their locations, if the body is stored in the file in parts.
    #[cfg(not(feature = "loom"))]
    pub fn parts(&self) -> Option<super::tier::PartsList> {
        if !self.is_in_parts() {
            return None;
        }
        let mut list = Vec::new();
        self.record().body().copy_to(&mut list);
        super::tier::PartsList::parse(&list, self.slot.hash)
    }

    /// Returns the longest contiguous run of body bytes that starts at `at`; empty at the end.
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

    /// Returns the bytes that the caller stored after the body (trailers).
    #[inline]
    pub fn tail(&self) -> Span<'t> {
        self.record().tail()
    }

    /// Returns the location of each extent and the offset in the body at which it ends.
    pub(super) fn extents(&self) -> impl Iterator<Item = (Place, u64)> + use<'t> {
        let record = self.record();
        let extents = if self.slot.is_chained() { record.extents() } else { 0 };
        (0..extents).map(move |number| record.extent(number))
    }

    /// Returns the location and length of each record of the object. The record with the table of extents is
    /// the last.
    #[inline]
    pub(super) fn records(&self) -> impl Iterator<Item = Place> + use<'t> {
        let own = Place { location: self.slot.location(), units: self.slot.units() };
        self.extents().map(|(place, _)| place).chain(std::iter::once(own))
    }

    /// Pins the object, so that its bytes stay valid beyond the epoch. `None` if one of its segments is
    /// already being freed: look the object up again. Allocates nothing unless the object lies in more than
    /// eight segments.
    pub fn pin(&self) -> Option<PinnedObject> {
        let store = &self.local.store;
        let geometry = &store.geometry;
        let mut segments: SmallVec<[PinnedSegment; 8]> = SmallVec::new();
        segments.push(PinnedSegment { segment: geometry.segment_of(self.slot.location()), until: u64::MAX });
        for (place, end) in self.extents() {
            let segment = geometry.segment_of(place.location);
            // Consecutive extents share few segments; an earlier segment occurs again only after extents were
            // moved.
            match segments.iter_mut().rev().find(|pinned| pinned.segment == segment) {
                Some(pinned) => pinned.until = pinned.until.max(end),
                None => segments.push(PinnedSegment { segment, until: end }),
            }
        }
        // This check is not needed for safety (the epoch protects all segments); without it, new pins would
        // delay a segment that is being freed.
        if segments.iter().any(|pinned| store.segments.state(pinned.segment) == SegmentState::Draining) {
            return None;
        }
        for pinned in &segments {
            store.segments.pins.take(self.local.core, pinned.segment);
        }
        Some(PinnedObject { local: Arc::clone(self.local), slot: self.slot, segments, released: 0 })
    }

    /// Prefetches the words of an object that the accessors read first.
    #[inline]
    pub(super) fn prefetch(local: &Local, slot: &Slot) {
        let words = &local.store.arena[slot.location() as usize * 2..];
        // These are the header, and the words at which the key and the head begin.
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

/// A pinned object: its bytes stay unchanged until this value is dropped, which may happen on any core. The
/// object may have been replaced or unlinked in the meantime; a response sent from it answers a request that
/// arrived before that.
#[derive(Debug)]
pub struct PinnedObject {
    local: Arc<Local>,
    slot: Slot,
    /// Segments of the object, each pinned once for `local.core`.
    segments: SmallVec<[PinnedSegment; 8]>,
    /// Offset before which body bytes may be in segments that are no longer pinned.
    released: u64,
}

#[derive(Debug, Clone, Copy)]
struct PinnedSegment {
    segment: usize,
    /// Offset in the body at which the last extent in this segment ends; `u64::MAX` for the segment that
    /// holds the object's record and its table of extents.
    until: u64,
}

impl PinnedObject {
    pub(super) fn object(&self) -> Object<'_> {
        Object { local: &self.local, slot: self.slot }
    }

    /// Returns the expiry at the time of the lookup, in seconds on the store's clock.
    pub fn expires_s(&self) -> u32 {
        self.object().expires_s()
    }

    /// Returns the object's sequence number in its shard.
    pub fn sequence(&self) -> u64 {
        self.object().sequence()
    }

    /// Returns the words that the caller stored in the object's header.
    pub fn meta(&self) -> [u64; META_WORDS] {
        self.object().meta()
    }

    /// Returns the head: bytes that the caller stored before the body.
    pub fn head(&self) -> Span<'_> {
        self.object().head()
    }

    /// Returns the additional bytes that the caller stored before the body.
    pub fn extra(&self) -> Span<'_> {
        self.object().extra()
    }

    /// Returns the key under which the object is stored.
    pub fn key(&self) -> Span<'_> {
        self.object().key()
    }

    /// Returns the length of the body in bytes.
    pub fn body_bytes(&self) -> u64 {
        self.object().body_bytes()
    }

    /// Returns the longest contiguous run of body bytes that starts at `at`; empty at the end.
    ///
    /// # Panics
    /// Panics if the bytes at `at` were released.
    pub fn body(&self, at: u64) -> Span<'_> {
        assert!(at >= self.released, "body byte {at} was released (all before {})", self.released);
        self.object().body(at)
    }

    /// Returns body bytes like [`PinnedObject::body`], to be sent from their pages without a copy: the kernel
    /// keeps the pages that it refers to, even after this value is dropped and the store reuses the space.
    ///
    /// # Panics
    /// Panics if the bytes at `at` were released, or if the store does not lend pages
    /// ([`Store::lends`](super::Store::lends)).
    pub fn lend(&self, at: u64) -> Span<'_> {
        let store = &self.local.store;
        assert!(store.lends(), "only a store that can renew segments may lend memory");
        // All segments of the object are marked although one would be enough, because most objects lie in one
        // segment.
        self.segments.iter().for_each(|pinned| store.segments.lend(pinned.segment));
        self.body(at)
    }

    /// Returns the bytes that the caller stored after the body (trailers).
    pub fn tail(&self) -> Span<'_> {
        self.object().tail()
    }

    /// Unpins segments that hold only body bytes before `at`.
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

    /// Returns whether the store has run out of room and waits for one of the pinned segments. The holder
    /// must then copy the bytes it still needs (at most 64 KiB), or end its response within its grace time.
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
