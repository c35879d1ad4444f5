//! How much is done for one client before the next one has its turn.
//!
//! ```text
//!   a turn: reads, operations, matches, deliveries ─ each adds its price ─▶ [`WORK_A_TURN`]? the rest waits its turn
//!   what waits: the bytes that were read; of a message that is under way, how far it has come (`publish::SuspendedDelivery`)
//! ```
//! What one write of a client's costs is nothing that its length says: a message may be for a million subscribers, or
//! be looked for in thousands of branches of the trie. So what is done is counted, in units of what one node of the
//! trie costs (about 50 ns on the machines of `docs/benchmarks.md`). A turn may go beyond by one step: one subscriber's
//! part of a run of at most 128 KiB, or one operation. *Who waits:* the client itself; behind the others that are
//! ready, and after the sockets were looked at.

/// Units of work in a turn: about a millisecond.
pub(crate) const WORK_A_TURN: u64 = 16_000;
/// The same for what other cores sent, when it is taken in on the way: before what a client has just said is looked at.
/// The longest operation fits ([`TOKENS_MAX`], twice).
pub(crate) const WORK_ON_THE_WAY: u64 = WORK_A_TURN / 3;
/// Tokens of a pattern; a longer one is refused. (The default `max_control_line` has room for no more.) An operation on a
/// pattern begins only when the turn has as much left as the longest pattern takes.
pub(crate) const TOKENS_MAX: usize = 2048;
/// What an operation may take that walks a pattern of any length three times: to say it, to price it, to prune it.
pub(crate) const WALKS: u64 = 3 * TOKENS_MAX as u64;

/// A WebSocket frame.
pub(crate) const FRAME: u64 = 4;
/// A write to a socket: a system call.
pub(crate) const WRITE: u64 = 32;
/// To subscribe, or to end it.
pub(crate) const SUBSCRIBE: u64 = 8;
/// CONNECT: its JSON, and who that is.
pub(crate) const CONNECT: u64 = 400;
/// An answer or a refusal.
pub(crate) const ANSWER: u64 = 4;
/// So many subscribers are listed for a unit.
pub(crate) const LISTED: usize = 64;

/// What was done in this turn. Who takes a step pays for it here, where it is taken; a loop whose length a client's words
/// decide asks before each step whether the turn is over, or was begun with as much left as it can take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    done: u64,
    max: u64,
    /// Steps that were taken when nothing was left to pay them with.
    #[cfg(debug_assertions)]
    unpaid: u64,
}

impl Work {
    /// A turn of so many units begins.
    pub(crate) fn of(max: u64) -> Self {
        Self {
            done: 0,
            max,
            #[cfg(debug_assertions)]
            unpaid: 0,
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, units: u64) {
        self.done += units;
    }

    /// Pays for steps that were counted where they were taken, of an operation that began with as much left.
    #[inline]
    pub(crate) fn pay(&mut self, steps: u64) {
        #[cfg(debug_assertions)]
        {
            self.unpaid += (self.done.saturating_add(steps)).saturating_sub(self.max).min(steps);
        }
        self.done = self.done.saturating_add(steps);
    }

    /// Pays for one step of a loop: a node of the trie, a member of a group, a stream of another account, a frame.
    #[inline]
    pub(crate) fn step(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.unpaid += u64::from(self.done >= self.max);
        }
        self.done += 1;
    }

    /// Whether the turn has less left than something may take that is done in one go. A fresh turn has enough for one.
    #[inline]
    pub(crate) fn lacks(&self, units: u64) -> bool {
        self.done > 0 && self.done.saturating_add(units) > self.max
    }

    /// How much was done.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Whether the turn is over, where `more` units will have to be done at its end.
    #[inline]
    pub(crate) fn is_over(&self, more: u64) -> bool {
        self.done + more >= self.max
    }
}

#[cfg(test)]
impl Work {
    /// Steps that were taken when nothing was left to pay them with.
    #[cfg(debug_assertions)]
    pub(crate) fn unpaid(&self) -> u64 {
        self.unpaid
    }

    /// Whether more than so much was done beyond the turn's end.
    pub(crate) fn is_over_by(&self, beyond: u64) -> bool {
        self.done > self.max + beyond
    }
}

/// What it costs to hand `count` messages of `bytes` bytes in all to one subscriber.
#[inline]
pub(crate) fn delivery(count: usize, bytes: usize) -> u64 {
    (1 + count / 4 + bytes / 1024) as u64
}
