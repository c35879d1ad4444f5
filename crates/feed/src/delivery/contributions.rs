//! Table of the producers that filled one consumer's backlog, with the bytes of each.
//!
//! The table is a *space-saving* sketch (Metwally et al. 2005) of at most [`ENTRIES_MAX`] rows, for any
//! number of producers. A producer that takes over a row inherits its count as an error, so that `bytes -
//! error` never exceeds the bytes that the producer really added: nobody is held for another producer's
//! bytes. Counts are halved when their total exceeds twice the backlog, so that bytes that were read long ago
//! count little.

use crate::delivery::producer::Producer;

/// Rows of the table; a producer that added more than a thirty-second of the bytes always has a row.
const ENTRIES_MAX: usize = 32;
/// Divisor of the backlog: a producer that added less than this fraction is never held.
pub(crate) const HELD_FROM: u64 = 16;

/// Producers that filled a consumer's backlog, with the bytes of each.
#[derive(Debug, Default)]
pub(crate) struct Contributions {
    entries: Vec<Entry>,
    /// Bytes added by all producers; halved whenever the rows are halved.
    total: u64,
}

#[derive(Debug)]
struct Entry {
    producer: Producer,
    bytes: u64,
    error: u64,
}

impl Entry {
    fn certain(&self) -> u64 {
        self.bytes - self.error
    }
}

/// Bytes of a backlog that came from one producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Bytes that the producer added to the backlog.
    pub(crate) bytes: u64,
    /// Bytes that the largest producer added to the backlog.
    pub(crate) largest: u64,
}

impl Contributions {
    /// Notes that a producer added bytes to a backlog, which now has `backlog` bytes.
    pub(crate) fn add(&mut self, producer: Producer, bytes: usize, backlog: usize) {
        let bytes = bytes as u64;
        self.total += bytes;
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.producer == producer) {
            entry.bytes += bytes;
        } else if self.entries.len() < ENTRIES_MAX {
            self.entries.push(Entry { producer, bytes, error: 0 });
        } else if let Some(least) = self.entries.iter_mut().min_by_key(|entry| entry.bytes) {
            *least = Entry { producer, bytes: least.bytes + bytes, error: least.bytes };
        }
        if self.total > 2 * backlog as u64 {
            self.total /= 2;
            for entry in &mut self.entries {
                // The error is rounded up, so that `bytes - error` does not grow.
                entry.bytes /= 2;
                entry.error = entry.error.div_ceil(2).min(entry.bytes);
            }
        }
    }

    /// Returns the producer's part of the backlog; `None` if it is less than a sixteenth, so that the
    /// producer is not held.
    pub(crate) fn part_of(&self, producer: Producer) -> Option<Part> {
        let bytes = self.entries.iter().find(|entry| entry.producer == producer)?.certain();
        if bytes == 0 || bytes.saturating_mul(HELD_FROM) < self.total {
            return None;
        }
        let largest = self.entries.iter().map(Entry::certain).max().unwrap_or(bytes);
        Some(Part { bytes, largest })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn producer(number: u64) -> Producer {
        Producer { core: 0, conn: 0, cid: number }
    }

    #[test]
    fn under_a_sixteenth_has_no_part() {
        let mut contributions = Contributions::default();
        contributions.add(producer(1), 15_000, usize::MAX / 4);
        contributions.add(producer(2), 999, usize::MAX / 4);
        assert_eq!(contributions.part_of(producer(2)), None);
        contributions.add(producer(2), 1, usize::MAX / 4);
        assert_eq!(contributions.part_of(producer(2)), Some(Part { bytes: 1000, largest: 15_000 }));
        assert_eq!(contributions.part_of(producer(1)), Some(Part { bytes: 15_000, largest: 15_000 }));
    }

    proptest! {
        /// Comparison with exact counts: no producer is charged more than it added, and large producers are
        /// in the table.
        #[test]
        fn never_more_than_was_put_in(puts in prop::collection::vec((0_u64..80, 1_usize..5000), 1..500)) {
            let (mut contributions, mut exact, mut total) = (Contributions::default(), BTreeMap::new(), 0);
            for (number, bytes) in puts {
                contributions.add(producer(number), bytes, usize::MAX / 4);
                *exact.entry(number).or_insert(0_u64) += bytes as u64;
                total += bytes as u64;
            }
            prop_assert!(contributions.entries.len() <= ENTRIES_MAX);
            for (number, bytes) in exact {
                let part = contributions.part_of(producer(number));
                prop_assert!(part.is_none_or(|part| part.bytes <= bytes && bytes * HELD_FROM >= total));
                // The error is at most a thirty-second of the total.
                prop_assert!(part.is_some() || bytes * 32 < total * 3, "{bytes} of {total}");
            }
        }
    }
}
