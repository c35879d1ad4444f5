//! Delivery of a body that is stored in the file in parts: one part is read while the part before it is sent.
//!
//! ```text
//!  hit: the list is in memory ─▶ room for two parts? ─▶ are all of its segments there? ─▶ the first part is read
//!                                  │ no: passed             │ no: fetched again             │ broken: fetched again
//!                                                                                            ▼
//!         head, part 0 ── while part 1 is read ─▶ part 1 ── while part 2 is read ─▶ …   broken: the connection is closed
//! ```
//! Only the parts that a range needs are read, and a part that several clients need at once is read once
//! ([`parts_in_memory`](crate::body::parts_in_memory)). *Memory:* at most two parts per answer, or one when
//! memory is scarce. Their sum is bounded per core ([`FileReads::parts_max`](crate::core::FileReads)), and
//! each answer's parts are charged to the client's [account](crate::client::limits::request_tasks). When
//! other clients need room, an answer to the client that holds the most memory gives way: its parts are no
//! longer read ahead, or it is cut. A client for whom there is no room is answered by the origin. All three
//! cases are counted.

use std::{ops::Range, sync::Arc, time::Duration};

use engine::{
    accounts::{ClientKey, Refusal},
    store::{
        Hash,
        tier::{FileRecord, PartsList},
    },
};

use tokio::time::{Instant, timeout};

use crate::{
    body::{
        cold::{self, Unread},
        parts_in_memory::Payload,
    },
    client::limits::request_tasks::PartsRoom,
    core::{Core, Message, with_core},
    counters::Counter,
};

/// Maximum time that an answer waits for memory, and then for a read buffer for its first part, before the
/// request is passed to the origin.
const FIRST_READ_WAIT_MAX: Duration = Duration::from_millis(100);
/// Maximum time that an answer whose head has been sent waits for a read buffer before it is cut; equal to
/// the maximum wait for the disk ([`ReadPoolConfig::wait_ms_max`](engine::io::ReadPoolConfig)).
const READ_WAIT_MAX: Duration = Duration::from_secs(5);
/// Interval at which a waiting answer asks for a read buffer again without a wake-up, because the queue of
/// waiting reads may have been full.
const READ_PAUSE: Duration = Duration::from_millis(100);

/// Result of a lookup: a body that is stored in the file in parts.
pub(crate) struct InParts {
    /// Locations of the parts.
    pub(crate) list: PartsList,
    /// The requested bytes of the body; at least one.
    pub(crate) range: Range<u64>,
    /// Trailer lines that follow the body.
    pub(crate) trailers: Vec<u8>,
    /// Time that the origin took for this object.
    pub(crate) origin_ms: u32,
    /// True if the bytes are sent; false if the caller only wants to know whether they could be.
    pub(crate) is_sent: bool,
}

/// Reason why a body in parts cannot be sent.
pub(crate) enum Unsent {
    /// A part is missing or damaged; the object has been dropped.
    Lost,
    /// There is no room or no read buffer at the moment.
    Refused,
}

/// A body in parts that is being sent, with one part in memory.
pub(crate) struct Parts {
    list: PartsList,
    range: Range<u64>,
    trailers: Vec<u8>,
    room: Room,
    number: usize,
    payload: Option<Payload>,
    hash: Hash,
    key: Vec<u8>,
}

/// Checks before the head is sent that the answer can be delivered: memory is reserved, all parts are on the
/// file, and the first part is read. For a request that only wants the head, only the presence of the parts
/// is checked.
pub(crate) async fn open(
    found: InParts,
    client: ClientKey,
    hash: Hash,
    key: &[u8],
) -> Result<Option<Parts>, Unsent> {
    let InParts { list, range, trailers, origin_ms, is_sent } = found;
    let number = list.number_at(range.start);
    let are_there = with_core(|core| {
        let Some(log) = core.storage.file.as_ref().and_then(|file| file.log.get()) else { return false };
        (number..=list.number_at(range.end - 1))
            .all(|number| list.part(number).is_some_and(|part| log.segment_of(part.cold.location).is_some()))
    });
    if !are_there {
        lost(hash, key, list.id());
        return Err(Unsent::Lost);
    }
    if !is_sent {
        count(&list, &(0..0), origin_ms);
        return Ok(None);
    }
    let Some(room) = Room::reserve(client).await else {
        with_core(|core| core.count(Counter::PartsRefused));
        return Err(Unsent::Refused);
    };
    match read_part(&list, number, FIRST_READ_WAIT_MAX).await {
        Ok(payload) => {
            count(&list, &range, origin_ms);
            let payload = Some(payload);
            Ok(Some(Parts { list, range, trailers, room, number, payload, hash, key: key.to_vec() }))
        }
        Err(Unread::Damaged) => {
            lost(hash, key, list.id());
            Err(Unsent::Lost)
        }
        Err(Unread::Refused) => {
            with_core(|core| core.count(Counter::PartsRefused));
            Err(Unsent::Refused)
        }
    }
}

/// Counts a request that is answered from parts.
fn count(list: &PartsList, range: &Range<u64>, origin_ms: u32) {
    let bytes = range.end - range.start;
    with_core(|core| {
        core.count(Counter::Hits);
        if bytes > 0 && bytes < list.body_bytes() {
            core.count(Counter::HitsRange);
        }
        core.add(Counter::BytesSaved, bytes);
        core.add(Counter::MillisSaved, u64::from(origin_ms));
    });
}

impl Parts {
    /// Returns the range of the whole body that is sent.
    pub(crate) fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Returns the trailer lines that follow the body.
    pub(crate) fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Returns the requested bytes of the part in memory.
    pub(crate) fn current(&self) -> &[u8] {
        let Self { list, range, number, payload, .. } = self;
        let payload = payload.as_ref().map_or(&[][..], Payload::bytes);
        let (part, body) = list.part(*number).zip(list.body_of(*number, payload)).unwrap_or_else(|| {
            unreachable!("a part was compared when it was read");
        });
        let within =
            |at: u64| usize::try_from(at.saturating_sub(part.first)).unwrap_or(usize::MAX).min(body.len());
        &body[within(range.start)..within(range.end)]
    }

    /// Returns whether the part in memory is the last one of the requested range.
    pub(crate) fn is_last(&self) -> bool {
        self.number == self.list.number_at(self.range.end - 1)
    }

    /// Returns whether there is room to read the next part while the current one is sent.
    pub(crate) fn reads_ahead(&self) -> bool {
        self.room.0.is_for_two()
    }

    /// Waits until the answer has to give way to other clients.
    pub(crate) async fn cut(&self) {
        self.room.0.cut().await;
    }

    /// Gives way to other clients: from now on no part is read ahead. Returns false if that frees too little
    /// and the answer has to end.
    pub(crate) fn narrow(&mut self) -> bool {
        let goes_on = self.room.0.narrow();
        with_core(|core| {
            core.count(if goes_on { Counter::PartsSlowed } else { Counter::PartsGaveWay });
            core.tell_of_parts_room();
        });
        goes_on
    }

    /// Frees the part in memory after it was sent.
    pub(crate) fn forget(&mut self) {
        self.payload = None;
    }

    /// Reads the next part.
    pub(crate) async fn read_next(&self) -> Result<Payload, Unread> {
        let read = read_part(&self.list, self.number + 1, READ_WAIT_MAX).await;
        if matches!(read, Err(Unread::Damaged)) {
            lost(self.hash, &self.key, self.list.id());
        }
        read
    }

    /// Makes the part that was just read the current one.
    pub(crate) fn go_on(&mut self, payload: Payload) {
        self.number += 1;
        self.payload = Some(payload);
    }
}

/// Reads a part and checks that it is the part named by the list. All answers share a few read buffers: the
/// read waits for a free one for at most `wait_max`.
async fn read_part(list: &PartsList, number: usize, wait_max: Duration) -> Result<Payload, Unread> {
    let Some(part) = list.part(number) else { return Err(Unread::Damaged) };
    let since = Instant::now();
    loop {
        match read_once(part.cold).await {
            Ok(payload) => {
                return if list.body_of(number, payload.bytes()).is_some() {
                    Ok(payload)
                } else {
                    Err(Unread::Damaged)
                };
            }
            Err(Unread::Damaged) => return Err(Unread::Damaged),
            Err(Unread::Refused) => {
                let room = with_core(|core| {
                    let file = core.storage.file.as_ref()?;
                    let log = file.log.get()?;
                    log.segment_of(part.cold.location).is_some().then(|| file.reads.room())
                });
                let Some(room) = room else { return Err(Unread::Damaged) };
                let left = wait_max.saturating_sub(since.elapsed());
                if left.is_zero() {
                    return Err(Unread::Refused);
                }
                // Requests the part again, whether a buffer became free or the pause has passed.
                let _ = timeout(left.min(READ_PAUSE), room).await;
            }
        }
    }
}

/// Reads a record's payload, unless it is already in memory or being read for another client.
async fn read_once(cold: FileRecord) -> Result<Payload, Unread> {
    let place = with_core(|core| {
        let file = core.storage.file.as_ref()?;
        let (cell, is_shared) = file.parts.borrow_mut().place(cold.location);
        if is_shared {
            core.count(Counter::PartsShared);
        }
        Some(cell)
    });
    let cell = place.ok_or(Unread::Refused)?;
    // If the reading task fails or is dropped, the next waiting task reads.
    cell.get_or_try_init(|| cold::read(cold)).await?;
    Ok(Payload(cell))
}

/// Reports to the owner that the object has lost a part.
fn lost(hash: Hash, key: &[u8], id: u64) {
    with_core(|core| {
        let owner = core.storage.store.owner(hash);
        if owner == core.index {
            core.shard_mut().lost_part(hash, key, id);
        } else if core.give(owner, Message::LostPart { hash, key: key.to_vec(), id }).is_err() {
            // If the message is lost, the next request finds the missing part again.
            core.count(Counter::CoreRingFull);
        }
    });
}

/// Memory reserved for the parts of one answer while the answer is sent.
struct Room(PartsRoom);

impl Room {
    /// Reserves room in the client's account. Waits a moment if another client's answer has to give way
    /// first.
    async fn reserve(client: ClientKey) -> Option<Self> {
        let reserved = timeout(FIRST_READ_WAIT_MAX, async {
            loop {
                let reserved = with_core(|core| {
                    let file = core.storage.file.as_ref()?;
                    Some(match PartsRoom::new(&core.budgets.accounts, client, file.parts_max) {
                        // No other task runs on this thread between the refusal and the registration for the
                        // wake-up.
                        Err(Refusal::Full) => Err(Arc::clone(&file.parts_freed).notified_owned()),
                        reserved => Ok(reserved.ok().map(Self)),
                    })
                });
                match reserved {
                    None => return None,
                    Some(Ok(reserved)) => return reserved,
                    Some(Err(freed)) => freed.await,
                }
            }
        });
        reserved.await.ok().flatten()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // The charge is released after this call; the woken tasks run only in a later turn, when the room is
        // free.
        with_core(Core::tell_of_parts_room);
    }
}
