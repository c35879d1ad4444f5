//! Whose a key is: rendezvous hashing with bounded load, a function of what is known of each.
//!
//! Each scores for a key, and the highest score has it, so that one that comes or goes moves its own keys only. One that
//! fetches many more keys than the others is passed over for the next one (consistent hashing with bounded loads, Mirrokni
//! et al. 2016). What is counted is keys: those who wait for one that is being fetched cost nothing.

use crate::origin::mixed;

/// One that a key could be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// What tells it from the others: the same everywhere.
    pub(super) seed: u64,
    /// Keys that it fetches, as far as we know.
    pub(super) load: usize,
}

/// How many keys more than its part one fetches, in percent of that, before it is passed over.
const LOAD_PERCENT_MAX: usize = 125;
/// So many keys at once are nobody's burden: below that all see the same owner, whatever they know of loads.
pub(super) const LOAD_FREE: usize = 64;

/// The place of a key's owner among these; `None`: there is nobody.
pub(super) fn owner(key: u64, candidates: &[Candidate]) -> Option<usize> {
    let most = load_max(candidates);
    let score = |at: &usize| mixed(key ^ candidates[*at].seed);
    // The bound is above what there is on average, so one has room.
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
        /// Wherever they stand in the list, and whoever else is there.
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

        /// However keys are chosen, and whatever each has to begin with.
        #[test]
        fn nobody_is_given_many_more_keys_than_the_others(
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
    fn a_load_that_is_nobodys_burden_moves_no_key() {
        let (mut all, keys) = (idle(&[1, 2, 3]), (0..1_000).map(mixed));
        let before: Vec<_> = keys.clone().map(|key| owner(key, &all)).collect();
        all[1].load = LOAD_FREE - 1;
        assert_eq!(keys.clone().map(|key| owner(key, &all)).collect::<Vec<_>>(), before);
        all[1].load = LOAD_FREE;
        assert!(keys.map(|key| owner(key, &all)).all(|owner| owner != Some(1)));
    }
}
