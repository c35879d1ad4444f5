//! A ring in shared memory: a writer that never waits, and readers that detect which records they have
//! missed.
//!
//! ```text
//!            read from here        written           begun
//!                 │                   │                │
//!   words   ┌─────▼──────┬────────────▼────┬───────────▼───────────────┐     positions only grow;
//!           │  a record  │    a record     │  being written …          │     word `position mod capacity`
//!           └────────────┴─────────────────┴───────────────────────────┘
//!   a record: number << 24 | bytes · the bytes, whole words
//! ```
//! The writer first stores the position up to which it is going to write (`begun`), then writes, then stores
//! the position that it has reached (`written`). A reader copies a record and then checks whether `begun` has
//! wrapped around to the record's start: if so, the copy may be torn and is discarded. (This is a seqlock:
//! the fences are those of Boehm, "Can seqlocks get along with programming language memory models?", 2012.)
//! Records are numbered, so that a reader knows how many it missed.
//!
//! The memory may be another process's: a reader trusts nothing in it, and at worst returns nonsense or
//! nothing.

use std::{cell::Cell, ops::Deref};

use crate::sys::{
    atomics::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
        fence,
    },
    span::Span,
};

/// Number of words before the ring's data: two cache lines, of which three words are used.
pub const HEAD_WORDS: usize = 16;
const BEGUN: usize = 0;
const WRITTEN: usize = 1;
/// Index of the word that counts the records written so far.
pub(super) const RECORDS: usize = 2;

const WORD_BYTES: usize = size_of::<u64>();
const LENGTH_BITS: u32 = 24;
/// Minimum capacity of a ring in words.
pub const CAPACITY_WORDS_MIN: usize = 2;

/// Memory of a ring: its head, followed by data words whose number is a power of two.
pub trait Memory: Deref<Target = [AtomicU64]> {}
impl<M: Deref<Target = [AtomicU64]>> Memory for M {}

fn capacity(words: &[AtomicU64]) -> usize {
    let capacity = words.len().saturating_sub(HEAD_WORDS);
    assert!(capacity.is_power_of_two() && capacity >= CAPACITY_WORDS_MIN, "a ring of {capacity} words");
    capacity
}

/// The only writer of a journal ring.
#[derive(Debug)]
pub struct Writer<M> {
    words: M,
    /// Current value of the head's `written` word: the position up to which records are complete.
    at: Cell<u64>,
    records: Cell<u64>,
}

impl<M: Memory> Writer<M> {
    /// Creates the writer of a ring that is all zero.
    ///
    /// # Panics
    /// Panics if `words` is not a head followed by a power of two of words.
    #[must_use]
    pub fn new(words: M) -> Self {
        capacity(&words);
        Self { words, at: Cell::new(0), records: Cell::new(0) }
    }

    /// Writes a record that consists of these parts, overwriting the oldest records.
    ///
    /// # Panics
    /// Panics if the length of a part is not a multiple of a word, or the record takes more than half of the
    /// ring.
    #[inline]
    pub fn write(&self, parts: &[&[u8]]) {
        let words = &*self.words;
        let mask = words.len() - HEAD_WORDS - 1;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let needed = 1 + bytes / WORD_BYTES;
        assert!(bytes.is_multiple_of(WORD_BYTES) && needed <= mask / 2 + 1, "a record of {bytes} bytes");
        let at = self.at.get();
        let end = at + needed as u64;
        words[BEGUN].store(end, Relaxed);
        // A reader that sees any word written below also sees `begun`.
        fence(Release);
        let place = |position: u64| HEAD_WORDS + (position as usize & mask);
        words[place(at)].store(self.records.get() << LENGTH_BITS | bytes as u64, Relaxed);
        let mut position = at + 1;
        for part in parts {
            assert!(part.len().is_multiple_of(WORD_BYTES), "a part of {} bytes", part.len());
            let first = place(position);
            let until_wrap = (words.len() - first) * WORD_BYTES;
            let (before, after) = part.split_at(part.len().min(until_wrap));
            write(&words[first..], before);
            write(&words[HEAD_WORDS..], after);
            position += (part.len() / WORD_BYTES) as u64;
        }
        self.records.set(self.records.get() + 1);
        words[RECORDS].store(self.records.get(), Relaxed);
        words[WRITTEN].store(end, Release);
        self.at.set(end);
    }

    /// Returns the number of records written.
    pub fn records(&self) -> u64 {
        self.records.get()
    }
}

#[inline]
fn write(words: &[AtomicU64], bytes: &[u8]) {
    if !bytes.is_empty() {
        Span::new(words, 0..bytes.len()).write_from(bytes);
    }
}

/// Reader of a ring, with its position.
#[derive(Debug)]
pub struct Reader<M> {
    words: M,
    at: u64,
    /// Number of the next record if none is missed; `None` if unknown.
    next: Option<u64>,
    lost: u64,
}

/// Number of times that a new reader tries to find a moment at which nothing is being written.
const BEGIN_TRIES: usize = 1000;

impl<M: Memory> Reader<M> {
    /// Creates a reader that begins after the last existing record.
    ///
    /// # Panics
    /// Panics like [`Writer::new`].
    #[must_use]
    pub fn new(words: M) -> Self {
        capacity(&words);
        let mut reader = Self { at: words[WRITTEN].load(Acquire), next: None, lost: 0, words };
        for _ in 0..BEGIN_TRIES {
            let at = reader.words[WRITTEN].load(Acquire);
            let records = reader.words[RECORDS].load(Relaxed);
            fence(Acquire);
            if reader.words[BEGUN].load(Relaxed) == at {
                (reader.at, reader.next) = (at, Some(records));
                break;
            }
        }
        reader
    }

    /// Puts the next record into `into`; returns false if there is none yet, or all existing records have
    /// been overwritten.
    pub fn read(&mut self, into: &mut Vec<u8>) -> bool {
        let words = &*self.words;
        let capacity = words.len() - HEAD_WORDS;
        let place = |position: u64| HEAD_WORDS + (position as usize & (capacity - 1));
        let written = words[WRITTEN].load(Acquire);
        let there = written.wrapping_sub(self.at);
        if there == 0 {
            return false;
        }
        if there > capacity as u64 {
            self.at = written;
            return false;
        }
        let head = words[place(self.at)].load(Relaxed);
        let bytes = (head & ((1 << LENGTH_BITS) - 1)) as usize;
        let needed = 1 + (bytes / WORD_BYTES) as u64;
        let is_sound = bytes.is_multiple_of(WORD_BYTES) && needed <= there;
        if is_sound {
            into.clear();
            let first = place(self.at + 1);
            let before = bytes.min((words.len() - first) * WORD_BYTES);
            for (words, bytes) in [(&words[first..], before), (&words[HEAD_WORDS..], bytes - before)] {
                if bytes > 0 {
                    Span::new(words, 0..bytes).copy_to(into);
                }
            }
        }
        // The fence orders the copy before this check of the writer's position.
        fence(Acquire);
        let is_whole = words[BEGUN].load(Relaxed).wrapping_sub(self.at) <= capacity as u64;
        if !is_sound || !is_whole {
            self.at = words[WRITTEN].load(Acquire);
            return false;
        }
        self.at += needed;
        let number = head >> LENGTH_BITS;
        if let Some(next) = self.next {
            self.lost += number.saturating_sub(next);
        }
        self.next = Some(number + 1);
        true
    }

    /// Returns the number of records that were overwritten before they were read; it is updated when the next
    /// record is read.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::{collections::VecDeque, sync::Arc};

    use proptest::prelude::*;

    use super::*;

    type Memory = Arc<[AtomicU64]>;

    fn memory(capacity: usize) -> Memory {
        (0..HEAD_WORDS + capacity).map(|_| AtomicU64::new(0)).collect()
    }

    /// Builds a record in which every word contains the record's number.
    fn record(number: u64, words: usize) -> Vec<u8> {
        number.to_ne_bytes().repeat(words)
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write(usize, usize),
        Read,
    }

    /// Capacity of the ring that is compared with its twin, in words.
    const CAPACITY: usize = 32;

    /// A record in the twin of a ring.
    struct TwinRecord {
        number: u64,
        words: usize,
    }

    /// Reads a record, compares it with the twin's, and returns how many records the reader has lost before it.
    fn read_beside(twin: &mut VecDeque<TwinRecord>, reader: &mut Reader<Memory>, into: &mut Vec<u8>) -> u64 {
        let waiting: usize = twin.iter().map(|record| 1 + record.words).sum();
        if !reader.read(into) {
            assert!(twin.is_empty() || waiting > CAPACITY, "a record is missed in a ring with room for it");
            // The reader has skipped to the end of the ring.
            return twin.drain(..).count() as u64;
        }
        let mut lost = 0;
        loop {
            let Some(TwinRecord { number, words }) = twin.pop_front() else {
                panic!("a record is read that was not written")
            };
            if reader.next == Some(number + 1) {
                assert_eq!(*into, record(number, words));
                return lost;
            }
            lost += 1;
        }
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..12_usize, 0..4_usize).prop_map(|(words, cut)| Step::Write(words, cut)),
            2 => Just(Step::Read),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(unify::cases(256, 20_000)))]

        /// Compared with a simple model, a queue of all records: a reader returns a subsequence of it in
        /// order, counts the missing records, and misses none as long as no more than the ring's capacity has
        /// been written since the last read.
        #[test]
        fn a_reader_returns_or_counts_every_record(steps in steps()) {
            let memory = memory(CAPACITY);
            let writer = Writer::new(Arc::clone(&memory));
            let mut reader = Reader::new(memory);
            let mut twin = VecDeque::new();
            let mut written = 0;
            let mut lost = 0;
            let mut into = Vec::new();
            for step in steps {
                match step {
                    Step::Write(words, cut) => {
                        let bytes = record(written, words);
                        let (first, second) = bytes.split_at(cut.min(words) * WORD_BYTES);
                        writer.write(&[first, second]);
                        twin.push_back(TwinRecord { number: written, words });
                        written += 1;
                    }
                    Step::Read => lost += read_beside(&mut twin, &mut reader, &mut into),
                }
                if twin.is_empty() {
                    // The reader learns how many records were lost only when it reads the next record.
                    prop_assert!(reader.lost() <= lost);
                }
            }
            writer.write(&[&record(written, 1)]);
            while reader.read(&mut into) {
                if reader.next != Some(written + 1) {
                    twin.pop_front();
                }
            }
            writer.write(&[&record(written + 1, 1)]);
            while reader.read(&mut into) {}
            prop_assert_eq!(reader.next, Some(written + 2), "the last one is read once there is room");
        }
    }

    #[test]
    fn an_overtaken_reader_sees_no_torn_record() {
        let memory = memory(64);
        let writer = Writer::new(Arc::clone(&memory));
        let mut reader = Reader::new(memory);
        std::thread::scope(|scope| {
            let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let is_done = Arc::clone(&done);
            scope.spawn(move || {
                for number in 0..200_000_u64 {
                    writer.write(&[&record(number, 1 + number as usize % 31)]);
                }
                is_done.store(true, std::sync::atomic::Ordering::Release);
            });
            let (mut into, mut read, mut last) = (Vec::new(), 0_u64, None);
            loop {
                let was_done = done.load(std::sync::atomic::Ordering::Acquire);
                if reader.read(&mut into) {
                    let number = u64::from_ne_bytes(into[..8].try_into().expect("a word"));
                    assert_eq!(into, record(number, 1 + number as usize % 31), "torn");
                    assert!(last < Some(number), "in order");
                    last = Some(number);
                    read += 1;
                    assert_eq!(read + reader.lost(), number + 1, "what is not read is counted");
                } else if was_done {
                    break;
                }
            }
        });
    }

    #[test]
    fn garbage_from_another_process_is_harmless() {
        let memory = memory(32);
        let mut reader = Reader::new(Arc::clone(&memory));
        let mut into = Vec::new();
        for (written, head) in [(1, u64::MAX), (5, 7), (u64::MAX, 0), (3, 1 << 20), (0, 8), (9, 64)] {
            memory[WRITTEN].store(written, Relaxed);
            memory[BEGUN].store(written, Relaxed);
            memory.iter().skip(HEAD_WORDS).for_each(|word| word.store(head, Relaxed));
            for _ in 0..100 {
                reader.read(&mut into);
            }
            assert!(into.len() <= 32 * WORD_BYTES);
        }
    }
}
