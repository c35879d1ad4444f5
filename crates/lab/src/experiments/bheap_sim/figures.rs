//! Figures 1 to 4 of the article “You're Doing It Wrong”, drawn from our totals on the article's axes.

use super::article::{CPU_S, ON_A_SLOW_DISK, TRANSFER_S};
use super::lru::Transfers;
use super::run::SimulatedHeaps;
use crate::costs::FirstTouch;
use crate::report::Report;
use crate::report::plot::{Axis, Plot, Reference, Series, Stroke};

const KIB: f64 = 1024.0;

/// Returns the run time in seconds: the CPU time plus the time of all transfers.
pub(super) fn runtime_s(cpu_s: f64, transfers: Transfers, transfer_s: f64, first: FirstTouch) -> f64 {
    let count = match first {
        FirstTouch::Free => transfers.free(),
        FirstTouch::Charged => transfers.charged(),
    };
    cpu_s + count as f64 * transfer_s
}

/// Returns the run times of both heaps at one memory size, and their ratio.
pub(super) fn runtimes(
    simulated: &SimulatedHeaps,
    resident: usize,
    transfer_s: f64,
    first: FirstTouch,
) -> (f64, f64, f64) {
    let (binary, paged) = simulated.at(resident);
    let binary_s = runtime_s(CPU_S.0, binary, transfer_s, first);
    let paged_s = runtime_s(CPU_S.1, paged, transfer_s, first);
    (binary_s, paged_s, binary_s / paged_s)
}

fn bytes(simulated: &SimulatedHeaps, pages: usize) -> f64 {
    (pages * simulated.shape.page_bytes) as f64
}

/// Returns the three curves of a figure at these memory sizes.
fn curves(
    simulated: &SimulatedHeaps,
    residents: &[usize],
    transfer_s: f64,
    first: FirstTouch,
    place: &dyn Fn(usize) -> f64,
) -> [Series; 3] {
    let (mut binary, mut paged, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    for &resident in residents {
        let x = place(resident);
        let (binary_s, paged_s, faster) = runtimes(simulated, resident, transfer_s, first);
        binary.push((x, binary_s));
        paged.push((x, paged_s));
        ratio.push((x, faster));
    }
    [
        Series::new("binary heap", Stroke::Two, binary),
        Series::new("B-heap", Stroke::One, paged),
        Series::new("speedup", Stroke::Three, ratio).on_the_right(),
    ]
}

/// Adds figures 1 to 4 to the report.
pub(super) fn add(report: &mut Report, simulated: &SimulatedHeaps) {
    whole_range(report, simulated);
    few_pages(report, simulated);
    last_kib(report, simulated);
    slow_disk(report, simulated);
}

fn whole_range(report: &mut Report, simulated: &SimulatedHeaps) {
    let pages = simulated.pages;
    let missing_mib = |resident: usize| -(bytes(simulated, pages) - bytes(simulated, resident)) / KIB / KIB;
    // The curves include every size where they bend, and every eighth size in between.
    let residents: Vec<usize> =
        (8..=pages).filter(|&n| n <= 64 || n + 16 >= pages || n.is_multiple_of(8)).collect();
    let (_, _, at_nine) = runtimes(simulated, 9, TRANSFER_S.0, FirstTouch::Free);
    let title = format!("Figure 1: with next to no memory the B-heap is {at_nine:.1}× as fast");
    let plot = Plot {
        x: Axis::linear("memory missing [MiB]", -8.0, 0.0, 1.0),
        left: Axis::log("runtime [s]", 1.0, 100_000.0),
        right: Some(Axis::linear("speedup", 0.0, 12.0, 2.0)),
        series: curves(simulated, &residents, TRANSFER_S.0, FirstTouch::Free, &missing_mib).into(),
        references: vec![Reference::Point {
            x: missing_mib(9),
            y: 10.0,
            right: true,
            label: "article: 10× at 8 to 10 pages".into(),
        }],
    };
    report.figure(
        &title,
        plot.draw(&title),
        "From 8 resident pages at the left to all 1,954 at the right; 1 M items, 512 a page, 1 ms a transfer. On the \
         article's axes.",
    );
}

fn few_pages(report: &mut Report, simulated: &SimulatedHeaps) {
    let kib = |resident: usize| bytes(simulated, resident) / KIB;
    let residents: Vec<usize> = (1..=16).collect();
    let greatest = residents
        .iter()
        .map(|&n| (n, runtimes(simulated, n, TRANSFER_S.0, FirstTouch::Free).2))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let (at, most) = greatest.unwrap_or((9, 1.0));
    let title =
        format!("Figure 2: the gap is widest where {at} pages are resident, {most:.1}×, and narrower below");
    let plot = Plot {
        x: Axis::linear("memory resident [KiB]", 0.0, 64.0, 4.0),
        left: Axis::log("runtime [s]", 1.0, 100_000.0),
        right: Some(Axis::linear("speedup", 0.0, 12.0, 2.0)),
        series: curves(simulated, &residents, TRANSFER_S.0, FirstTouch::Free, &kib)
            .map(Series::with_discs)
            .into(),
        references: vec![
            Reference::Point {
                x: 36.0,
                y: 11.5 * 4000.0,
                right: false,
                label: "article: 11.5 an operation".into(),
            },
            Reference::Point { x: 36.0, y: 1.14 * 4000.0, right: false, label: "article: 1.14".into() },
        ],
    };
    report.figure(
        &title,
        plot.draw(&title),
        "The left end of figure 1, a point for each page. The rings are the article's transfers at nine pages, times \
         4 M operations, times 1 ms.",
    );
}

/// Returns the last 16 memory sizes in pages, and a function that converts a size into the KiB that are
/// missing.
fn close_up(simulated: &SimulatedHeaps) -> (Vec<usize>, impl Fn(usize) -> f64) {
    let whole = bytes(simulated, simulated.pages);
    let page = bytes(simulated, 1);
    let residents = (simulated.pages.saturating_sub(16).max(1)..=simulated.pages).collect();
    let missing = move |resident: usize| -(whole - resident as f64 * page) / KIB;
    (residents, missing)
}

fn last_kib(report: &mut Report, simulated: &SimulatedHeaps) {
    let (residents, missing_kib) = close_up(simulated);
    let at = catches_up(simulated, CPU_S, TRANSFER_S.0)
        .map_or_else(|| "nowhere".to_owned(), |missing| format!("where {missing} pages are missing"));
    let title = format!("Figure 3: the B-heap catches up {at}");
    let plot = Plot {
        x: Axis::linear("memory missing [KiB]", -64.0, 0.0, 8.0),
        left: Axis::linear("runtime [s]", 0.0, 25.0, 5.0),
        right: Some(Axis::linear("speedup", 0.0, 2.0, 0.5)),
        series: curves(simulated, &residents, TRANSFER_S.0, FirstTouch::Free, &missing_kib)
            .map(Series::with_discs)
            .into(),
        references: vec![
            Reference::Level { at: 1.0, right: true, label: "as fast as each other".into() },
            Reference::Place { at: -16.0, label: "article: equal at 4 pages".into() },
        ],
    };
    report.figure(
        &title,
        plot.draw(&title),
        "The last 64 KiB, a point for each page; 1 ms a transfer, and the article's 4.55 s and 5.92 s of CPU.",
    );
}

fn slow_disk(report: &mut Report, simulated: &SimulatedHeaps) {
    let (residents, missing_kib) = close_up(simulated);
    let four = simulated.pages - 4;
    let (_, _, free) = runtimes(simulated, four, TRANSFER_S.1, FirstTouch::Free);
    let (_, _, charged) = runtimes(simulated, four, TRANSFER_S.1, FirstTouch::Charged);
    let title = format!(
        "Figure 4: on a 10 ms disk four missing pages make the B-heap {:.0}% or {:.0}% faster",
        (charged - 1.0) * 100.0,
        (free - 1.0) * 100.0
    );
    let [binary, paged, ratio] =
        curves(simulated, &residents, TRANSFER_S.1, FirstTouch::Free, &missing_kib).map(Series::with_discs);
    let [.., mut charged] = curves(simulated, &residents, TRANSFER_S.1, FirstTouch::Charged, &missing_kib)
        .map(Series::with_discs);
    charged.name = "speedup, first touches charged".into();
    charged.stroke = Stroke::Four;
    let mut references: Vec<Reference> = ON_A_SLOW_DISK
        .iter()
        .map(|&(missing, faster)| Reference::Point {
            x: missing_kib(simulated.pages - missing),
            y: 1.0 + faster,
            right: true,
            label: format!("article: {:.0}%", faster * 100.0),
        })
        .collect();
    references.push(Reference::Level { at: 1.0, right: true, label: String::new() });
    let plot = Plot {
        x: Axis::linear("memory missing [KiB]", -64.0, 0.0, 8.0),
        left: Axis::linear("runtime [s]", 0.0, 180.0, 20.0),
        right: Some(Axis::linear("speedup", 0.0, 2.0, 0.5)),
        series: vec![binary, paged, ratio, charged],
        references,
    };
    report.figure(
        &title,
        plot.draw(&title),
        "The last 64 KiB with 10 ms a transfer. The article's two figures lie between the two ways to count the first \
         touch of a page; which one it took cannot be known, because its source is lost.",
    );
}

/// Returns the smallest number of missing pages at which the B-heap is faster.
pub(super) fn catches_up(simulated: &SimulatedHeaps, cpu_s: (f64, f64), transfer_s: f64) -> Option<usize> {
    (0..simulated.pages).find(|&missing| {
        let (binary, paged) = simulated.missing(missing);
        runtime_s(cpu_s.1, paged, transfer_s, FirstTouch::Free)
            < runtime_s(cpu_s.0, binary, transfer_s, FirstTouch::Free)
    })
}
