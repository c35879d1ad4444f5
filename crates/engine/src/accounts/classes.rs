//! Clients sorted by the amount that they hold, in classes of an eighth of an octave, so that the largest
//! client is found in constant time.
//!
//! ```text
//!   measure   1 2 … 15 │ 16 18 20 … 30 │ 32 36 …       eight classes per octave, as in an HDR histogram
//!   heads     · A      │      B        │  ·            one list per class; a bit tells whether it is non-empty
//! ```

/// Sentinel for "no list" or "no entry".
pub(super) const NONE: u32 = u32::MAX;
/// Base-2 logarithm of the number of classes per octave.
const CLASS_BITS: u32 = 3;
/// Number of classes needed to cover every `usize` measure.
const CLASSES: usize = (usize::BITS as usize - CLASS_BITS as usize + 1) << CLASS_BITS;

/// Returns the class of a measure. Monotonic: a larger measure never has a smaller class.
#[inline]
pub(super) fn class(measure: usize) -> usize {
    if measure < 1 << CLASS_BITS {
        return measure;
    }
    let octave = measure.ilog2();
    (((octave - CLASS_BITS + 1) as usize) << CLASS_BITS)
        + (measure >> (octave - CLASS_BITS) & ((1 << CLASS_BITS) - 1))
}

/// Returns the smallest measure of a class.
#[cfg(test)]
fn floor(class: usize) -> usize {
    if class < 1 << CLASS_BITS {
        return class;
    }
    let octave = (class >> CLASS_BITS) - 1;
    ((1 << CLASS_BITS) + (class & ((1 << CLASS_BITS) - 1))) << octave
}

/// Rings (circular doubly linked lists) of entries identified by number. The heads are stored elsewhere.
#[derive(Debug, Default)]
pub(super) struct Rings(Vec<(u32, u32)>);

impl Rings {
    /// Makes room for `entries` entries.
    pub(super) fn reserve(&mut self, entries: usize) {
        if self.0.len() < entries {
            self.0.resize(entries, (NONE, NONE));
        }
    }

    /// Returns the largest of the next few entries in a ring, and moves the head past them, so that the next
    /// search looks at other entries.
    pub(super) fn largest(
        &self,
        head: &mut u32,
        looks_max: usize,
        size: impl Fn(u32) -> usize,
    ) -> Option<u32> {
        if *head == NONE {
            return None;
        }
        let (first, mut best) = (*head, *head);
        for _ in 0..looks_max {
            if size(*head) > size(best) {
                best = *head;
            }
            *head = self.0[*head as usize].1;
            if *head == first {
                break;
            }
        }
        Some(best)
    }

    /// Appends an entry at the end of a ring. The entry must not be in a ring.
    #[inline]
    pub(super) fn push(&mut self, head: &mut u32, at: u32) {
        if *head == NONE {
            self.0[at as usize] = (at, at);
            *head = at;
            return;
        }
        let last = self.0[*head as usize].0;
        self.0[at as usize] = (last, *head);
        self.0[last as usize].1 = at;
        self.0[*head as usize].0 = at;
    }

    /// Removes an entry from the ring with this head.
    #[inline]
    pub(super) fn remove(&mut self, head: &mut u32, at: u32) {
        let (before, after) = std::mem::replace(&mut self.0[at as usize], (NONE, NONE));
        if after == at {
            *head = NONE;
            return;
        }
        self.0[before as usize].1 = after;
        self.0[after as usize].0 = before;
        if *head == at {
            *head = after;
        }
    }
}

/// The parties (clients and /48 groups) of one category, sorted by class.
#[derive(Debug)]
pub(super) struct Classes {
    heads: Box<[u32; CLASSES]>,
    /// A bit for each list, set while the list is not empty.
    full: [u64; CLASSES.div_ceil(64)],
}

impl Default for Classes {
    fn default() -> Self {
        Self { heads: Box::new([NONE; CLASSES]), full: [0; CLASSES.div_ceil(64)] }
    }
}

impl Classes {
    /// Moves a party to another class after its measure has changed.
    #[inline]
    pub(super) fn shift(&mut self, rings: &mut Rings, at: u32, before: usize, after: usize) {
        let (from, to) = (class(before), class(after));
        if from == to {
            return;
        }
        if from > 0 {
            rings.remove(&mut self.heads[from], at);
            if self.heads[from] == NONE {
                self.full[from / 64] &= !(1 << (from % 64));
            }
        }
        if to > 0 {
            rings.push(&mut self.heads[to], at);
            self.full[to / 64] |= 1 << (to % 64);
        }
    }

    /// Returns the first party of the highest class that is not empty.
    pub(super) fn top(&self) -> Option<u32> {
        let (word, bits) = self.full.iter().enumerate().rev().find(|(_, bits)| **bits != 0)?;
        Some(self.heads[word * 64 + bits.ilog2() as usize])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_class_is_an_eighth_wide(measure in 1_usize.., other in 1_usize..) {
            let low = floor(class(measure));
            prop_assert!(low <= measure && measure - low <= low / 8, "{measure} {low}");
            prop_assert!(class(measure) < CLASSES && class(low) == class(measure));
            prop_assert!(class(measure) <= class(other) || measure > other);
        }

        /// The top class always contains the largest measure, as found by a linear search in a plain list of
        /// measures.
        #[test]
        fn the_top_class_has_the_most(steps in prop::collection::vec((0_u32..12, 0_usize..300), 1..200)) {
            let (mut classes, mut rings, mut twin) = (Classes::default(), Rings::default(), [0; 12]);
            rings.reserve(12);
            for (at, measure) in steps {
                classes.shift(&mut rings, at, twin[at as usize], measure);
                twin[at as usize] = measure;
                let most = twin.iter().copied().max().unwrap_or(0);
                prop_assert_eq!(classes.top().map_or(0, |first| class(twin[first as usize])), class(most));
            }
        }
    }
}
