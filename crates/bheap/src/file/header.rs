//! Header of a queue file: the kind of queue, and its last complete state.
//!
//! The format is documented byte by byte in `docs/formats/queue.md`. Two slots hold the same header; they
//! differ only while a checkpoint is in progress.

use super::error::Fault;
use std::format;
use std::string::{String, ToString};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The first eight bytes of every queue file.
pub const MAGIC: [u8; 8] = *b"BHEAPQF\n";
/// Format version that this program writes.
pub const VERSION: u32 = 1;
/// Length of a header in bytes.
pub const HEADER_BYTES: usize = 128;
/// Size of a block, the unit that is copied, checked and mapped.
pub const BLOCK_BYTES: usize = 4096;
/// Offsets of the two headers.
pub(super) const SLOTS: [usize; 2] = [0, BLOCK_BYTES];

/// Fixed properties of a queue file, set when it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Page size that the layout assumes.
    pub page_bytes: u64,
    /// Size of an item in bytes.
    pub item_bytes: u32,
    /// Number of the layout, see [`super::FileLayout`].
    pub layout: u32,
    /// Name of the item type, see [`super::Item::KIND`].
    pub kind: [u8; 8],
    /// Number of unused cells before the first item; they never fill a whole block.
    pub lead: u64,
    /// Maximum number of items.
    pub capacity: u64,
}

/// Offsets of the parts of a queue file; all in bytes, all multiples of [`BLOCK_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) tables: [usize; 2],
    pub(super) images: [usize; 2],
    pub(super) blocks_max: usize,
    pub(super) file_bytes: usize,
}

/// Maximum length of a file: below Linux's limit for a mapping, with room to spare.
const FILE_BYTES_MAX: u64 = 1 << 46;

impl Shape {
    /// Checks that a queue of this shape is possible, and returns the offsets of its parts.
    pub(super) fn plan(&self) -> Result<Plan, Fault> {
        let impossible = |what| Fault::Impossible { what };
        if !self.item_bytes.is_power_of_two() || self.item_bytes as usize > BLOCK_BYTES {
            return Err(impossible("an item's size must be a power of two, at most 4096 bytes"));
        }
        if !self.page_bytes.is_power_of_two() || self.page_bytes > 1 << 30 {
            return Err(impossible("a page's size must be a power of two, at most 1 GiB"));
        }
        if self.lead >= (BLOCK_BYTES / self.item_bytes as usize) as u64 {
            // A block of unused cells would never be written, and so never entered in a table.
            return Err(impossible(
                "the unused cells before the first item must not fill a block of 4096 bytes",
            ));
        }
        if self.capacity == 0 {
            return Err(impossible("a queue for zero items"));
        }
        self.offsets().ok_or(impossible("the capacity needs a file of more than 64 TiB"))
    }

    fn offsets(&self) -> Option<Plan> {
        let block = BLOCK_BYTES as u64;
        let align = self.page_bytes.max(block);
        let cells = self.capacity.checked_add(self.lead)?;
        let blocks = cells.checked_mul(u64::from(self.item_bytes))?.div_ceil(block);
        let table_bytes = blocks.checked_mul(8)?.checked_next_multiple_of(block)?;
        let table = 2 * block;
        let image = table.checked_add(table_bytes.checked_mul(2)?)?.checked_next_multiple_of(align)?;
        let image_bytes = blocks.checked_mul(block)?.checked_next_multiple_of(align)?;
        let file_bytes = image.checked_add(image_bytes.checked_mul(2)?).filter(|&b| b <= FILE_BYTES_MAX)?;
        let at = |bytes: u64| usize::try_from(bytes).ok();
        Some(Plan {
            tables: [at(table)?, at(table + table_bytes)?],
            images: [at(image)?, at(image + image_bytes)?],
            blocks_max: at(blocks)?,
            file_bytes: at(file_bytes)?,
        })
    }

    /// Returns the number of blocks that `items` items fill.
    pub(super) fn blocks(&self, items: u64) -> usize {
        if items == 0 {
            return 0;
        }
        ((self.lead + items) * u64::from(self.item_bytes)).div_ceil(BLOCK_BYTES as u64) as usize
    }

    /// Checks that the file is of the kind that the caller `wanted`; the capacity may differ.
    pub(super) fn matches(&self, wanted: &Self) -> Result<(), Fault> {
        let differ = |what, found: String, wanted: String| Err(Fault::Shape { what, found, wanted });
        let name =
            |kind: &[u8; 8]| format!("\"{}\"", kind.trim_ascii_end().escape_ascii()).replace("\\x00", "");
        if self.page_bytes != wanted.page_bytes {
            return differ("a page size of", self.page_bytes.to_string(), wanted.page_bytes.to_string());
        }
        if self.item_bytes != wanted.item_bytes {
            return differ("an item size of", self.item_bytes.to_string(), wanted.item_bytes.to_string());
        }
        if self.kind != wanted.kind {
            return differ("items", name(&self.kind), name(&wanted.kind));
        }
        if self.layout != wanted.layout {
            return differ("layout", self.layout.to_string(), wanted.layout.to_string());
        }
        if self.lead != wanted.lead {
            return differ("unused cells", self.lead.to_string(), wanted.lead.to_string());
        }
        Ok(())
    }
}

/// A file's shape, and its last complete state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) shape: Shape,
    /// Number of checkpoints; its parity selects the table.
    pub(super) sequence: u64,
    pub(super) len: u64,
    /// Checksum of the table's entries in use.
    pub(super) table_sum: u64,
}

/// Content of a header slot.
pub(super) enum Slot {
    Whole(Header),
    /// The slot is all zeros.
    Empty,
    /// The slot does not begin like a queue file.
    Foreign,
    OtherVersion(u32),
    /// The slot begins correctly, but its checksum is wrong.
    Damaged,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let shape = &self.shape;
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &(HEADER_BYTES as u32).to_le_bytes());
        put(16, &shape.page_bytes.to_le_bytes());
        put(24, &shape.item_bytes.to_le_bytes());
        put(28, &shape.layout.to_le_bytes());
        put(32, &shape.kind);
        put(40, &shape.lead.to_le_bytes());
        put(48, &shape.capacity.to_le_bytes());
        put(56, &self.sequence.to_le_bytes());
        put(64, &self.len.to_le_bytes());
        put(72, &self.table_sum.to_le_bytes());
        let sum = sum_of(&bytes);
        bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

const SUM_AT: usize = HEADER_BYTES - 8;

fn sum_of(header: &[u8; HEADER_BYTES]) -> u64 {
    xxh3_64_with_seed(&header[..SUM_AT], 0)
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

impl Slot {
    pub(super) fn read(bytes: &[u8; HEADER_BYTES]) -> Self {
        if bytes.iter().all(|&b| b == 0) {
            return Self::Empty;
        }
        if bytes[..8] != MAGIC {
            return Self::Foreign;
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Self::OtherVersion(version);
        }
        if u64_at(bytes, SUM_AT) != sum_of(bytes) {
            return Self::Damaged;
        }
        let mut kind = [0; 8];
        kind.copy_from_slice(&bytes[32..40]);
        Self::Whole(Header {
            shape: Shape {
                page_bytes: u64_at(bytes, 16),
                item_bytes: u32_at(bytes, 24),
                layout: u32_at(bytes, 28),
                kind,
                lead: u64_at(bytes, 40),
                capacity: u64_at(bytes, 48),
            },
            sequence: u64_at(bytes, 56),
            len: u64_at(bytes, 64),
            table_sum: u64_at(bytes, 72),
        })
    }
}
