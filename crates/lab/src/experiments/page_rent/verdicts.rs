//! Verdicts on the queues, based on the deliveries alongside them.

use serde_json::json;

use super::Sizes;
use super::child::{OBJECT_BYTES, Period, RentFigures};
use crate::experiment::{Report, Table, Verdict};
use crate::experiments::bheap_paging::queues::Kind;
use crate::report::grouped;
use crate::report::plot::{Axis, Plot, Series, Stroke};

/// Builds the report of all queues.
pub(super) fn report(sizes: &Sizes, found: &[RentFigures]) -> Report {
    let mut report = Report { data: json!(found), ..Report::default() };
    report.tables.push(table(found));
    draw(&mut report, found);
    let of = |kind: Kind| found.iter().find(|found| found.kind == kind);
    if let (Some(binary), Some(paged), Some(ours_found)) =
        (of(Kind::BinaryHeap), of(Kind::BHeap), of(Kind::PageQueue))
        && let (Some(binary_busy), Some(paged), Some(ours)) =
            (binary.periods.last(), paged.periods.last(), ours_found.periods.last())
    {
        let said = |period: &Period| {
            format!(
                "{:.0} pages held, {:.2} faults a delivery, p99 {:.1} ms",
                period.held_pages,
                period.faults_a_delivery(),
                period.p99_us / 1e3
            )
        };
        let quiet = binary.periods.first().map_or_else(String::new, |quiet| {
            format!(
                "; without expiries {:.2} faults, {:.1} ms",
                quiet.faults_a_delivery(),
                quiet.p99_us / 1e3
            )
        });
        report.judge(
            "C20",
            "the extra pages of an operation loiter in RAM, push out objects that were being delivered, and queue on a busy \
             disk",
            format!(
                "{}of {} pages, at {} expiries a second: binary heap {}; B-heap {}; page queue {}{quiet}",
                alone(found),
                grouped(binary.limit_pages),
                rate(binary_busy.expiries_per_s),
                said(binary_busy),
                said(paged),
                said(ours)
            ),
            judged(binary, ours_found),
        );
    }
    report.note(format!(
        "A queue of {} keys of 8 bytes in a mapped file, and {} objects of {} KiB in another, share {} MiB of page cache \
         (MADV_RANDOM, a memory cgroup). {} objects a second are read, the object of rank n as often as n^−0.9, timed from \
         when each was due; an expiry is a removal and an insertion, on a thread of its own.",
        grouped(sizes.items as u64),
        grouped(sizes.objects as u64),
        OBJECT_BYTES >> 10,
        sizes.limit_bytes >> 20,
        sizes.deliveries_per_s
    ));
    report.note(format!(
        "A period counts for {} s, after {} s that do not. “Pages held” is what mincore sees of the queue's file, between \
         its operations: nobody else can use them. Where an expiry comes once a minute, the period has one. * The 99th percentile is the median of those of eight \
         equal parts of the period.",
        sizes.seconds.1, sizes.seconds.0
    ));
    report
}

/// Returns the interval of the increase that expiries cause in a figure, compared with the same queue without
/// expiries.
fn added(found: &RentFigures, interval: impl Fn(&Period) -> (f64, f64)) -> Option<(f64, f64)> {
    let quiet = found.periods.iter().find(|period| period.expiries_per_s <= 0.0)?;
    let ((quiet_low, quiet_high), (low, high)) = (interval(quiet), interval(found.periods.last()?));
    Some((low - quiet_high, high - quiet_low))
}

/// Returns whether `one` is more than `other`; `None` if the intervals overlap and leave it open.
fn compare_intervals(one: (f64, f64), other: (f64, f64)) -> Option<bool> {
    if one.0 > other.1 {
        Some(true)
    } else if one.0 + one.1 <= other.0 + other.1 {
        Some(false)
    } else {
        None
    }
}

/// Compares the binary heap with our page queue at the highest rate of expiries, each relative to itself
/// without expiries. The claim holds if the binary heap keeps more pages, and the deliveries alongside it
/// fault more and are slower.
fn judged(binary: &RentFigures, ours: &RentFigures) -> Verdict {
    let compare = |interval: fn(&Period) -> (f64, f64)| {
        Some(compare_intervals(added(binary, interval)?, added(ours, interval)?))
    };
    // Held pages are counted, not sampled, so their interval has no width.
    let held = |period: &Period| (period.held_pages, period.held_pages);
    let (Some(loiter), Some(push_out), Some(queue)) =
        (compare(held), compare(Period::faults_interval), compare(Period::p99_interval))
    else {
        return Verdict::CannotBeTestedHere;
    };
    if binary.periods.last().is_none_or(|busy| busy.delivery_faults == 0) {
        return Verdict::CannotBeTestedHere;
    }
    match (loiter, push_out, queue) {
        (Some(true), Some(true), Some(true)) => Verdict::Holds,
        (Some(true), Some(true), _) | (Some(true), _, Some(true)) => Verdict::HoldsWithAnotherFigure,
        (Some(true), None, _) | (Some(true), _, None) => Verdict::TooNoisyToSay,
        _ => Verdict::DoesNotHoldHere,
    }
}

/// Describes how many pages a rare expiry reads, when the queue has long been evicted.
fn alone(found: &[RentFigures]) -> String {
    let read = found.iter().filter_map(|found| {
        let rare = found.periods.iter().find(|period| period.expiries_per_s > 0.0 && period.expiries > 0)?;
        let pages = rare.expiry_faults as f64 / rare.expiries as f64;
        Some(format!("{} {pages:.1} pages at {}", found.kind.name(), rate(rare.expiries_per_s)))
    });
    let read: Vec<String> = read.collect();
    if read.is_empty() { String::new() } else { format!("an expiry reads: {}; ", read.join(", ")) }
}

/// Formats expiries per second, in words below one.
fn rate(per_s: f64) -> String {
    match per_s {
        r if r <= 0.0 => "none".to_owned(),
        r if r < 1.0 => format!("{:.0} a minute", r * 60.0),
        r => grouped(r as u64),
    }
}

fn table(found: &[RentFigures]) -> Table {
    let mut table = Table::new(
        "Deliveries beside each queue, by how often something expires",
        &[
            ("queue", ""),
            ("expiries", "a second"),
            ("queue's faults", "an expiry"),
            ("pages held", ""),
            ("of memory", "%"),
            ("faults", "a delivery"),
            ("median", "ms"),
            ("99%*", "ms"),
            ("longest", "ms"),
        ],
    );
    for found in found {
        for period in &found.periods {
            let each = if period.expiries == 0 {
                "–".to_owned()
            } else {
                format!("{:.3}", period.expiry_faults as f64 / period.expiries as f64)
            };
            table.row([
                found.kind.name().to_owned(),
                rate(period.expiries_per_s),
                each,
                format!("{:.0}", period.held_pages),
                format!("{:.1}", period.held_pages / found.limit_pages as f64 * 100.0),
                format!("{:.3}", period.faults_a_delivery()),
                format!("{:.2}", period.p50_us / 1e3),
                format!("{:.2}", period.p99_us / 1e3),
                format!("{:.1}", period.worst_us / 1e3),
            ]);
        }
    }
    table
}

fn draw(report: &mut Report, found: &[RentFigures]) {
    let busy = |kind: Kind| {
        let of = found.iter().find(|found| found.kind == kind)?;
        Some((
            of.periods.last()?.held_pages / of.limit_pages as f64 * 100.0,
            of.periods.last()?.expiries_per_s,
        ))
    };
    let (Some((binary, per_s)), Some((ours, _))) = (busy(Kind::BinaryHeap), busy(Kind::PageQueue)) else {
        return;
    };
    let title = format!(
        "At {} expiries a second the binary heap keeps {binary:.0}% of the memory from the objects, the page queue {ours:.0}%",
        rate(per_s)
    );
    let strokes = [Stroke::Two, Stroke::One, Stroke::Four];
    let series: Vec<Series> = found
        .iter()
        .zip(strokes)
        .map(|(found, stroke)| {
            let points = found.periods.iter().filter(|period| period.expiries_per_s > 0.0);
            let share = |period: &Period| period.held_pages / found.limit_pages as f64 * 100.0;
            let points = points.map(|period| (period.expiries_per_s, share(period))).collect();
            Series::new(found.kind.name(), stroke, points).with_discs()
        })
        .collect();
    let most = series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(10.0, f64::max);
    let plot = Plot {
        x: Axis::log("expiries a second", 0.01, 1000.0),
        left: Axis::linear(
            "share of the memory that the queue holds [%]",
            0.0,
            (most / 10.0).ceil() * 10.0,
            10.0,
        ),
        right: None,
        series,
        references: Vec::new(),
    };
    report.figure(
        &title,
        plot.draw(&title),
        "What the queue's file has in the page cache between its operations, as a share of what it and the objects have \
         together.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a queue's periods without expiries and with many: pages held, faults of a million deliveries,
    /// and the 99th percentile of each part.
    fn queue(quiet: (f64, u64, f64), busy: (f64, u64, f64), spread_us: f64) -> RentFigures {
        let period = |expiries_per_s: f64, (held_pages, delivery_faults, p99_us): (f64, u64, f64)| Period {
            expiries_per_s,
            expiries: 1000,
            expiry_faults: 1,
            held_pages,
            deliveries: 1_000_000,
            delivery_faults,
            p50_us: 1.0,
            p99_us,
            p99_parts_us: (0..8).map(|part| p99_us + (f64::from(part) - 3.5) * spread_us).collect(),
            worst_us: p99_us,
        };
        let periods = vec![period(0.0, quiet), period(1000.0, busy)];
        RentFigures { kind: Kind::BinaryHeap, limit_pages: 1000, periods }
    }

    #[test]
    fn the_claim_requires_all_three_effects() {
        let ours = queue((0.0, 10_000, 40.0), (100.0, 10_000, 50.0), 0.1);
        let judge = |busy| judged(&queue((0.0, 10_000, 40.0), busy, 0.1), &ours);
        assert_eq!(judge((200.0, 12_000, 80.0)), Verdict::Holds);
        assert_eq!(judge((200.0, 12_000, 50.0)), Verdict::HoldsWithAnotherFigure);
        assert_eq!(judge((200.0, 10_000, 50.0)), Verdict::DoesNotHoldHere);
        assert_eq!(judge((100.0, 12_000, 80.0)), Verdict::DoesNotHoldHere);
        assert_eq!(judge((200.0, 0, 80.0)), Verdict::CannotBeTestedHere);
        // The increase may be chance: 100 of 10,000 faults, and a few microseconds although the parts of a
        // period differ by ten.
        assert_eq!(judge((200.0, 10_100, 50.0)), Verdict::TooNoisyToSay);
        let wide = |busy| queue((0.0, 10_000, 40.0), busy, 10.0);
        let noisy = judged(&wide((200.0, 10_000, 80.0)), &wide((100.0, 10_000, 50.0)));
        assert_eq!(noisy, Verdict::TooNoisyToSay);
    }

    /// Each queue is compared with itself: it adds nothing if the deliveries alongside it were already slow
    /// without expiries.
    #[test]
    fn each_queue_is_held_against_itself_without_expiries() {
        let ours = queue((0.0, 10_000, 40.0), (100.0, 10_000, 40.0), 0.1);
        let slow_disk = queue((0.0, 20_000, 90.0), (200.0, 20_000, 90.0), 0.1);
        assert_eq!(judged(&slow_disk, &ours), Verdict::DoesNotHoldHere);
    }

    #[test]
    fn a_rate_is_said_as_people_say_it() {
        assert_eq!([0.0, 1.0 / 60.0, 1.0, 1000.0].map(rate), ["none", "1 a minute", "1", "1,000"]);
    }
}
