//! Verdicts on the claim, based on the measurements under real paging.

use super::child::PagingFigures;
use super::queues::Kind;
use crate::experiment::{Report, Table, Verdict};

/// Builds the report of all measurements.
#[must_use]
pub(super) fn report(found: &[PagingFigures]) -> Report {
    let mut report = Report { data: serde_json::json!(found), ..Report::default() };
    report.tables.push(table(found));
    let mut percents: Vec<u64> =
        found.iter().map(|found| found.percent).filter(|percent| *percent < 100).collect();
    percents.dedup();
    for percent in percents {
        let of = |kind: Kind| found.iter().find(|found| found.kind == kind && found.percent == percent);
        if let (Some(binary), Some(paged)) = (of(Kind::BinaryHeap), of(Kind::BHeap)) {
            judge(percent, binary, paged, &mut report);
            if let Some(ours) = of(Kind::PageQueue) {
                judge_ours(percent, binary, paged, ours, &mut report);
            }
        }
    }
    report.note(
        "A pair is one removal of the smallest and one insertion of a key of random(3), as in the article's second \
         phase. The queue is filled before the limit is set; the pairs before the measurement are not counted. The page \
         queue does as many pairs as it holds items (if there is time), because its work comes in waves, of which the \
         longest takes so many.",
    );
    report.note(
        "Keys of 8 bytes in one shared file mapping with MADV_RANDOM, in a child process in a memory cgroup of its \
         own; the limit is the share of the keys' bytes plus what the process had been charged before the queue was \
         there. A major fault is what the kernel counts: the first touch of a fresh page is one, although nothing is \
         read. The kernel's reclaim \
         is no perfect LRU and takes pages in batches, so that small sets fault more than the simulation says.",
    );
    report.note(
        "“Written” is what was made dirty, in bytes of pages, when it became dirty: it will be written once for each \
         time. Time includes the wait for the disk, and for write-back where the kernel makes the process wait.",
    );
    report
}

fn judge(percent: u64, binary: &PagingFigures, paged: &PagingFigures, report: &mut Report) {
    let article =
        "the binary heap makes ten times the B-heap's page transfers (simulated, 9 of 1,954 pages resident)";
    let (more, slower) = (binary.faults() / paged.faults(), binary.us() / paged.us());
    let ours = format!(
        "{percent}% resident: {:.3} against {:.3} major faults a pair ({more:.1} times), {:.0} against {:.0} µs \
         ({slower:.1} times)",
        binary.faults(),
        paged.faults(),
        binary.us(),
        paged.us()
    );
    let verdict = if binary.counted.major_faults == 0 {
        Verdict::CannotBeTestedHere
    } else if more >= 10.0 {
        Verdict::Holds
    } else if more > 1.0 {
        Verdict::HoldsWithAnotherFigure
    } else {
        Verdict::DoesNotHoldHere
    };
    report.judge("C3", article, ours, verdict);
}

fn judge_ours(
    percent: u64,
    binary: &PagingFigures,
    paged: &PagingFigures,
    ours: &PagingFigures,
    report: &mut Report,
) {
    let fewer = if ours.counted.major_faults == 0 {
        format!("no major fault in {} pairs", ours.pairs)
    } else {
        format!(
            "{:.4} major faults a pair, {:.0} times fewer than the B-heap and {:.0} times fewer than the binary heap",
            ours.faults(),
            paged.faults() / ours.faults(),
            binary.faults() / ours.faults()
        )
    };
    let text = format!(
        "{percent}% resident: {fewer}, in {:.2} µs; {:.2} KiB read and written a pair against the B-heap's {:.2}",
        ours.us(),
        moved_kib(ours),
        moved_kib(paged)
    );
    report.judge(
        "C8",
        "“I will not rule out that there are smarter ways”; our own goal: the page queue faults at most a twentieth as \
         often as the B-heap",
        text,
        smarter(paged, ours),
    );
}

/// Goal of the page queue: the B-heap must have at least this many times as many faults.
const FEWER: f64 = 20.0;

fn smarter(paged: &PagingFigures, ours: &PagingFigures) -> Verdict {
    let quicker = ours.us() < paged.us();
    if paged.counted.major_faults == 0 {
        Verdict::CannotBeTestedHere
    } else if ours.faults() * FEWER <= paged.faults() && quicker {
        Verdict::Holds
    } else if ours.faults() < paged.faults() && quicker {
        Verdict::HoldsWithAnotherFigure
    } else {
        Verdict::DoesNotHoldHere
    }
}

fn moved_kib(found: &PagingFigures) -> f64 {
    found.a_pair(found.counted.bytes_read + found.counted.bytes_written) / 1024.0
}

fn table(found: &[PagingFigures]) -> Table {
    let mut table = Table::new(
        "A pair of remove and insert, by the share of the items' bytes that may stay in memory",
        &[
            ("queue", ""),
            ("items", ""),
            ("resident", "%"),
            ("major faults", "a pair"),
            ("read", "KiB/pair"),
            ("written", "KiB/pair"),
            ("time", "µs/pair"),
            ("longest", "ms"),
            ("pairs", ""),
        ],
    );
    for found in found {
        table.row([
            found.kind.name().to_owned(),
            found.items.to_string(),
            found.percent.to_string(),
            format!("{:.4}", found.faults()),
            format!("{:.2}", found.a_pair(found.counted.bytes_read) / 1024.0),
            format!("{:.2}", found.a_pair(found.counted.bytes_written) / 1024.0),
            format!("{:.2}", found.us()),
            format!("{:.2}", found.worst_seconds * 1e3),
            found.pairs.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::counters::Counters;

    fn found(kind: Kind, major_faults: u64, seconds: f64) -> PagingFigures {
        PagingFigures {
            kind,
            percent: 10,
            items: 1000,
            pairs: 1000,
            seconds,
            counted: Counters { major_faults, ..Counters::default() },
            worst_seconds: seconds,
            limit: None,
            usage_bytes: None,
        }
    }

    #[test]
    fn the_goal_needs_twenty_times_fewer_faults() {
        let paged = found(Kind::BHeap, 1000, 1.0);
        assert_eq!(smarter(&paged, &found(Kind::PageQueue, 50, 0.9)), Verdict::Holds);
        assert_eq!(smarter(&paged, &found(Kind::PageQueue, 51, 0.9)), Verdict::HoldsWithAnotherFigure);
        assert_eq!(smarter(&paged, &found(Kind::PageQueue, 50, 1.1)), Verdict::DoesNotHoldHere);
        assert_eq!(smarter(&paged, &found(Kind::PageQueue, 1001, 0.9)), Verdict::DoesNotHoldHere);
        assert_eq!(smarter(&found(Kind::BHeap, 0, 1.0), &paged), Verdict::CannotBeTestedHere);
    }
}
