//! `bheap-layout`: where the nodes lie (C7): figures 5 and 6 drawn, pages counted, rows checked.

use super::outcome::{Outcome, Table, Verdict};
use bheap::BHeap;
use bheap::layout::{Binary, Layout, PageSizeError, Paged};
use std::fmt::Write as _;

/// Pages that `items` items need as published, and when the tree widens on entering a page: the two siblings
/// then lie at the offsets 2 and 3, and two places a page stay empty.
fn pages(items: usize, page_items: usize) -> (usize, usize) {
    ((items + Paged::INDEX_OF_ROOT).div_ceil(page_items), (items - 1).div_ceil(page_items - 2))
}

/// The tree of the first pages as boxes, one column a page, numbered by index.
fn drawing(layout: &impl Layout, page_items: usize, page_count: usize) -> String {
    let (cell, gap) = (44, 40);
    let width = page_count * (cell + gap) + gap;
    let height = page_items * 28 + 40;
    let place = |index: usize| (gap + index / page_items * (cell + gap), 28 + index % page_items * 28);
    let mut svg = format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\">");
    for page in 0..page_count {
        let (x, y) = place(page * page_items);
        let _ = write!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"var(--quiet)\"/><text x=\"{x}\" y=\"16\">page {page}</text>",
            x - 4,
            y - 4,
            cell + 8,
            page_items * 28 + 4
        );
    }
    for node in 0..page_items * page_count - 1 {
        let (x, y) = place(node + 1);
        if let Some(parent) = layout.parent(node) {
            let (px, py) = place(parent + 1);
            let (from_x, to_x) = if px == x { (px, x) } else { (px + cell, x) };
            let bend = if px == x { -16_i64 } else { 0 };
            let _ = write!(
                svg,
                "<path d=\"M{from_x} {} C{} {} {} {} {to_x} {}\" fill=\"none\" stroke=\"var(--b)\"/>",
                py + 12,
                from_x as i64 + bend,
                py + 12,
                to_x as i64 + bend,
                y + 12,
                y + 12
            );
        }
        let _ = write!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{cell}\" height=\"24\" fill=\"var(--ground)\" stroke=\"var(--a)\"/><text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            x + cell / 2,
            y + 16,
            node + 1
        );
    }
    svg + "</svg>"
}

/// The most pages on a way from the root to any of `items` items.
fn longest_walk(layout: &impl Layout, items: usize, page_items: usize) -> usize {
    let page = |node: usize| (node + 1) / page_items;
    let mut pages = vec![1_usize; items];
    for node in 1..items {
        if let Some(parent) = layout.parent(node) {
            pages[node] = pages[parent] + usize::from(page(parent) != page(node));
        }
    }
    pages.into_iter().max().unwrap_or(0)
}

/// The whole experiment.
///
/// # Errors
/// Never for the page sizes used.
pub fn experiment() -> Result<Outcome, PageSizeError> {
    let mut table = Table::new(
        "One million eight-byte items",
        &[
            "page, bytes",
            "pages",
            "pages if the tree widened",
            "more",
            "pages on a walk, binary",
            "pages on a walk, B-heap",
        ],
    );
    let items = 1_000_000;
    for page_bytes in [64, 512, 4096, 65_536, 2 << 20] {
        let page_items = page_bytes / 8;
        let (published, widening) = pages(items, page_items);
        table.rows.push(vec![
            page_bytes.to_string(),
            published.to_string(),
            widening.to_string(),
            (widening - published).to_string(),
            longest_walk(&Binary, items, page_items).to_string(),
            longest_walk(&Paged::new(page_items)?, items, page_items).to_string(),
        ]);
    }
    // The rows of a real heap, by their addresses.
    let mut astray = 0;
    for page_bytes in [64, 4096, 2 << 20] {
        let mut heap = BHeap::new(page_bytes)?;
        for n in 0..page_bytes as u64 / 2 {
            heap.push(n);
        }
        astray += (0..heap.len()).filter(|&at| heap.rows().page_of(at) != heap.layout().page_of(at)).count();
    }
    let (published, widening) = pages(items, 512);
    Ok(Outcome {
        name: "bheap-layout".into(),
        title: "Siblings share a page, and a walk of twenty levels touches three".into(),
        notes: vec![
            "Drawn at eight items a page; numbers are indices, index 0 is not used.".into(),
            "If the tree widened on entering a page, the siblings would lie at its offsets 2 and 3 and two places would stay empty: seven pages more at a million items by this count; the article says five (20 KiB).".into(),
        ],
        tables: vec![table],
        verdicts: vec![
            Verdict::close_to("pages for a million items", published as f64, 1954.0, 0.0),
            Verdict::close_to("pages more if the tree widened (the article: 5)", (widening - published) as f64, 7.0, 0.0),
            Verdict::at_most(
                "items of real heaps that do not lie in the page of their index",
                astray as f64,
                0.0,
                "",
            ),
        ],
        drawings: vec![
            (
                "Figure 5. The binary heap: from the second page on, every child of a node lies pages away."
                    .into(),
                drawing(&Binary, 8, 7),
            ),
            (
                "Figure 6. The B-heap: each page is a small tree that begins with two siblings.".into(),
                drawing(&Paged::new(8)?, 8, 7),
            ),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::outcome::Holds;

    #[test]
    fn the_layout_holds_and_is_drawn() -> Result<(), PageSizeError> {
        let outcome = experiment()?;
        assert!(outcome.verdicts.iter().all(|verdict| verdict.holds == Holds::Yes), "{:?}", outcome.verdicts);
        assert!(outcome.html().matches("<svg").count() == 2);
        Ok(())
    }
}
