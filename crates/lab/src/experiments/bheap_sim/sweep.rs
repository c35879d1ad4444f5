//! Claim C21: smaller pointers and larger pages.
//!
//! The number of items is constant, so with larger pages there are fewer of them, and the same number of
//! resident pages is a larger share. The comparison therefore uses the same share of the memory; nine pages,
//! as in the article, are shown in addition.

use serde_json::json;

use super::findings::{SEED, ratio};
use super::run::Shape;
use crate::experiment::{Options, Report, Table, Verdict};
use crate::report::grouped;

/// Selected page sizes in KiB and item sizes in bytes, in order of items per page: enough for a verdict.
const SOME: &[(usize, usize)] = &[(4, 8), (4, 4), (16, 8), (64, 8)];
/// Page and item sizes up to superpages (`--sweep`).
const ALL: &[(usize, usize)] = &[
    (4, 8),
    (4, 4),
    (16, 8),
    (16, 4),
    (64, 8),
    (64, 4),
    (256, 8),
    (256, 4),
    (1024, 8),
    (1024, 4),
    (2048, 8),
    (2048, 4),
];
/// Minimum number of resident pages: with fewer, no heap could work in a tenth of its memory.
const RESIDENT_MIN: usize = 4;

/// Adds the table and the verdict.
pub(super) fn add(report: &mut Report, options: &Options, items: usize) {
    let mut table = Table::new(
        format!(
            "The same {} items: how many times the B-heap's transfers are the binary heap's",
            grouped(items as u64)
        ),
        &[
            ("page", "KiB"),
            ("item", "bytes"),
            ("items a page", ""),
            ("pages in all", ""),
            ("a half resident", ""),
            ("a quarter", ""),
            ("a tenth", ""),
            ("nine pages", ""),
        ],
    );
    let mut data = Vec::new();
    // Items per page, and the ratio with a tenth resident.
    let mut tenths: Vec<(usize, f64)> = Vec::new();
    for &(page_kib, item_bytes) in if options.sweep { ALL } else { SOME } {
        options.say(&format!("pages of {page_kib} KiB, items of {item_bytes} bytes"));
        let shape = Shape { items, page_bytes: page_kib * 1024, item_bytes };
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
        if pages / 10 >= RESIDENT_MIN {
            let (binary, paged) = simulated.at(pages / 10);
            tenths.push((shape.page_items(), binary.free() as f64 / paged.free() as f64));
        }
        let sizes: Vec<serde_json::Value> = [pages / 2, pages / 4, pages / 10, 9]
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
    report.tables.push(table);
    report.data["sweep"] = json!(data);
    report.note(
        "C21 is judged at the same share of the memory. At the same number of pages the speedup grows only while \
         that number is a small share. “–”: fewer than two pages, or all, would be resident.",
    );
    if !options.sweep {
        report.note("`--sweep` goes on to pages of 2 MiB.");
    }
    judge(report, &tenths);
}

fn judge(report: &mut Report, tenths: &[(usize, f64)]) {
    let grows = tenths.windows(2).all(|pair| pair[0].1 < pair[1].1);
    let verdict = match tenths {
        [] | [_] => Verdict::CannotBeTestedHere,
        _ if grows => Verdict::Holds,
        _ => Verdict::DoesNotHoldHere,
    };
    let listed: Vec<String> = tenths
        .iter()
        .map(|&(page_items, ratio)| format!("{ratio:.2}× at {}", grouped(page_items as u64)))
        .collect();
    report.judge(
        "C21",
        "the speedup grows with smaller pointers and larger pages",
        format!("a tenth of the memory resident, by items a page: {}", listed.join(", ")),
        verdict,
    );
}
