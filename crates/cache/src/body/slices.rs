//! Delivery of a sliced object to a client: each slice comes from memory, from the file, or from the origin,
//! and is then stored for all clients.
//!
//! ```text
//!  hit: a sliced object's head ─▶ open: the first slice of the range ─ in memory? pinned ─ else its owner: file, or origin
//!                                 │ other version: the object is dropped and fetched again
//!                                 │ no range available: passed
//!                                 ▼
//!         head, slice 3 ── meanwhile slice 4 is requested, not pinned ─▶ slice 4 ─▶ …   lost: the connection is cut
//! ```
//! *Memory:* a client holds only the slice that is being sent to it, pinned in the store or read while it
//! arrives. The next slice is requested ahead and left in the store, so a slow client holds one slice and not
//! two. *Bounds:* those of the store, of the fetch table and of the origin's permits. A slice that the store
//! does not accept is passed through to its client alone.

use std::{ops::Range, sync::Arc};

use engine::{
    cores::clock,
    store::{EpochGuard, Hash, Lookup, Object, PinnedObject},
};

use crate::{
    body::{
        growing::Cursor,
        slice::{BLOCK_BYTES, Block, Fit, Version},
    },
    core::{Core, store_s, with_core},
    counters::Counter,
    deliver::downstream::WithoutBody,
    fetch::{
        self,
        arriving::{self, Content},
        in_flight::{FetchOutcome, FetchTerms},
    },
    head::response_head::StoredMeta,
    origin::OriginError,
    request::{Request, dependent::Dependent},
};

/// Maximum number of lookups for a slice that was reported as present.
const LOOKS_MAX: usize = 3;
/// Number of missing slices that a request for several ranges may always fetch, even if it asks for only a
/// few bytes of each.
const WIDE_BLOCKS_MAX: usize = 4;
/// Limit for requests with more than [`WIDE_BLOCKS_MAX`] missing slices: the missing slices together may be
/// at most this many times as large as the requested ranges.
const WIDE_TIMES: u64 = 4;
/// Maximum number of slices that are looked up to check whether they are stored; more lookups would delay
/// other clients of the event loop.
const LOOKED_FOR_MAX: u32 = 64;

/// Result of a lookup: a sliced object.
pub(crate) struct InBlocks {
    pub(crate) version: Version,
    /// The requested bytes of the body; at least one.
    pub(crate) range: Range<u64>,
}

impl InBlocks {
    /// Describes a sliced object from its stored head; returns `None` if the head no longer has an entity
    /// tag.
    pub(crate) fn of(object: &Object<'_>, meta: &StoredMeta, complete: u64, head: &[u8]) -> Option<Self> {
        let etag = meta.etag_of(head)?.into();
        let (sequence, expires_s) = (object.sequence(), object.expires_s());
        let version = Version { sequence, etag, complete, meta: *meta, expires_s };
        Some(Self { version, range: 0..complete })
    }
}

/// Reason why a slice is unavailable.
pub(crate) enum SliceError {
    /// The origin now has another version; the stored object is dropped.
    OtherVersion,
    /// The origin does not send the range as a slice.
    Refused,
    /// The request forbids a fetch from the origin (`only-if-cached`).
    OnlyIfCached,
    /// The origin failed.
    Failed(OriginError),
}

/// A slice that is ready to be sent.
pub(crate) enum AtHand {
    /// The slice is in the store.
    Stored(PinnedObject),
    /// The slice is arriving from the origin.
    Arriving(Cursor),
    /// The slice is a copy on the heap.
    Copied(Vec<u8>),
}

/// A sliced body that is being sent, with one slice in memory or arriving.
pub(crate) struct Blocks {
    /// The client's request, with the key of the whole object.
    request: Arc<Request>,
    version: Version,
    range: Range<u64>,
    number: u32,
    at_hand: Option<AtHand>,
}

/// An opened sliced body, and whether its first slice was in the store.
pub(crate) struct OpenSlices {
    pub(crate) blocks: Blocks,
    pub(crate) was_stored: bool,
}

/// Checks before the head is sent that the answer can be delivered: the first slice is in memory or arriving.
pub(crate) async fn open(
    found: InBlocks,
    request: &Arc<Request>,
    only_if_cached: bool,
) -> Result<OpenSlices, SliceError> {
    let InBlocks { version, range } = found;
    let number = Version::number_at(range.start);
    let mut blocks = Blocks { request: Arc::clone(request), version, range, number, at_hand: None };
    if only_if_cached && !with_core(|core| blocks.are_all_stored(core)) {
        return Err(SliceError::OnlyIfCached);
    }
    blocks.fill().await?;
    let was_stored = matches!(blocks.at_hand, Some(AtHand::Stored(_)));
    if was_stored {
        with_core(|core| {
            core.count(Counter::Hits);
            if blocks.range.end - blocks.range.start < blocks.version.complete {
                core.count(Counter::HitsRange);
            }
            core.add(Counter::MillisSaved, u64::from(blocks.version.meta.origin_ms));
        });
    }
    Ok(OpenSlices { blocks, was_stored })
}

/// Returns whether the ranges are so far apart that the missing slices are many times as large as the
/// requested bytes: 32 ranges of one byte each would cause 14 MB to be fetched.
pub(crate) fn are_wide(found: &InBlocks, ranges: &[Range<u64>], request: &Arc<Request>) -> bool {
    let InBlocks { version, range } = found;
    let (version, range, request) = (version.clone(), range.clone(), Arc::clone(request));
    let blocks = Blocks { request, version, range, number: 0, at_hand: None };
    let mut numbers: Vec<u32> = ranges
        .iter()
        .flat_map(|range| Version::number_at(range.start)..=Version::number_at(range.end - 1))
        // A range that spans this many slices asks for nearly all of their bytes, so it is not wide.
        .take(LOOKED_FOR_MAX as usize)
        .collect();
    numbers.dedup();
    let now_s = clock::unix_s();
    let missing = with_core(|core| {
        let turn = core.storage.reader.turn();
        numbers.iter().filter(|number| blocks.find(&turn, **number, now_s).is_none()).count()
    });
    let asked_bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    missing > WIDE_BLOCKS_MAX && missing as u64 * BLOCK_BYTES > WIDE_TIMES * asked_bytes
}

impl Blocks {
    /// Takes the current slice to send it, and returns it with its requested bytes. Requests the next slice
    /// in the background.
    pub(crate) fn take(&mut self) -> Option<(AtHand, Range<u64>)> {
        let at_hand = self.at_hand.take()?;
        let bytes = self.version.bytes_of(self.number);
        let wanted = self.range.start.max(bytes.start)..self.range.end.min(bytes.end);
        with_core(|core| {
            if matches!(at_hand, AtHand::Stored(_)) {
                core.count(Counter::BlocksStored);
                core.add(Counter::BytesSaved, wanted.end - wanted.start);
            }
            if self.range.end > bytes.end {
                self.ask_ahead(core, self.number + 1);
            }
        });
        Some((at_hand, wanted.start - bytes.start..wanted.end - bytes.start))
    }

    /// Moves on to the next slice. Returns false if the current one was the last.
    pub(crate) async fn go_on(&mut self) -> Result<bool, SliceError> {
        if self.number == Version::number_at(self.range.end - 1) {
            return Ok(false);
        }
        self.number += 1;
        self.fill().await.map(|_| true)
    }

    /// Moves to another range of the body.
    pub(crate) async fn seek(&mut self, range: Range<u64>) -> Result<(), SliceError> {
        if self.range != range {
            self.number = Version::number_at(range.start);
            self.range = range;
            self.fill().await?;
        }
        Ok(())
    }

    /// Gets the current slice from the store or the origin.
    async fn fill(&mut self) -> Result<(), SliceError> {
        for _ in 0..LOOKS_MAX {
            if let Some(stored) = with_core(|core| self.stored(core)) {
                self.at_hand = Some(AtHand::Stored(stored));
                return Ok(());
            }
            let request = Arc::new(with_core(|core| self.asked(core, self.number)));
            let terms = FetchTerms::default();
            self.at_hand =
                Some(match Box::pin(fetch::ask(&request, terms, &mut WithoutBody(|_: &[u8]| {}))).await {
                    Some(FetchOutcome::Body { cursor, .. }) => AtHand::Arriving(cursor),
                    // The slice was on the file, or another client's fetch of it has ended meanwhile.
                    Some(FetchOutcome::Again) => continue,
                    Some(FetchOutcome::Alone) => fetch_for_one(&request).await?,
                    Some(FetchOutcome::OtherVersion) => return Err(SliceError::OtherVersion),
                    Some(FetchOutcome::Failed(error)) => return Err(SliceError::Failed(error)),
                    Some(FetchOutcome::NoBlock | FetchOutcome::Validated { .. } | FetchOutcome::StandIn)
                    | None => {
                        return Err(SliceError::Refused);
                    }
                });
            return Ok(());
        }
        Err(SliceError::Refused)
    }

    /// Builds the request for a slice.
    fn asked(&self, core: &Core, number: u32) -> Request {
        let mut key = self.request.key.clone();
        let hash = self.place(&mut key, number, |key| core.storage.store.hash(key));
        self.request.of_block(
            &key,
            hash,
            Block { of: self.version.clone(), object: self.request.hash, number },
        )
    }

    /// Turns the object's key into a slice's key. Returns the slice's hash, which has the same owner as the
    /// object.
    fn place(&self, key: &mut Vec<u8>, number: u32, hash: impl Fn(&[u8]) -> Hash) -> Hash {
        let slice = Dependent::Slice { sequence: self.version.sequence, number };
        slice.place(self.request.hash, key, hash)
    }

    fn find<'t>(&self, turn: &'t EpochGuard<'_>, number: u32, now_s: u64) -> Option<Object<'t>> {
        let mut key = self.request.key.clone();
        let hash = self.place(&mut key, number, |key| turn.hash(key));
        let bytes = self.version.bytes_of(number);
        match turn.lookup(hash, &key) {
            Lookup::Hit(block)
                if block.body_bytes() == bytes.end - bytes.start && block.expires_s() > store_s(now_s) =>
            {
                Some(block)
            }
            Lookup::Hit(_) | Lookup::Miss | Lookup::Contended => None,
        }
    }

    fn stored(&self, core: &Core) -> Option<PinnedObject> {
        let turn = core.storage.reader.turn();
        // Each use of a slice counts as a use of the object, because evicting the head loses all slices.
        let _ = turn.lookup(self.request.hash, &self.request.key);
        self.find(&turn, self.number, clock::unix_s())?.pin()
    }

    fn are_all_stored(&self, core: &Core) -> bool {
        let turn = core.storage.reader.turn();
        let last = Version::number_at(self.range.end - 1);
        last - self.number < LOOKED_FOR_MAX
            && (self.number..=last).all(|number| self.find(&turn, number, clock::unix_s()).is_some())
    }

    fn ask_ahead(&self, core: &Core, number: u32) {
        let is_there = self.find(&core.storage.reader.turn(), number, clock::unix_s()).is_some();
        if !is_there {
            fetch::prefetch(core, Arc::new(self.asked(core, number)));
        }
    }
}

/// Fetches a slice from the origin for one client only, because the fetch cannot be shared.
async fn fetch_for_one(request: &Arc<Request>) -> Result<AtHand, SliceError> {
    let Some(block) = &request.block else { return Err(SliceError::Refused) };
    let arrived = fetch::fetch_for_one(request).await.map_err(SliceError::Failed)?;
    if block.fit(&arrived.head.head(), arrived.framing) != Fit::Block {
        return Err(SliceError::Refused);
    }
    let bytes = block.of.bytes_of(block.number);
    Ok(match arriving::pass(arrived, Some(bytes.end - bytes.start)) {
        Content::Growing(cursor) => AtHand::Arriving(cursor),
        Content::Whole(bytes) => AtHand::Copied(bytes),
    })
}
