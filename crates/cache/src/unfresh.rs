//! Whether a site's answers say how long they are fresh.
//!
//! An origin that was never behind a cache often says nothing of it, and then next to nothing is answered from the store.
//! Who sets the accelerator up sees requests pass and not why: so the log says it, once a site, with the knob that helps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// So many pages of a site are looked at before anything is said of most of them.
const ANSWERS_MIN: u64 = 100;

/// What one core has seen of a site; on a cache line of its own, which no other core writes.
#[derive(Default)]
#[repr(align(64))]
struct OfCore {
    answers: AtomicU64,
    without: AtomicU64,
}

/// What all cores have seen of one site. Each fetched page counts once, and again when it is fetched anew: what is known
/// not to be stored is not fetched for the store (a minute each time).
pub(crate) struct Unfresh {
    of_cores: Box<[OfCore]>,
    is_told: AtomicBool,
}

impl Unfresh {
    pub(crate) fn new(cores: usize) -> Self {
        let of_cores = std::iter::repeat_with(OfCore::default).take(cores).collect();
        Self { of_cores, is_told: AtomicBool::new(false) }
    }

    /// Takes in a page (200) that this core has fetched; whether it is the one after which it is to be said.
    /// `is_without`: nothing says how long it is fresh, nor allows a guess.
    pub(crate) fn takes(&self, core: usize, is_without: bool) -> bool {
        if self.is_told.load(Relaxed) {
            return false;
        }
        let own = &self.of_cores[core];
        own.answers.fetch_add(1, Relaxed);
        if !is_without {
            return false;
        }
        own.without.fetch_add(1, Relaxed);
        let sum = |of: fn(&OfCore) -> &AtomicU64| -> u64 {
            self.of_cores.iter().map(|core| of(core).load(Relaxed)).sum()
        };
        let (answers, without) = (sum(|core| &core.answers), sum(|core| &core.without));
        answers >= ANSWERS_MIN && without > answers / 2 && !self.is_told.swap(true, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_and_of_most_of_many_pages() {
        let none = Unfresh::new(1);
        assert!((0..1_000).all(|_| !none.takes(0, false)));
        let half = Unfresh::new(2);
        assert!((0..1_000).all(|n| !half.takes(n / 2 % 2, n % 2 == 1)), "half are not most");
        let most = Unfresh::new(3);
        let said: Vec<usize> = (1..=1_000).filter(|n| most.takes(n / 3 % 3, n % 3 > 0)).collect();
        assert_eq!(said, [100]);
    }
}
