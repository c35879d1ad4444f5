//! Slots of the handles: the state of each entry, in four bytes.
//!
//! ```text
//!   bits 31–30   00 free │ 01 removed, its entry still queued │ 10 live, queued │ 11 live, in the window
//!   bits 29–0    the generation; in the window, the number of the record that holds it
//! ```

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Number of slots in a part of the table; parts never move, so that no operation copies the table.
pub(super) const PART: usize = 1 << 10;

/// Upper bound for the number of slots, so that a record's number fits into a slot.
pub(super) const SLOTS_MAX: usize = 1 << 30;

/// Upper bound for generations and for record numbers.
pub(super) const GENERATIONS: u32 = 1 << 30;

const KIND: u32 = 0b11 << 30;
const REMOVED: u32 = 0b01 << 30;
const LIVE: u32 = 0b10 << 30;
const WINDOW: u32 = 0b11 << 30;

/// State of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The slot has no entry; its next entry gets this generation.
    Free(u32),
    /// The slot's entry is still queued, but removed.
    Removed(u32),
    /// The slot's entry is queued.
    Live(u32),
    /// The slot's entry is in the window; the value is the number of its record.
    Window(u32),
}

impl State {
    pub(super) const fn of(word: u32) -> Self {
        let rest = word & !KIND;
        match word & KIND {
            REMOVED => Self::Removed(rest),
            LIVE => Self::Live(rest),
            WINDOW => Self::Window(rest),
            _ => Self::Free(rest),
        }
    }

    pub(super) const fn word(self) -> u32 {
        match self {
            Self::Free(rest) => rest,
            Self::Removed(rest) => REMOVED | rest,
            Self::Live(rest) => LIVE | rest,
            Self::Window(rest) => WINDOW | rest,
        }
    }
}

/// The slots of a queue.
#[derive(Debug)]
pub(super) struct Slots {
    parts: Vec<Box<[u32]>>,
    /// Number of slots given out at least once.
    used: usize,
    free: Vec<u32>,
    /// Generation of a slot that was never given out; no older generation may be given out.
    base: u32,
    /// Number of generations, starting at `base`, that may be given out.
    life: u32,
    /// Free slots whose generations are used up.
    resting: Vec<u32>,
    /// Flag of each part: true if one of its slots was set since the last call of `changed`.
    changed: Vec<bool>,
}

impl Slots {
    /// Creates an empty table; `life` generations of each slot may be given out, starting at `base`.
    pub(super) const fn new(base: u32, life: u32) -> Self {
        Self {
            parts: Vec::new(),
            used: 0,
            free: Vec::new(),
            base,
            life,
            resting: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Returns the state of slot `slot`; `None` if no slot ever had that number.
    #[inline]
    pub(super) fn state(&self, slot: u32) -> Option<State> {
        let slot = slot as usize;
        (slot < self.used).then(|| State::of(self.parts[slot / PART][slot % PART]))
    }

    #[inline]
    pub(super) fn set(&mut self, slot: u32, state: State) {
        self.parts[slot as usize / PART][slot as usize % PART] = state.word();
        self.changed[slot as usize / PART] = true;
    }

    /// Returns a free slot and its generation; `None` if the maximum number of slots is in use. The slot
    /// stays free until it is [accepted](Slots::accept).
    pub(super) fn offer(&mut self) -> Option<(u32, u32)> {
        if let Some(&slot) = self.free.last() {
            return match self.state(slot) {
                Some(State::Free(generation)) => Some((slot, generation)),
                _ => unreachable!("what is in the list of free slots is free"),
            };
        }
        if self.used >= SLOTS_MAX {
            return None;
        }
        if self.used == self.parts.len() * PART {
            self.parts.try_reserve(1).ok()?;
            self.parts.push(alloc::vec![0; PART].into_boxed_slice());
            self.changed.push(true);
        }
        Some((self.used as u32, self.base))
    }

    /// Marks the offered slot as used.
    pub(super) fn accept(&mut self, slot: u32, state: State) {
        if slot as usize == self.used {
            self.used += 1;
        } else {
            self.free.pop();
        }
        self.set(slot, state);
    }

    /// Frees the slot, whose entry of this generation has left.
    pub(super) fn release(&mut self, slot: u32, generation: u32) {
        let mut next = (generation + 1) % GENERATIONS;
        // Generations wrap around; a distance of more than half means that `next` is older than the base.
        if self.since_base(next) >= GENERATIONS / 2 {
            next = self.base;
        }
        self.set(slot, State::Free(next));
        if self.life < GENERATIONS && self.since_base(next) >= self.life {
            self.resting.push(slot);
        } else {
            self.free.push(slot);
        }
    }

    const fn since_base(&self, generation: u32) -> u32 {
        generation.wrapping_sub(self.base) % GENERATIONS
    }

    /// Returns whether the queued entry of this slot is live; if not, the slot is freed.
    #[inline]
    pub(super) fn keep(&mut self, slot: u32) -> bool {
        match self.state(slot) {
            Some(State::Removed(generation)) => {
                self.release(slot, generation);
                false
            }
            _ => true,
        }
    }

    /// Returns the number of slots given out at least once.
    #[cfg(feature = "std")]
    pub(super) const fn used(&self) -> usize {
        self.used
    }

    /// Returns the number of parts of the table.
    #[cfg(feature = "std")]
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Returns the words of a part, if it has changed since the last call.
    #[cfg(feature = "std")]
    pub(super) fn changed(&mut self, part: usize) -> Option<&[u32]> {
        core::mem::take(&mut self.changed[part]).then(|| &*self.parts[part])
    }

    /// Restores `used` slots from a saved table of `parts`.
    #[cfg(feature = "std")]
    pub(super) fn restore(&mut self, parts: Vec<Box<[u32]>>, used: usize) {
        self.changed = alloc::vec![false; parts.len()];
        (self.parts, self.used) = (parts, used);
        for slot in (0..used as u32).rev() {
            if let Some(State::Free(_)) = self.state(slot) {
                self.set(slot, State::Free(self.base));
                self.free.push(slot);
            }
        }
    }

    /// Returns the first generation that was certainly never given out.
    #[cfg(feature = "std")]
    pub(super) const fn ceiling(&self) -> u32 {
        self.base.wrapping_add(self.life) % GENERATIONS
    }

    /// Allows `more` further generations, and drops the same number of the oldest. Called only after the file
    /// has recorded the change.
    #[cfg(feature = "std")]
    pub(super) fn extend_life(&mut self, more: u32) {
        self.base = self.base.wrapping_add(more) % GENERATIONS;
        self.free.append(&mut self.resting);
    }

    /// Returns whether slots wait for more generations.
    #[cfg(feature = "std")]
    pub(super) fn needs_life(&self) -> bool {
        !self.resting.is_empty()
    }

    /// Returns the bytes of the table and of the lists of free slots.
    pub(super) fn bytes(&self) -> usize {
        let lists = self.free.capacity() + self.resting.capacity();
        (self.parts.len() * PART + lists) * size_of::<u32>() + self.changed.capacity()
    }
}
