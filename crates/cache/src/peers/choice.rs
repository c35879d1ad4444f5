//! Owner of a key: rendezvous hashing with bounded load, a pure function of the candidates.
//!
//! Each candidate has a score for each key, and the candidate with the highest score owns the key. So only
//! its own keys move when a peer joins or leaves. A peer that fetches many more keys than the others is
//! passed over for the next one (consistent hashing with bounded loads, Mirrokni et al. 2016). The load
//! counts keys: requests that wait for a fetch under way cost nothing.

use crate::origin::mixed;

/// A possible owner of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Identity of the candidate, the same in every process.
    pub(super) seed: u64,
    /// Number of keys that the candidate is fetching, according to its last report.
    pub(super) load: usize,
}

/// Load at which a candidate is passed over, in percent of its fair share of the keys.
const LOAD_PERCENT_MAX: usize = 125;
/// Number of keys under way below which no candidate is passed over. Up to this load all accelerators choose
/// the same owner, whatever loads they know of.
pub(super) const LOAD_FREE: usize = 64;

/// Returns the index of a key's owner; `None` if there are no candidates.
pub(super) fn owner(key: u64, candidates: &[Candidate]) -> Option<usize> {
    let most = load_max(candidates);
    let score = |at: &usize| mixed(key ^ candidates[*at].seed);
    // The bound is above the average load, so at least one candidate has room.
    (0..candidates.len()).filter(|at| candidates[*at].load < most).max_by_key(score)
}

fn load_max(candidates: &[Candidate]) -> usize {
    let all: usize = candidates.iter().map(|candidate| candidate.load).sum();
    (LOAD_PERCENT_MAX * (all + 1)).div_ceil(100 * candidates.len().max(1)).max(LOAD_FREE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn idle(seeds: &[u64]) -> Vec<Candidate> {
        seeds.iter().map(|seed| Candidate { seed: mixed(*seed), load: 0 }).collect()
    }

    #[test]
    fn keys_are_spread_evenly() {
        let all = idle(&[1, 2, 3, 4, 5]);
        let mut count = [0_usize; 5];
        for key in (0..10_000).map(mixed) {
            count[owner(key, &all).expect("one")] += 1;
        }
        assert!(count.iter().all(|of_one| (1_800..2_200).contains(of_one)), "{count:?}");
        assert_eq!(owner(7, &[]), None);
    }

    proptest! {
        /// Removing a candidate moves only its own keys, whatever the order of the list and the other
        /// candidates.
        #[test]
        fn one_that_goes_moves_its_own_keys_alone(
            seeds in prop::collection::btree_set(any::<u64>(), 2..12),
            gone in any::<prop::sample::Index>(),
            turned in 0_usize..12,
            keys in prop::collection::vec(any::<u64>(), 1..50),
        ) {
            let mut seeds: Vec<u64> = seeds.into_iter().collect();
            let before = idle(&seeds);
            let gone = gone.index(seeds.len());
            let of_gone = mixed(seeds.remove(gone));
            let turned = turned % seeds.len();
            seeds.rotate_left(turned);
            let after = idle(&seeds);
            for key in keys {
                let was = before[owner(key, &before).expect("one")].seed;
                let is = after[owner(key, &after).expect("one")].seed;
                prop_assert!(was == is || was == of_gone);
            }
        }

        /// No candidate gets many more keys than the others, whatever the keys and the initial loads.
        #[test]
        fn no_peer_gets_far_more_keys_than_others(
            loads in prop::collection::vec(0_usize..300, 1..10),
            keys in prop::collection::vec(any::<u64>(), 1..400),
            is_one_key: bool,
        ) {
            let mut all = idle(&(0..loads.len() as u64).collect::<Vec<_>>());
            for (candidate, load) in all.iter_mut().zip(&loads) {
                candidate.load = *load;
            }
            for key in &keys {
                let key = if is_one_key { keys[0] } else { *key };
                let most = load_max(&all);
                let chosen = owner(key, &all).expect("one has room");
                all[chosen].load += 1;
                prop_assert!(all[chosen].load <= most);
                let average = all.iter().map(|one| one.load).sum::<usize>().div_ceil(all.len());
                prop_assert!(most <= LOAD_FREE.max(average * LOAD_PERCENT_MAX / 100 + 2));
            }
        }
    }

    #[test]
    fn a_small_load_moves_no_key() {
        let (mut all, keys) = (idle(&[1, 2, 3]), (0..1_000).map(mixed));
        let before: Vec<_> = keys.clone().map(|key| owner(key, &all)).collect();
        all[1].load = LOAD_FREE - 1;
        assert_eq!(keys.clone().map(|key| owner(key, &all)).collect::<Vec<_>>(), before);
        all[1].load = LOAD_FREE;
        assert!(keys.map(|key| owner(key, &all)).all(|owner| owner != Some(1)));
    }
}
