//! The B-heap variant that the article “You're Doing It Wrong” rejects: the two siblings at the top of a page
//! both have two children.
//!
//! A page then holds two complete trees, and offsets 0 and 1 belong to neither:
//!
//! ```text
//!   page 1    8, 9 are never used
//!             10 ─┬─ 12 ══      10 and 11 are both children of 4, as 8 and 9 are in the B-heap;
//!                 └─ 13 ══      both widen at once, and the bottom row is as wide as ever
//!             11 ─┬─ 14 ══
//!                 └─ 15 ══
//! ```

use bheap::layout::{ChildRange, Layout};
use bheap::trace::Trace;

/// Index arithmetic of the widening B-heap. Positions have no gaps; addresses in memory do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WideningLayout {
    /// log2 of the number of slots in a page.
    shift: u32,
}

impl WideningLayout {
    /// Creates a layout with pages of `page_items` slots; `None` unless that is a power of two, at least 8.
    #[must_use]
    pub const fn new(page_items: usize) -> Option<Self> {
        if page_items.is_power_of_two() && page_items >= 8 {
            Some(Self { shift: page_items.trailing_zeros() })
        } else {
            None
        }
    }

    const fn page_items(self) -> usize {
        1 << self.shift
    }

    /// Returns the memory slot of a heap position, counted from the beginning of page 0.
    #[must_use]
    pub const fn place(self, position: usize) -> usize {
        let first_page = self.page_items() - 1;
        if position < first_page {
            return position + 1;
        }
        let (page, offset) =
            ((position - first_page) / (first_page - 1), (position - first_page) % (first_page - 1));
        ((page + 1) << self.shift) + offset + 2
    }

    const fn position(self, place: usize) -> usize {
        let (page, offset) = (place >> self.shift, place & (self.page_items() - 1));
        if page == 0 {
            offset - 1
        } else {
            self.page_items() - 1 + (page - 1) * (self.page_items() - 2) + offset - 2
        }
    }

    /// Returns the page of a position.
    #[must_use]
    pub const fn page_of(self, position: usize) -> usize {
        self.place(position) >> self.shift
    }
}

impl Layout for WideningLayout {
    fn parent(&self, node: usize) -> Option<usize> {
        if node == 0 {
            return None;
        }
        let half = self.page_items() / 2;
        let place = self.place(node);
        let (page, offset) = (place >> self.shift, place & (self.page_items() - 1));
        let up = if page == 0 || offset >= 4 {
            place - offset + offset / 2
        } else {
            let bottom = page - 1;
            ((bottom / half) << self.shift) + half + bottom % half
        };
        Some(self.position(up))
    }

    fn children(&self, node: usize) -> ChildRange {
        let half = self.page_items() / 2;
        let place = self.place(node);
        let (page, offset) = (place >> self.shift, place & (self.page_items() - 1));
        let first = if offset >= half {
            ((page * half + offset - half + 1) << self.shift) + 2
        } else {
            place + offset
        };
        ChildRange { first: self.position(first), count: 2 }
    }
}

/// Recorder adapter that inserts the gaps of the layout: each address of a position becomes the address of
/// its slot.
#[derive(Debug)]
pub struct Gaps<'a, M> {
    layout: WideningLayout,
    memory: &'a M,
}

impl<'a, M: Trace> Gaps<'a, M> {
    const ITEM_BYTES: usize = 8;

    /// Wraps the recorder `memory`, for items of 8 bytes.
    pub const fn new(layout: WideningLayout, memory: &'a M) -> Self {
        Self { layout, memory }
    }

    /// Translates an address. Position 0 is reported as index 1 (see
    /// [`super::super::bheap_sim::run::drive_layout`]).
    const fn moved(&self, address: usize) -> usize {
        self.layout.place(address / Self::ITEM_BYTES - 1) * Self::ITEM_BYTES
    }
}

impl<M: Trace> Trace for Gaps<'_, M> {
    fn read(&self, address: usize, bytes: usize) {
        self.memory.read(self.moved(address), bytes);
    }
    fn write(&self, address: usize, bytes: usize) {
        self.memory.write(self.moved(address), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_dense_and_siblings_share_pages() {
        for shift in 3..=10 {
            let layout = WideningLayout::new(1 << shift).unwrap();
            let mut next = 1;
            for node in 0..5_000 {
                assert_eq!(layout.position(layout.place(node)), node);
                let children = layout.children(node);
                assert_eq!(children.count, 2);
                for child in [children.first, children.first + 1] {
                    assert_eq!(layout.parent(child), Some(node), "{child} below {node}");
                }
                assert_eq!(layout.page_of(children.first), layout.page_of(children.first + 1));
                if layout.page_of(children.first) > layout.page_of(node) {
                    // The bottom row's nodes open new pages in order.
                    assert_eq!(layout.page_of(children.first), next);
                    next += 1;
                }
            }
            assert_eq!(layout.parent(0), None);
        }
        assert_eq!(WideningLayout::new(12), None);
        assert_eq!(WideningLayout::new(4), None);
    }
}
