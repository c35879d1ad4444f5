//! Layouts of a tree in an array: pure index arithmetic.
//!
//! A heap is a tree written into an array. The positions of the nodes decide how many pages a walk from the
//! root to a leaf touches, and nothing else: the comparisons and the moves stay the same. A layout is
//! therefore only arithmetic, and one heap ([`crate::Heap`]) serves all layouts.
//!
//! Positions are counted from 0 without a gap: a heap of `n` items fills positions `0..n`, so that it grows
//! and shrinks at its end. (The published B-heap counts from 1; its index is the position plus one, see
//! [`PageLayout::INDEX_OF_ROOT`].)

/// The children of one node: adjacent in the array, the first at `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildRange {
    /// Position of the first child.
    pub first: usize,
    /// Maximum number of children; fewer exist at the end of the array.
    pub count: usize,
}

/// Index arithmetic of one way to write a tree into an array.
///
/// Every implementation must satisfy this law, which is tested for all: `parent(c) == Some(n)` if and only if
/// `c` is in `children(n)`, `parent(n) < n`, and only the root has no parent.
pub trait Layout {
    /// Returns the position of `node`'s parent, or `None` for the root.
    fn parent(&self, node: usize) -> Option<usize>;
    /// Returns the positions of `node`'s children.
    fn children(&self, node: usize) -> ChildRange;
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
    fn children(&self, node: usize) -> ChildRange {
        ChildRange { first: 2 * node + 1, count: 2 }
    }
}

/// Layout in which a node has `D` children, at `D·n + 1` and after.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dary<const D: usize>;

impl<const D: usize> Layout for Dary<D> {
    #[inline]
    fn parent(&self, node: usize) -> Option<usize> {
        Some(node.checked_sub(1)? / D)
    }
    #[inline]
    fn children(&self, node: usize) -> ChildRange {
        ChildRange { first: D * node + 1, count: D }
    }
}

/// Reason why a page size cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageSizeError {
    /// The number of items in a page is not a power of two.
    NotPowerOfTwo(usize),
    /// Fewer than four items fit in a page: there is no room for a row of siblings and a row of children.
    TooSmall(usize),
    /// An item takes no memory, so there are no pages.
    ZeroSized,
}

impl core::fmt::Display for PageSizeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotPowerOfTwo(n) => write!(f, "a page of {n} items: the number must be a power of two"),
            Self::TooSmall(n) => write!(f, "a page of {n} items: at least four must fit"),
            Self::ZeroSized => f.write_str("an item of size zero fits no page"),
        }
    }
}

impl core::error::Error for PageSizeError {}

/// The B-heap's layout, as published: a page holds a small tree, filled vertically.
///
/// Drawn for eight items per page; numbers are indices (position + 1), lines are parents:
///
/// ```text
///   page 0    ·                 index 0 is never used
///             1 ─┬─ 2 ─┬─ 4 ══ page 1
///                │     └─ 5 ══ page 2
///                └─ 3 ─┬─ 6 ══ page 3     4–7 are the bottom row of page 0:
///                      └─ 7 ══ page 4     each opens a page
///
///   page 1    8 ─── 10 ─┬─ 12 ══ page 5   8 and 9 are both children of 4
///                       └─ 13 ══ page 6   and have one child each: the tree does
///             9 ─── 11 ─┬─ 14 ══ page 7   not widen on entering a page, so that
///                       └─ 15 ══ page 8   siblings always share one
/// ```
///
/// With `P` items per page and `o` the offset in page `p`:
/// - in page 0, children of `o` are `2o` and `2o + 1` while those are in the page;
/// - in a later page, offsets 0 and 1 have one child each, at `o + 2`; others have `2o` and `2o + 1`;
/// - the bottom row is the upper half of the offsets. Counted over all pages, its node number
///   `b = p·P/2 + (o − P/2)` opens page `b + 1`: its children are that page's offsets 0 and 1.
///
/// Backwards: offsets 0 and 1 of page `q` are children of bottom node `b = q − 1`, which is offset `P/2 + b
/// mod P/2` of page `b div P/2`; the parent of offsets 2 and 3 is `o − 2` (in page 0: `o / 2`), that of
/// others `o / 2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLayout {
    /// Binary logarithm of the number of items in a page; at least 2.
    shift: u32,
}

impl PageLayout {
    /// The index of the root in the published numbering: position 0 is index 1.
    pub const INDEX_OF_ROOT: usize = 1;

    /// Creates a layout for pages of `page_items` items.
    ///
    /// # Errors
    /// [`PageSizeError::TooSmall`] for fewer than four items, [`PageSizeError::NotPowerOfTwo`] if the number
    /// is not a power of two.
    pub const fn new(page_items: usize) -> Result<Self, PageSizeError> {
        if !page_items.is_power_of_two() {
            return Err(PageSizeError::NotPowerOfTwo(page_items));
        }
        if page_items < 4 {
            return Err(PageSizeError::TooSmall(page_items));
        }
        Ok(Self { shift: page_items.trailing_zeros() })
    }

    /// Creates a layout for pages of `page_bytes` bytes with items of type `T`, whose size must be a power of
    /// two.
    ///
    /// # Errors
    /// Returns a [`PageSizeError`] if the number of items in a page is less than four or not a power of two,
    /// or if `T` has no size.
    pub const fn for_page_bytes<T>(page_bytes: usize) -> Result<Self, PageSizeError> {
        let size = size_of::<T>();
        if size == 0 {
            return Err(PageSizeError::ZeroSized);
        }
        if !page_bytes.is_multiple_of(size) {
            return Err(PageSizeError::NotPowerOfTwo(page_bytes / size));
        }
        Self::new(page_bytes / size)
    }

    /// Returns the number of items in a page.
    #[must_use]
    pub const fn page_items(&self) -> usize {
        1 << self.shift
    }

    /// Returns the page that holds the item at `position`.
    #[must_use]
    pub const fn page_of(&self, position: usize) -> usize {
        (position + Self::INDEX_OF_ROOT) >> self.shift
    }

    const fn half(&self) -> usize {
        1 << (self.shift - 1)
    }
}

impl Layout for PageLayout {
    #[inline]
    fn parent(&self, node: usize) -> Option<usize> {
        if node == 0 {
            return None;
        }
        let index = node + Self::INDEX_OF_ROOT;
        let (page, offset) = (index >> self.shift, index & (self.page_items() - 1));
        let up = if page == 0 || offset >= 4 {
            index - offset + offset / 2
        } else if offset >= 2 {
            index - 2
        } else {
            let bottom = page - 1;
            let (above, slot) = (bottom >> (self.shift - 1), bottom & (self.half() - 1));
            (above << self.shift) + self.half() + slot
        };
        Some(up - Self::INDEX_OF_ROOT)
    }

    #[inline]
    fn children(&self, node: usize) -> ChildRange {
        let index = node + Self::INDEX_OF_ROOT;
        let (page, offset) = (index >> self.shift, index & (self.page_items() - 1));
        let (first, count) = if offset >= self.half() {
            let bottom = (page << (self.shift - 1)) + (offset - self.half());
            ((bottom + 1) << self.shift, 2)
        } else if page > 0 && offset < 2 {
            (index + 2, 1)
        } else {
            (index + offset, 2)
        };
        ChildRange { first: first - Self::INDEX_OF_ROOT, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    /// Checks the law of [`Layout`] for the first `nodes` positions.
    fn keeps_the_law(layout: &impl Layout, nodes: usize) {
        assert_eq!(layout.parent(0), None);
        let mut seen_below = vec![0_u32; nodes];
        for node in 0..nodes {
            let children = layout.children(node);
            assert!(children.first > node && children.count > 0);
            for child in children.first..children.first + children.count {
                assert_eq!(layout.parent(child), Some(node), "the child {child} of {node}");
                if let Some(times) = seen_below.get_mut(child) {
                    *times += 1;
                }
            }
        }
        assert_eq!(seen_below[0], 0, "the root is nobody's child");
        assert!(seen_below[1..].iter().all(|&times| times == 1), "every other position is one node's child");
    }

    #[test]
    fn every_layout_is_a_tree_without_gaps() {
        keeps_the_law(&Binary, 10_000);
        keeps_the_law(&Dary::<4>, 10_000);
        keeps_the_law(&Dary::<8>, 10_000);
        for shift in 2..=18 {
            let layout = PageLayout::new(1 << shift).unwrap();
            keeps_the_law(&layout, (5 << shift).max(10_000));
        }
    }

    proptest! {
        #[test]
        fn parent_and_children_are_inverse_far_out_too(shift in 2_u32..=18, node in 0_usize..1 << 40) {
            let layout = PageLayout::new(1 << shift).unwrap();
            let children = layout.children(node);
            for child in children.first..children.first + children.count {
                prop_assert_eq!(layout.parent(child), Some(node));
            }
            if let Some(up) = layout.parent(node) {
                let below = layout.children(up);
                prop_assert!((below.first..below.first + below.count).contains(&node));
            }
        }

        #[test]
        fn only_bottom_rows_have_children_on_another_page(shift in 2_u32..=18, node in 0_usize..1 << 40) {
            let layout = PageLayout::new(1 << shift).unwrap();
            let children = layout.children(node);
            let first_page = layout.page_of(children.first);
            prop_assert_eq!(layout.page_of(children.first + children.count - 1), first_page);
            let offset = (node + 1) & ((1 << shift) - 1);
            prop_assert_eq!(first_page == layout.page_of(node), offset < 1 << (shift - 1));
        }
    }

    #[test]
    fn a_page_of_an_odd_size_is_refused() {
        assert_eq!(PageLayout::new(12), Err(PageSizeError::NotPowerOfTwo(12)));
        assert_eq!(PageLayout::new(0), Err(PageSizeError::NotPowerOfTwo(0)));
        assert_eq!(PageLayout::new(2), Err(PageSizeError::TooSmall(2)));
        assert_eq!(PageLayout::for_page_bytes::<()>(4096), Err(PageSizeError::ZeroSized));
        assert_eq!(PageLayout::for_page_bytes::<[u8; 3]>(4096), Err(PageSizeError::NotPowerOfTwo(1365)));
        assert_eq!(PageLayout::for_page_bytes::<u64>(4096).map(|l| l.page_items()), Ok(512));
        assert_eq!(PageLayout::for_page_bytes::<u64>(64).map(|l| l.page_items()), Ok(8));
    }
}
