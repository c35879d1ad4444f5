//! Whether a site's answers say how long they are fresh.
//!
//! An origin that was never behind a cache often says nothing of it, and then next to nothing is answered from the store.
//! Who sets the accelerator up sees requests pass and not why: so the log says it, once a site, with the knob that helps.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// So many pages of a site are looked at before anything is said of most of them.
const ANSWERS_MIN: u32 = 100;

/// What all cores have seen of one site. Each fetched page counts once, and again when it is fetched anew: what is known
/// not to be stored is not fetched for the store (a minute each time).
#[derive(Default)]
pub(crate) struct Unfresh {
    answers: AtomicU32,
    without: AtomicU32,
    is_told: AtomicBool,
}

impl Unfresh {
    /// Takes in a page (200) that was fetched; whether it is the one after which it is to be said. `is_without`: nothing says
    /// how long it is fresh, nor allows a guess.
    pub(crate) fn takes(&self, is_without: bool) -> bool {
        if self.is_told.load(Relaxed) {
            return false;
        }
        let answers = self.answers.fetch_add(1, Relaxed) + 1;
        let without = self.without.fetch_add(u32::from(is_without), Relaxed) + u32::from(is_without);
        is_without && answers >= ANSWERS_MIN && without > answers / 2 && !self.is_told.swap(true, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_and_of_most_of_many_pages() {
        let none = Unfresh::default();
        assert!((0..1_000).all(|_| !none.takes(false)));
        let half = Unfresh::default();
        assert!((0..1_000).all(|n| !half.takes(n % 2 == 1)), "half are not most");
        let most = Unfresh::default();
        let said: Vec<u32> = (1..=1_000).filter(|n| most.takes(n % 3 > 0)).collect();
        assert_eq!(said, [100]);
    }
}
