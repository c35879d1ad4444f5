//! How much of the store the queries of one path take: by made-up queries (`?x=1`, `?x=2`, …) anyone could fill it with copies
//! of one page.
//!
//! As long as the store has room, and until they have taken half of what it holds, a path's new queries are stored as they
//! come. Beyond that one is stored when it is asked for a second time: what somebody makes up is asked for once, and what visitors ask for is never
//! kept out. What a path took becomes less as the store takes in other things, since these drive it out. A path that lost
//! its place in the table ([`places`](crate::places)) is as one that never came.

use std::cell::Cell;

use engine::store::Hash;

use crate::places::Places;

/// Paths that a core remembers.
const PATHS: usize = 1024;
/// Answers that were not stored and that it remembers.
const REFUSED: usize = 4096;
/// One in so many bytes of the store is for the queries of one path.
const SHARE: u64 = 2;
/// For how long an answer is remembered that was not stored.
const REFUSED_S: u64 = 60;
/// How often a path is named in the log at most.
const SAID_EVERY_S: u64 = 60;

/// What the queries of a path took.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    bytes: u64,
    /// How many bytes the store had taken in by then.
    at: u64,
}

/// What is known of paths.
pub(crate) struct Queries {
    taken: Places<Taken>,
    /// When they were refused.
    refused: Places<u64>,
    /// Bytes that the store has taken in.
    all: Cell<u64>,
    said_s: Cell<u64>,
}

impl Default for Queries {
    fn default() -> Self {
        Self {
            taken: Places::new(PATHS),
            refused: Places::new(REFUSED),
            all: Cell::new(0),
            said_s: Cell::new(0),
        }
    }
}

/// What becomes of an answer to a new query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    Yes,
    /// Not now: its path has its share, of so many percent.
    Refused {
        percent: u64,
        /// It is time to say so.
        is_to_be_said: bool,
    },
}

impl Queries {
    /// The store takes in so many bytes of something else.
    pub(crate) fn others_take(&self, bytes: u64) {
        self.all.set(self.all.get().saturating_add(bytes));
    }

    /// Leave to store an answer of so many bytes under a key of a path that is not there yet.
    pub(crate) fn may_add(&self, path: Hash, key: Hash, bytes: u64, capacity: u64, now_s: u64) -> Stored {
        let capacity = capacity.max(1);
        let all = self.all.get();
        let Taken { bytes: taken, at } = self.taken.get(path).unwrap_or_default();
        // As much of the path went as came of everything: the store holds the youngest.
        let since = all.saturating_sub(at).min(capacity);
        let left = u128::from(taken) * u128::from(capacity - since) / u128::from(capacity);
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        // Nothing had to go yet.
        let is_roomy = all.saturating_add(bytes) <= capacity;
        let is_within = is_roomy || left.saturating_add(bytes) <= capacity / SHARE;
        let is_wanted = || self.refused.get(key).is_some_and(|at_s| now_s.saturating_sub(at_s) < REFUSED_S);
        if is_within || is_wanted() {
            self.others_take(bytes);
            self.taken.set(path, Taken { bytes: left.saturating_add(bytes), at: self.all.get() });
            return Stored::Yes;
        }
        self.refused.set(key, now_s);
        let is_to_be_said = now_s >= self.said_s.get();
        if is_to_be_said {
            self.said_s.set(now_s + SAID_EVERY_S);
        }
        Stored::Refused { percent: left.saturating_mul(100) / capacity, is_to_be_said }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> Hash {
        Hash::seeded(&number.to_le_bytes(), 0)
    }

    const CAPACITY: u64 = 1 << 20;
    const BYTES: u64 = 1 << 10;

    fn adds(queries: &Queries, path: u64, number: u64) -> bool {
        queries.may_add(hash(path), hash(1000 + number), BYTES, CAPACITY, 1000) == Stored::Yes
    }

    #[test]
    fn queries_of_a_path_take_half() {
        let queries = Queries::default();
        queries.others_take(CAPACITY);
        let stored = (0..100_000).filter(|number| adds(&queries, 1, *number)).count() as u64;
        assert!((512..800).contains(&stored), "{stored} of a store of 1,024");
        assert!(adds(&queries, 2, 200_000), "another path");
        let said = queries.may_add(hash(1), hash(7), BYTES, CAPACITY, 1000);
        let Stored::Refused { percent, .. } = said else { panic!("{said:?}") };
        assert!((45..=50).contains(&percent), "{percent}");
        // A store that has room takes what comes.
        let queries = Queries::default();
        assert_eq!((0..1024).filter(|number| adds(&queries, 1, *number)).count(), 1024);
    }

    #[test]
    fn a_query_that_is_asked_for_again_is_stored() {
        let queries = Queries::default();
        queries.others_take(CAPACITY);
        for number in 0..5000 {
            adds(&queries, 1, number);
        }
        assert!(!adds(&queries, 1, 6000) && adds(&queries, 1, 6000));
    }

    #[test]
    fn what_other_things_drive_out_counts_no_more() {
        let queries = Queries::default();
        for number in 0..5000 {
            adds(&queries, 1, number);
        }
        assert!(!adds(&queries, 1, 6001));
        queries.others_take(CAPACITY);
        let stored = (7000..17_000).filter(|number| adds(&queries, 1, *number)).count() as u64;
        assert!(stored >= 512, "{stored}");
    }
}
