//! Load balancing: pure functions that choose one of several servers.

use smallvec::SmallVec;

/// A server that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Index among the members.
    pub(super) at: usize,
    /// Current share of the load; more than 0.
    pub(super) weight: u32,
    /// Exchanges with the server that are under way, on all cores.
    pub(super) busy: usize,
    /// Identity of the server for hashing, independent of its index.
    pub(super) seed: u64,
}

pub(super) type Candidates = SmallVec<[Candidate; 8]>;

/// Load up to which a server gets the requests for its own keys before another server is chosen, in percent
/// of its fair share of the requests under way (consistent hashing with bounded loads, Mirrokni et al. 2016).
const LOAD_PERCENT_MAX: u64 = 125;

/// Chooses the servers in rotation, each in proportion to its weight, with each server's picks spread out
/// (nginx's smooth weighted round robin). `turns` is the state of each member between two calls.
pub(super) fn round_robin(candidates: &[Candidate], turns: &mut [i64]) -> Option<usize> {
    let mut total = 0;
    for candidate in candidates {
        turns[candidate.at] += i64::from(candidate.weight);
        total += i64::from(candidate.weight);
    }
    // `rev` makes the first of several equal candidates win.
    let chosen = candidates.iter().rev().max_by_key(|candidate| turns[candidate.at])?;
    turns[chosen.at] -= total;
    Some(chosen.at)
}

/// Chooses a server at random, by weight. `lot` is the random number.
pub(super) fn random(candidates: &[Candidate], lot: u64) -> Option<usize> {
    let total: u64 = candidates.iter().map(|candidate| u64::from(candidate.weight)).sum();
    let mut left = lot.checked_rem(total)?;
    for candidate in candidates {
        match left.checked_sub(candidate.weight.into()) {
            Some(rest) => left = rest,
            None => return Some(candidate.at),
        }
    }
    None
}

/// Chooses the server with the fewest exchanges for its weight, counting the new one; at random among equals.
pub(super) fn least_busy(candidates: &[Candidate], lot: u64) -> Option<usize> {
    let load = |candidate: &Candidate| (candidate.busy as u64 + 1) << 32;
    let load = |candidate: &Candidate| load(candidate) / u64::from(candidate.weight);
    let least = candidates.iter().map(load).min()?;
    let equals: Candidates =
        candidates.iter().copied().filter(|candidate| load(candidate) == least).collect();
    random(&equals, lot)
}

/// Chooses the same server for the same hash, unless that server is much busier than its share. Each server
/// gets a score and the highest wins (rendezvous hashing, weighted as proposed by Schindelhauer and
/// Schomaker), so a server that is added or removed moves only its own keys.
pub(super) fn by_hash(candidates: &[Candidate], hash: u64) -> Option<usize> {
    let busy: u64 = candidates.iter().map(|candidate| candidate.busy as u64).sum::<u64>() + 1;
    let total: u64 = candidates.iter().map(|candidate| u64::from(candidate.weight)).sum();
    let has_room = |candidate: &&Candidate| {
        let most = (busy * u64::from(candidate.weight) * LOAD_PERCENT_MAX).div_ceil(total * 100);
        (candidate.busy as u64) < most
    };
    // The servers' bounds add up to more than the requests under way, so at least one server has room.
    let of_room = candidates.iter().filter(has_room);
    of_room.max_by(|a, b| score(a, hash).total_cmp(&score(b, hash))).map(|candidate| candidate.at)
}

fn score(candidate: &Candidate, hash: u64) -> f64 {
    // Uniform between 0 and 1, both excluded.
    let share = ((mixed(hash ^ candidate.seed) >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    -f64::from(candidate.weight) / share.ln()
}

/// Mixes a number so that every bit of the result depends on every bit of the input (the finalizer of
/// SplitMix64, Steele et al. 2014).
pub(crate) fn mixed(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates(weights: &[u32]) -> Vec<Candidate> {
        let candidate = |(at, weight): (usize, &u32)| Candidate {
            at,
            weight: *weight,
            busy: 0,
            seed: mixed(at as u64 + 1),
        };
        weights.iter().enumerate().map(candidate).collect()
    }

    #[test]
    fn turns_are_spread() {
        let all = candidates(&[5, 1, 1]);
        let mut turns = [0; 3];
        let chosen: Vec<_> = (0..7).filter_map(|_| round_robin(&all, &mut turns)).collect();
        assert_eq!(chosen, [0, 0, 1, 0, 2, 0, 0]);
        // The first member has been removed.
        let chosen: Vec<_> = (0..4).filter_map(|_| round_robin(&all[1..], &mut turns)).collect();
        assert_eq!(chosen, [1, 2, 1, 2]);
        assert_eq!(round_robin(&[], &mut turns), None);
    }

    #[test]
    fn lots_fall_by_weight() {
        let all = candidates(&[3, 0, 1]);
        let chosen: Vec<_> = (0..4).filter_map(|lot| random(&all, lot)).collect();
        assert_eq!(chosen, [0, 0, 0, 2]);
        assert_eq!(random(&[], 5), None);
    }

    #[test]
    fn the_least_busy_is_so_for_its_weight() {
        let mut all = candidates(&[1, 2, 1]);
        for (busy, chosen) in [([0, 0, 0], 1), ([0, 1, 3], 0), ([3, 6, 4], 1), ([5, 9, 0], 2)] {
            for (candidate, busy) in all.iter_mut().zip(busy) {
                candidate.busy = busy;
            }
            assert_eq!(least_busy(&all, 0), Some(chosen), "{busy:?}");
        }
        let equal = candidates(&[1, 1]);
        assert_eq!([0, 1, 2].map(|lot| least_busy(&equal, lot)), [Some(0), Some(1), Some(0)]);
    }

    #[test]
    fn pages_are_spread_by_weight_and_move_minimally() {
        let all = candidates(&[1, 1, 2, 1]);
        let (mut count, mut moved) = ([0; 4], 0);
        for hash in (0..10_000).map(mixed) {
            let before = by_hash(&all, hash).expect("one");
            count[before] += 1;
            let without: Vec<_> = all.iter().copied().filter(|candidate| candidate.at != 1).collect();
            let after = by_hash(&without, hash).expect("one");
            moved += usize::from(before != after);
            assert!(before == 1 || before == after);
        }
        assert_eq!(moved, count[1]);
        for (at, part) in [(0, 2000), (1, 2000), (2, 4000), (3, 2000)] {
            assert!((part - 200..part + 200).contains(&count[at]), "{count:?}");
        }
    }

    #[test]
    fn a_popular_page_is_spread_over_servers() {
        let mut all = candidates(&[1, 1, 1, 1]);
        for _ in 0..100 {
            let chosen = by_hash(&all, 7).expect("one");
            all[chosen].busy += 1;
        }
        let mut busy: Vec<_> = all.iter().map(|candidate| candidate.busy).collect();
        busy.sort_unstable();
        assert!(busy[3] <= 32 && busy[2] >= 28, "{busy:?}");
    }

    proptest! {
        #[test]
        fn one_of_those_that_there_are_is_chosen(
            parts in prop::collection::vec((1_u32..5000, 0_usize..100), 1..10),
            lot: u64,
        ) {
            let mut all = candidates(&parts.iter().map(|(weight, _)| *weight).collect::<Vec<_>>());
            for (candidate, (_, busy)) in all.iter_mut().zip(&parts) {
                candidate.busy = *busy;
            }
            let mut turns = vec![0; all.len()];
            for chosen in [
                round_robin(&all, &mut turns), random(&all, lot), least_busy(&all, lot), by_hash(&all, lot),
            ] {
                prop_assert!(chosen.is_some_and(|at| at < all.len()));
            }
            prop_assert_eq!(turns.iter().sum::<i64>(), 0);
        }
    }
}
