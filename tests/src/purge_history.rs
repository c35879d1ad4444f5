//! Finds stale answers that clients of several accelerators got while purges went on: a checker in the manner
//! of Jepsen, which knows only the history.
//!
//! ```text
//!   purger:  version := n ─▶ purge ─────────────▶ acknowledged at t
//!   client:                            begun at t' > t ─▶ answered with version m        m < n: stale
//! ```
//! A body is the version that the origin had when it was fetched. The version is raised before each purge, so
//! a request that begins after the purge's acknowledgement must not get an older version.

/// An event of the history. All times are of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A purge of an object was acknowledged everywhere; its version had been raised before.
    Purged {
        /// Object that was purged.
        object: usize,
        /// Version at the origin before the purge began.
        version: u64,
        /// Time of the acknowledgement.
        acknowledged_ns: u64,
    },
    /// A client was answered.
    Answered {
        /// Instance that answered.
        instance: usize,
        /// Object that was requested.
        object: usize,
        /// Version in the answer.
        version: u64,
        /// Time at which the client sent the request.
        begun_ns: u64,
    },
}

/// A stale answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// Instance that answered.
    pub instance: usize,
    /// Object that was requested.
    pub object: usize,
    /// Version in the answer.
    pub version: u64,
    /// Oldest version that was allowed.
    pub at_least: u64,
    /// Time from the purge's acknowledgement to the request.
    pub after_ns: u64,
}

/// Returns all stale answers of a history; the order of its events does not matter.
#[must_use]
pub fn stale(history: &[Event]) -> Vec<Stale> {
    let mut purges: Vec<(usize, u64, u64)> = Vec::new();
    for event in history {
        if let Event::Purged { object, version, acknowledged_ns } = *event {
            purges.push((object, acknowledged_ns, version));
        }
    }
    purges.sort_unstable();
    // Each purge gets the greatest version of all purges acknowledged before it.
    for at in 1..purges.len() {
        if purges[at].0 == purges[at - 1].0 {
            purges[at].2 = purges[at].2.max(purges[at - 1].2);
        }
    }
    let mut found = Vec::new();
    for event in history {
        let Event::Answered { instance, object, version, begun_ns } = *event else { continue };
        let before = purges.partition_point(|&(of, at, _)| (of, at) < (object, begun_ns));
        let Some(&(of, acknowledged_ns, at_least)) = before.checked_sub(1).and_then(|at| purges.get(at))
        else {
            continue;
        };
        if of == object && version < at_least {
            let after_ns = begun_ns - acknowledged_ns;
            found.push(Stale { instance, object, version, at_least, after_ns });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purged(object: usize, version: u64, acknowledged_ns: u64) -> Event {
        Event::Purged { object, version, acknowledged_ns }
    }

    fn answered(object: usize, version: u64, begun_ns: u64) -> Event {
        Event::Answered { instance: 1, object, version, begun_ns }
    }

    #[test]
    fn a_planted_stale_answer_is_found() {
        let good = [
            answered(0, 1, 5),
            purged(0, 2, 10),
            answered(0, 1, 9),
            answered(0, 1, 10),
            answered(0, 2, 11),
            answered(1, 1, 11),
            purged(0, 3, 20),
            answered(0, 3, 21),
            answered(0, 2, 15),
            // A version may be newer than its purge.
            answered(0, 4, 21),
        ];
        assert_eq!(stale(&good), []);
        let planted = [&good[..], &[answered(0, 2, 22)]].concat();
        assert_eq!(stale(&planted), [Stale { instance: 1, object: 0, version: 2, at_least: 3, after_ns: 2 }]);
        let backwards: Vec<Event> = planted.into_iter().rev().collect();
        assert_eq!(stale(&backwards).len(), 1);
    }

    #[test]
    fn purges_acknowledged_out_of_order_count_by_version() {
        let history = [purged(0, 5, 10), purged(0, 4, 20), answered(0, 4, 30), answered(0, 5, 30)];
        assert_eq!(stale(&history).len(), 1);
    }
}
