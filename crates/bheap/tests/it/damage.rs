//! Damage to a file in memory, for all formats.
#![cfg(feature = "std")]

use std::{io, path::Path};

use bheap::file::{BLOCK_BYTES, Disk};

use crate::random::Random;

/// A disk in memory.
#[derive(Debug, Clone)]
pub(crate) struct Memory(pub(crate) Vec<u8>);

impl Disk for Memory {
    fn path(&self) -> &Path {
        Path::new("memory")
    }
    fn bytes(&self) -> &[u8] {
        &self.0
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
    fn reserve(&mut self, _from: usize, _bytes: usize) -> io::Result<()> {
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Damages a file. Half of the damage is to the most sensitive parts (the headers, the tables, the first
/// pages), the rest to other used pages.
pub(crate) fn damage(bytes: &mut [u8], random: &mut Random) {
    let used: Vec<usize> = (0..bytes.len() / BLOCK_BYTES)
        .filter(|block| bytes[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES].iter().any(|byte| *byte != 0))
        .collect();
    let first = used.len().min(4);
    let block = if random.below(2) == 0 { used[random.index(first)] } else { used[random.index(used.len())] };
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
