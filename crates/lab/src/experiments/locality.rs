//! `locality`: the cost of visiting every element, by data structure (claim C15).
//!
//! ```text
//!   array            ▣▣▣▣▣▣▣▣        unrolled list   ▣▣▣▣─▶▣▣▣▣
//!   list in order    ▣▶▣▶▣▶▣▶▣       index list      [▣ 3][▣ 0][▣ 2]… in one array, linked by position
//!   list shuffled    ▣  ▣◀▣  ▣▶▣ …
//! ```
//! A visit sums all elements, so that each is read. A structure is built, visited until the round is full,
//! and dropped; the figure is the minimum of the rounds, because disturbances can only make a walk slower.
//! Lists consist of boxes, allocated one after another.

use std::{hint::black_box, time::Instant};

use serde::Serialize;

use super::memory_ladder::caches::{self, Cache, HugePages};
use crate::{
    experiment::{Experiment, Options, Refusal, Report, Table, Verdict},
    paired::spread::Draws,
    report::{
        grouped,
        plot::{Axis, Plot, Reference, Series, Stroke},
    },
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "locality",
    claims: &["C15"],
    title: "what it costs to visit every element, by where they lie",
    statement: "A linked list is the worst to traverse: its nodes are not together in memory",
    source: "The difference between Efficiency and Performance, 28 July 2015",
    run,
};

/// Number of elements in a node of the unrolled list: eight cache lines.
const UNROLLED: usize = 64;

struct Node {
    value: u64,
    next: Option<Box<Node>>,
}

struct Chunk {
    values: Vec<u64>,
    next: Option<Box<Chunk>>,
}

#[derive(Clone, Copy)]
struct Slot {
    value: u64,
    next: u32,
}

/// Drops the list node by node: the compiler's own drop would recurse as deep as the list is long.
fn drop_list(mut head: Option<Box<Node>>) {
    while let Some(mut node) = head {
        head = node.next.take();
    }
}

/// A data structure, and the function that measures the time of a visit per element.
struct Layout {
    name: &'static str,
    walk: fn(&Setting) -> f64,
}

struct Setting {
    items: usize,
    rounds: usize,
    /// Minimum duration of a round, in nanoseconds.
    round_ns: u64,
}

const LAYOUTS: [Layout; 6] = [
    Layout { name: "array", walk: array },
    Layout { name: "unrolled list", walk: unrolled },
    Layout { name: "index list in order", walk: |setting| index_list(setting, false) },
    Layout { name: "list in order", walk: |setting| list(setting, false) },
    Layout { name: "index list shuffled", walk: |setting| index_list(setting, true) },
    Layout { name: "list shuffled", walk: |setting| list(setting, true) },
];
const ARRAY: usize = 0;
const IN_ORDER: usize = 3;
const SHUFFLED: usize = 5;

/// Returns the minimum over several rounds of the nanoseconds per element of `visit`, which returns the sum
/// of all elements.
fn least(setting: &Setting, sum: u64, mut visit: impl FnMut() -> u64) -> f64 {
    let mut least = f64::INFINITY;
    assert_eq!(black_box(visit()), sum, "each element once");
    for _ in 0..setting.rounds {
        let start = Instant::now();
        let mut visits = 0;
        while visits == 0 || (start.elapsed().as_nanos() as u64) < setting.round_ns {
            black_box(visit());
            visits += 1;
        }
        least = least.min(start.elapsed().as_nanos() as f64 / (f64::from(visits) * setting.items as f64));
    }
    least
}

fn sum_of(items: usize) -> u64 {
    (0..items as u64).sum()
}

fn array(setting: &Setting) -> f64 {
    let values: Vec<u64> = (0..setting.items as u64).collect();
    least(setting, sum_of(setting.items), || black_box(&values).iter().sum())
}

fn order(items: usize, shuffled: bool) -> Vec<u32> {
    let mut order: Vec<u32> = (0..items as u32).collect();
    if shuffled {
        let mut draws = Draws::new(15);
        for at in (1..items).rev() {
            order.swap(at, draws.below(at + 1));
        }
    }
    order
}

fn list(setting: &Setting, shuffled: bool) -> f64 {
    // The nodes are allocated one after another, then linked in the order of visits.
    let mut nodes: Vec<Option<Box<Node>>> =
        (0..setting.items as u64).map(|value| Some(Box::new(Node { value, next: None }))).collect();
    let mut head: Option<Box<Node>> = None;
    for at in order(setting.items, shuffled).into_iter().rev() {
        if let Some(mut node) = nodes[at as usize].take() {
            node.next = head;
            head = Some(node);
        }
    }
    drop(nodes);
    let ns = least(setting, sum_of(setting.items), || {
        let (mut sum, mut at) = (0, black_box(&head));
        while let Some(node) = at {
            sum += node.value;
            at = &node.next;
        }
        sum
    });
    drop_list(head);
    ns
}

fn unrolled(setting: &Setting) -> f64 {
    let mut head: Option<Box<Chunk>> = None;
    let values: Vec<u64> = (0..setting.items as u64).collect();
    for chunk in values.chunks(UNROLLED).rev() {
        head = Some(Box::new(Chunk { values: chunk.to_vec(), next: head }));
    }
    let ns = least(setting, sum_of(setting.items), || {
        let (mut sum, mut at) = (0, black_box(&head));
        while let Some(chunk) = at {
            sum += chunk.values.iter().sum::<u64>();
            at = &chunk.next;
        }
        sum
    });
    while let Some(mut chunk) = head {
        head = chunk.next.take();
    }
    ns
}

fn index_list(setting: &Setting, shuffled: bool) -> f64 {
    const END: u32 = u32::MAX;
    let order = order(setting.items, shuffled);
    let mut slots: Vec<Slot> = (0..setting.items as u64).map(|value| Slot { value, next: END }).collect();
    for pair in order.windows(2) {
        slots[pair[0] as usize].next = pair[1];
    }
    let first = order[0];
    drop(order);
    least(setting, sum_of(setting.items), || {
        let (mut sum, mut at) = (0, black_box(first));
        while at != END {
            let slot = slots[at as usize];
            sum += slot.value;
            at = slot.next;
        }
        sum
    })
}

/// Nanoseconds per element at one size, by data structure.
#[derive(Debug, Clone, Serialize)]
struct Size {
    items: usize,
    ns: [f64; LAYOUTS.len()],
}

struct Sizes {
    items: Vec<usize>,
    rounds: usize,
    round_ns: u64,
}

impl Sizes {
    fn of(quick: bool) -> Self {
        if quick {
            Self {
                items: vec![1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 21],
                rounds: 3,
                round_ns: 10_000_000,
            }
        } else {
            let items = (10..=24).map(|power| 1 << power).collect();
            Self { items, rounds: 9, round_ns: 30_000_000 }
        }
    }
}

fn run(options: &Options) -> Result<Report, Refusal> {
    let sizes = measured(&Sizes::of(options.quick), &|what| options.say(what));
    Ok(report(&sizes, &caches::here(), HugePages::here()))
}

fn measured(sizes: &Sizes, say: &dyn Fn(&str)) -> Vec<Size> {
    sizes
        .items
        .iter()
        .map(|&items| {
            say(&format!("{} elements", grouped(items as u64)));
            let setting = Setting { items, rounds: sizes.rounds, round_ns: sizes.round_ns };
            Size { items, ns: std::array::from_fn(|at| (LAYOUTS[at].walk)(&setting)) }
        })
        .collect()
}

fn report(sizes: &[Size], caches: &[Cache], huge_pages: HugePages) -> Report {
    let mut report = Report {
        data: serde_json::json!({ "sizes": sizes, "caches": caches, "huge_pages": huge_pages }),
        ..Report::default()
    };
    let mut columns = vec![("elements", "")];
    columns.extend(LAYOUTS.iter().map(|layout| (layout.name, "ns")));
    let mut table = Table::new("Nanoseconds an element", &columns);
    for size in sizes {
        let mut row = vec![grouped(size.items as u64)];
        row.extend(size.ns.iter().map(|ns| format!("{ns:.2}")));
        table.row(row);
    }
    report.tables.push(table);
    figure(sizes, caches, &mut report);
    judge(sizes, &mut report);
    let pages = match huge_pages {
        HugePages::Always => {
            "comes in pages of 2 MiB where they fit, so that address translation adds little"
        }
        HugePages::Asked => {
            "comes in pages of 4 KiB unless a program asks: each far jump also walks the page tables"
        }
        HugePages::Never => "comes in pages of 4 KiB: each far jump also walks the page tables",
    };
    report.note(format!("Memory of the allocator {pages}; `memory-ladder` shows both."));
    report
}

fn figure(sizes: &[Size], caches: &[Cache], report: &mut Report) {
    let strokes = [Stroke::Three, Stroke::Four, Stroke::Two, Stroke::One];
    let shown = [ARRAY, 1, IN_ORDER, SHUFFLED];
    let series = shown
        .iter()
        .zip(strokes)
        .map(|(&layout, stroke)| {
            let points = sizes.iter().map(|size| (size.items as f64, size.ns[layout])).collect();
            Series::new(LAYOUTS[layout].name, stroke, points).with_discs()
        })
        .collect();
    let ends = (sizes.first().map_or(1.0, |s| s.items as f64), sizes.last().map_or(10.0, |s| s.items as f64));
    // A box of the list takes 16 bytes of content and the allocator's overhead, as with glibc.
    let references = caches
        .iter()
        .map(|cache| (cache.bytes as f64 / 32.0, format!("L{} is full", cache.level)))
        .filter(|(at, _)| (ends.0..ends.1).contains(at))
        .map(|(at, label)| Reference::Place { at, label })
        .collect();
    let highest = sizes.iter().flat_map(|size| size.ns).fold(10.0, f64::max);
    let plot = Plot {
        x: Axis::log("elements", ends.0, ends.1.max(ends.0 * 2.0)),
        left: Axis::log("time an element [ns]", 0.1, highest * 1.5),
        right: None,
        series,
        references,
    };
    let title = sizes.last().map_or_else(String::new, |last| {
        format!(
            "Where the nodes lie costs {:.0} times as much; that it is a list, {:.1} times",
            last.ns[SHUFFLED] / last.ns[IN_ORDER],
            last.ns[IN_ORDER] / last.ns[ARRAY]
        )
    });
    let caption = "Both lists have the same code; only the order of their nodes in memory differs. Marks: where the \
                   nodes of a list fill a cache.";
    report.figure(title.clone(), plot.draw(&title), caption);
}

/// Minimum factor between the shuffled list and the array, at the largest size, to count as "the worst".
const WORST: f64 = 5.0;

fn judge(sizes: &[Size], report: &mut Report) {
    let Some(last) = sizes.last() else { return };
    let worst = (0..LAYOUTS.len()).all(|at| last.ns[at] <= last.ns[SHUFFLED] * 1.1);
    let times = last.ns[SHUFFLED] / last.ns[ARRAY];
    let ours = format!(
        "at {} elements: array {:.2} ns, list in order {:.2}, list shuffled {:.1} ({times:.0}×)",
        grouped(last.items as u64),
        last.ns[ARRAY],
        last.ns[IN_ORDER],
        last.ns[SHUFFLED]
    );
    let verdict = match (worst && times > WORST, last.ns[IN_ORDER] > 1.2 * last.ns[ARRAY]) {
        (true, _) => Verdict::Holds,
        (false, true) => Verdict::HoldsWithAnotherFigure,
        (false, false) => Verdict::DoesNotHoldHere,
    };
    report.judge("C15", "a linked list is the worst to traverse", ours, verdict);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(array: f64, in_order: f64, shuffled: f64) -> Verdict {
        let ns = [array, array, in_order, in_order, shuffled, shuffled];
        report(&[Size { items: 1_000, ns }], &[], HugePages::Never).verdicts[0].verdict
    }

    #[test]
    fn the_verdict_follows_the_planted_effects() {
        assert_eq!(verdict(1.0, 3.0, 200.0), Verdict::Holds);
        assert_eq!(verdict(1.0, 3.0, 3.1), Verdict::HoldsWithAnotherFigure);
        assert_eq!(verdict(1.0, 1.0, 1.0), Verdict::DoesNotHoldHere);
    }

    #[test]
    fn every_layout_visits_each_element_once() {
        // Each walk asserts the sum.
        let sizes = Sizes { items: vec![1, 63, 64, 65, 1_000], rounds: 1, round_ns: 1 };
        let sizes = measured(&sizes, &|_| ());
        assert!(sizes.iter().all(|size| size.ns.iter().all(|ns| ns.is_finite() && *ns > 0.0)));
        assert!(report(&sizes, &caches::here(), HugePages::here()).figures[0].svg.contains("list shuffled"));
    }

    #[test]
    fn a_long_list_is_dropped_without_going_deep() {
        let setting = Setting { items: 300_000, rounds: 1, round_ns: 1 };
        assert!(list(&setting, true) > 0.0);
    }
}
