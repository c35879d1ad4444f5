//! Counts of the pages on paths from the root of a heap.

use bheap::layout::Layout;

/// Counts over all nodes of a heap.
#[derive(Debug, Clone, PartialEq)]
pub struct Walks {
    /// Number of pages with at least one node.
    pub pages: usize,
    /// Number of nodes that have two children.
    pub siblings: usize,
    /// Number of sibling pairs that are in two different pages.
    pub siblings_apart: usize,
    /// Number of nodes on the longest path.
    pub levels: u32,
    /// Number of pages on that longest path; the maximum if several paths are equally long.
    pub pages_to_deepest: u32,
    /// Mean number of pages on the path to a node, over all nodes.
    pub pages_mean: f64,
}

impl Walks {
    /// Counts for `items` nodes, each in the page that `page_of` returns.
    ///
    /// # Panics
    /// Panics if a parent does not come before its child, as [`Layout`] requires.
    #[must_use]
    pub fn of(layout: &impl Layout, items: usize, page_of: impl Fn(usize) -> usize) -> Self {
        // For each node: levels and pages from the root to it, including the node itself.
        let mut walks: Vec<(u32, u32)> = Vec::with_capacity(items);
        let (mut siblings, mut siblings_apart) = (0, 0);
        let mut last_page = 0;
        for node in 0..items {
            let page = page_of(node);
            last_page = last_page.max(page);
            walks.push(match layout.parent(node) {
                None => (1, 1),
                Some(up) => {
                    assert!(up < node, "a parent comes before its child");
                    (walks[up].0 + 1, walks[up].1 + u32::from(page_of(up) != page))
                }
            });
            let children = layout.children(node);
            if children.count == 2 && children.first + 1 < items {
                siblings += 1;
                siblings_apart += usize::from(page_of(children.first) != page_of(children.first + 1));
            }
        }
        let (levels, pages_to_deepest) = walks.iter().copied().max().unwrap_or((0, 0));
        let pages_mean = walks.iter().map(|walk| f64::from(walk.1)).sum::<f64>() / items.max(1) as f64;
        Self { pages: last_page + 1, siblings, siblings_apart, levels, pages_to_deepest, pages_mean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bheap::layout::{Binary, PageLayout};

    #[test]
    fn walks_match_counts_by_hand() {
        let paged = PageLayout::new(8).unwrap();
        // One page is above four others: 7 nodes, then 4 × 8.
        let b_heap = Walks::of(&paged, 39, |node| paged.page_of(node));
        assert_eq!((b_heap.pages, b_heap.levels, b_heap.pages_to_deepest), (5, 6, 2));
        assert_eq!((b_heap.siblings_apart, b_heap.pages_mean), (0, f64::from(7 + 4 * 8 * 2) / 39.0));
        // Pages hold nodes 1–7, 8–15 and 16–31, so each level from the fourth on adds a page to the path.
        let binary = Walks::of(&Binary, 31, |node| (node + 1) / 8);
        assert_eq!((binary.pages, binary.levels, binary.pages_to_deepest), (4, 5, 3));
        assert_eq!(binary.siblings, 15);
    }
}
