//! State of a client's backlog: watermarks, held producers, and the bytes that the client must read.

use std::time::Duration;

use crate::delivery::{contributions::Contributions, outbox::Outbox, producer::Producer};

/// Longest time for which a producer is held before the consumer must have read something.
pub(crate) const HOLD: Duration = Duration::from_millis(20);

/// Number of holds per second; together they cost the consumer a sixteenth of `max_pending`.
const HOLDS_A_SECOND: usize = 50;

/// Watermarks of one client's backlog.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks {
    /// Bound of the backlog; a client that exceeds it is cut off.
    pub(crate) max_pending: usize,
    /// Backlog size above which the server records how much each producer adds.
    pub(crate) noted: usize,
    /// Backlog size above which producers are held.
    pub(crate) high: usize,
    /// Backlog size below which producers are released.
    pub(super) low: usize,
    /// Size of unread answers above which the client's reads are paused.
    pub(crate) answers: usize,
    /// Bytes of a backlog (or all of it, if it is smaller) that a client must read within a write deadline. A
    /// consumer that holds producers must read as much within `producer_hold_max`.
    pub(super) due: usize,
    /// Bytes that a consumer must read before producers are held for another [`HOLD`].
    pub(super) hold_price: usize,
    /// The sum of all backlogs is large, so `noted`, `high` and `low` are lowered.
    is_crowded: bool,
}

/// Divisor of the watermarks while the sum of all backlogs is large.
const CROWDED_SHARE: usize = 16;

impl Marks {
    /// Lowers the watermarks while the sum of all backlogs is large, so that producers are held earlier.
    #[inline]
    pub(crate) fn set_crowded(&mut self, is_crowded: bool) {
        if is_crowded != self.is_crowded {
            let sixteenth = if is_crowded { self.max_pending / CROWDED_SHARE } else { self.max_pending } / 16;
            (self.noted, self.high, self.low) = (sixteenth, sixteenth * 12, sixteenth * 11);
            self.is_crowded = is_crowded;
        }
    }

    /// Computes the watermarks for `max_pending`.
    pub(crate) fn of(max_pending: usize) -> Self {
        let sixteenth = max_pending / 16;
        Self {
            max_pending,
            noted: sixteenth,
            high: sixteenth * 12,
            low: sixteenth * 11,
            answers: sixteenth,
            due: sixteenth,
            // The price is a quarter below the nominal one, so that clock jitter does not cost a consumer a
            // hold.
            hold_price: (sixteenth / HOLDS_A_SECOND / 4 * 3).max(1),
            is_crowded: false,
        }
    }
}

/// State of a consumer whose backlog is above the lowest watermark.
#[derive(Debug)]
pub(crate) struct ConsumerBacklog {
    pub(super) contributions: Contributions,
    /// Time at which a producer was first held, and the bytes written by then. Reset once the backlog is
    /// below the low watermark, or the consumer has read enough within `producer_hold_max`.
    pub(super) held_since: Option<(u64, u64)>,
    pub(super) holds: Vec<Hold>,
    /// End of the period in which producers may be held. 0: no such period has begun.
    pub(super) window_until_ms: u64,
    /// Bytes that the consumer has read and not spent on holds; at most the price of a second of holds.
    pub(super) credit: usize,
    /// Bytes written when the credit was last computed.
    pub(super) written: u64,
    /// The connection has its first backlog, and has not used a free hold of its address yet.
    pub(super) may_ask_address: bool,
}

/// Credit that remains from a connection's last backlog: bytes read and not spent on holds, and the bytes
/// written by then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HoldCredit {
    pub(super) credit: usize,
    pub(super) written: u64,
}

/// A producer whose reads are paused for a consumer.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) producer: Producer,
    /// End of the hold; `None`: the hold lasts until the consumer's window ends.
    pub(super) until_ms: Option<u64>,
}

impl ConsumerBacklog {
    /// Builds the state of a new backlog. `left`: credit from the connection's previous backlog, if there was
    /// one.
    pub(super) fn new(written: u64, left: Option<HoldCredit>) -> Self {
        let HoldCredit { credit, written } = left.unwrap_or(HoldCredit { credit: 0, written });
        Self {
            contributions: Contributions::default(),
            held_since: None,
            holds: Vec::new(),
            window_until_ms: 0,
            credit,
            written,
            may_ask_address: left.is_none(),
        }
    }

    /// Credits the consumer with the bytes that it has read, up to `at_most`.
    #[inline]
    pub(super) fn credit_written(&mut self, written: u64, at_most: usize) {
        let taken = usize::try_from(written - self.written).unwrap_or(usize::MAX);
        self.credit = self.credit.saturating_add(taken).min(at_most);
        self.written = written;
    }

    /// Returns whether producers may be held now: the window for holds is open, or the consumer's credit pays
    /// for a new one.
    #[inline]
    pub(super) fn may_hold(&mut self, price: usize, now_ms: u64) -> bool {
        if now_ms < self.window_until_ms {
            return true;
        }
        let is_paid = self.credit >= price;
        if is_paid {
            self.credit -= price;
            self.window_until_ms = now_ms + HOLD.as_millis() as u64;
        }
        is_paid
    }

    /// Returns the time at which the next hold ends; `None` if no producer is held.
    #[inline]
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.holds.iter().map(|hold| hold.until_ms.unwrap_or(self.window_until_ms)).min()
    }
}

/// Bytes that a client must read within a write deadline. They are checked periodically, and each period
/// begins at a check.
#[derive(Debug, Default)]
pub(crate) struct Due {
    since_ms: u64,
    /// Total of bytes written on the connection at which the client has read enough for this period.
    until_written: u64,
}

impl Due {
    /// Returns whether the period has ended and the client has not read enough.
    pub(crate) fn is_over(
        &mut self,
        outbox: &Outbox,
        bytes_max: usize,
        write_deadline: Duration,
        now_ms: u64,
    ) -> bool {
        if outbox.is_empty() || outbox.written_bytes() >= self.until_written {
            let bytes = outbox.bytes().min(bytes_max) as u64;
            *self = Self { since_ms: now_ms, until_written: outbox.written_bytes() + bytes };
            return false;
        }
        Duration::from_millis(now_ms.saturating_sub(self.since_ms)) > write_deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::outbox::Chunks;

    const MAX_PENDING: usize = 16_000;
    const DEADLINE_S: u64 = 10;

    /// Simulates rounds of nine seconds, in each of which bytes are appended and read. Returns whether the
    /// client is cut off.
    fn is_cut(rounds: &[(usize, usize)]) -> bool {
        let (mut outbox, mut chunks, mut due) = (Outbox::default(), Chunks::default(), Due::default());
        (1..).zip(rounds).any(|(round, &(append, take))| {
            outbox.append(&mut chunks, &vec![0; append]);
            if take > 0 {
                outbox.written(&mut chunks, take);
            }
            due.is_over(&outbox, Marks::of(MAX_PENDING).due, Duration::from_secs(DEADLINE_S), round * 9000)
        })
    }

    #[test]
    fn each_period_what_waited_must_be_taken() {
        assert!(is_cut(&[(100, 0), (100, 0), (100, 0)]), "nothing is taken");
        assert!(is_cut(&[(100, 0), (0, 1), (0, 1)]), "a little now and then is not all that waited");
        assert!(!is_cut(&[(100, 0), (0, 50), (0, 50), (100, 0), (0, 100)]), "all, within the period");
        assert!(
            !is_cut(&[(100, 0), (100, 100), (100, 100), (100, 100), (100, 100)]),
            "never empty, but it lives"
        );
        assert!(!is_cut(&[(9000, 0), (0, 1000), (0, 1000), (0, 1000)]), "a sixteenth of the bound is enough");
        assert!(is_cut(&[(9000, 0), (0, 900), (0, 50), (0, 1000)]), "less than that is not");
    }
}
