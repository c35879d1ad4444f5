//! What clients of several accelerators were answered while purges went on, and whether any of it was stale: a checker in
//! the manner of Jepsen, which knows of nothing but the history.
//!
//! ```text
//!   purger:  version := n ─▶ purge ─────────────▶ acknowledged at t
//!   client:                            begun at t' > t ─▶ answered with version m        m < n: stale
//! ```
//! A body is the version that the origin had when it was fetched. Before each purge the version is raised; so who begins
//! to ask after the purge's acknowledgement must not get an older one.

/// One thing that happened. Times are of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A purge of an object, before which its version was raised to this, was acknowledged everywhere.
    Purged {
        /// Which object.
        object: usize,
        /// Its version at the origin before the purge began.
        version: u64,
        /// When it was acknowledged.
        acknowledged_ns: u64,
    },
    /// A client was answered.
    Answered {
        /// By which instance.
        instance: usize,
        /// With which object.
        object: usize,
        /// Of this version.
        version: u64,
        /// When it began to ask.
        begun_ns: u64,
    },
}

/// An answer that must not have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// By which instance.
    pub instance: usize,
    /// Which object.
    pub object: usize,
    /// What it was.
    pub version: u64,
    /// What it had to be at least.
    pub at_least: u64,
    /// How long after the acknowledgement the client began to ask.
    pub after_ns: u64,
}

/// All stale answers of a history, in whatever order its events are.
#[must_use]
pub fn stale(history: &[Event]) -> Vec<Stale> {
    let mut purges: Vec<(usize, u64, u64)> = Vec::new();
    for event in history {
        if let Event::Purged { object, version, acknowledged_ns } = *event {
            purges.push((object, acknowledged_ns, version));
        }
    }
    purges.sort_unstable();
    // From here on each has the greatest version of those acknowledged before it, too.
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
            // A version that is ahead of its purge.
            answered(0, 4, 21),
        ];
        assert_eq!(stale(&good), []);
        let planted = [&good[..], &[answered(0, 2, 22)]].concat();
        assert_eq!(stale(&planted), [Stale { instance: 1, object: 0, version: 2, at_least: 3, after_ns: 2 }]);
        let backwards: Vec<Event> = planted.into_iter().rev().collect();
        assert_eq!(stale(&backwards).len(), 1);
    }

    #[test]
    fn purges_that_are_acknowledged_out_of_order_count_by_the_greatest_version() {
        let history = [purged(0, 5, 10), purged(0, 4, 20), answered(0, 4, 30), answered(0, 5, 30)];
        assert_eq!(stale(&history).len(), 1);
    }
}
