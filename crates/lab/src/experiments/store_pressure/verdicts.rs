//! Verdicts on the claim, based on the figures of each serving mode.

use super::{PressureFigures, STORE_TIMES_MEMORY, ServingMode};
use crate::{
    experiment::{Report, Table, Verdict},
    report::grouped,
};

/// Share of the due requests that a server must have answered to count as keeping up.
const ANSWERED_SHARE_MIN: f64 = 0.99;
/// Maximum p99.9 of hits in microseconds for a store that stays fast: a small fraction of the delay that
/// people notice, but more than the disturbance from two busy processors.
const HIT_US_MAX: f64 = 2_000.0;
/// Maximum factor by which the p99 of a loop that waits for the disk itself may be slower and still count as
/// fast.
const HIT_TIMES_MAX: f64 = 2.0;

pub(super) fn report(found: &[PressureFigures]) -> Report {
    let mut report = Report { data: serde_json::json!(found), ..Report::default() };
    report.tables.push(table(found));
    let of = |way| found.iter().find(|found| found.way == way);
    let ours = [ServingMode::Kernel, ServingMode::Direct].into_iter().filter_map(of);
    let maps = [ServingMode::Map, ServingMode::MapRandom].into_iter().filter_map(of);
    if let Some(best) = ours.min_by(|a, b| a.hit_us[1].total_cmp(&b.hit_us[1])) {
        judge_size(best, &mut report);
        if let Some(map) = maps.max_by_key(|found| found.hits) {
            judge_kernel(map, best, &mut report);
        }
    }
    report.note(
        "One loop in a memory cgroup of its own, requests due at fixed times whether or not the last one is answered; \
         microseconds count from then. One in ten requests belongs to a scan that asks for each object once. Hits are \
         what no helper was asked for: with a mapping that is everything, because the loop itself waits for the disk.",
    );
    report.note(
        "Memory is the group's limit without 16 MiB for the process. Both of ours keep what is asked for twice in their own memory: \
         90% of it (direct), or 50%, and the page cache has the rest (kernel). A stall is a millisecond and more \
         between two looks of the loop at its work; on a busy machine some are the scheduler's.",
    );
    report
}

fn judge_size(best: &PressureFigures, report: &mut Report) {
    let fast = keeps_up(best) && best.hit_us[2] <= HIT_US_MAX && best.major_faults == 0;
    let ours = format!(
        "{} objects in {} MiB on {} MiB ({STORE_TIMES_MEMORY}×), by {}: {:.1}% of what was due was answered, {:.0}% of it \
         from memory with p99.9 {:.0} µs, {} major faults of the loop",
        grouped(best.objects),
        best.store_bytes >> 20,
        best.memory_bytes >> 20,
        best.way.name(),
        answered_percent(best),
        hit_percent(best),
        best.hit_us[2],
        best.major_faults
    );
    let verdict = match (best.wrong, fast) {
        (0, true) => Verdict::Holds,
        (0, false) if keeps_up(best) => Verdict::HoldsWithAnotherFigure,
        _ => Verdict::DoesNotHoldHere,
    };
    report.judge("C2", "a 300 GB store on 16 GB of memory is typical", ours, verdict);
}

fn judge_kernel(map: &PressureFigures, best: &PressureFigures, report: &mut Report) {
    let ours = format!(
        "one event loop on the mapping alone ({}): {:.1}% of what was due was answered, {} major faults ({:.0} a second), \
         stalled for {:.0}% of the time, p99 {:.0} µs and p99.9 {:.0} µs, against {:.0} and {:.0} µs by {} for what is \
         in memory",
        map.way.name(),
        answered_percent(map),
        grouped(map.major_faults),
        map.major_faults as f64 / map.seconds,
        map.stalled_ms / map.seconds / 10.0,
        map.hit_us[1],
        map.hit_us[2],
        best.hit_us[1],
        best.hit_us[2],
        best.way.name()
    );
    let verdict = if map.major_faults == 0 {
        Verdict::CannotBeTestedHere
    } else if keeps_up(map) && map.hit_us[1] <= best.hit_us[1] * HIT_TIMES_MAX {
        Verdict::Holds
    } else if keeps_up(map) {
        Verdict::HoldsWithAnotherFigure
    } else {
        Verdict::DoesNotHoldHere
    };
    report.judge("C2", "the kernel alone decides what stays in memory, and hits stay fast", ours, verdict);
}

fn keeps_up(found: &PressureFigures) -> bool {
    answered_percent(found) >= ANSWERED_SHARE_MIN * 100.0
}

fn answered_percent(found: &PressureFigures) -> f64 {
    (found.hits + found.cold) as f64 * 100.0 / found.due.max(1) as f64
}

fn hit_percent(found: &PressureFigures) -> f64 {
    found.hits as f64 * 100.0 / (found.hits + found.cold).max(1) as f64
}

fn table(found: &[PressureFigures]) -> Table {
    let title = found.first().map_or_else(String::new, |found| {
        format!(
            "{} objects in {} MiB, {} MiB of memory for them, {} requests due a second",
            grouped(found.objects),
            found.store_bytes >> 20,
            found.memory_bytes >> 20,
            (found.due as f64 / found.seconds).round()
        )
    });
    let mut table = Table::new(
        title,
        &[
            ("way", ""),
            ("answered", "% of due"),
            ("from memory", "%"),
            ("from the disk", "1/s"),
            ("hit p50", "µs"),
            ("hit p99", "µs"),
            ("hit p99.9", "µs"),
            ("cold p99", "µs"),
            ("major faults", "of the loop"),
            ("stalled", "ms"),
            ("longest", "ms"),
        ],
    );
    for found in found {
        let mapped = matches!(found.way, ServingMode::Map | ServingMode::MapRandom);
        let unknown = || "–".to_owned();
        table.row([
            found.way.name().to_owned(),
            format!("{:.1}", answered_percent(found)),
            if mapped { unknown() } else { format!("{:.1}", hit_percent(found)) },
            if mapped { unknown() } else { format!("{:.0}", found.cold as f64 / found.seconds) },
            format!("{:.1}", found.hit_us[0]),
            format!("{:.1}", found.hit_us[1]),
            format!("{:.1}", found.hit_us[2]),
            if mapped { unknown() } else { format!("{:.0}", found.cold_us[1]) },
            found.major_faults.to_string(),
            format!("{:.1}", found.stalled_ms),
            format!("{:.2}", found.longest_ms),
        ]);
    }
    table
}
