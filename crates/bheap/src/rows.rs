//! Where a heap's items are kept: anything that can be indexed, swapped and grown at its end.
//!
//! A heap asks for nothing else, so memory that is aligned to pages, a mapped file, a recorder of addresses and
//! a table of positions are each a [`Rows`], and each costs nothing to a heap that does not use it.

use alloc::vec::Vec;

/// There is no room for this item; here it is back.
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
    /// How many items there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The item at position `at`. Panics if `at >= len()`.
    fn item(&self, at: usize) -> &T;
    /// Exchanges two items. Panics if either position is `>= len()`.
    fn swap(&mut self, a: usize, b: usize);
    /// Puts `item` at `at` and returns what was there. Panics if `at >= len()`.
    fn replace(&mut self, at: usize, item: T) -> T;
    /// Adds at the end, or gives the item back.
    fn push(&mut self, item: T) -> Result<(), Full<T>>;
    /// Takes from the end.
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
