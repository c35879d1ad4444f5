//! Recording of the bytes that a queue touches: a wrapper for any storage, which costs nothing where it is
//! not used.
//!
//! Addresses are those of an idealised mapping: the storage's position `p` is at `base + p · size_of::<T>()`.
//! (Real addresses would depend on the allocator and on when the array grew.)

use crate::rows::{Full, Rows};

/// Recorder of bytes read and written.
///
/// Both methods take `&self`, because an access to an item through a shared reference is a read; a recorder
/// keeps its state in cells.
pub trait Trace {
    /// Records that `bytes` bytes from `address` are read.
    fn read(&self, address: usize, bytes: usize);
    /// Records that `bytes` bytes from `address` are written.
    fn write(&self, address: usize, bytes: usize);
}

impl<M: Trace + ?Sized> Trace for &M {
    fn read(&self, address: usize, bytes: usize) {
        (**self).read(address, bytes);
    }
    fn write(&self, address: usize, bytes: usize) {
        (**self).write(address, bytes);
    }
}

impl<M: Trace + ?Sized> Trace for alloc::rc::Rc<M> {
    fn read(&self, address: usize, bytes: usize) {
        (**self).read(address, bytes);
    }
    fn write(&self, address: usize, bytes: usize) {
        (**self).write(address, bytes);
    }
}

/// Storage whose accesses are all reported to a [`Trace`].
#[derive(Debug, Clone)]
pub struct TracedRows<R, M> {
    rows: R,
    trace: M,
    base: usize,
}

impl<R, M: Trace> TracedRows<R, M> {
    /// Records accesses to `rows`, as if item 0 were at the address `base`.
    pub const fn new(rows: R, trace: M, base: usize) -> Self {
        Self { rows, trace, base }
    }

    /// Returns the storage without its recorder.
    pub fn into_inner(self) -> R {
        self.rows
    }
}

impl<T, R: Rows<T>, M: Trace> Rows<T> for TracedRows<R, M> {
    fn len(&self) -> usize {
        self.rows.len()
    }
    fn item(&self, at: usize) -> &T {
        self.trace.read(self.base + at * size_of::<T>(), size_of::<T>());
        self.rows.item(at)
    }
    fn swap(&mut self, a: usize, b: usize) {
        self.trace.write(self.base + a * size_of::<T>(), size_of::<T>());
        self.trace.write(self.base + b * size_of::<T>(), size_of::<T>());
        self.rows.swap(a, b);
    }
    fn replace(&mut self, at: usize, item: T) -> T {
        self.trace.write(self.base + at * size_of::<T>(), size_of::<T>());
        self.rows.replace(at, item)
    }
    fn push(&mut self, item: T) -> Result<(), Full<T>> {
        self.trace.write(self.base + self.rows.len() * size_of::<T>(), size_of::<T>());
        self.rows.push(item)
    }
    fn pop(&mut self) -> Option<T> {
        if let Some(last) = self.rows.len().checked_sub(1) {
            self.trace.read(self.base + last * size_of::<T>(), size_of::<T>());
        }
        self.rows.pop()
    }
}
