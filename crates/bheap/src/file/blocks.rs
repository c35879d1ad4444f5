//! Blocks in a mapped file, copied before they are changed.
//!
//! A block has a number that the queue knows and a page in the file where it is now. Pages that the last commit
//! refers to are *kept*: a write to such a block goes to a fresh page, and the old one becomes free with the
//! next commit.

use super::{FileError, Shape};
use crate::blocks::{Blocks, NO_BLOCK};
use crate::layout::PageSizeError;
use crate::memory::Mapping;
use bytemuck::Pod;
use core::marker::PhantomData;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::vec::Vec;
use std::{format, vec};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 8] = *b"BHEAPQ\r\n";
const VERSION: u32 = 1;
/// Written as the machine writes it: another byte order reads another number.
const ORDER: u32 = 0x0102_0304;
/// The pages of the two superblocks.
const SUPERBLOCKS: usize = 2;
/// Bytes of a superblock that are used.
const SUPERBLOCK_BYTES: usize = 80;
/// The file grows by so many bytes at a time.
const GROWTH_BYTES: usize = 1 << 20;
/// One operation takes at most so many pages: those that a push leaves in reserve, and copies of blocks that are
/// not full.
const OPERATION_PAGES: usize = 320;
/// Bytes before the payload of a catalogue page: the next page of the chain.
const CHAIN_BYTES: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Place {
    /// The page in the file, or `NO_BLOCK` if the block has none yet.
    page: u32,
    next: u32,
    /// Items written.
    written: u32,
    /// Changed since the checksum was taken.
    changed: bool,
    checksum: u64,
}

/// Blocks of items in a mapped file.
#[derive(Debug)]
pub struct FileBlocks<T> {
    file: File,
    mapping: Mapping,
    page_bytes: usize,
    tag: u64,
    places: Vec<Place>,
    /// Numbers that no block has.
    free_numbers: Vec<u32>,
    /// Pages that may be written.
    free_pages: Vec<u32>,
    /// Pages that become free with the next commit.
    leaving: Vec<u32>,
    /// Per page: the last commit refers to it.
    kept: Vec<bool>,
    /// The pages of the last commit's catalogue.
    catalogue: Vec<u32>,
    generation: u64,
    item: PhantomData<T>,
}

impl<T: Pod> FileBlocks<T> {
    pub(super) fn create(path: &Path, shape: Shape) -> Result<Self, FileError> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let mut blocks = Self::over(file, shape)?;
        blocks.grow(SUPERBLOCKS + 1)?;
        Ok(blocks)
    }

    fn over(file: File, shape: Shape) -> Result<Self, FileError> {
        let items = shape
            .page_bytes
            .checked_div(size_of::<T>())
            .ok_or(FileError::PageSize(PageSizeError::ZeroSized))?;
        if !shape.page_bytes.is_power_of_two() {
            return Err(FileError::PageSize(PageSizeError::NotPowerOfTwo(shape.page_bytes)));
        }
        if items < 4 || shape.page_bytes < 4096 || align_of::<T>() > shape.page_bytes {
            return Err(FileError::PageSize(PageSizeError::TooSmall(items)));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(FileError::InUse),
            Err(std::fs::TryLockError::Error(error)) => return Err(error.into()),
        }
        let reserved = shape.bytes_max.max(GROWTH_BYTES).next_multiple_of(GROWTH_BYTES.max(shape.page_bytes));
        let mapping = Mapping::new(&file, reserved)?;
        mapping.advise_random()?;
        Ok(Self {
            file,
            mapping,
            page_bytes: shape.page_bytes,
            tag: shape.tag,
            places: Vec::new(),
            free_numbers: Vec::new(),
            free_pages: Vec::new(),
            leaving: Vec::new(),
            kept: Vec::new(),
            catalogue: Vec::new(),
            generation: 0,
            item: PhantomData,
        })
    }

    pub(super) fn open(path: &Path, shape: Shape) -> Result<(Self, Vec<u8>), FileError> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut blocks = Self::over(file, shape)?;
        let bytes = usize::try_from(blocks.file.metadata()?.len()).unwrap_or(usize::MAX);
        let present = bytes / blocks.page_bytes * blocks.page_bytes;
        if present < (SUPERBLOCKS + 1) * blocks.page_bytes {
            return Err(FileError::NotAQueue);
        }
        if present > blocks.mapping.reserved() {
            return Err(FileError::OtherKind(format!(
                "{bytes} bytes, above the limit of {}",
                blocks.mapping.reserved()
            )));
        }
        blocks.mapping.grow_to(present);
        blocks.kept = vec![false; present / blocks.page_bytes];
        // The newer superblock that is whole; the other one if a crash tore it.
        let mut newest: Result<Superblock, FileError> = Err(FileError::NotAQueue);
        for slot in 0..SUPERBLOCKS {
            match (blocks.superblock(slot), &newest) {
                (Ok(found), Ok(best)) if found.generation < best.generation => {}
                (Ok(found), _) => newest = Ok(found),
                (Err(error), Err(FileError::NotAQueue)) => newest = Err(error),
                (Err(_), _) => {}
            }
        }
        let superblock = newest?;
        let state = blocks.load(&superblock)?;
        Ok((blocks, state))
    }

    fn superblock(&self, slot: usize) -> Result<Superblock, FileError> {
        let bytes = self.mapping.bytes(slot * self.page_bytes, SUPERBLOCK_BYTES);
        let u32_at = |at: usize| bytemuck::pod_read_unaligned::<u32>(&bytes[at..at + 4]);
        let u64_at = |at: usize| bytemuck::pod_read_unaligned::<u64>(&bytes[at..at + 8]);
        if bytes[..8] != MAGIC {
            return Err(FileError::NotAQueue);
        }
        if u32_at(12) != ORDER {
            return Err(FileError::OtherKind("a machine of another byte order wrote it".into()));
        }
        if u32_at(8) != VERSION {
            return Err(FileError::OtherVersion(u32_at(8)));
        }
        if xxh3_64(&bytes[..72]) != u64_at(72) {
            return Err(FileError::Damaged(format!("superblock {slot}")));
        }
        let pairs = [
            ("bytes a page", u64::from(u32_at(16)), self.page_bytes as u64),
            ("bytes an item", u64::from(u32_at(20)), size_of::<T>() as u64),
            ("tag", u64_at(24), self.tag),
        ];
        for (what, found, wanted) in pairs {
            if found != wanted {
                return Err(FileError::OtherKind(format!("{found} {what}, not {wanted}")));
            }
        }
        Ok(Superblock {
            generation: u64_at(32),
            catalogue_bytes: usize::try_from(u64_at(40)).unwrap_or(usize::MAX),
            blocks: u64_at(48),
            checksum: u64_at(56),
            first: u32_at(64),
        })
    }

    /// Reads the catalogue, checks every block, and returns what the queue wrote there.
    fn load(&mut self, superblock: &Superblock) -> Result<Vec<u8>, FileError> {
        let damaged = |what: &str| FileError::Damaged(what.into());
        let pages = self.kept.len();
        let payload = self.page_bytes - CHAIN_BYTES;
        if superblock.catalogue_bytes > pages * payload {
            return Err(damaged("the catalogue's length"));
        }
        let mut bytes = Vec::with_capacity(superblock.catalogue_bytes);
        let mut page = superblock.first;
        while bytes.len() < superblock.catalogue_bytes {
            let at = page as usize;
            if at < SUPERBLOCKS || at >= pages || core::mem::replace(&mut self.kept[at], true) {
                return Err(damaged("the catalogue's chain"));
            }
            self.catalogue.push(page);
            let content = self.mapping.bytes(at * self.page_bytes, self.page_bytes);
            page = bytemuck::pod_read_unaligned(&content[..4]);
            let take = payload.min(superblock.catalogue_bytes - bytes.len());
            bytes.extend_from_slice(&content[CHAIN_BYTES..CHAIN_BYTES + take]);
        }
        if xxh3_64(&bytes) != superblock.checksum {
            return Err(damaged("the catalogue"));
        }
        let table = usize::try_from(superblock.blocks).ok().and_then(|blocks| blocks.checked_mul(24));
        let Some((table, state)) = table.and_then(|table| bytes.split_at_checked(table)) else {
            return Err(damaged("the catalogue's table"));
        };
        for (number, entry) in table.chunks_exact(24).enumerate() {
            let u32_at = |at: usize| bytemuck::pod_read_unaligned::<u32>(&entry[at..at + 4]);
            let place = Place {
                page: u32_at(0),
                next: u32_at(4),
                written: u32_at(8),
                changed: false,
                checksum: bytemuck::pod_read_unaligned(&entry[16..24]),
            };
            if place.page == NO_BLOCK {
                self.free_numbers.push(number as u32);
            } else {
                let (at, used) = (place.page as usize, place.written as usize * size_of::<T>());
                if at < SUPERBLOCKS
                    || at >= pages
                    || used > self.page_bytes
                    || core::mem::replace(&mut self.kept[at], true)
                {
                    return Err(damaged("the table of blocks"));
                }
                if xxh3_64(self.mapping.bytes(at * self.page_bytes, used)) != place.checksum {
                    return Err(FileError::Damaged(format!("the block in page {at}")));
                }
            }
            self.places.push(place);
        }
        self.free_pages =
            (SUPERBLOCKS..pages).rev().filter(|&page| !self.kept[page]).map(|page| page as u32).collect();
        self.generation = superblock.generation;
        Ok(state.to_vec())
    }

    /// Makes the blocks and `state` durable.
    pub(super) fn commit(&mut self, state: &[u8]) -> Result<(), FileError> {
        let mut bytes = Vec::with_capacity(self.places.len() * 24 + state.len());
        for number in 0..self.places.len() {
            let place = self.places[number];
            if place.changed && place.page != NO_BLOCK {
                let used = place.written as usize * size_of::<T>();
                let checksum = xxh3_64(self.mapping.bytes(place.page as usize * self.page_bytes, used));
                self.places[number].checksum = checksum;
                self.places[number].changed = false;
            }
            let place = self.places[number];
            for word in [place.page, place.next, place.written, 0] {
                bytes.extend_from_slice(&word.to_ne_bytes());
            }
            bytes.extend_from_slice(&place.checksum.to_ne_bytes());
        }
        bytes.extend_from_slice(state);
        let payload = self.page_bytes - CHAIN_BYTES;
        let chain_pages = bytes.len().div_ceil(payload).max(1);
        if !self.reserve_pages(chain_pages) {
            return Err(FileError::Full);
        }
        let split = self.free_pages.len() - chain_pages;
        let chain: Vec<u32> = self.free_pages[split..].to_vec();
        for (n, page) in chain.iter().enumerate() {
            let part = &bytes[(n * payload).min(bytes.len())..((n + 1) * payload).min(bytes.len())];
            let mut content = vec![0; CHAIN_BYTES];
            content[..4].copy_from_slice(&chain.get(n + 1).unwrap_or(&NO_BLOCK).to_ne_bytes());
            content.extend_from_slice(part);
            self.mapping.write(*page as usize * self.page_bytes, &content);
        }
        // Named point 1: blocks and catalogue are on the disk, and nothing refers to them yet.
        self.file.sync_data()?;
        let generation = self.generation + 1;
        let mut superblock = [0_u8; SUPERBLOCK_BYTES];
        let first = chain.first().copied().unwrap_or(NO_BLOCK);
        let parts: [&[u8]; 11] = [
            &MAGIC,
            &VERSION.to_ne_bytes(),
            &ORDER.to_ne_bytes(),
            &(self.page_bytes as u32).to_ne_bytes(),
            &(size_of::<T>() as u32).to_ne_bytes(),
            &self.tag.to_ne_bytes(),
            &generation.to_ne_bytes(),
            &(bytes.len() as u64).to_ne_bytes(),
            &(self.places.len() as u64).to_ne_bytes(),
            &xxh3_64(&bytes).to_ne_bytes(),
            &first.to_ne_bytes(),
        ];
        let mut at = 0;
        for part in parts {
            superblock[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let checksum = xxh3_64(&superblock[..72]);
        superblock[72..].copy_from_slice(&checksum.to_ne_bytes());
        // From here on the disk may refer to either commit: the pages of both are kept until one is known.
        self.free_pages.truncate(split);
        let in_use = self.places.iter().map(|place| place.page).filter(|page| *page != NO_BLOCK);
        for page in in_use.chain(chain.iter().copied()) {
            self.kept[page as usize] = true;
        }
        let old = core::mem::replace(&mut self.catalogue, chain);
        let slot = usize::try_from(generation % 2).unwrap_or(0);
        let written = self.file.write_all_at(&superblock, (slot * self.page_bytes) as u64);
        if let Err(error) = written.and_then(|()| self.file.sync_data()) {
            self.catalogue.extend(old);
            return Err(error.into());
        }
        // Named point 2: the superblock is on the disk. What only the commit before referred to is free.
        self.generation = generation;
        for page in self.leaving.drain(..).chain(old) {
            self.kept[page as usize] = false;
            self.free_pages.push(page);
        }
        Ok(())
    }

    /// Makes the file at least `pages` pages long, allocated on the disk: a hole would end the process by a
    /// signal when a full disk cannot fill it.
    fn grow(&mut self, pages: usize) -> Result<(), FileError> {
        let wanted = (pages * self.page_bytes).next_multiple_of(GROWTH_BYTES.max(self.page_bytes));
        if wanted > self.mapping.reserved() {
            return Err(FileError::Full);
        }
        let present = self.mapping.present();
        if wanted > present {
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&self.file, flags, present as u64, (wanted - present) as u64)?;
            let old = self.kept.len().max(SUPERBLOCKS);
            self.mapping.grow_to(wanted);
            self.kept.resize(wanted / self.page_bytes, false);
            let fresh = (old..self.kept.len()).rev().map(|page| page as u32);
            self.free_pages.splice(0..0, fresh);
        }
        Ok(())
    }

    fn reserve_pages(&mut self, pages: usize) -> bool {
        while self.free_pages.len() < pages {
            let wanted = self.kept.len() + pages - self.free_pages.len();
            if self.grow(wanted).is_err() {
                return false;
            }
        }
        true
    }

    /// Whether there is room for `operations` operations of the most expensive kind, and for a commit after them.
    pub(super) fn has_room(&mut self, operations: usize) -> bool {
        let catalogue = (self.places.len() + OPERATION_PAGES) * 24 + (64 << 10);
        self.reserve_pages(operations * OPERATION_PAGES + catalogue.div_ceil(self.page_bytes - CHAIN_BYTES))
    }

    /// Whether there is such a block, with at least `items` items written.
    pub(crate) fn holds(&self, block: u32, items: usize) -> bool {
        self.places
            .get(block as usize)
            .is_some_and(|place| place.page != NO_BLOCK && place.written as usize >= items)
    }

    fn start(&self, block: u32) -> usize {
        self.places[block as usize].page as usize * self.page_bytes
    }
}

struct Superblock {
    generation: u64,
    catalogue_bytes: usize,
    blocks: u64,
    checksum: u64,
    first: u32,
}

impl<T: Pod> Blocks<T> for FileBlocks<T> {
    fn block_items(&self) -> usize {
        self.page_bytes / size_of::<T>()
    }

    fn allocate(&mut self) -> Option<u32> {
        if !self.reserve_pages(1) {
            return None;
        }
        let page = self.free_pages.pop()?;
        let place = Place { page, next: NO_BLOCK, written: 0, changed: true, checksum: 0 };
        if let Some(number) = self.free_numbers.pop() {
            self.places[number as usize] = place;
            return Some(number);
        }
        self.places.push(place);
        Some((self.places.len() - 1) as u32)
    }

    fn release(&mut self, block: u32) {
        let page = core::mem::replace(&mut self.places[block as usize].page, NO_BLOCK);
        if self.kept[page as usize] {
            self.leaving.push(page);
        } else {
            self.free_pages.push(page);
        }
        self.free_numbers.push(block);
    }

    fn reserve(&mut self, blocks: usize) -> bool {
        self.reserve_pages(blocks)
    }

    fn read(&self, block: u32, len: usize) -> &[T] {
        assert!(
            len <= self.places[block as usize].written as usize,
            "a block is read only where it was written"
        );
        bytemuck::cast_slice(self.mapping.bytes(self.start(block), len * size_of::<T>()))
    }

    fn write(&mut self, block: u32, at: usize, items: &[T]) {
        let place = self.places[block as usize];
        assert!(
            at <= place.written as usize && at + items.len() <= self.block_items(),
            "a block is written without gaps"
        );
        if self.kept[place.page as usize] {
            // Copied first: the last commit's page stays as it is.
            let Some(page) = self.free_pages.pop() else {
                unreachable!("a page is reserved for each block written")
            };
            let old = self.mapping.bytes(self.start(block), place.written as usize * size_of::<T>()).to_vec();
            self.mapping.write(page as usize * self.page_bytes, &old);
            self.leaving.push(place.page);
            self.places[block as usize].page = page;
        }
        let start = self.start(block) + at * size_of::<T>();
        self.mapping.write(start, bytemuck::cast_slice(items));
        let place = &mut self.places[block as usize];
        place.written = place.written.max((at + items.len()) as u32);
        place.changed = true;
    }

    fn next(&self, block: u32) -> u32 {
        self.places[block as usize].next
    }

    fn set_next(&mut self, block: u32, next: u32) {
        self.places[block as usize].next = next;
    }
}

impl From<io::ErrorKind> for FileError {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Io(kind.into())
    }
}
