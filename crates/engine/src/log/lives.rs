//! Allocation of life numbers. Each use of a segment has its own life number, and no number is used twice,
//! even if all segments of a life are lost in a power failure.
//!
//! ```text
//! byte 8192   | magic | bound | checksum |      the same at byte 12288
//! ```
//! A segment's life distinguishes its records from those of an earlier use, so no life may be used again. The
//! segments in the file do not show which lives were used: the first block of a segment may be lost while
//! other blocks are not. The file therefore stores a bound below which all lives count as allocated. The
//! bound is raised before it is reached, and after a restart allocation begins at the bound.

use std::{io, sync::atomic::Ordering::Relaxed};

use super::{
    Disk, LogState,
    format::{BLOCK_BYTES, LIVES_END},
};
use crate::sys::{arena::Words, span::Span};

/// Offsets of the two blocks that store the bound of the life numbers.
const BLOCKS_AT: [u64; 2] = [2 * BLOCK_BYTES as u64, 3 * BLOCK_BYTES as u64];
const MAGIC: [u8; 8] = *b"NTlives\n";
/// Bytes in use at the start of a block that stores the bound of the life numbers.
const MARK_BYTES: usize = 20;
/// Number of life numbers that are reserved at a time. Each start skips this many of the 2^24 life numbers
/// that a location can distinguish.
pub(super) const LIVES_AHEAD: u64 = 1024;
/// Number of life numbers that are skipped at startup if neither copy of their bound can be read.
const LIVES_UNKNOWN: u64 = 1 << 16;

/// Sets the next life number above all numbers that may ever have been used, and reserves some numbers.
///
/// # Errors
/// Returns the disk's error.
pub(super) fn begin(shared: &LogState, is_new: bool) -> io::Result<()> {
    match marked(&*shared.disk, shared.seed) {
        Some(bound) => shared.table.start_lives_at(bound),
        None if is_new => {}
        None => {
            tracing::warn!("both generation markers are damaged; skipping ahead");
            shared.table.skip_lives(LIVES_UNKNOWN);
        }
    }
    extend(shared)
}

/// Returns the stored bound of the life numbers, if either copy can be read.
pub(super) fn marked(disk: &dyn Disk, seed: u32) -> Option<u64> {
    let bounds = BLOCKS_AT.map(|at| {
        let mut bytes = [0; MARK_BYTES];
        disk.read(at, &mut bytes).ok().and_then(|()| decode(&bytes, seed))
    });
    bounds.into_iter().flatten().max()
}

/// Raises the stored bound if less than half of the reserved life numbers are left.
///
/// # Errors
/// Returns the disk's error; writers then continue up to the old bound.
pub(super) fn keep_ahead(shared: &LogState) -> io::Result<()> {
    if shared.table.lives_left() > LIVES_AHEAD / 2 { Ok(()) } else { extend(shared) }
}

fn extend(shared: &LogState) -> io::Result<()> {
    let bound = shared.table.next_life() + LIVES_AHEAD;
    let block = Words::reserve(BLOCK_BYTES / size_of::<u64>(), false)?;
    Span::new(&block, 0..MARK_BYTES).write_from(&encode(bound, shared.seed));
    for at in BLOCKS_AT {
        shared.disk.write(at, &block)?;
        if shared.must_sync {
            shared.sync()?;
        }
    }
    shared.table.lives_bound.store(bound, Relaxed);
    Ok(())
}

fn encode(bound: u64, seed: u32) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&bound.to_le_bytes());
    let checksum = crc32c::crc32c_append(seed, &bytes[..16]);
    bytes[16..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; MARK_BYTES], seed: u32) -> Option<u64> {
    let mut bound = [0; 8];
    bound.copy_from_slice(&bytes[8..16]);
    let bound = u64::from_le_bytes(bound);
    (*bytes == encode(bound, seed) && bound < LIVES_END).then_some(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_whole_or_none() {
        let bytes = encode(77, 5);
        assert_eq!(decode(&bytes, 5), Some(77));
        assert_eq!(decode(&bytes, 6), None);
        assert_eq!(decode(&[0; MARK_BYTES], 0), None);
        assert_eq!(decode(&encode(LIVES_END, 5), 5), None);
        for bit in 0..MARK_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&flipped, 5), None, "bit {bit}");
        }
    }
}
