//! Damage to a file in memory, for all formats.
#![cfg(feature = "std")]

use bheap::file::BLOCK_BYTES;

use crate::random::Random;

/// Damages a file. Half of the damage is to the most sensitive parts (the headers, the tables, the first
/// pages), the rest to other used pages and to any page.
pub(crate) fn damage(bytes: &mut [u8], random: &mut Random) {
    let used: Vec<usize> = (0..bytes.len() / BLOCK_BYTES)
        .filter(|block| bytes[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES].iter().any(|byte| *byte != 0))
        .collect();
    let block = match random.below(4) {
        0 | 1 => used[random.index(used.len().min(4))],
        2 => used[random.index(used.len())],
        _ => random.index(bytes.len() / BLOCK_BYTES),
    };
    let within = [128, BLOCK_BYTES][random.index(2)];
    let at = block * BLOCK_BYTES + random.index(within);
    let sector = at / 512 * 512;
    match random.below(8) {
        0 => bytes[at..sector + 512].fill_with(|| random.below(256) as u8),
        1 => bytes[sector..sector + 512].fill(0),
        2 => {
            let to = used[random.index(used.len())] * BLOCK_BYTES;
            bytes.copy_within(block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES, to);
        }
        3 => {
            let end = (at + 1 + random.index(6_000)).min(bytes.len());
            bytes[at..end].fill_with(|| random.below(256) as u8);
        }
        _ => bytes[at] ^= 1 << random.below(8),
    }
}
