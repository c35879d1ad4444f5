//! Budget of a turn: how much is done for one client before the next client is served.
//!
//! ```text
//!   a turn: reads, operations, matches, deliveries ─ each adds its cost ─▶ [`WORK_A_TURN`]? the rest waits for another turn
//!   what waits: the bytes that were read; for an unfinished delivery, its progress (`suspended::SuspendedDelivery`)
//! ```
//! The cost of a client's write does not follow from its length: a message may have a million subscribers, or
//! be looked up in thousands of branches of the trie. So the steps are counted, in units of the cost of one
//! trie node (about 50 ns on the machines of `docs/benchmarks.md`). A turn may exceed its budget by one step:
//! one subscriber's part of a run of at most 128 KiB, or one operation. *Who waits:* the client itself, until
//! the other ready clients have been served and the sockets have been polled.

/// Budget of a turn in units: about a millisecond.
pub(crate) const WORK_A_TURN: u64 = 16_000;
/// Budget for applying what other cores sent before a client's operations are executed. The longest record
/// fits: a pattern of [`TOKENS_MAX`] tokens is walked twice.
pub(crate) const WORK_ON_THE_WAY: u64 = WORK_A_TURN / 3;
/// Maximum number of tokens of a pattern; a longer one is refused. (It would not fit into the default
/// `max_control_line` either.) An operation on a pattern begins only if the turn has enough budget left for
/// the longest pattern.
pub(crate) const TOKENS_MAX: usize = 2048;
/// Largest cost of an operation that walks the trie along a pattern three times: to announce the pattern, to
/// compute its memory, and to remove its nodes.
pub(crate) const WALKS: u64 = 3 * TOKENS_MAX as u64;

/// Cost of a WebSocket frame, in budget units.
pub(crate) const FRAME: u64 = 4;
/// Cost of a write to a socket: a system call.
pub(crate) const WRITE: u64 = 32;
/// Cost of a SUB or UNSUB, besides the steps in the trie.
pub(crate) const SUBSCRIBE: u64 = 8;
/// Cost of CONNECT: parsing its JSON, and authentication.
pub(crate) const CONNECT: u64 = 400;
/// Cost of an answer or an error.
pub(crate) const ANSWER: u64 = 4;
/// Number of subscribers whose listing costs one budget unit.
pub(crate) const LISTED: usize = 64;

/// Cost of the current turn so far. Each step is charged where it is done. A loop whose length depends on a
/// client's input checks the budget before each step, or begins only if the budget suffices for its longest
/// run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    done: u64,
    max: u64,
    /// Units spent after the budget was used up.
    #[cfg(debug_assertions)]
    unpaid: u64,
}

impl Work {
    /// Begins a turn with a budget of this many units.
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

    /// Charges steps that were counted during an operation, which was begun only because the budget sufficed.
    #[inline]
    pub(crate) fn pay(&mut self, steps: u64) {
        #[cfg(debug_assertions)]
        {
            self.unpaid += (self.done.saturating_add(steps)).saturating_sub(self.max).min(steps);
        }
        self.done = self.done.saturating_add(steps);
    }

    /// Charges one step of a loop: a node of the trie, a member of a group, an imported stream, or a frame.
    #[inline]
    pub(crate) fn step(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.unpaid += u64::from(self.done >= self.max);
        }
        self.done += 1;
    }

    /// Returns whether the remaining budget is too small for an indivisible operation of this cost. At the
    /// start of a turn it never is.
    #[inline]
    pub(crate) fn lacks(&self, units: u64) -> bool {
        self.done > 0 && self.done.saturating_add(units) > self.max
    }

    /// Returns the units spent.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Returns whether the budget is used up, counting `more` units that the end of the turn will cost.
    #[inline]
    pub(crate) fn is_over(&self, more: u64) -> bool {
        self.done + more >= self.max
    }
}

#[cfg(test)]
impl Work {
    /// Returns the units spent after the budget was used up.
    #[cfg(debug_assertions)]
    pub(crate) fn unpaid(&self) -> u64 {
        self.unpaid
    }

    /// Returns whether the turn's cost exceeds its budget by more than `beyond` units.
    pub(crate) fn is_over_by(&self, beyond: u64) -> bool {
        self.done > self.max + beyond
    }
}

/// Returns the cost of delivering `count` messages with `bytes` bytes in total to one subscriber.
#[inline]
pub(crate) fn delivery(count: usize, bytes: usize) -> u64 {
    (1 + count / 4 + bytes / 1024) as u64
}
