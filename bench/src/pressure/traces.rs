//! Request sequences that are hard for a store, each in a different way.
//!
//! | trace | requests | hard for |
//! |---|---|---|
//! | [`Trace::Scans`] | [`Requests`]: Zipf, with every tenth request from a one-time scan | a store that admits every object |
//! | [`Trace::Shifting`] | Zipf, with a popularity that shifts all the time | a store that remembers for too long |
//! | [`Trace::Looping`] | Zipf for seven tenths, the rest a loop that is larger than memory | FIFO and LRU |
//!
//! All use the same objects, numbered from 0 to twice the `objects` of [`Trace::ids`].

use lab::paired::spread::Draws;
use lab::pressure::requests::{EXPONENT, Requests, Zipf, spread, spread_over};

/// Number of requests between two shifts of the popularity.
const SHIFT_EVERY: u64 = 4_000;
/// Distance of a shift, as a percentage of the number of objects.
const SHIFT_PERCENT: u64 = 1;
/// Percentage of the requests of [`Trace::Looping`] that belong to the loop.
const LOOP_PERCENT: usize = 30;

/// A request sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    /// Zipf with one-time scans: the sequence that the servers get too.
    Scans,
    /// Zipf with a popularity that shifts over the objects.
    Shifting,
    /// Zipf, with a loop over separate objects.
    Looping,
}

impl Trace {
    /// All traces.
    pub(crate) const ALL: [Self; 3] = [Self::Scans, Self::Shifting, Self::Looping];

    /// Returns the trace's short name.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Scans => "scans",
            Self::Shifting => "shifting",
            Self::Looping => "looping",
        }
    }

    /// Iterates without end over the numbers of the requested objects. `objects` is the number of objects
    /// with a popularity, `looped` the number of objects in the loop of [`Trace::Looping`].
    ///
    /// # Panics
    /// If `objects` or `looped` is 0.
    pub(crate) fn ids(self, objects: u64, looped: u64, seed: u64) -> Box<dyn Iterator<Item = u64>> {
        assert!(objects > 0 && looped > 0, "requests for nothing");
        if self == Self::Scans {
            return Box::new(Requests::new(objects, seed));
        }
        let (zipf, spread) = (Zipf::new(objects, EXPONENT), spread(objects));
        let mut draws = Draws::new(seed);
        let looped = looped.min(objects);
        let mut around = (0..looped).cycle();
        let step = (objects * SHIFT_PERCENT / 100).max(1);
        Box::new((0_u64..).map(move |number| {
            if self == Self::Looping && draws.below(100) < LOOP_PERCENT {
                return objects + around.next().unwrap_or(0);
            }
            let rank = zipf.draw(&mut draws) - 1;
            let moved = match self {
                Self::Shifting => number / SHIFT_EVERY * step,
                Self::Scans | Self::Looping => 0,
            };
            (spread_over(rank, spread, objects) + moved) % objects
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn counted(trace: Trace, from: usize, count: usize) -> HashMap<u64, u32> {
        let mut counts = HashMap::new();
        for id in trace.ids(10_000, 500, 3).skip(from).take(count) {
            *counts.entry(id).or_default() += 1;
        }
        counts
    }

    fn first(counts: &HashMap<u64, u32>) -> u64 {
        *counts.iter().max_by_key(|(id, count)| (**count, **id)).unwrap().0
    }

    #[test]
    fn all_stay_within_and_repeat_themselves() {
        for trace in Trace::ALL {
            assert!(counted(trace, 0, 50_000).keys().all(|id| *id < 20_000), "{}", trace.name());
            let again = || trace.ids(10_000, 500, 9).take(1_000).collect::<Vec<_>>();
            assert_eq!(again(), again());
        }
    }

    #[test]
    fn only_the_shifting_trace_shifts() {
        let most = |trace, from| first(&counted(trace, from, 4_000));
        // 200,000 requests are half a cycle of shifts; after 400,000 the popularity is back at its start.
        assert_ne!(most(Trace::Shifting, 0), most(Trace::Shifting, 200_000));
        assert_eq!(most(Trace::Scans, 0), most(Trace::Scans, 400_000));
        assert_eq!(most(Trace::Shifting, 0) + 100, most(Trace::Shifting, 4_000));
    }

    #[test]
    fn the_loop_asks_for_all_objects_equally() {
        let counts = counted(Trace::Looping, 0, 100_000);
        let looped: Vec<u32> = (10_000..10_500).map(|id| counts[&id]).collect();
        let (least, most) = (looped.iter().min().unwrap(), looped.iter().max().unwrap());
        assert!(most - least <= 1, "{least} to {most}");
        let share = looped.iter().sum::<u32>();
        assert!((29_000..31_000).contains(&share), "{share}");
        assert!(counts.keys().all(|id| *id < 10_500));
    }
}
