//! `bheap-layout`: how the binary heap and the B-heap of the article “You're Doing It Wrong” (ACM Queue, June
//! 2010) place their nodes in memory.
//!
//! [`widening`] is the variant that the article rejects, [`walks`] counts pages, [`drawings`] draws the
//! article's figures 5 to 7, [`walked`] runs both heaps of figures 5 and 6 and records the pages that they
//! touch.

pub mod drawings;
pub mod walked;
pub mod walks;
pub mod widening;

use bheap::layout::{Binary, PageLayout};
use serde_json::json;

use super::bheap_sim::article::{ITEMS, PAGE_BYTES};
use super::bheap_sim::lru::LruTransfers;
use super::bheap_sim::run::{HeapLayout, Shape, drive_layout};
use crate::experiment::{Experiment, Options, Refusal, Report, Table, Verdict};
use crate::report::grouped;
use walks::Walks;
use widening::{Gaps, WideningLayout};

/// `nighttrain lab bheap-layout`
pub const EXPERIMENT: Experiment = Experiment {
    name: "bheap-layout",
    claims: &["C7"],
    title: "How a B-heap lies in its pages",
    statement: "A B-heap keeps both children of a node in one page, and does not widen where it enters a page. If it \
                did, two places a page would stay empty, and the heap of 1 M items would be five pages (20 KiB) \
                larger.",
    source: "P.-H. Kamp, “You're Doing It Wrong”, ACM Queue 8(6), June 2010, figures 5 to 7",
    run: experiment,
};

const PAGE_ITEMS: usize = PAGE_BYTES / 8;
/// Number of additional pages that the article expects the widening layout to need.
const PAGES_SAID: usize = 5;

fn experiment(options: &Options) -> Result<Report, Refusal> {
    let Ok(paged) = PageLayout::new(PAGE_ITEMS) else {
        return Err(Refusal::Failed(format!("a page of {PAGE_ITEMS} items")));
    };
    let Some(widening) = WideningLayout::new(PAGE_ITEMS) else {
        return Err(Refusal::Failed(format!("a page of {PAGE_ITEMS} items")));
    };
    let shape = Shape { items: options.items.unwrap_or(ITEMS), page_bytes: PAGE_BYTES, item_bytes: 8 };
    shape.check()?;
    let items = shape.items;
    options.say("the walk to each node");
    let walks = [
        Walks::of(&Binary, items, |node| (node + 1) / PAGE_ITEMS),
        Walks::of(&paged, items, |node| paged.page_of(node)),
        Walks::of(&widening, items, |node| widening.page_of(node)),
    ];
    options.say("three layouts through the article's simulation");
    let memories = std::thread::scope(|scope| {
        let binary = scope.spawn(|| shape.memory_of(HeapLayout::Binary, 1));
        let paged = shape.memory_of(HeapLayout::Paged, 1);
        let widened = LruTransfers::new(PAGE_BYTES);
        drive_layout::<u64>(widening, items, 1, Gaps::new(widening, &widened));
        binary.join().map(|binary| [binary, paged, widened])
    });
    let Ok(memories) = memories else {
        return Err(Refusal::Failed("the simulation panicked".to_owned()));
    };

    let mut report = Report::default();
    table(&mut report, shape, &walks, &memories);
    drawings::add(&mut report);
    report.data["walked"] = walked::data();
    judge(&mut report, items, &walks);
    Ok(report)
}

fn table(report: &mut Report, shape: Shape, walks: &[Walks; 3], memories: &[LruTransfers; 3]) {
    let mut table = Table::new(
        format!("{} items, {PAGE_ITEMS} a page", grouped(shape.items as u64)),
        &[
            ("layout", ""),
            ("pages", ""),
            ("siblings apart", ""),
            ("levels", ""),
            ("to the deepest", "pages"),
            ("to an item, mean", "pages"),
            ("at nine pages", "transfers/op"),
        ],
    );
    let mut data = Vec::new();
    for ((name, walk), memory) in
        ["binary heap", "B-heap", "B-heap that widens"].into_iter().zip(walks).zip(memories)
    {
        let at_nine = memory.transfers(9).free() as f64 / shape.operations() as f64;
        table.row([
            name.to_owned(),
            walk.pages.to_string(),
            walk.siblings_apart.to_string(),
            walk.levels.to_string(),
            walk.pages_to_deepest.to_string(),
            format!("{:.2}", walk.pages_mean),
            format!("{at_nine:.3}"),
        ]);
        data.push(json!({
            "layout": name,
            "pages": walk.pages,
            "pages_touched": memory.pages(),
            "siblings_apart": walk.siblings_apart,
            "levels": walk.levels,
            "pages_to_deepest": walk.pages_to_deepest,
            "pages_mean": walk.pages_mean,
            "transfers_per_op_at_nine": at_nine,
        }));
    }
    report.tables.push(table);
    report.data = json!({ "items": shape.items, "page_items": PAGE_ITEMS, "layouts": data });
}

fn judge(report: &mut Report, items: usize, walks: &[Walks; 3]) {
    let [_, paged, widened] = walks;
    report.judge(
        "C7",
        "both children of a node lie in one page",
        format!("{} of {} pairs of siblings lie apart", paged.siblings_apart, paged.siblings),
        if paged.siblings_apart == 0 { Verdict::Holds } else { Verdict::DoesNotHoldHere },
    );
    let more = widened.pages - paged.pages;
    // The other interpretation: a page is one tree, with its root at offset 1, and siblings are in two pages.
    let one_root = items.div_ceil(PAGE_ITEMS - 1).saturating_sub(paged.pages);
    let five = items_for(PAGES_SAID);
    let range = five.map_or_else(String::new, |(first, last)| {
        format!("; it would be {PAGES_SAID} with {} to {} items", grouped(first as u64), grouped(last as u64))
    });
    let verdict = match more {
        // The article's figure applies only to its own number of items.
        _ if items != ITEMS => Verdict::CannotBeTestedHere,
        PAGES_SAID => Verdict::Holds,
        _ => Verdict::HoldsWithAnotherFigure,
    };
    report.judge(
        "C7",
        format!("if it widened on entering a page, it would need {PAGES_SAID} pages (20 KiB) more"),
        format!("{more} pages ({} KiB) more: {} instead of {}{range}", more * 4, widened.pages, paged.pages),
        verdict,
    );
    report.note(format!(
        "Counted for a page in which both siblings' trees are complete, so that offsets 0 and 1 of every page but the \
         first stay empty: 510 items a page. If a page were one tree instead, with its root at offset 1, siblings \
         would lie in different pages and {one_root} pages more would be needed. The article's five lies between; \
         how it counted is lost with its source."
    ));
    report.data["more_pages"] = json!({ "widening": more, "one_root_a_page": one_root, "article": PAGES_SAID, "items_for_the_articles": five });
}

/// Returns the smallest and the largest number of items, up to 2 M, for which the widening layout needs
/// exactly `pages` more pages.
fn items_for(pages: usize) -> Option<(usize, usize)> {
    let paged = PageLayout::new(PAGE_ITEMS).ok()?;
    let widening = WideningLayout::new(PAGE_ITEMS)?;
    let costs = |items: &usize| widening.page_of(items - 1) == paged.page_of(items - 1) + pages;
    Some(((1..=2 * ITEMS).find(costs)?, (1..=2 * ITEMS).rev().find(costs)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_items_need_so_many_pages() {
        let paged = PageLayout::new(PAGE_ITEMS).unwrap();
        let widening = WideningLayout::new(PAGE_ITEMS).unwrap();
        assert_eq!(paged.page_of(ITEMS - 1) + 1, 1954);
        // 511 items are in the first page, 510 in each other page: 1 + ⌈999,489 / 510⌉.
        assert_eq!(widening.page_of(ITEMS - 1) + 1, 1961);
        let (first, last) = items_for(PAGES_SAID).unwrap();
        assert!(first < last && last < ITEMS, "{first} {last}");
    }
}
