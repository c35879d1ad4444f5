//! Encoding of a queue's state in a file: numbers in little-endian order, and items as they are.

use super::item::{ByteArray, Item, StoredItem};
use std::vec::Vec;

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&(number as u64).to_le_bytes());
}

/// Appends the number of items, then the items.
pub(crate) fn put_items<T: Item>(out: &mut Vec<u8>, items: &[StoredItem<T>]) {
    put(out, items.len());
    items.iter().for_each(|item| out.extend_from_slice(item.bytes()));
}

/// Appends the number of pages, then their numbers.
pub(crate) fn put_pages(out: &mut Vec<u8>, pages: impl ExactSizeIterator<Item = u32>) {
    put(out, pages.len());
    pages.for_each(|page| out.extend_from_slice(&page.to_le_bytes()));
}

/// Reads a number that is at most `most`.
pub(crate) fn take(input: &mut &[u8], most: usize) -> Option<usize> {
    let (number, rest) = input.split_first_chunk()?;
    *input = rest;
    usize::try_from(u64::from_le_bytes(*number)).ok().filter(|number| *number <= most)
}

/// Reads at most `most` items.
pub(crate) fn take_items<T: Item>(input: &mut &[u8], most: usize) -> Option<Vec<StoredItem<T>>> {
    let count = take(input, most)?;
    let (items, rest) = input.split_at_checked(count.checked_mul(T::Bytes::BYTES)?)?;
    *input = rest;
    Some(
        items
            .chunks_exact(T::Bytes::BYTES)
            .filter_map(T::Bytes::view)
            .map(|item| StoredItem::from_array(*item))
            .collect(),
    )
}

/// Reads one item.
pub(crate) fn take_item<T: Item>(input: &mut &[u8]) -> Option<StoredItem<T>> {
    take_items(input, 1)?.first().copied()
}

/// Reads page numbers.
pub(crate) fn take_pages(input: &mut &[u8]) -> Option<Vec<u32>> {
    let count = take(input, u32::MAX as usize)?;
    let (pages, rest) = input.split_at_checked(count.checked_mul(size_of::<u32>())?)?;
    *input = rest;
    Some(pages.as_chunks().0.iter().map(|page| u32::from_le_bytes(*page)).collect())
}
