//! Storage of a heap's items: anything that can be indexed, swapped and grown at its end.
//!
//! A heap needs nothing else. Page-aligned memory, a mapped file, a recorder of addresses and a table of
//! positions are therefore each a [`Rows`], and a heap does not pay for those that it does not use.

use alloc::vec::Vec;

/// Error that returns an item for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> core::fmt::Display for Full<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the queue has no room for another item")
    }
}

impl<T: core::fmt::Debug> core::error::Error for Full<T> {}

/// An array of items, numbered from 0, that grows and shrinks at its end.
pub trait Rows<T> {
    /// Returns the number of items.
    fn len(&self) -> usize;
    /// Returns whether there are no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the item at position `at`. Panics if `at >= len()`.
    fn item(&self, at: usize) -> &T;
    /// Exchanges two items. Panics if either position is `>= len()`.
    fn swap(&mut self, a: usize, b: usize);
    /// Stores `item` at `at` and returns the previous item. Panics if `at >= len()`.
    fn replace(&mut self, at: usize, item: T) -> T;
    /// Adds an item at the end, or returns it.
    fn push(&mut self, item: T) -> Result<(), Full<T>>;
    /// Removes and returns the last item.
    fn pop(&mut self) -> Option<T>;
}

impl<T> Rows<T> for Vec<T> {
    #[inline]
    fn len(&self) -> usize {
        Vec::len(self)
    }
    #[inline]
    fn item(&self, at: usize) -> &T {
        &self[at]
    }
    #[inline]
    fn swap(&mut self, a: usize, b: usize) {
        self.as_mut_slice().swap(a, b);
    }
    #[inline]
    fn replace(&mut self, at: usize, item: T) -> T {
        core::mem::replace(&mut self[at], item)
    }
    #[inline]
    fn push(&mut self, item: T) -> Result<(), Full<T>> {
        if Vec::len(self) == self.capacity() && self.try_reserve(1).is_err() {
            return Err(Full(item));
        }
        Vec::push(self, item);
        Ok(())
    }
    #[inline]
    fn pop(&mut self) -> Option<T> {
        Vec::pop(self)
    }
}
