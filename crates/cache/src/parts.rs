//! A body that is on the file in parts, sent to a client: one part is read while the one before it is sent.
//!
//! ```text
//!  hit: the list is in memory ─▶ room for two parts? ─▶ are all of its segments there? ─▶ the first part is read
//!                                  │ no: passed             │ no: fetched anew              │ broken: fetched anew
//!                                                                                            ▼
//!         head, part 0 ── while part 1 is read ─▶ part 1 ── while part 2 is read ─▶ …   broken: the connection is closed
//! ```
//! Nothing but the parts that a range needs is read. *Which memory:* two parts for each client, one where room is
//! scarce; what they take together is bounded for each core ([`FileReads::parts_bytes_max`](crate::core::FileReads)). A
//! client for whom there is no room is answered by the origin, and counted.

use std::{sync::Arc, time::Duration};

use engine::{
    store::{Hash, tier::PART_BODY_BYTES_MAX, tier::PartsList},
    sys::span::Part,
};

use tokio::time::{Instant, timeout};

use crate::{
    client::{Client, Gone, Sent},
    cold::{self, Unread},
    connection::Connection,
    core::{Message, with_core},
    counters::Counter,
    deliver::{self, Cut},
    miss::miss,
    pass::pass,
    request::Request,
    response_head::Fwd,
    slow::account,
};

/// How long an answer waits for a buffer to read its first part into, before it is passed to the origin.
const FIRST_READ_WAIT_MAX: Duration = Duration::from_millis(100);
/// How long it waits for one when its head has been sent, before it is cut: as long as for the disk
/// ([`ReadPoolConfig::wait_ms_max`](engine::io::ReadPoolConfig)).
const READ_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long to wait for a buffer before the part is asked for again all the same: too many reads may have waited.
const READ_PAUSE: Duration = Duration::from_millis(100);

/// An answer whose body is on the file in parts.
pub(crate) struct InParts {
    /// Where they are.
    pub(crate) list: PartsList,
    /// The answer's head.
    pub(crate) head: Vec<u8>,
    /// The first byte of the body to send.
    pub(crate) from: u64,
    /// The byte behind the last.
    pub(crate) to: u64,
    /// What follows the body.
    pub(crate) suffix: Vec<u8>,
    /// The connection ends after it.
    pub(crate) close: bool,
}

/// Why nothing was sent.
pub(crate) enum Unsent {
    /// A part is not there, or damaged: the object has been dropped.
    Lost,
    /// Not now.
    Refused,
}

/// What an answer needs before its head may be sent: room in memory, and the first part.
pub(crate) struct Sending {
    room: Room,
    payload: Vec<u8>,
}

/// Answers a request from parts; true if the connection can go on.
pub(crate) async fn respond(connection: &mut Connection, request: &Arc<Request>, answer: InParts) -> bool {
    connection.client.watch.work();
    match begin(&answer, request.hash, &request.key).await {
        Ok(sending) => send(connection, &answer, sending, request.hash, &request.key).await,
        Err(Unsent::Lost) => miss(connection, request, true, Fwd::UriMiss).await,
        Err(Unsent::Refused) => pass(connection, request, Fwd::UriMiss, None).await,
    }
}

/// Makes sure that the answer can be given before its head is sent.
pub(crate) async fn begin(answer: &InParts, hash: Hash, key: &[u8]) -> Result<Sending, Unsent> {
    let Some(room) = Room::reserve() else {
        with_core(|core| core.count(Counter::PartsRefused));
        return Err(Unsent::Refused);
    };
    let InParts { list, from, to, .. } = answer;
    let first = list.number_at(*from);
    let are_there = with_core(|core| {
        let Some(log) = core.file.as_ref().and_then(|file| file.log.get()) else { return false };
        (first..=list.number_at(*to - 1))
            .all(|number| list.part(number).is_some_and(|part| log.segment_of(part.cold.location).is_some()))
    });
    let read =
        if are_there { read_part(list, first, FIRST_READ_WAIT_MAX).await } else { Err(Unread::Damaged) };
    match read {
        Ok(payload) => Ok(Sending { room, payload }),
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

/// Sends the answer; true if the connection can go on.
pub(crate) async fn send(
    connection: &Connection,
    answer: &InParts,
    sending: Sending,
    hash: Hash,
    key: &[u8],
) -> bool {
    let client = &connection.client;
    let sent = match send_parts(client, answer, sending).await {
        Ok(()) => client.send_all(&answer.suffix).await.map_err(Cut::Client),
        Err(Stopped::Client(gone)) => Err(Cut::Client(gone)),
        Err(Stopped::Disk(unread)) => {
            if matches!(unread, Unread::Damaged) {
                lost(hash, key, answer.list.id());
            }
            Err(Cut::Disk)
        }
    };
    account(&sent);
    if matches!(sent, Err(Cut::Client(Gone::Stalled | Gone::Wanted))) {
        deliver::reset_on_close(client);
    }
    sent.is_ok() && !answer.close
}

/// Why a body did not reach its end.
enum Stopped {
    Client(Gone),
    Disk(Unread),
}

async fn send_parts(client: &Client, answer: &InParts, sending: Sending) -> Result<(), Stopped> {
    let InParts { list, from, to, .. } = answer;
    let Sending { room, mut payload } = sending;
    let mut head = &answer.head[..];
    let last = list.number_at(*to - 1);
    for number in list.number_at(*from)..=last {
        let (part, body) = list.part(number).zip(list.body_of(number, &payload)).unwrap_or_else(|| {
            unreachable!("a part was compared when it was read");
        });
        let within =
            |at: u64| usize::try_from(at.saturating_sub(part.first)).unwrap_or(usize::MAX).min(body.len());
        let sent = send_both(client, head, &body[within(*from)..within(*to)]);
        let (sent, next) = if number == last {
            (sent.await, Ok(Vec::new()))
        } else if room.is_for_two() {
            tokio::join!(sent, read_part(list, number + 1, READ_WAIT_MAX))
        } else {
            let sent = sent.await;
            drop(std::mem::take(&mut payload));
            (sent, read_part(list, number + 1, READ_WAIT_MAX).await)
        };
        sent.map_err(Stopped::Client)?;
        payload = next.map_err(Stopped::Disk)?;
        head = &[];
    }
    Ok(())
}

/// Sends a head, if there is still one to send, and bytes behind it.
async fn send_both(client: &Client, mut head: &[u8], mut body: &[u8]) -> Result<(), Gone> {
    while !head.is_empty() || !body.is_empty() {
        if let Sent::Bytes(sent) = client.send_some(&[Part::Plain(head), Part::Plain(body)], None).await? {
            let of_head = sent.min(head.len());
            head = &head[of_head..];
            body = &body[sent - of_head..];
        }
    }
    Ok(())
}

/// Reads a part and checks that it is the one that the list names. All answers share a few buffers to read into: the
/// read waits for a free one, at most for `wait_max`.
async fn read_part(list: &PartsList, number: usize, wait_max: Duration) -> Result<Vec<u8>, Unread> {
    let Some(part) = list.part(number) else { return Err(Unread::Damaged) };
    let since = Instant::now();
    loop {
        match cold::read(part.cold).await {
            Ok(payload) => {
                return if list.body_of(number, &payload).is_some() {
                    Ok(payload)
                } else {
                    Err(Unread::Damaged)
                };
            }
            Err(Unread::Damaged) => return Err(Unread::Damaged),
            Err(Unread::Refused) => {
                let room = with_core(|core| {
                    let file = core.file.as_ref()?;
                    let log = file.log.get()?;
                    log.segment_of(part.cold.location).is_some().then(|| file.reads.room())
                });
                let Some(room) = room else { return Err(Unread::Damaged) };
                let left = wait_max.saturating_sub(since.elapsed());
                if left.is_zero() {
                    return Err(Unread::Refused);
                }
                // Whether a buffer became free or the pause ended makes no difference: the part is asked for once more.
                let _ = timeout(left.min(READ_PAUSE), room).await;
            }
        }
    }
}

/// Tells the owner that the object has lost a part.
fn lost(hash: Hash, key: &[u8], id: u64) {
    with_core(|core| {
        let owner = core.store.owner(hash);
        if owner == core.index {
            core.shard_mut().lost_part(hash, key, id);
        } else if !core.send(owner, Message::LostPart { hash, key: key.to_vec(), id }) {
            // The next one who asks finds it lost again.
            core.count(Counter::CoreRingFull);
        }
    });
}

/// Room for the parts that one client holds, while it does.
struct Room(usize);

impl Room {
    /// For two parts, or for one where there is no more.
    fn reserve() -> Option<Self> {
        with_core(|core| {
            let file = core.file.as_ref()?;
            [2, 1].into_iter().map(|parts| parts * PART_BODY_BYTES_MAX).find_map(|bytes| {
                let held = file.parts_bytes.get() + bytes;
                (held <= file.parts_bytes_max).then(|| {
                    file.parts_bytes.set(held);
                    Self(bytes)
                })
            })
        })
    }

    fn is_for_two(&self) -> bool {
        self.0 > PART_BODY_BYTES_MAX
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        with_core(|core| {
            if let Some(file) = &core.file {
                file.parts_bytes.set(file.parts_bytes.get() - self.0);
            }
        });
    }
}
