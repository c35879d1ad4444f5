//! Each client's share of a core's connections and request tasks, of the memory for their heads, and of the
//! memory for parts of large objects that are read from the file.
//!
//! Without shares the first client could use up a limit alone: a hundred connections with a hundred slow
//! streams each would refuse every other client's misses. In an [account](engine::accounts) a single client
//! may use all but a sixteenth, and the client with the most gives way when others need room.

use engine::accounts::{Accounts, Category, Charge, ClientKey, Limit, Refusal};

use crate::{body::growing::PASSING_BYTES_MIN, client::limits::client_memory::ClientMemory, config::Limits};

/// HTTP/2 streams of a core that are answered by a task.
const STREAM_TASKS: Category = Category(0);
/// Bytes of requests' heads that are kept while the requests are answered, over all cores.
const REQUEST_HEADS: Category = Category(1);
/// Parts of large objects that a core holds in memory, or is reading, for a client.
const PARTS: Category = Category(2);
/// Connections of a core.
pub(crate) const CONNECTIONS: Category = Category(3);
/// Memory of a request in addition to its head: the slots of its fields, its key, the task's state, and the
/// minimum buffer of an answer that is passed through.
const REQUEST_BYTES: usize = (2 << 10) + PASSING_BYTES_MIN;

/// Creates the accounts of one core, which holds at most `parts_max` parts of objects in the file in memory.
pub(crate) fn accounts(limits: &Limits, memory: &ClientMemory, parts_max: usize) -> Accounts {
    let parts = Limit::of_core(parts_max);
    let connections = || Limit::of_core(limits.connections_max);
    Accounts::new(vec![connections(), memory.heads(limits), parts, connections()])
}

/// Waits until one of the charges has to give way to other clients.
async fn first_cut(charge: &Charge, other: Option<&Charge>) {
    match other {
        None => charge.cut().await,
        Some(other) => tokio::select! {
            () = charge.cut() => {}
            () = other.cut() => {}
        },
    }
}

/// Charge for the head of a request that is being answered.
pub(crate) struct KeptHead(Charge);

impl KeptHead {
    /// Charges a head. Returns `None` if the client holds more than its share, or no memory is left.
    pub(crate) fn new(accounts: &Accounts, client: ClientKey, head_bytes: usize) -> Option<Self> {
        // The head is kept twice: as received, and as sent to the origin.
        let bytes = 2 * head_bytes + REQUEST_BYTES;
        accounts.charge(client, REQUEST_HEADS, bytes).ok().map(Self)
    }

    /// Waits until the request has to give way to other clients.
    pub(crate) async fn cut(&self) {
        self.0.cut().await;
    }
}

/// Charges for an HTTP/2 stream that a task answers.
pub(crate) struct StreamTask {
    task: Charge,
    head: Option<KeptHead>,
}

impl StreamTask {
    /// Charges a stream whose request head has `head_bytes` bytes. `None` means that only the rest of an
    /// answer is sent, without a head to keep.
    pub(crate) fn new(accounts: &Accounts, client: ClientKey, head_bytes: Option<usize>) -> Option<Self> {
        let task = accounts.charge(client, STREAM_TASKS, 1).ok()?;
        let head = match head_bytes {
            Some(bytes) => Some(KeptHead::new(accounts, client, bytes)?),
            None => None,
        };
        Some(Self { task, head })
    }

    /// Waits until the stream has to give way to other clients.
    pub(crate) async fn cut(&self) {
        first_cut(&self.task, self.head.as_ref().map(|head| &head.0)).await;
    }
}

/// Memory for the parts of one answer: the part that is being sent, and usually the part that is read ahead.
#[derive(Debug)]
pub(crate) struct PartsRoom {
    sent: Charge,
    ahead: Option<Charge>,
}

impl PartsRoom {
    /// Charges the parts of an answer, on a core that holds at most `parts_max` parts.
    ///
    /// A part is read ahead only while less than half of the room is used, because other clients do not give
    /// way for read-ahead.
    ///
    /// # Errors
    /// [`Refusal::OverShare`] if the client holds more than its share. [`Refusal::Full`] if another client's
    /// answer has to give way first, or there is no room at all.
    pub(crate) fn new(accounts: &Accounts, client: ClientKey, parts_max: usize) -> Result<Self, Refusal> {
        let client = accounts.client(client);
        let sent = client.charge(PARTS, 1)?;
        let is_wanted = (accounts.used(PARTS) + 1) * 2 > parts_max;
        let ahead = if is_wanted { None } else { client.charge(PARTS, 1).ok() };
        Ok(Self { sent, ahead })
    }

    /// Returns whether there is room to read the next part ahead.
    pub(crate) fn is_for_two(&self) -> bool {
        self.ahead.is_some()
    }

    /// Waits until the answer has to give way to other clients.
    pub(crate) async fn cut(&self) {
        first_cut(&self.sent, self.ahead.as_ref()).await;
    }

    /// Gives up the part that is read ahead, because the answer was [cut](Self::cut). Returns whether there
    /// is still room for the current part.
    pub(crate) fn narrow(&mut self) -> bool {
        match self.ahead.take() {
            Some(ahead) if !ahead.is_cut() => self.sent = ahead,
            Some(_) | None => {}
        }
        !self.sent.is_cut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts_of(parts_max: usize) -> Accounts {
        accounts(&Limits::default(), &ClientMemory::new(None, 1), parts_max)
    }

    fn client(number: u8) -> ClientKey {
        ClientKey::of([192, 0, 2, number].into())
    }

    /// Opens answers for a client until one is refused.
    fn open_all(accounts: &Accounts, client: ClientKey, parts_max: usize) -> Vec<PartsRoom> {
        std::iter::from_fn(|| PartsRoom::new(accounts, client, parts_max).ok()).collect()
    }

    fn is_cut(room: &PartsRoom) -> bool {
        room.sent.is_cut() || room.ahead.as_ref().is_some_and(Charge::is_cut)
    }

    /// Makes each answer that was cut give way. Returns the number of answers that ended, and the number that
    /// continue without reading ahead.
    fn give_way(rooms: &mut Vec<PartsRoom>) -> (usize, usize) {
        let (mut ended, mut slowed) = (0, 0);
        rooms.retain_mut(|room| {
            if !is_cut(room) {
                return true;
            }
            let goes_on = room.narrow();
            ended += usize::from(!goes_on);
            slowed += usize::from(goes_on);
            goes_on
        });
        (ended, slowed)
    }

    #[test]
    fn a_lone_client_gets_all_but_a_sixteenth() {
        for parts_max in [32, 64, 68] {
            let accounts = accounts_of(parts_max);
            let rooms = open_all(&accounts, client(1), parts_max);
            let parts: usize = rooms.iter().map(|room| 1 + usize::from(room.is_for_two())).sum();
            assert_eq!(parts, parts_max - parts_max / 16, "of {parts_max}");
            assert!(!rooms.iter().any(is_cut), "nobody else is there");
        }
    }

    #[test]
    fn whoever_has_most_parts_gives_way_to_others() {
        for parts_max in [4, 8, 64] {
            let accounts = accounts_of(parts_max);
            let mut of_one = open_all(&accounts, client(1), parts_max);
            let held = of_one.len();
            for other in 2..5 {
                let room = (0..3).find_map(|_| {
                    let room = PartsRoom::new(&accounts, client(other), parts_max);
                    give_way(&mut of_one);
                    room.ok()
                });
                let room = room.expect("another client has room after the first gave way");
                assert!(!is_cut(&room), "of {parts_max}");
            }
            assert!(of_one.len() >= held.saturating_sub(4), "no more gave way than was needed");
        }
    }

    #[test]
    fn a_cut_answer_gives_up_reading_ahead_first() {
        let accounts = accounts_of(4);
        let mut of_one = open_all(&accounts, client(1), 4);
        assert_eq!(of_one.iter().filter(|room| room.is_for_two()).count(), 1);
        assert_eq!(PartsRoom::new(&accounts, client(2), 4).err(), Some(Refusal::Full));
        let (ended, slowed) = give_way(&mut of_one);
        assert_eq!(ended + slowed, 1);
        assert!(PartsRoom::new(&accounts, client(2), 4).is_ok());
    }

    #[test]
    fn nobody_is_refused_parts_while_half_is_free() {
        let accounts = accounts_of(64);
        let rooms: Vec<PartsRoom> =
            (0..16).map(|_| PartsRoom::new(&accounts, client(1), 64).expect("room")).collect();
        assert_eq!(accounts.used(PARTS), 32);
        let other = PartsRoom::new(&accounts, client(2), 64).expect("room");
        assert!(!other.is_for_two() && !rooms.iter().any(is_cut));
    }
}
