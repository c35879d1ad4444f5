//! Verdicts on the claims, based on the measured ladder.

use super::caches::HugePages;
use super::drawing::{count, drawn, time};
use super::races::{CrossoverSize, RaceSize, crossing};
use super::{Ladder, Rung, size};
use crate::experiment::{Report, Table, Verdict};
use crate::report::{PlayKind, grouped};

/// Number of instructions from which a fault "costs millions".
const MILLIONS: f64 = 1e6;

/// Builds the report of a ladder.
#[must_use]
pub(super) fn report(ladder: &Ladder) -> Report {
    let mut report = Report { data: serde_json::json!(ladder), ..Report::default() };
    report.tables.push(rungs(ladder));
    report.tables.push(races(&ladder.heats));
    report.tables.push(sorts(ladder));
    report.tables.push(staircase(ladder));
    report.figure(
        "The machine as a ladder of costs",
        drawn(&ladder.rungs),
        "Figure 7 of the article is the textbook's picture: a processor beside one even memory. This is the same \
         machine with its costs. On the logarithmic scale each gridline is ten times the one before.",
    );
    let names: Vec<&str> = ladder.rungs.iter().map(|rung| rung.name.as_str()).collect();
    let ns: Vec<f64> = ladder.rungs.iter().map(|rung| rung.ns).collect();
    report.play(PlayKind::Ladder, serde_json::json!({ "names": names, "ns": ns }));
    judge_fault(ladder, &mut report);
    judge_races(ladder, &mut report);
    notes(ladder, &mut report);
    report
}

fn rung<'a>(ladder: &'a Ladder, name: &str) -> Option<&'a Rung> {
    ladder.rungs.iter().find(|rung| rung.name.starts_with(name))
}

fn judge_fault(ladder: &Ladder, report: &mut Report) {
    let Some(fault) = rung(ladder, "disk fault (one page)") else { return };
    let article = "millions of instructions a page fault (10 M on an SSD of 2010, 100 M on a disk)";
    let (touched, counted) = fault.counted.unwrap_or_default();
    if (counted.major_faults as usize) < touched / 2 {
        let ours =
            format!("{} of {touched} touches faulted: the file stayed in memory", counted.major_faults);
        report.judge("C9", article, ours, Verdict::CannotBeTestedHere);
        return;
    }
    let against = rung(ladder, "L1")
        .map_or(String::new(), |near| format!(", {} times a load from L1", count(fault.ns / near.ns)));
    let ours = format!(
        "{} a disk fault: {} cycles, {} instructions{against}; with the kernel's readahead {}",
        time(fault.ns),
        count(fault.cycles),
        count(fault.instructions),
        rung(ladder, "disk fault with").map_or_else(String::new, |ahead| {
            format!("{}: {} instructions", time(ahead.ns), count(ahead.instructions))
        }),
    );
    let verdict =
        if fault.instructions >= MILLIONS { Verdict::Holds } else { Verdict::HoldsWithAnotherFigure };
    report.judge("C9", article, ours, verdict);
}

fn judge_races(ladder: &Ladder, report: &mut Report) {
    let article = "an O(n) or O(n²) algorithm that does not fault beats an O(log n) one that does";
    let scan = crossing(&ladder.heats, |heat| Some(heat.scan_ns));
    let quadratic = crossing(&ladder.heats, |heat| heat.quadratic_ns);
    let up_to = |crossing: Option<CrossoverSize>| match crossing {
        Some(CrossoverSize::At(items)) => format!("up to about {} items", count(items as f64)),
        Some(CrossoverSize::Beyond(items)) => {
            format!("at all sizes tried, up to {} items", count(items as f64))
        }
        None => "at no size tried".to_owned(),
    };
    let faulted = ladder.heats.iter().any(|heat| heat.faults_a_search >= 1.0);
    let ours = format!(
        "the O(n) scan wins {}; sorting by insertion, O(n²), and then searching wins {}",
        up_to(scan),
        up_to(quadratic)
    );
    let verdict = match (faulted, scan, quadratic) {
        (false, ..) => Verdict::CannotBeTestedHere,
        (_, Some(_), Some(_)) => Verdict::Holds,
        (_, None, None) => Verdict::DoesNotHoldHere,
        _ => Verdict::HoldsWithAnotherFigure,
    };
    report.judge("C24", article, ours, verdict);
}

fn rungs(ladder: &Ladder) -> Table {
    let mut table = Table::new(
        "What each step costs",
        &[
            ("step", ""),
            ("time", ""),
            ("p99", ""),
            ("cycles", ""),
            ("instructions", ""),
            ("faults counted", ""),
        ],
    );
    for rung in &ladder.rungs {
        let counted = rung.counted.map_or_else(
            || "–".to_owned(),
            |(touched, counted)| {
                let faults = if counted.major_faults > 0 {
                    format!("{} major", counted.major_faults)
                } else {
                    format!("{} minor", counted.minor_faults)
                };
                format!("{faults} of {touched}, {} KiB read", counted.bytes_read >> 10)
            },
        );
        table.row([
            rung.name.clone(),
            time(rung.ns),
            rung.p99_ns.map_or_else(|| "–".into(), time),
            count(rung.cycles),
            count(rung.instructions),
            counted,
        ]);
    }
    table
}

fn races(heats: &[RaceSize]) -> Table {
    let mut table = Table::new(
        "The races: a worse algorithm in memory against a better one that faults",
        &[
            ("items", ""),
            ("O(log n), cold", ""),
            ("faults", "a search"),
            ("O(log n), in memory", ""),
            ("O(n) scan", ""),
            ("O(n²) sort and search", ""),
            ("faster than the cold search", ""),
        ],
    );
    for heat in heats {
        let winners = match (heat.scan_wins(), heat.quadratic_wins()) {
            (true, true) => "O(n), O(n²)",
            (true, false) => "O(n)",
            (false, true) => "O(n²)",
            (false, false) => "none",
        };
        table.row([
            grouped(heat.items as u64),
            time(heat.cold_search_ns),
            format!("{:.1}", heat.faults_a_search),
            time(heat.warm_search_ns),
            time(heat.scan_ns),
            heat.quadratic_ns.map_or_else(|| "–".into(), time),
            winners.to_owned(),
        ]);
    }
    table
}

fn sorts(ladder: &Ladder) -> Table {
    let mut table = Table::new(
        "Quicksort and heapsort in their bad spots",
        &[
            ("input", ""),
            ("items", ""),
            ("quicksort", "ns/item"),
            ("heapsort", "ns/item"),
            ("library's", "ns/item"),
        ],
    );
    for spot in &ladder.spots {
        table.row([
            spot.input.to_owned(),
            grouped(spot.items as u64),
            format!("{:.1}", spot.quicksort_ns),
            format!("{:.1}", spot.heapsort_ns),
            format!("{:.1}", spot.library_ns),
        ]);
    }
    table
}

fn staircase(ladder: &Ladder) -> Table {
    let mut table =
        Table::new("A load by the size of what is walked through", &[("size", ""), ("load", "ns")]);
    for (bytes, ns) in &ladder.staircase {
        table.row([size(*bytes), format!("{ns:.2}")]);
    }
    table
}

fn notes(ladder: &Ladder, report: &mut Report) {
    report.note(format!(
        "The clock is {:.2} GHz as a chain of dependent operations feels it; “instructions” are the {:.2} a \
         nanosecond of independent additions and rotations, which the processor loses while it waits.",
        ladder.clock.cycles_a_ns, ladder.clock.instructions_a_ns
    ));
    report.note(
        "The disk fault includes what lies below the file: on a virtual machine that may be the host's page cache, \
         and no real disk. Where the host answers from memory, the figure is a lower bound.",
    );
    report.note(
        "A cold search begins with nothing of its file in memory; the array that is scanned or sorted is in memory, \
         and the sort starts from the worst order, each time.",
    );
    let far = ladder.rungs.iter().find(|rung| rung.name.starts_with("RAM"));
    let last = ladder.rungs.iter().rfind(|rung| rung.name.starts_with('L'));
    if let (Some(far), Some(last)) = (far, last.filter(|last| !last.name.starts_with("L1")))
        && last.ns > far.ns * 0.7
    {
        report.note(format!(
            "Half of {} is hardly faster than RAM ({} against {}): what the processor calls its own is shared, with \
             neighbours below the hypervisor where there is one. The staircase shows how much of it is to be had.",
            last.name,
            time(last.ns),
            time(far.ns)
        ));
    }
    match ladder.huge_pages {
        HugePages::Always => report.note(
            "Memory comes in huge pages here whether asked for or not: loads through small pages and minor faults of \
             small pages have no rung.",
        ),
        HugePages::Never => report.note("There are no huge pages here: loads include the walk of the page tables."),
        HugePages::Asked => (),
    }
    if ladder.caches.is_empty() {
        report.note("The kernel does not describe its caches here: L1, L2 and L3 have no rungs; the staircase shows them.");
    }
    report.note(
        "Not measured: other cores' caches and other sockets (one thread on one core), huge-page faults, swap.",
    );
}
