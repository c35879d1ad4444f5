//! C21: smaller pointers and larger pages.
//!
//! Two questions that are easily confused. At a given number of items, larger pages mean fewer pages, so that a
//! number of resident pages is a larger share: there the sweep compares equal shares of the memory. And a page that
//! holds more items saves more levels of the walk: there the number of pages is kept and the items grow.

use serde_json::json;

use super::findings::{SEED, figure, grouped, ratio};
use super::run::{Shape, Simulated};
use crate::experiment::{Options, Report, Table, Verdict};

/// Pages of the second part.
const SAME_PAGES: usize = 128;

/// Adds both parts to a report.
pub(super) fn add(report: &mut Report, options: &Options) {
    let items = if options.quick { 250_000 } else { 1_000_000 };
    same_items(report, options, items);
    let grown = same_pages(report, options);
    judge(report, &grown);
}

fn say(options: &Options, shape: Shape) {
    options.say(&format!(
        "{} items of {} bytes, pages of {} KiB",
        shape.items,
        shape.item_bytes,
        shape.page_bytes / 1024
    ));
}

fn same_items(report: &mut Report, options: &Options, items: usize) {
    let mut table = Table::new(
        format!("The same {} items: binary heap's transfers for each of the B-heap's", grouped(items as u64)),
        &[
            ("page", "KiB"),
            ("item", "bytes"),
            ("items a page", ""),
            ("pages in all", ""),
            ("a half resident", "×"),
            ("a quarter", "×"),
            ("a tenth", "×"),
            ("nine pages", "×"),
        ],
    );
    let mut data = Vec::new();
    for page_kib in [4, 16, 64, 256, 1024, 2048] {
        for item_bytes in [8, 4] {
            let shape = Shape { items, page_bytes: page_kib * 1024, item_bytes };
            say(options, shape);
            let simulated = shape.simulate(SEED);
            let pages = simulated.pages;
            let at = |resident: usize| {
                if resident < 2 || resident >= pages {
                    return "–".to_owned();
                }
                let (binary, paged) = simulated.at(resident);
                ratio(binary, paged)
            };
            table.row([
                page_kib.to_string(),
                item_bytes.to_string(),
                grouped(shape.page_items() as u64),
                grouped(pages as u64),
                at(pages / 2),
                at(pages / 4),
                at(pages / 10),
                at(9),
            ]);
            let residents = [pages / 2, pages / 4, pages / 10, 9];
            let sizes: Vec<serde_json::Value> = residents
                .into_iter()
                .filter(|&resident| (1..=pages).contains(&resident))
                .map(|resident| {
                    let (binary, paged) = simulated.at(resident);
                    json!({ "resident": resident, "binary": binary.free(), "b_heap": paged.free() })
                })
                .collect();
            data.push(json!({
                "page_bytes": shape.page_bytes,
                "item_bytes": item_bytes,
                "pages": pages,
                "sizes": sizes,
            }));
        }
    }
    report.tables.push(table);
    report.data["sweep_same_items"] = json!(data);
    report.note("In the sweep “–” stands where fewer than two pages, or all of them, would be resident: 1 M items of 4 bytes are two pages of 2 MiB.");
}

/// Returns the number of items a page and the ratio at nine pages.
fn same_pages(report: &mut Report, options: &Options) -> Vec<(usize, f64)> {
    let mut table = Table::new(
        format!("The same {SAME_PAGES} pages, nine of them resident"),
        &[
            ("items a page", ""),
            ("for instance", ""),
            ("binary heap", "transfers/op"),
            ("B-heap", "transfers/op"),
            ("ratio", ""),
        ],
    );
    let mut found = Vec::new();
    let most = if options.quick { 2048 } else { 8192 };
    for (page_items, instance) in [
        (8, "64 bytes (a cache line), 8-byte items"),
        (64, "512 bytes, 8-byte items"),
        (512, "4 KiB, 8-byte items"),
        (1024, "4 KiB, 4-byte items"),
        (2048, "16 KiB, 8-byte items"),
        (8192, "64 KiB, 8-byte items"),
    ] {
        if page_items > most {
            continue;
        }
        // Index 0 of the first page is unused.
        let shape = Shape { items: SAME_PAGES * page_items - 1, page_bytes: page_items * 8, item_bytes: 8 };
        say(options, shape);
        let simulated: Simulated = shape.simulate(SEED);
        let (binary, paged) = simulated.at(9);
        let (binary, paged) = (simulated.an_operation(binary.free()), simulated.an_operation(paged.free()));
        found.push((page_items, binary / paged));
        table.row([
            grouped(page_items as u64),
            instance.to_owned(),
            figure(binary),
            figure(paged),
            format!("{:.2}", binary / paged),
        ]);
    }
    report.tables.push(table);
    report.data["sweep_same_pages"] = found
        .iter()
        .map(|&(page_items, ratio)| json!({ "page_items": page_items, "ratio": ratio }))
        .collect();
    found
}

fn judge(report: &mut Report, grown: &[(usize, f64)]) {
    let grows = grown.windows(2).all(|pair| pair[0].1 < pair[1].1);
    let listed: Vec<String> = grown
        .iter()
        .map(|(page_items, ratio)| format!("{ratio:.1}× at {}", grouped(*page_items as u64)))
        .collect();
    report.judge(
        "C21",
        "the speedup grows with smaller pointers and larger pages",
        format!("{SAME_PAGES} pages, nine resident, by items a page: {}", listed.join(", ")),
        if grows { Verdict::Holds } else { Verdict::DoesNotHoldHere },
    );
}
