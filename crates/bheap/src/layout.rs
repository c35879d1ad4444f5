//! Where a tree's nodes lie in an array: pure index arithmetic.
//!
//! A heap is a tree written into an array. Which node is written where decides how many pages a walk from the
//! root to a leaf touches, and nothing else: the comparisons and the moves stay the same. So the arithmetic is
//! all there is to a layout, and one heap ([`crate::Heap`]) serves them all.
//!
//! Positions are counted from 0 without a gap: a heap of `n` items fills positions `0..n`, so that it grows and
//! shrinks at its end. (The published B-heap counts from 1; its index is the position plus one, see
//! [`Paged::INDEX_OF_ROOT`].)

/// The children of one node: neighbours in the array, the first at `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Children {
    /// Position of the first child.
    pub first: usize,
    /// How many there can be (fewer exist at the end of the array).
    pub count: usize,
}

/// Index arithmetic of one way to write a tree into an array.
///
/// The law that every implementation keeps, tested for all: `parent(c) == Some(n)` exactly if `c` lies in
/// `children(n)`, `parent(n) < n`, and only the root has no parent.
pub trait Layout {
    /// The position of the node above `node`, or `None` for the root.
    fn parent(&self, node: usize) -> Option<usize>;
    /// The positions below `node`.
    fn children(&self, node: usize) -> Children;
}

/// The textbook layout: children of `n` at `2n + 1` and `2n + 2`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Binary;

impl Layout for Binary {
    #[inline]
    fn parent(&self, node: usize) -> Option<usize> {
        Some(node.checked_sub(1)? / 2)
    }
    #[inline]
    fn children(&self, node: usize) -> Children {
        Children { first: 2 * node + 1, count: 2 }
    }
}

/// A node has `D` children, at `D·n + 1` and after.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dary<const D: usize>;

impl<const D: usize> Layout for Dary<D> {
    #[inline]
    fn parent(&self, node: usize) -> Option<usize> {
        Some(node.checked_sub(1)? / D)
    }
    #[inline]
    fn children(&self, node: usize) -> Children {
        Children { first: D * node + 1, count: D }
    }
}
