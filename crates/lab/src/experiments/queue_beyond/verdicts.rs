//! Comparison of each figure with its goal, and the verdicts.

use serde_json::json;

use super::contenders::ItemOrder;
use super::expiry::ExpiryFigures;
use super::keys::Keys;
use super::operations::{Bounds, LIMIT, OperationCost, Times, phase};
use super::pressure::{RESIDENT, SimulatedQueue};
use super::ram::SizeSamples;
use super::space::{HANDLED_BYTES, Space};
use crate::experiment::{Report, Table, Verdict};
use crate::experiments::bheap_sim::article::ITEMS;
use crate::paired::spread::{self, Ratio, median};
use crate::report::grouped;
use crate::report::plot::{Axis, Plot, Reference, Series, Stroke};

/// Claim to which all goals belong.
const CLAIM: &str = "C8";
/// Goals for transfers per operation, at nine pages and at 64.
const TRANSFERS: [(usize, f64); 2] = [(9, 0.015), (64, 0.004)];
/// Memory sizes in pages at which the queue must never transfer more than the B-heap.
const NEVER_ABOVE: std::ops::RangeInclusive<usize> = 8..=1800;
/// Goals by number of items: maximum ratio of the page queue's time to the time of the fastest other queue.
const SHARES: [(usize, f64); 3] = [(1_000, 1.1), (1_000_000, 0.85), (16_000_000, 0.65)];
/// Number of items at which the bound on a single operation is judged.
const BOUNDED_AT: usize = 16_000_000;
/// Goals for bytes in use per byte of live items: without handles and removals, and with.
const SPACE: (f64, f64) = (1.15, 1.5);

/// Judges a figure: within the goal the claim holds; beyond it, but still below `compared`, it holds with
/// another figure.
fn at_most(found: f64, goal: f64, compared: f64) -> Verdict {
    if found <= goal {
        Verdict::Holds
    } else if found < compared {
        Verdict::HoldsWithAnotherFigure
    } else {
        Verdict::DoesNotHoldHere
    }
}

/// Judges a share with an interval: all of the interval must be on one side of the goal.
fn share_at_most(share: &Ratio, goal: f64) -> Verdict {
    match spread::Verdict::at_most(goal, share) {
        spread::Verdict::Met => Verdict::Holds,
        spread::Verdict::NotMet if share.high < 1.0 => Verdict::HoldsWithAnotherFigure,
        spread::Verdict::NotMet if share.low >= 1.0 || goal >= 1.0 => Verdict::DoesNotHoldHere,
        _ => Verdict::TooNoisyToSay,
    }
}

/// Adds the table, the figure and the verdicts for the keys of the B-heap article: binary heap, B-heap, and
/// the page queue as constructed for nine pages and for 64.
pub(super) fn pressure(report: &mut Report, all: &[&SimulatedQueue; 4]) {
    let [binary, paged, nine, many] = all;
    let items = paged.items;
    let mut table = Table::new(
        format!("Transfers an operation, first touches charged: {} items of 8 bytes", grouped(items as u64)),
        &[
            ("pages resident", ""),
            ("binary heap", ""),
            ("B-heap", ""),
            ("ours for 9", ""),
            ("ours for 64", ""),
            ("B-heap ÷ ours", ""),
        ],
    );
    let mut data = Vec::new();
    for resident in RESIDENT {
        let found = all.map(|simulated| simulated.an_operation(resident));
        let mut cells = vec![grouped(resident as u64)];
        cells.extend(found.map(|transfers| format!("{transfers:.5}")));
        cells.push(format!("{:.2}", found[1] / found[2].min(found[3])));
        table.row(cells);
        data.push(json!({
            "resident": resident, "binary": found[0], "b_heap": found[1], "for_9": found[2], "for_64": found[3],
        }));
    }
    report.tables.push(table);
    report.data["sizes"] = json!({ "items": items, "first_touch": "charged", "sizes": data });
    for ((resident, goal), ours) in TRANSFERS.into_iter().zip([nine, many]) {
        let (found, heap) = (ours.an_operation(resident), paged.an_operation(resident));
        let verdict = if items == ITEMS { at_most(found, goal, heap) } else { Verdict::CannotBeTestedHere };
        report.judge(
            CLAIM,
            format!("goal: at most {goal} transfers an operation at {resident} pages with 1,000,000 items"),
            format!(
                "{found:.5} with {} items: the B-heap has {:.0} times as many, the binary heap {:.0} times",
                grouped(items as u64),
                heap / found,
                binary.an_operation(resident) / found
            ),
            verdict,
        );
    }
    for ours in [nine, many] {
        never_above(report, ours, paged);
    }
    report.note(format!(
        "Simulated: perfect LRU without hints, an operation is one insert or one remove. The page queue takes {} and {} \
         pages in all (made for 9 and for 64), its working memory counted; the B-heap {}.",
        grouped(nine.memory.pages() as u64),
        grouped(many.memory.pages() as u64),
        grouped(paged.memory.pages() as u64)
    ));
    draw(report, all);
}

fn never_above(report: &mut Report, ours: &SimulatedQueue, paged: &SimulatedQueue) {
    // For other numbers of items the range covers the same fraction of all pages.
    let last = NEVER_ABOVE.end() * paged.items / ITEMS;
    let sizes = *NEVER_ABOVE.start()..=last.max(*NEVER_ABOVE.start());
    let above: Vec<usize> = ours.above(paged, sizes.clone()).collect();
    let beyond = ours.above(paged, last + 1..=ours.memory.pages()).count();
    let more = ours.memory.pages().saturating_sub(paged.memory.pages());
    let said = match (above.first(), above.last()) {
        (Some(first), Some(last)) => {
            format!("above it at {} sizes, from {first} to {last} pages", above.len())
        }
        _ => format!("above it at none of these {} sizes", sizes.clone().count()),
    };
    let larger = format!(
        "; of the larger ones it is above at {beyond}, and it needs {more} pages more than the B-heap until nothing is transferred"
    );
    report.judge(
        CLAIM,
        format!(
            "goal: the {} never transfers more than the B-heap from {} to {} pages",
            ours.which.name(),
            sizes.start(),
            sizes.end()
        ),
        said + &larger,
        match above.len() {
            0 => Verdict::Holds,
            some if some * 2 < sizes.count() => Verdict::HoldsWithAnotherFigure,
            _ => Verdict::DoesNotHoldHere,
        },
    );
}

fn draw(report: &mut Report, all: &[&SimulatedQueue; 4]) {
    let pages = all.iter().map(|simulated| simulated.memory.pages()).max().unwrap_or(1);
    let mut sizes: Vec<usize> = (0..=160)
        .map(|step| (8.0 * (pages as f64 / 8.0).powf(f64::from(step) / 160.0)).round() as usize)
        .collect();
    sizes.dedup();
    let strokes = [Stroke::Two, Stroke::Three, Stroke::One, Stroke::Four];
    let series = all.iter().zip(strokes).map(|(simulated, stroke)| {
        let points = sizes.iter().map(|&resident| (resident as f64, simulated.an_operation(resident)));
        Series::new(&simulated.which.name(), stroke, points.collect())
    });
    let (paged, ours) = (all[1].an_operation(9), all[2].an_operation(9));
    let title =
        format!("With nine pages the page queue moves {:.0} times fewer pages than the B-heap", paged / ours);
    let goal = |(resident, goal): (usize, f64)| Reference::Point {
        x: resident as f64,
        y: goal,
        right: false,
        label: format!("goal: {goal} at {resident}"),
    };
    let plot = Plot {
        x: Axis::log("pages resident", 8.0, 10_000_f64.min(pages as f64 * 1.2)),
        left: Axis::log("transfers an operation", 0.0001, 100.0),
        right: None,
        series: series.collect(),
        references: TRANSFERS.map(goal).into(),
    };
    report.figure(
        &title,
        plot.draw(&title),
        "Transfers an operation against memory, both on log scales; first touches charged, so that no curve ends at \
         zero. The page queue as it is made for 9 pages and for 64. The rings are this project's goals.",
    );
}

/// Adds the table and the verdict for other key sequences; each row has the B-heap, and the page queue for
/// nine pages and for 64.
pub(super) fn other_keys(report: &mut Report, rows: &[(Keys, [SimulatedQueue; 3])]) {
    let items = rows.first().map_or(0, |row| row.1[0].items);
    let mut table = Table::new(
        format!("Other keys, transfers an operation, first touches charged: {} items", grouped(items as u64)),
        &[
            ("keys", ""),
            ("B-heap at 9", ""),
            ("ours at 9", ""),
            ("B-heap at 64", ""),
            ("ours at 64", ""),
            ("above at", "sizes"),
        ],
    );
    let mut losses = Vec::new();
    let mut data = Vec::new();
    for (keys, [heap, nine, many]) in rows {
        let last = NEVER_ABOVE.end() * items / ITEMS;
        let above = nine.above(heap, 8..=last.max(8)).count();
        let cells = [(heap, 9), (nine, 9), (heap, 64), (many, 64)]
            .map(|(simulated, resident)| simulated.an_operation(resident));
        table.row(
            std::iter::once(keys.name())
                .chain(cells.map(|transfers| format!("{transfers:.5}")))
                .chain([grouped(above as u64)]),
        );
        if cells[1] > cells[0] {
            losses.push(format!("{} ({:.4} against {:.4})", keys.name(), cells[1], cells[0]));
        }
        data.push(json!({
            "keys": keys.name(), "b_heap_at_9": cells[0], "for_9_at_9": cells[1],
            "b_heap_at_64": cells[2], "for_64_at_64": cells[3], "above_at_sizes": above,
        }));
    }
    report.tables.push(table);
    report.data["other_keys"] = json!({ "items": items, "keys": data });
    let kinds = rows.len();
    report.judge(
        CLAIM,
        format!("fewer transfers than the B-heap at nine pages over {kinds} other sequences and seeds, too"),
        if losses.is_empty() {
            "with all of them".to_owned()
        } else {
            format!("with {} of them; not with {}", kinds - losses.len(), losses.join(", "))
        },
        match losses.len() {
            0 => Verdict::Holds,
            some if some * 2 < kinds => Verdict::HoldsWithAnotherFigure,
            _ => Verdict::DoesNotHoldHere,
        },
    );
}

/// Adds the table and the verdict at one size in RAM.
pub(super) fn ram(report: &mut Report, measured: &SizeSamples, with_cpp: bool) {
    report.tables.push(measured.table());
    match report.data["ram"].as_array_mut() {
        Some(all) => all.push(measured.data()),
        None => report.data["ram"] = json!([measured.data()]),
    }
    let (Some(share), Some(best)) = (measured.share(), measured.best()) else { return };
    let goal = SHARES.iter().find(|goal| goal.0 == measured.items && measured.compared == ItemOrder::Key);
    let without = if with_cpp { "" } else { " (the C++ library's could not be had)" };
    report.judge(
        CLAIM,
        match goal {
            Some((items, most)) => {
                format!(
                    "goal: at most {most}× the time of the best other heap at {} items",
                    grouped(*items as u64)
                )
            }
            None => format!(
                "no goal ({}; the goals are for 1,000, for 1,000,000 items and for 16,000,000 items, compared by key)",
                measured.compared.words()
            ),
        },
        format!(
            "{:.2}× ({:.2} to {:.2}) of the {}'s time at {} items{without}",
            share.median,
            share.low,
            share.high,
            best.name,
            grouped(measured.items as u64)
        ),
        goal.map_or(Verdict::CannotBeTestedHere, |goal| share_at_most(&share, goal.1)),
    );
}

/// Adds the table and the verdict of the counted operations: keys, items, fan-out, bounds.
pub(super) fn bounds(report: &mut Report, rows: &[(String, usize, usize, Bounds)]) {
    let mut table = Table::new(
        "The most that one operation compared and moved",
        &[
            ("keys", ""),
            ("items", ""),
            ("parts", ""),
            ("compared", "items"),
            ("moved", "items"),
            ("late", "steps"),
        ],
    );
    for (keys, items, fan_out, bounds) in rows {
        table.row([
            keys.clone(),
            grouped(*items as u64),
            fan_out.to_string(),
            grouped(u64::from(bounds.most.compared)),
            grouped(u64::from(bounds.most.moved)),
            bounds.late.to_string(),
        ]);
    }
    report.tables.push(table);
    let most = rows.iter().map(|row| row.3.most.compared.max(row.3.most.moved)).max().unwrap_or(0);
    let items = rows.iter().map(|row| row.1).max().unwrap_or(0);
    report.judge(
        CLAIM,
        format!("goal: no operation compares or moves more than {LIMIT} items, counted at 16,000,000 items"),
        format!("at most {} in any operation, at {} items", grouped(u64::from(most)), grouped(items as u64)),
        match most <= LIMIT {
            false => Verdict::DoesNotHoldHere,
            true if items >= BOUNDED_AT => Verdict::Holds,
            true => Verdict::CannotBeTestedHere,
        },
    );
}

/// Number of the longest operations that are shown.
const LONGEST: usize = 10;

/// Returns a table of the operations whose minimum time is longest, with their kinds and counts.
pub(super) fn longest(least: &[u32], passes: &[Vec<u32>], work: &[OperationCost], items: usize) -> Table {
    let mut order: Vec<usize> = (0..least.len()).collect();
    let (_, _, _) =
        order.select_nth_unstable_by_key(LONGEST.min(least.len() - 1), |&at| std::cmp::Reverse(least[at]));
    order.truncate(LONGEST);
    order.sort_unstable_by_key(|&at| std::cmp::Reverse(least[at]));
    let mut table = Table::new(
        "The operations that took longest, by the least of the passes",
        &[
            ("operation", ""),
            ("number", ""),
            ("least", "µs"),
            ("passes", "µs"),
            ("compared", "items"),
            ("moved", "items"),
        ],
    );
    for at in order {
        let passed: Vec<String> =
            passes.iter().map(|pass| format!("{:.0}", f64::from(pass[at]) / 1e3)).collect();
        table.row([
            phase(at, items).to_owned(),
            grouped(at as u64),
            format!("{:.1}", f64::from(least[at]) / 1e3),
            passed.join(" · "),
            grouped(u64::from(work[at].compared)),
            grouped(u64::from(work[at].moved)),
        ]);
    }
    table
}

/// Adds the distribution of the operations' times: in the first pass, as the minimum over the passes, and for
/// the 8-ary heap.
pub(super) fn times(
    report: &mut Report,
    items: usize,
    first: &Times,
    least: &Times,
    other: &Times,
    longest: Table,
) {
    const LONG_NS: u32 = 50_000;
    let mut table = Table::new(
        format!("Time of one operation, {} of them", grouped(4 * items as u64)),
        &[
            ("queue", ""),
            ("median", "µs"),
            ("99%", "µs"),
            ("99.9%", "µs"),
            ("99.99%", "µs"),
            ("longest", "µs"),
            ("over 50 µs", ""),
        ],
    );
    let rows = [
        ("page queue, one pass", first),
        ("page queue, least of three passes", least),
        ("8-ary heap, one pass", other),
    ];
    for (name, times) in rows {
        let us = |share| format!("{:.2}", f64::from(times.quantile_ns(share)) / 1e3);
        table.row([
            name.to_owned(),
            us(0.5),
            us(0.99),
            us(0.999),
            us(0.9999),
            us(1.0),
            grouped(times.longer_than(LONG_NS) as u64),
        ]);
    }
    report.tables.push(table);
    report.tables.push(longest);
    let quantiles = |times: &Times| {
        [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 1.0].map(|share| (share, times.quantile_ns(share)))
    };
    report.data["operations"] = json!({
        "items": items,
        "first_pass_ns": quantiles(first), "least_ns": quantiles(least), "eight_ary_ns": quantiles(other),
        "over_50_us": { "first_pass": first.longer_than(LONG_NS), "least": least.longer_than(LONG_NS) },
    });
    let (longest_us, over) = (f64::from(least.quantile_ns(1.0)) / 1e3, least.longer_than(LONG_NS));
    report.judge(
        CLAIM,
        "so that no operation takes longer than about 50 µs".to_owned(),
        format!(
            "{over} of {} operations took longer in each of three passes, the longest {longest_us:.0} µs; in a single \
             pass {} did, the longest {:.0} µs, because something else ran meanwhile",
            grouped(4 * items as u64),
            grouped(first.longer_than(LONG_NS) as u64),
            f64::from(first.quantile_ns(1.0)) / 1e3
        ),
        match over {
            0 if items >= BOUNDED_AT => Verdict::Holds,
            0 => Verdict::CannotBeTestedHere,
            _ => Verdict::HoldsWithAnotherFigure,
        },
    );
    let title = "How many operations take how long: most an item's time, few that of a step".to_owned();
    let plot = Plot {
        x: Axis::log("time [µs]", 0.01, 1000.0),
        left: Axis::log("share of operations that took longer", 1e-8, 1.0),
        right: None,
        series: vec![
            Series::new("least of three passes", Stroke::One, least.curve()),
            Series::new("one pass", Stroke::Two, first.curve()),
            Series::new("8-ary heap, one pass", Stroke::Three, other.curve()),
        ],
        references: vec![Reference::Place { at: 50.0, label: "goal: none beyond 50 µs".into() }],
    };
    report.figure(
        &title,
        plot.draw(&title),
        "Both scales are logarithmic. The shoulder at some microseconds is the work that is done in steps of at most 512 \
         items: passing items on to the next level, sorting what leaves next. What is right of it in one pass and not in \
         the least of three is the machine's: interrupts, and whoever else runs.",
    );
}

/// Adds the table and the verdicts of the bytes in use.
pub(super) fn space(report: &mut Report, plain: Space, (handled, garbage): (Space, f64)) {
    let mut table = Table::new(
        format!("Bytes in use for each byte of a live item: {} items", grouped(plain.items as u64)),
        &[
            ("queue", ""),
            ("growing", "×"),
            ("held", "×"),
            ("shrinking to a half", "×"),
            ("marked entries", "%"),
        ],
    );
    for (name, space, marked) in [
        ("keys of 16 bytes, no removals".to_owned(), plain, 0.0),
        (format!("keys of 8 with handles: {HANDLED_BYTES} bytes; each replaced twice"), handled, garbage),
    ] {
        table.row([
            name,
            format!("{:.3}", space.growing),
            format!("{:.3}", space.held),
            format!("{:.3}", space.to_a_half),
            format!("{:.2}", marked * 100.0),
        ]);
    }
    report.tables.push(table);
    report.data["space"] = json!({
        "items": plain.items,
        "plain": [plain.growing, plain.held, plain.to_a_half],
        "with_handles": [handled.growing, handled.held, handled.to_a_half],
        "marked_share": garbage,
    });
    for (what, space, goal) in [
        ("without handles and removals", plain, SPACE.0),
        ("with handles, removals and updates", handled, SPACE.1),
    ] {
        let most = space.growing.max(space.held);
        report.judge(
            CLAIM,
            format!("goal: at most {goal}× the bytes of the live items, {what}"),
            format!("{most:.3}× while it grows and is held"),
            at_most(most, goal, 2.0),
        );
    }
    report.note(
        "Bytes in use are the most of a phase. A queue that shrinks keeps its blocks for reuse, so that half as many items \
         take twice as many bytes each; “marked entries” have been removed by their handle and wait for the sweep.",
    );
}

/// Adds the table and the verdict of the store's expiry. `found` has the rounds of each queue by number of
/// objects; the queues are in the order of [`super::expiry::NAMES`].
pub(super) fn expiry(report: &mut Report, found: &[(usize, Vec<Vec<ExpiryFigures>>)]) {
    let mut table = Table::new(
        "The store's expiry: words of time and hash, four ttls, CPU time an entry (medians)",
        &[
            ("objects", ""),
            ("queue", ""),
            ("push and pop", "ns"),
            ("of the store's", "×"),
            ("sift", "ns"),
            ("one operation in 10,000", "µs"),
        ],
    );
    let mut said = Vec::new();
    let mut better = 0;
    let mut data = Vec::new();
    for (objects, queues) in found {
        let all = |at: usize, value: fn(&ExpiryFigures) -> f64| -> Vec<Option<f64>> {
            queues[at].iter().map(|needed| Some(value(needed))).collect()
        };
        let middle = |at: usize, value: fn(&ExpiryFigures) -> f64| {
            median(&queues[at].iter().map(value).collect::<Vec<f64>>()).unwrap_or(f64::NAN)
        };
        for (at, name) in super::expiry::NAMES.iter().enumerate() {
            let ratio = Ratio::paired(&all(at, |n| n.entry_ns), &all(0, |n| n.entry_ns));
            table.row([
                grouped(*objects as u64),
                (*name).to_owned(),
                format!("{:.1}", middle(at, |n| n.entry_ns)),
                ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{:.2}", ratio.median)),
                format!("{:.1}", middle(at, |n| n.sift_ns)),
                format!("{:.1}", middle(at, |n| n.rare_ns) / 1e3),
            ]);
            data.push(json!({
                "objects": objects, "queue": name, "entry_ns": middle(at, |n| n.entry_ns),
                "sift_ns": middle(at, |n| n.sift_ns), "rare_ns": middle(at, |n| n.rare_ns),
                "of_the_stores": ratio,
            }));
        }
        let last = super::expiry::NAMES.len() - 1;
        if let Some(ratio) = Ratio::paired(&all(last, |n| n.entry_ns), &all(0, |n| n.entry_ns)) {
            better += usize::from(ratio.high < 1.0);
            said.push(format!("{:.2}× at {}", ratio.median, grouped(*objects as u64)));
        }
    }
    report.tables.push(table);
    report.data["expiry"] = json!(data);
    report.judge(
        CLAIM,
        "the page queue is the best for the store's expiry".to_owned(),
        format!("of the time of the heap that the store uses: {}", said.join(", ")),
        match better {
            0 => Verdict::DoesNotHoldHere,
            some if some == found.len() => Verdict::Holds,
            _ => Verdict::HoldsWithAnotherFigure,
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_missed_or_missed_altogether() {
        assert_eq!(at_most(0.015, 0.015, 1.14), Verdict::Holds);
        assert_eq!(at_most(0.0155, 0.015, 1.14), Verdict::HoldsWithAnotherFigure);
        assert_eq!(at_most(1.2, 0.015, 1.14), Verdict::DoesNotHoldHere);
    }

    #[test]
    fn a_verdict_needs_the_whole_interval() {
        let share = |low, median, high| Ratio { median, low, high, rounds: 5 };
        assert_eq!(share_at_most(&share(0.7, 0.8, 0.84), 0.85), Verdict::Holds);
        assert_eq!(share_at_most(&share(0.8, 0.84, 0.9), 0.85), Verdict::TooNoisyToSay);
        assert_eq!(share_at_most(&share(0.86, 0.9, 0.95), 0.85), Verdict::HoldsWithAnotherFigure);
        assert_eq!(share_at_most(&share(0.9, 1.0, 1.1), 0.85), Verdict::TooNoisyToSay);
        assert_eq!(share_at_most(&share(1.0, 1.1, 1.2), 0.85), Verdict::DoesNotHoldHere);
        assert_eq!(share_at_most(&share(1.15, 1.2, 1.3), 1.1), Verdict::DoesNotHoldHere);
        assert_eq!(share_at_most(&Ratio { rounds: 2, ..share(0.1, 0.1, 0.1) }, 0.85), Verdict::TooNoisyToSay);
    }

    #[test]
    fn the_longest_operations_come_with_their_work() {
        let work: Vec<OperationCost> =
            (0..40).map(|at| OperationCost { compared: at, moved: 2 * at }).collect();
        let pass: Vec<u32> = (0..40).map(|at| 1000 * (40 - at)).collect();
        let table = longest(&pass, std::slice::from_ref(&pass), &work, 10);
        assert_eq!(table.rows.len(), LONGEST);
        assert_eq!(table.rows[0], ["insert", "0", "40.0", "40", "0", "0"]);
        assert_eq!(table.rows[9][4..], ["9", "18"]);
    }

    #[test]
    fn one_operation_too_long_is_said() {
        let judged = |compared, items| {
            let mut report = Report::default();
            let bounds = Bounds { most: OperationCost { compared, moved: 7 }, late: 0 };
            super::bounds(&mut report, &[("sorted".into(), items, 4, bounds)]);
            report.verdicts[0].verdict
        };
        assert_eq!(judged(4097, 1000), Verdict::DoesNotHoldHere);
        assert_eq!(judged(4096, 1000), Verdict::CannotBeTestedHere);
        assert_eq!(judged(4096, BOUNDED_AT), Verdict::Holds);
    }
}
