//! Figures 5, 6 and 7 of the article “You're Doing It Wrong” (ACM Queue, June 2010), with eight items per
//! page.

use bheap::layout::{Binary, Layout, PageLayout};
use serde_json::json;

use super::walked::{self, PAGE_ITEMS};
use crate::report::drawing::{Anchor, Drawing};
use crate::report::{PlayKind, Report};

const WIDTH: f64 = 680.0;
/// Number of columns in the bottom row.
const COLUMNS: f64 = 16.0;
const CELL: (f64, f64) = (28.0, 22.0);

/// Returns the JSON data with which the report page's script replays a figure's heap.
fn facts(layout: &str, name: &str) -> serde_json::Value {
    json!({ "layout": layout, "name": name, "keys": walked::keys() })
}

/// Adds figures 5, 6 and 7 to the report.
pub(super) fn add(report: &mut Report) {
    textbook(report);
    vertical(report);
    picture_of_a_computer(report);
}

fn column_x(column: f64) -> f64 {
    let margin = 12.0;
    margin + (column + 0.5) * (WIDTH - 2.0 * margin) / COLUMNS
}

/// A tree to draw, with the coordinates and the page of each node.
struct Tree<'a> {
    layout: &'a dyn Layout,
    nodes: usize,
    /// Column and height of each node's centre, by position.
    places: Vec<(f64, f64)>,
}

impl Tree<'_> {
    const fn page(position: usize) -> usize {
        (position + 1) / PAGE_ITEMS
    }

    /// Returns the nodes from the root to `node`.
    fn way(&self, node: usize) -> Vec<usize> {
        let mut way = vec![node];
        while let Some(up) = way.last().and_then(|&node| self.layout.parent(node)) {
            way.push(up);
        }
        way.reverse();
        way
    }

    /// Counts the pages on a path.
    fn pages(way: &[usize]) -> usize {
        let mut pages: Vec<usize> = way.iter().map(|&node| Self::page(node)).collect();
        pages.dedup();
        pages.len()
    }

    fn draw(&self, drawing: &mut Drawing, way: &[usize]) {
        let labels = self.draw_pages(drawing, way);
        for node in 1..self.nodes {
            let Some(up) = self.layout.parent(node) else { continue };
            let class = if way.contains(&node) { "edge way" } else { "edge" };
            drawing.line(class, self.places[up], self.places[node]);
        }
        for (node, &(x, y)) in self.places.iter().enumerate() {
            let on_way = way.contains(&node);
            let class = if on_way { "cell way" } else { "cell" };
            drawing.rectangle(class, (x - CELL.0 / 2.0, y - CELL.1 / 2.0), CELL);
            let class = if on_way { "on-way" } else { "in-cell" };
            drawing.text(class, (x, y + 5.0), Anchor::Middle, &(node + 1).to_string());
        }
        for (place, label) in labels {
            drawing.text("tick haloed", place, Anchor::Start, &label);
        }
    }

    /// Draws a frame around the nodes of each page. Returns the labels, which are drawn above the edges.
    fn draw_pages(&self, drawing: &mut Drawing, way: &[usize]) -> Vec<((f64, f64), String)> {
        const MARGIN: f64 = 6.0;
        let mut labels = Vec::new();
        for page in 0..=Self::page(self.nodes - 1) {
            let nodes: Vec<(f64, f64)> = (0..self.nodes)
                .filter(|&node| Self::page(node) == page)
                .map(|node| self.places[node])
                .collect();
            let least = |pick: fn(&(f64, f64)) -> f64| nodes.iter().map(pick).fold(f64::INFINITY, f64::min);
            let most = |pick: fn(&(f64, f64)) -> f64| nodes.iter().map(pick).fold(0.0, f64::max);
            let (left, right) =
                (least(|n| n.0) - CELL.0 / 2.0 - MARGIN, most(|n| n.0) + CELL.0 / 2.0 + MARGIN);
            let (top, bottom) =
                (least(|n| n.1) - CELL.1 / 2.0 - MARGIN - 14.0, most(|n| n.1) + CELL.1 / 2.0 + MARGIN);
            let entered = way.iter().any(|&node| Self::page(node) == page);
            let class = if entered { "page way" } else { "page" };
            drawing.rectangle(class, (left, top), (right - left, bottom - top));
            labels.push(((left + 6.0, top + 14.0), format!("page {page}")));
        }
        labels
    }
}

/// Draws figure 5: each row of the tree is contiguous in the array, so a page covers a part of a row.
fn textbook(report: &mut Report) {
    const LEVELS: u32 = 5;
    let nodes = (1_usize << LEVELS) - 1;
    let places = (0..nodes)
        .map(|node| {
            let level = (node + 1).ilog2();
            let first = (1_usize << level) - 1;
            let column = ((node - first) as f64 + 0.5) * COLUMNS / f64::from(1_u32 << level) - 0.5;
            (column_x(column), [40.0, 78.0, 116.0, 182.0, 248.0][level as usize])
        })
        .collect();
    let tree = Tree { layout: &Binary, nodes, places };
    let way = tree.way(25);
    let title = format!(
        "Figure 5: in a textbook heap, {} levels down means {} pages; from here on every level is another page",
        way.len(),
        Tree::pages(&way)
    );
    let mut drawing = Drawing::new(WIDTH, 282.0, &title);
    tree.draw(&mut drawing, &way);
    report.figure(
        &title,
        drawing.finish(),
        "Numbers are indices in the array, eight places a page; index 0 is not used. The way from the root to item 26 \
         is marked. With 512 items a page the first page holds nine levels, and each level below costs a page.",
    );
    report.play(PlayKind::Heap, facts("textbook", "Textbook heap"));
}

/// Draws figure 6: a page holds a vertical part of the tree, and both children of a node share a page.
fn vertical(report: &mut Report) {
    let Ok(layout) = PageLayout::new(PAGE_ITEMS) else { return };
    let nodes = 39;
    let places = (0..nodes)
        .map(|node| {
            let (page, offset) = (Tree::page(node), (node + 1) % PAGE_ITEMS);
            let (page_at, offset_at) = (page as f64, offset as f64);
            let (column, y) = match (page, offset) {
                (0, 1) => (7.5, 40.0),
                (0, 2 | 3) => ((offset_at - 2.0) * 8.0 + 3.5, 78.0),
                (0, _) => ((offset_at - 4.0) * 4.0 + 1.5, 116.0),
                (_, 0 | 1) => ((page_at - 1.0) * 4.0 + offset_at * 2.0 + 0.5, 190.0),
                (_, 2 | 3) => ((page_at - 1.0) * 4.0 + (offset_at - 2.0) * 2.0 + 0.5, 228.0),
                _ => ((page_at - 1.0) * 4.0 + offset_at - 4.0, 266.0),
            };
            (column_x(column), y)
        })
        .collect();
    let tree = Tree { layout: &layout, nodes, places };
    let way = tree.way(29);
    let title = format!("Figure 6: in a B-heap, {} levels down means {} pages", way.len(), Tree::pages(&way));
    let mut drawing = Drawing::new(WIDTH, 296.0, &title);
    tree.draw(&mut drawing, &way);
    report.figure(
        &title,
        drawing.finish(),
        "Pages are filled vertically. Both children of a node share a page, so 4's children 8 and 9 open page 1 \
         together; each has one child (10 and 11): the tree does not widen there, and no place stays empty. The way \
         to item 30 is marked.",
    );
    report.play(PlayKind::Heap, facts("paged", "B-heap"));
}

/// Draws figure 7: the textbook model of a computer, and a real one.
fn picture_of_a_computer(report: &mut Report) {
    let title = "Figure 7: the textbook's computer has one memory; a real one has a ladder, and its rungs lie far apart";
    let mut drawing = Drawing::new(WIDTH, 330.0, title);
    drawing.text("label", (150.0, 26.0), Anchor::Middle, "In the textbook");
    let boxed = |drawing: &mut Drawing, x: f64, y: f64, size: (f64, f64), text: &str| {
        drawing.rectangle("cell", (x, y), size);
        drawing.text("label", (x + size.0 / 2.0, y + size.1 / 2.0 + 5.0), Anchor::Middle, text);
    };
    boxed(&mut drawing, 90.0, 60.0, (120.0, 56.0), "processor");
    drawing.line("edge", (150.0, 116.0), (150.0, 190.0));
    drawing.text("tick", (160.0, 158.0), Anchor::Start, "any address,");
    drawing.text("tick", (160.0, 175.0), Anchor::Start, "the same time");
    boxed(&mut drawing, 60.0, 190.0, (180.0, 90.0), "memory");

    drawing.line("grid", (300.0, 20.0), (300.0, 310.0));
    drawing.text("label", (490.0, 26.0), Anchor::Middle, "On the desk");
    let rungs = [
        ("registers", 90.0, "one cycle"),
        ("first cache", 120.0, "some cycles"),
        ("second and third cache", 190.0, "tens of cycles"),
        ("memory", 230.0, "hundreds"),
        ("pages that the kernel must map", 260.0, "thousands"),
        ("disk", 290.0, "millions"),
    ];
    let mut y = 44.0;
    for (i, (name, width, cost)) in rungs.into_iter().enumerate() {
        let left = 320.0;
        boxed(&mut drawing, left, y, (width, 34.0), name);
        drawing.text("tick", (left + width + 8.0, y + 21.0), Anchor::Start, cost);
        if i + 1 < rungs.len() {
            drawing.line("edge", (left + 20.0, y + 34.0), (left + 20.0, y + 46.0));
        }
        y += 46.0;
    }
    report.figure(
        title,
        drawing.finish(),
        "A drawing, not a measurement: `nighttrain lab memory-ladder` measures the rungs of this machine.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_paths_touch_the_stated_number_of_pages() {
        let mut report = Report::default();
        add(&mut report);
        let titles: Vec<&str> = report.figures.iter().map(|figure| figure.title.as_str()).collect();
        assert!(titles[0].contains("5 levels down means 3 pages"), "{titles:?}");
        assert!(titles[1].contains("6 levels down means 2 pages"), "{titles:?}");
        assert_eq!(titles.len(), 3);
        // Every node is drawn once: 31 and 39 cells, of which five and six are on the path.
        for (figure, cells, on_way) in [(0, 31, 5), (1, 39, 6)] {
            let svg = &report.figures[figure].svg;
            assert_eq!(svg.matches("class=\"cell").count(), cells);
            assert_eq!(svg.matches("class=\"cell way\"").count(), on_way);
        }
    }
}
