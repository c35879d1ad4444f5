//! An index segment in memory, while it is being filled: one column of bits for each mail.
//!
//! ```text
//!            mail 0  1  2  3 …                      each gram of a mail sets two bits of its column
//!   row 0       ▢  ▣  ▢  ▢       a query reads two rows per gram: a mail with all bits set may have the word,
//!   row 1       ▢  ▢  ▢  ▣       any other does not have it
//!   …
//! ```
//! Each column is the Bloom filter of a mail; the filters are stored by row, so that a query reads a few rows
//! instead of every filter. (This is the design of bit-sliced signature files, Faloutsos and Christodoulakis
//! 1984.) Mails with more text get more rows and go into other segments, so that no filter is too full. No
//! filter takes more disk space than [`DISK_SHARE_PERCENT`] of its mail.

use std::io;

use crate::search::mail_key::MailKey;

/// Size of a segment's bits in bytes; smaller in tests, which would otherwise never fill a segment.
pub(super) const SHEET_BYTES: usize = if cfg!(test) { 512 << 10 } else { 2 << 20 };
/// Number of bits that a gram sets in the column of its mail.
const BITS_A_GRAM: usize = 2;
/// Possible numbers of rows in a segment; a mail with more text needs more rows.
pub(super) const HEIGHTS: [u32; 17] = [
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
    65_536,
];
/// Maximum size of a mail's index data, in percent of the size of the mail.
const DISK_SHARE_PERCENT: u64 = 15;
/// Bytes that a mail takes in a segment in addition to its bits: its key, and its share of the row checksums.
const BYTES_BESIDE: u64 = NAME_BYTES as u64 + 4;
/// Bytes of a mail's key on the disk.
pub(super) const NAME_BYTES: usize = 16;

/// Rows of a segment that a query reads.
pub(super) trait Rows {
    fn height(&self) -> u32;
    /// Number of words in a row.
    fn words(&self) -> usize;
    /// Clears the bits of `set` that are not set in this row.
    fn intersect_row(&self, row: u32, set: &mut [u64]) -> io::Result<()>;
}

/// Returns the number of rows for a mail with this many grams and bytes. A Bloom filter is most selective for
/// its size when half of its bits are set.
pub(super) fn height_for(grams: usize, mail_bytes: u64) -> u32 {
    let wanted = (grams * BITS_A_GRAM) as f64 / std::f64::consts::LN_2;
    let allowed = (mail_bytes * DISK_SHARE_PERCENT / 100).saturating_sub(BYTES_BESIDE) * 8;
    let enough = HEIGHTS.partition_point(|height| f64::from(*height) < wanted).min(HEIGHTS.len() - 1);
    let fits = HEIGHTS.partition_point(|height| u64::from(*height) <= allowed).saturating_sub(1);
    HEIGHTS[enough.min(fits)]
}

/// Returns the number of columns in a segment with this many rows.
pub(super) fn columns_of(height: u32) -> usize {
    SHEET_BYTES * 8 / height as usize / 64 * 64
}

fn rows_of(gram: u32, height: u32) -> [u32; BITS_A_GRAM] {
    let hash = xxhash_rust::xxh3::xxh3_64(&gram.to_le_bytes());
    let row = |half: u64| (((half & 0xffff_ffff) * u64::from(height)) >> 32) as u32;
    [row(hash), row(hash >> 32)]
}

/// Finds the columns that may have all of these grams; returns `false` if there are none.
pub(super) fn ask(rows: &impl Rows, grams: &[u32], set: &mut Vec<u64>) -> io::Result<bool> {
    let mut asked: Vec<u32> = grams.iter().flat_map(|gram| rows_of(*gram, rows.height())).collect();
    asked.sort_unstable();
    asked.dedup();
    set.clear();
    set.resize(rows.words(), u64::MAX);
    for row in asked {
        rows.intersect_row(row, set)?;
        if set.iter().all(|word| *word == 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Iterates over the set bits.
pub(super) fn set_columns(set: &[u64]) -> impl Iterator<Item = usize> {
    set.iter().enumerate().flat_map(|(at, word)| {
        let mut word = *word;
        std::iter::from_fn(move || {
            let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
            word &= word - 1;
            Some(at * 64 + bit)
        })
    })
}

/// An index segment in memory.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) height: u32,
    words: usize,
    bits: Vec<u64>,
    pub(super) names: Vec<MailKey>,
}

impl Columns {
    pub(super) fn new(height: u32) -> Self {
        let words = columns_of(height) / 64;
        Self { height, words, bits: vec![0; words * height as usize], names: Vec::new() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.names.len() == self.words * 64
    }

    pub(super) fn add(&mut self, name: MailKey, grams: &[u32]) {
        let column = self.push(name);
        for gram in grams {
            for row in rows_of(*gram, self.height) {
                self.set(row, column);
            }
        }
    }

    /// Appends an empty column.
    pub(super) fn push(&mut self, name: MailKey) -> usize {
        assert!(!self.is_full(), "a full sheet is put away first");
        self.names.push(name);
        self.names.len() - 1
    }

    pub(super) fn set(&mut self, row: u32, column: usize) {
        self.bits[row as usize * self.words + column / 64] |= 1 << (column % 64);
    }

    /// Returns the words of a row that are in use.
    pub(super) fn row(&self, row: u32) -> &[u64] {
        let from = row as usize * self.words;
        &self.bits[from..from + self.names.len().div_ceil(64)]
    }
}

impl Rows for Columns {
    fn height(&self) -> u32 {
        self.height
    }

    fn words(&self) -> usize {
        self.names.len().div_ceil(64)
    }

    fn intersect_row(&self, row: u32, set: &mut [u64]) -> io::Result<()> {
        set.iter_mut().zip(self.row(row)).for_each(|(word, own)| *word &= own);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mailbox::mailboxes::MailId;

    fn name(id: u64) -> MailKey {
        MailKey { arrived_ms: id, id: MailId(id) }
    }

    #[test]
    fn column_heights_respect_the_disk_share() {
        for (grams, bytes, height) in
            [(900, 4096, 3072), (1500, 4096, 4096), (9000, 4096, 4096), (50, 100_000, 256), (1, 10, 256)]
        {
            assert_eq!(height_for(grams, bytes), height, "{grams} in {bytes}");
        }
        for bytes in [1000u64, 4096, 5000, 70_000] {
            let height = height_for(1_000_000, bytes);
            assert!(u64::from(height / 8) + BYTES_BESIDE <= bytes * DISK_SHARE_PERCENT / 100, "{bytes}");
        }
        for height in HEIGHTS {
            assert!(columns_of(height) >= 64 && columns_of(height) * height as usize / 8 <= SHEET_BYTES);
        }
    }

    proptest! {
        #[test]
        fn every_column_that_has_the_grams_is_found(
            mails in proptest::collection::vec(proptest::collection::vec(0u32..1 << 24, 1..40), 1..200),
            which in any::<proptest::sample::Index>(),
            some in 1usize..6,
        ) {
            let mut columns = Columns::new(256);
            for (id, grams) in mails.iter().enumerate() {
                columns.add(name(id as u64), grams);
            }
            let wanted: Vec<u32> = which.get(&mails).iter().take(some).copied().collect();
            let mut set = Vec::new();
            prop_assert!(ask(&columns, &wanted, &mut set).unwrap());
            let found: Vec<usize> = set_columns(&set).collect();
            for (id, grams) in mails.iter().enumerate() {
                if wanted.iter().all(|gram| grams.contains(gram)) {
                    prop_assert!(found.contains(&id));
                }
            }
        }
    }
}
