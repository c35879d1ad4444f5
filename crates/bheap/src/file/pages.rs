//! The blocks of a page queue in a file: each is a page of 4096 bytes, in one of two images.
//!
//! ```text
//!   page 0            start of the queue's own state
//!   page 1 …          blocks of items, pages of slots, further state, free pages: in any order
//! ```
//! The state, which each checkpoint rewrites, records the use of each page. Between checkpoints only blocks
//! change, in the image that the last checkpoint does not need ([`super::images`]). Room is therefore needed
//! only for a page that was never used; removing items needs none.

use super::disk::Disk;
use super::error::{Fault, FileError};
use super::header::{BLOCK_BYTES, Shape};
use super::images::Images;
use super::item::{ByteArray, Item, StoredItem};
use super::mapping::{bytes_of, stored_items};
use crate::blocks::{Blocks, NO_BLOCK};
use core::marker::PhantomData;
use std::vec;
use std::vec::Vec;

/// The page at which the state begins.
const ROOT: u32 = 0;

/// Length of the head of a page of the state: the next page (all ones for none) and the number of bytes that
/// follow.
const STATE_HEAD: usize = 8;

/// Number of pages kept free for the state, in addition to those for block numbers: for the lists with their
/// samples, the front and the small heap.
const STATE_PAGES: usize = 256;

/// Blocks of items in a file.
#[derive(Debug)]
pub struct Pages<T: Item, D: Disk> {
    images: Images<D>,
    /// For each page, in use or free, the next page in its list.
    links: Vec<u32>,
    free: Vec<u32>,
    /// Pages of the state after the root.
    state: Vec<u32>,
    /// Number of bytes of the state that the queue's owner adds.
    pub(crate) more_state_bytes: usize,
    pages_max: usize,
    /// Reason why the last request for room failed.
    refusal: Option<FileError>,
    item: PhantomData<T>,
}

impl<T: Item, D: Disk> Pages<T, D> {
    /// Number of items in a page.
    const ITEMS: usize = BLOCK_BYTES / T::Bytes::BYTES;

    /// Returns the capacity for the header of a file that must hold `items_max` items: cells for them, for
    /// lists that end in a partly filled page, and for the state.
    pub(super) const fn cells(items_max: usize) -> Option<usize> {
        let pages = items_max.div_ceil(Self::ITEMS);
        let slots = items_max / (BLOCK_BYTES / size_of::<u32>());
        // Lists are few, but with few items they take most of the room.
        match (pages + pages / 8 + pages / 256 + slots).checked_add(6 * STATE_PAGES) {
            Some(pages) => pages.checked_mul(Self::ITEMS),
            None => None,
        }
    }

    pub(super) fn create(disk: D, shape: Shape) -> Result<Self, FileError> {
        let mut pages = Self::over(Images::create(disk, shape)?);
        pages.images.reserve(ROOT as usize)?;
        pages.links.push(NO_BLOCK);
        Ok(pages)
    }

    /// Opens the pages of the last checkpoint, and returns the state written with it.
    pub(super) fn open(disk: D, shape: &Shape) -> Result<(Self, Vec<u8>), FileError> {
        let mut pages = Self::over(Images::open(disk, shape)?);
        let used = pages.images.header().len as usize / Self::ITEMS;
        pages.links = vec![NO_BLOCK; used.max(1)];
        if used == 0 {
            // The process or the machine crashed before the first checkpoint.
            pages.images.reserve(ROOT as usize)?;
            return Ok((pages, Vec::new()));
        }
        let mut taken = vec![false; used];
        let mut state = Vec::new();
        let mut page = ROOT;
        loop {
            if taken.get(page as usize) != Some(&false) {
                return Err(pages.damaged("the pages of the state do not form a chain"));
            }
            taken[page as usize] = true;
            let bytes = pages.images.read(page as usize * BLOCK_BYTES, BLOCK_BYTES);
            let (Some((next, rest)), Some(count)) =
                (bytes.split_first_chunk(), bytes[4..].first_chunk().map(|count| u32::from_le_bytes(*count)))
            else {
                unreachable!("a page is longer than its head")
            };
            let next = u32::from_le_bytes(*next);
            let Some(part) = rest[4..].get(..count as usize) else {
                return Err(pages.damaged("a page of the state counts more than it holds"));
            };
            state.extend_from_slice(part);
            if page != ROOT {
                pages.state.push(page);
            }
            if next == NO_BLOCK {
                break;
            }
            page = next;
        }
        // All pages that are not part of the state are free, until the queue claims some of them.
        pages.free = (0..used as u32).rev().filter(|page| !taken[*page as usize]).collect();
        Ok((pages, state))
    }

    fn over(images: Images<D>) -> Self {
        let pages_max = images.header().shape.capacity as usize / Self::ITEMS;
        Self {
            images,
            links: Vec::new(),
            free: Vec::new(),
            state: Vec::new(),
            more_state_bytes: 0,
            pages_max: pages_max.min(NO_BLOCK as usize),
            refusal: None,
            item: PhantomData,
        }
    }

    /// Returns the error for content that is wrong despite valid checksums, as in a crafted file.
    pub(crate) fn damaged(&self, what: &'static str) -> FileError {
        Fault::Damaged { at: self.images.begins(), what }.at(self.images.disk().path())
    }

    /// Removes the given pages, which must be distinct, from the free list, for an opened queue that uses
    /// them.
    pub(crate) fn claim(&mut self, mut pages: Vec<u32>) -> Result<(), FileError> {
        pages.sort_unstable();
        let count = self.free.len();
        self.free.retain(|page| pages.binary_search(page).is_err());
        if count - self.free.len() == pages.len() {
            Ok(())
        } else {
            Err(self.damaged("a page is used twice, or does not exist"))
        }
    }

    /// Makes the pages and `state` durable.
    pub(super) fn checkpoint(&mut self, state: &[u8]) -> Result<u64, FileError> {
        let wanted = state.len().div_ceil(BLOCK_BYTES - STATE_HEAD).max(1);
        while self.state.len() + 1 > wanted
            && let Some(page) = self.state.pop()
        {
            self.release(page);
        }
        while self.state.len() + 1 < wanted {
            let Some(page) = self.allocate() else { return Err(self.full()) };
            self.state.push(page);
        }
        let mut parts = state.chunks(BLOCK_BYTES - STATE_HEAD);
        for nth in 0..wanted {
            let page = if nth == 0 { ROOT } else { self.state[nth - 1] } as usize;
            let next = *self.state.get(nth).unwrap_or(&NO_BLOCK);
            let part = parts.next().unwrap_or(&[]);
            self.images.begin(page);
            self.images.write(page * BLOCK_BYTES, &next.to_le_bytes());
            self.images.write(page * BLOCK_BYTES + 4, &(part.len() as u32).to_le_bytes());
            self.images.write(page * BLOCK_BYTES + STATE_HEAD, part);
        }
        // Free pages at the end are dropped, and low pages are used first from now on.
        self.free.sort_unstable_by(|a, b| b.cmp(a));
        let mut trailing = 0;
        while self.free.get(trailing).is_some_and(|page| *page as usize + 1 == self.links.len()) {
            self.links.pop();
            trailing += 1;
        }
        self.free.drain(..trailing);
        self.images.checkpoint((self.links.len() * Self::ITEMS) as u64)
    }

    /// Returns the reason why there is no room.
    pub(crate) fn full(&mut self) -> FileError {
        let capacity = self.images.header().shape.capacity;
        let full = || Fault::Full { capacity };
        self.refusal.take().unwrap_or_else(|| full().at(self.images.disk().path()))
    }

    pub(super) const fn images(&self) -> &Images<D> {
        &self.images
    }

    #[cfg(test)]
    pub(super) const fn disk_mut(&mut self) -> &mut D {
        self.images.disk_mut()
    }

    pub(super) fn into_disk(self) -> D {
        self.images.into_disk()
    }

    /// Returns whether a page of this number exists.
    pub(crate) const fn exists(&self, page: u32) -> bool {
        (page as usize) < self.links.len()
    }

    /// Returns a page's bytes.
    pub(crate) fn page(&self, page: u32) -> &[u8] {
        self.images.read(page as usize * BLOCK_BYTES, BLOCK_BYTES)
    }

    /// Writes a whole page.
    pub(crate) fn write_page(&mut self, page: u32, bytes: &[u8; BLOCK_BYTES]) {
        self.images.begin(page as usize);
        self.images.write(page as usize * BLOCK_BYTES, bytes);
    }

    /// Returns the number of pages that the state may still need.
    fn state_pages(&self) -> usize {
        let numbers = self.links.len() * size_of::<u32>();
        let wanted = STATE_PAGES + (numbers + self.more_state_bytes).div_ceil(BLOCK_BYTES - STATE_HEAD);
        wanted.saturating_sub(self.state.len())
    }

    /// Returns whether `pages` pages are free or can be added, in addition to those for the state.
    fn make_room(&mut self, pages: usize) -> bool {
        let more = pages.saturating_sub(self.free.len());
        if more == 0 {
            return true;
        }
        if self.links.len() + more > self.pages_max {
            return false;
        }
        match self.images.reserve(self.links.len() + more - 1) {
            Ok(()) => true,
            Err(refusal) => {
                self.refusal = Some(refusal);
                false
            }
        }
    }
}

impl<T: Item, D: Disk> Blocks<StoredItem<T>> for Pages<T, D> {
    #[inline]
    fn block_items(&self) -> usize {
        Self::ITEMS
    }

    fn allocate(&mut self) -> Option<u32> {
        let page = match self.free.pop() {
            Some(page) => page,
            None if self.make_room(1) => {
                self.links.push(NO_BLOCK);
                (self.links.len() - 1) as u32
            }
            None => return None,
        };
        self.images.begin(page as usize);
        Some(page)
    }

    fn release(&mut self, block: u32) {
        self.free.push(block);
    }

    fn reserve(&mut self, blocks: usize) -> bool {
        self.make_room(blocks + self.state_pages())
    }

    #[inline]
    fn read(&self, block: u32, len: usize) -> &[StoredItem<T>] {
        stored_items(self.images.read(block as usize * BLOCK_BYTES, len * T::Bytes::BYTES))
    }

    #[inline]
    fn write(&mut self, block: u32, at: usize, items: &[StoredItem<T>]) {
        assert!(at + items.len() <= Self::ITEMS, "a block is written within its bounds");
        self.images.write(block as usize * BLOCK_BYTES + at * T::Bytes::BYTES, bytes_of(items));
    }

    #[inline]
    fn next(&self, block: u32) -> u32 {
        self.links[block as usize]
    }

    #[inline]
    fn set_next(&mut self, block: u32, next: u32) {
        self.links[block as usize] = next;
    }
}
