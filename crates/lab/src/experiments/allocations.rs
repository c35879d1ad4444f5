//! `allocations`: allocations counted exactly, on one thread, with the counter's own cost subtracted (claim
//! C16).
//!
//! The instrument is the crate [`allocations`]. This experiment tests it with code whose allocations are
//! known, and then measures the allocations of a server per request.

use std::hint::black_box;

use ::allocations::{Allocations, Counts};
use bheap::PageQueue;
use serde::Serialize;
use wire::http1::head::{HeadLimits, HeaderSlots, Progress, parse_request};

use crate::{
    experiment::{Experiment, Options, Refusal, Report, Table, Verdict},
    report::grouped,
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "allocations",
    claims: &["C16"],
    title: "what a stretch of code allocates, exactly",
    statement: "Allocations can be measured exactly per thread and asserted to be zero on the critical path; the \
                measure subtracts its own cost and refuses to be used from another thread",
    source: "Measuring Allocations Programmatically, 6 July 2015",
    run,
};

const REQUEST: &[u8] = b"GET /news?id=7 HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: lab\r\n\
                         Accept: text/html\r\nAccept-Encoding: gzip, br\r\nCookie: a=b\r\n\r\n";

/// A piece of code, its expected allocations if they are known, and its counted allocations.
#[derive(Debug, Clone, Serialize)]
struct Stretch {
    what: String,
    expected: Option<u64>,
    allocations: u64,
    bytes: u64,
}

fn run(options: &Options) -> Result<Report, Refusal> {
    let operations = if options.quick { 10_000 } else { 1_000_000 };
    let (stretches, refused) = measured(operations)?;
    Ok(report(&stretches, refused))
}

fn measured(operations: u64) -> Result<(Vec<Stretch>, bool), Refusal> {
    let mut counter = Allocations::new().map_err(|error| {
        Refusal::Missing(format!("{error}: this program was built without the counting allocator"))
    })?;
    let failed = |error: ::allocations::AllocationsError| Refusal::Failed(error.to_string());
    let mut stretches = Vec::new();
    let mut stretch = |what: String, expected, work: &mut dyn FnMut()| -> Result<(), Refusal> {
        counter.mark().map_err(failed)?;
        work();
        let Counts { allocations, allocated_bytes, .. } = counter.since_mark().map_err(failed)?;
        stretches.push(Stretch { what, expected, allocations, bytes: allocated_bytes });
        Ok(())
    };
    stretch("nothing: what reading the counter costs is taken off".into(), Some(0), &mut || {})?;
    stretch(format!("{} boxes", grouped(operations)), Some(operations), &mut || {
        for n in 0..operations {
            black_box(Box::new(n));
        }
    })?;
    stretch("a buffer that is large enough, filled".into(), Some(0), &mut {
        let mut buffer = Vec::<u64>::with_capacity(1_000);
        move || {
            buffer.clear();
            buffer.extend(0..1_000);
            black_box(&buffer);
        }
    })?;
    // Allocations of another thread are not counted on this thread.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (done, finished) = std::sync::mpsc::channel::<()>();
    let worker = std::thread::spawn(move || {
        if wait.recv().is_ok() {
            for n in 0..operations {
                black_box(Box::new(n));
            }
        }
        let _ = done.send(());
    });
    stretch(format!("nothing, while another thread makes {} boxes", grouped(operations)), None, &mut || {
        let _ = go.send(());
        let _ = finished.recv();
    })?;
    worker.join().map_err(|_| Refusal::Failed("the other thread panicked".to_owned()))?;
    stretch(format!("{} HTTP requests parsed", grouped(operations)), Some(0), &mut {
        let mut slots = HeaderSlots::new();
        let limits = HeadLimits::default();
        move || {
            for _ in 0..operations {
                let parsed = parse_request(black_box(REQUEST), &mut slots, &limits);
                assert!(matches!(parsed, Ok(Progress::Complete(..))), "a whole request");
            }
        }
    })?;
    stretch(format!("{} steps of a full page queue", grouped(operations)), None, &mut {
        let mut queue = PageQueue::new(4096).map_err(|error| Refusal::Failed(error.to_string()))?;
        for n in 0..10_000_u64 {
            queue.push(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        move || {
            for n in 0..operations {
                let smallest = queue.pop();
                queue.push(smallest.unwrap_or(0).wrapping_add(n));
            }
        }
    })?;
    let refused = std::thread::scope(|scope| {
        let counter = &mut counter;
        scope.spawn(move || counter.mark().is_err()).join().unwrap_or(false)
    });
    Ok((stretches, refused))
}

fn report(stretches: &[Stretch], refused: bool) -> Report {
    let mut report = Report {
        data: serde_json::json!({ "stretches": stretches, "refused_from_another_thread": refused }),
        ..Report::default()
    };
    let mut table = Table::new(
        "Counted on this thread",
        &[("stretch", ""), ("expected", "allocations"), ("counted", "allocations"), ("bytes", "")],
    );
    for stretch in stretches {
        table.row([
            stretch.what.clone(),
            stretch.expected.map_or_else(|| "–".to_owned(), grouped),
            grouped(stretch.allocations),
            grouped(stretch.bytes),
        ]);
    }
    report.tables.push(table);
    let wrong: Vec<&Stretch> =
        stretches.iter().filter(|s| s.expected.is_some_and(|expected| expected != s.allocations)).collect();
    let known = stretches.iter().filter(|stretch| stretch.expected.is_some()).count();
    let ours = format!(
        "{} of {known} stretches counted exactly; use from another thread is {}",
        known - wrong.len(),
        if refused { "refused" } else { "not refused" }
    );
    let verdict = if wrong.is_empty() && refused { Verdict::Holds } else { Verdict::DoesNotHoldHere };
    report.judge("C16", "exact, per thread, without its own cost, refused across threads", ours, verdict);
    report.note(
        "The servers' tests use the same counter: a cache hit, a relayed message and an accepted mail must allocate \
         nothing once they are warm.",
    );
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(expected: u64, allocations: u64) -> Stretch {
        Stretch { what: "planted".into(), expected: Some(expected), allocations, bytes: 0 }
    }

    #[test]
    fn a_planted_allocation_is_detected() {
        let verdict = |counted, refused| report(&[stretch(0, counted)], refused).verdicts[0].verdict;
        assert_eq!(verdict(0, true), Verdict::Holds);
        assert_eq!(verdict(1, true), Verdict::DoesNotHoldHere);
        assert_eq!(verdict(0, false), Verdict::DoesNotHoldHere);
    }

    #[test]
    fn a_missing_counting_allocator_is_reported() {
        // The tests of this crate use the system's allocator.
        assert!(matches!(run(&Options { quick: true, ..Options::default() }), Err(Refusal::Missing(_))));
    }
}
