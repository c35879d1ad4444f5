//! Verdicts on the claims, based on the figures at each rate.

use super::{
    RateFigures, WaitFigures, instruments,
    raw::Wait,
    servers::{Knee, LEAST},
};
use crate::{
    experiment::{Report, Table, Verdict},
    latency::{LatencyOrigin, readable},
    report::{
        grouped,
        plot::{Axis, Plot, Reference, Series, Stroke},
    },
};

/// Published figures for individual rates, where known: messages per second, and the figures.
const ARTICLE: &[(f64, &str)] = &[
    (80e3, "laptop: 6.0 s median corrected, 23.3 µs without; server: p99.99 164 µs"),
    (100e3, "server: 6.6 µs median, 317 µs worst"),
    (140e3, "server: broken down"),
];

/// Builds the report of a run.
pub(super) fn report(found: &WaitFigures) -> Report {
    let mut report = Report { data: serde_json::json!(found), ..Report::default() };
    for (from, title) in [
        (LatencyOrigin::Due, "Latency from when a message was due"),
        (LatencyOrigin::Sent, "Latency from when it was sent: coordinated omission"),
    ] {
        report.tables.push(percentiles(found, from, title));
    }
    report.tables.push(closed(found));
    report.tables.push(instruments::table(found));
    sweep_figure(found, &mut report);
    omission_figure(found, &mut report);
    judge_rates(found, &mut report);
    judge_omission(found, &mut report);
    judge_inverse(found, &mut report);
    judge_servers(found, &mut report);
    beside(found, &mut report);
    report
}

fn percentiles(found: &WaitFigures, from: LatencyOrigin, title: &str) -> Table {
    let mut table = Table::new(
        title,
        &[
            ("offered", "1/s"),
            ("reached", "1/s"),
            ("50%", ""),
            ("90%", ""),
            ("99%", ""),
            ("99.9%", ""),
            ("99.99%", ""),
            ("99.999%", ""),
            ("worst", ""),
            ("article", ""),
        ],
    );
    for rate in &found.rates {
        let percentiles = if from == LatencyOrigin::Due { rate.corrected } else { rate.uncorrected };
        let said = ARTICLE.iter().find(|said| said.0 == rate.offered).map_or("", |said| said.1);
        let mut row = vec![grouped(rate.offered as u64), grouped(rate.achieved as u64)];
        row.extend(percentiles.row().iter().map(|ns| readable(*ns)));
        row.push(if from == LatencyOrigin::Due { said.to_owned() } else { String::new() });
        table.row(row);
    }
    table
}

fn closed(found: &WaitFigures) -> Table {
    let mut table = Table::new(
        "The next byte as soon as the last is back",
        &[("kind", ""), ("cores", ""), ("messages", "1/s"), ("median", "")],
    );
    for one in &found.closed {
        let row = [
            one.wait.words().to_owned(),
            one.cores.to_string(),
            grouped(one.per_s as u64),
            readable(one.p50_ns),
        ];
        table.row(row);
    }
    table
}

/// Returns the last rate that was sustained, and the first above it that was not.
fn knee(found: &WaitFigures) -> (Option<&RateFigures>, Option<&RateFigures>) {
    let held = found.rates.iter().rposition(RateFigures::holds);
    let broke = match held {
        Some(at) => found.rates.get(at + 1),
        None => found.rates.first(),
    };
    (held.map(|at| &found.rates[at]), broke)
}

/// Returns whether the rates are monotone: no sustained rate is above one that was not sustained. Otherwise
/// chance decides which sustained rate is the highest.
fn is_monotone(found: &WaitFigures) -> bool {
    let first_that_broke = found.rates.iter().position(|rate| !rate.holds());
    first_that_broke.is_none_or(|at| !found.rates[at..].iter().any(RateFigures::holds))
}

/// Describes the rate that failed below a sustained one, if there is one.
fn not_monotone(found: &WaitFigures) -> Option<String> {
    let broke = found.rates.iter().find(|rate| !rate.holds()).filter(|_| !is_monotone(found))?;
    let held = knee(found).0?;
    Some(format!(
        "{} k/s reached {} k/s with a median of {}, and {} k/s held: the machine was busy with something else",
        broke.offered / 1e3,
        (broke.achieved / 1e3).round(),
        readable(broke.corrected.p50),
        held.offered / 1e3
    ))
}

fn sweep_figure(found: &WaitFigures, report: &mut Report) {
    let curve = |pick: fn(&RateFigures) -> u64| -> Vec<(f64, f64)> {
        found.rates.iter().map(|rate| (rate.offered / 1e3, pick(rate) as f64 / 1e3)).collect()
    };
    let (held, broke) = knee(found);
    let mut references = Vec::new();
    if let Some(held) = held {
        references.push(Reference::Place { at: held.offered / 1e3, label: "the last rate that held".into() });
    }
    let plot = Plot {
        x: Axis::linear("messages asked for [1,000/s]", 0.0, 200.0, 20.0),
        left: Axis::log("latency [µs]", 1.0, 1e7),
        right: None,
        series: vec![
            Series::new("median, from due", Stroke::One, curve(|r| r.corrected.p50)).with_discs(),
            Series::new("median, from sent", Stroke::Two, curve(|r| r.uncorrected.p50)).with_discs(),
            Series::new("99.9%, from due", Stroke::Three, curve(|r| r.corrected.p99_9)),
        ],
        references,
    };
    let title = match (held, broke) {
        _ if !is_monotone(found) => "A rate broke below one that held: too noisy to say".to_owned(),
        (Some(held), Some(broke)) => format!(
            "It holds {} k/s and breaks down at {} k/s; measured from sending, nothing is seen of that",
            held.offered / 1e3,
            broke.offered / 1e3
        ),
        (Some(_), None) => "It holds every rate that was tried".to_owned(),
        (None, _) => "It holds none of the rates that were tried".to_owned(),
    };
    let caption = "Latency over the rate. Below the knee both agree. Beyond it requests queue before they are sent: \
                   the queue grows as long as the run lasts, and only the time from when they were due shows it.";
    report.figure(title.clone(), plot.draw(&title), caption);
}

/// Returns the rate at which coordinated omission hides most: the first that was not sustained, or the
/// highest.
fn telling(found: &WaitFigures) -> Option<&RateFigures> {
    knee(found).1.or(found.rates.last())
}

fn omission_figure(found: &WaitFigures, report: &mut Report) {
    let Some(rate) = telling(found) else { return };
    let curve = |from| -> Vec<(f64, f64)> {
        rate.latencies.curve(from).into_iter().map(|(one_in, ns)| (one_in, ns as f64 / 1e3)).collect()
    };
    let plot = Plot {
        x: Axis::log("one message in … is slower", 1.0, (rate.latencies.count() as f64).max(10.0)),
        left: Axis::log("latency [µs]", 1.0, 1e7),
        right: None,
        series: vec![
            Series::new("from when it was due", Stroke::One, curve(LatencyOrigin::Due)),
            Series::new("from when it was sent", Stroke::Two, curve(LatencyOrigin::Sent)),
        ],
        references: vec![
            Reference::Place { at: 2.0, label: "median".into() },
            Reference::Place { at: 100.0, label: "99%".into() },
            Reference::Place { at: 10_000.0, label: "99.99%".into() },
        ],
    };
    let title = format!(
        "At {} k/s the omission hides {} of the median",
        rate.offered / 1e3,
        readable(rate.corrected.p50.saturating_sub(rate.uncorrected.p50))
    );
    report.figure(
        title.clone(),
        plot.draw(&title),
        "The same run, the same messages, two ways to look at the clock.",
    );
}

fn judge_rates(found: &WaitFigures, report: &mut Report) {
    let article = "100 k/s: 6.6 µs median, 317 µs worst; 140 k/s breaks down";
    let (held, broke) = knee(found);
    if let Some(noise) = not_monotone(found) {
        return report.judge("C17", article, noise, Verdict::TooNoisyToSay);
    }
    let (verdict, ours) = match (held, broke) {
        (Some(held), Some(broke)) => {
            let same = (80e3..140e3).contains(&held.offered) && held.corrected.p50 < 20_000;
            let ours = format!(
                "{} k/s holds ({} median, {} worst), {} k/s breaks down ({} median, {} k/s reached)",
                held.offered / 1e3,
                readable(held.corrected.p50),
                readable(held.corrected.worst),
                broke.offered / 1e3,
                readable(broke.corrected.p50),
                (broke.achieved / 1e3).round()
            );
            (if same { Verdict::Holds } else { Verdict::HoldsWithAnotherFigure }, ours)
        }
        (Some(held), None) => (
            Verdict::HoldsWithAnotherFigure,
            format!(
                "every rate up to {} k/s holds ({} median)",
                held.offered / 1e3,
                readable(held.corrected.p50)
            ),
        ),
        (None, _) => {
            (Verdict::TooNoisyToSay, "not even the lowest rate held: the machine is busy".to_owned())
        }
    };
    report.judge("C17", article, ours, verdict);
}

/// Minimum factor between the medians for the omission to "hide the breakdown".
const HIDDEN: u64 = 10;

fn judge_omission(found: &WaitFigures, report: &mut Report) {
    let article = "23.3 µs median at 80 k/s without the wait, 6.0 s with it";
    if let Some(noise) = not_monotone(found) {
        return report.judge("C18", article, noise, Verdict::TooNoisyToSay);
    }
    let Some(broke) = knee(found).1 else {
        report.judge("C18", article, "no rate that was tried broke it down", Verdict::CannotBeTestedHere);
        return;
    };
    let ours = format!(
        "at {} k/s: {} median from sending, {} from when it was due",
        broke.offered / 1e3,
        readable(broke.uncorrected.p50),
        readable(broke.corrected.p50)
    );
    let hides = broke.corrected.p50 > HIDDEN * broke.uncorrected.p50;
    report.judge("C18", article, ours, if hides { Verdict::Holds } else { Verdict::DoesNotHoldHere });
    // N messages with service time S, offered at intervals of 1/R: the last one waits N·(S − 1/R).
    let served = 1e9 / broke.achieved.max(1.0);
    // The count includes messages that were never sent: they were still waiting when the run was given up.
    let messages = broke.latencies.count() as f64;
    let predicted = messages * (served - 1e9 / broke.offered);
    report.note(format!(
        "The law behind it: with S a message and R offered, the last of N waits N·(S − 1/R). Here {} against {} \
         measured, at {} k/s.",
        readable(predicted.max(0.0) as u64),
        readable(broke.corrected.worst),
        broke.offered / 1e3
    ));
}

fn judge_inverse(found: &WaitFigures, report: &mut Report) {
    let article = "the sustainable rate is about the inverse of the service time";
    let inverse = 1e9 / found.service_ns;
    let (held, broke) = knee(found);
    if let Some(noise) = not_monotone(found) {
        return report.judge("C19", article, noise, Verdict::TooNoisyToSay);
    }
    if held.is_none() {
        let ours = "not even the lowest rate held: the machine is busy";
        return report.judge("C19", article, ours, Verdict::TooNoisyToSay);
    }
    let (Some(held), Some(broke)) = (held, broke) else {
        report.judge("C19", article, "no knee among the rates that were tried", Verdict::CannotBeTestedHere);
        return;
    };
    let ours = format!(
        "{} of service time: its inverse is {} k/s; the knee lies between {} and {} k/s",
        readable(found.service_ns as u64),
        (inverse / 1e3).round(),
        held.offered / 1e3,
        broke.offered / 1e3
    );
    // A sustained rate below 1/`LEAST` of the service time's inverse describes the busy machine, not the
    // server.
    let verdict = if held.offered < inverse / LEAST {
        Verdict::TooNoisyToSay
    } else {
        about(inverse, held.offered, broke.offered)
    };
    report.judge("C19", article, ours, verdict);
}

/// Judges whether the inverse of the service time is near the knee, which lies between the rates `held` and
/// `broke`.
fn about(inverse: f64, held: f64, broke: f64) -> Verdict {
    if (held * 0.9..=broke * 1.1).contains(&inverse) {
        Verdict::Holds
    } else if (held * 0.6..=broke * 1.6).contains(&inverse) {
        Verdict::HoldsWithAnotherFigure
    } else {
        Verdict::DoesNotHoldHere
    }
}

fn judge_servers(found: &WaitFigures, report: &mut Report) {
    let article = "the sustainable rate is about the inverse of the service time";
    if let Some(reason) = &found.no_servers {
        let ours = format!("our three servers: {reason}");
        return report.judge("C19", article, ours, Verdict::CannotBeTestedHere);
    }
    let mut table = Table::new(
        "Our servers, one request after another on one connection",
        &[("server", ""), ("there and back", ""), ("its inverse", "1/s"), ("held", "1/s"), ("broke", "1/s")],
    );
    for Knee { server, service_ns, held, broke } in &found.servers {
        let inverse = 1e9 / service_ns;
        let shown = |rate: &Option<f64>| rate.map_or_else(|| "–".to_owned(), |rate| grouped(rate as u64));
        table.row([
            (*server).to_owned(),
            readable(*service_ns as u64),
            grouped(inverse as u64),
            shown(held),
            shown(broke),
        ]);
        let ours = format!(
            "{server}: {} there and back, its inverse {} k/s; the knee lies between {} and {} a second",
            readable(*service_ns as u64),
            (inverse / 100.0).round() / 10.0,
            shown(held),
            shown(broke)
        );
        let verdict = match (held, broke) {
            // Only a fraction of the service time's inverse was sustained, so the measurement describes the
            // machine.
            (Some(held), _) if *held < inverse / LEAST => Verdict::TooNoisyToSay,
            (Some(held), Some(broke)) => about(inverse, *held, *broke),
            (None, _) => Verdict::TooNoisyToSay,
            (Some(_), None) => Verdict::DoesNotHoldHere,
        };
        report.judge("C19", article, ours, verdict);
    }
    report.tables.push(table);
}

fn beside(found: &WaitFigures, report: &mut Report) {
    report.note(format!(
        "The loop is {}, server and client {}.",
        found.wait.words(),
        if found.wait == Wait::Busy { "on a core each" } else { "on one core" }
    ));
    for note in instruments::notes(found) {
        report.note(note);
    }
    if let Some(reason) = &found.no_limit {
        report.note(format!("Not compared with the limit in C: {reason}."));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latencies;

    /// Returns the figures of an ideal server with this service time, one message at a time, without noise.
    fn ideal(offered: f64, service_ns: u64, messages: u64) -> RateFigures {
        let mut latencies = Latencies::new();
        let mut free = 0;
        for at in 0..messages {
            let due = (at as f64 * 1e9 / offered) as u64;
            let sent = due.max(free);
            free = sent + service_ns;
            latencies.record(due, sent, free);
        }
        RateFigures {
            offered,
            achieved: messages as f64 * 1e9 / free as f64,
            corrected: latencies.percentiles(LatencyOrigin::Due),
            uncorrected: latencies.percentiles(LatencyOrigin::Sent),
            latencies,
        }
    }

    fn planted(service_ns: u64) -> WaitFigures {
        let rates = [10e3, 80e3, 100e3, 140e3, 200e3];
        WaitFigures {
            wait: Wait::Busy,
            cores: 2,
            rates: rates.map(|rate| ideal(rate, service_ns, 100_000)).to_vec(),
            closed: Vec::new(),
            service_ns: service_ns as f64,
            beside: Vec::new(),
            beside_rate: 1e3,
            no_limit: Some("a test".into()),
            servers: Vec::new(),
            no_servers: None,
            recording: instruments::RecordingCost { ns: 1.0, allocations: Some(0) },
            sending: Vec::new(),
        }
    }

    fn verdicts(found: &WaitFigures) -> Vec<Verdict> {
        report(found).verdicts.iter().map(|judgement| judgement.verdict).collect()
    }

    #[test]
    fn a_planted_service_time_confirms_all_claims() {
        let report = report(&planted(8_000));
        assert!(report.verdicts.iter().all(|j| j.verdict == Verdict::Holds), "{:?}", report.verdicts);
        // 100,000 messages of 8 µs each, 7.14 µs apart: the last waits 85.7 ms.
        let law = report.notes.iter().find(|note| note.contains("law")).unwrap();
        assert!(law.contains("85.7 ms against 85.") || law.contains("85.7 ms against 85"), "{law}");
    }

    #[test]
    fn the_knee_is_judged_by_service_time() {
        let judged = |service_ns, held, broke| {
            let servers = vec![Knee { server: "planted", service_ns, held, broke }];
            let report = report(&WaitFigures { servers, ..planted(8_000) });
            report.verdicts.last().map(|judgement| judgement.verdict)
        };
        assert_eq!(judged(50_000.0, Some(19_000.0), Some(20_500.0)), Some(Verdict::Holds));
        assert_eq!(judged(50_000.0, Some(14_000.0), Some(15_000.0)), Some(Verdict::HoldsWithAnotherFigure));
        assert_eq!(judged(50_000.0, Some(8_000.0), Some(9_000.0)), Some(Verdict::DoesNotHoldHere));
        assert_eq!(judged(50_000.0, Some(2_000.0), Some(2_200.0)), Some(Verdict::TooNoisyToSay));
        assert_eq!(judged(50_000.0, Some(80_000.0), None), Some(Verdict::DoesNotHoldHere));
        assert_eq!(judged(50_000.0, None, Some(10.0)), Some(Verdict::TooNoisyToSay));
        let absent = WaitFigures { no_servers: Some("not built".into()), ..planted(8_000) };
        assert_eq!(verdicts(&absent).last(), Some(&Verdict::CannotBeTestedHere));
    }

    #[test]
    fn where_nothing_breaks_down_nothing_is_hidden() {
        let verdicts = verdicts(&planted(1_000));
        assert_eq!(verdicts[1..], [Verdict::CannotBeTestedHere, Verdict::CannotBeTestedHere]);
    }

    #[test]
    fn figures_of_a_busy_machine_are_too_noisy() {
        let verdicts = verdicts(&planted(500_000));
        assert_eq!((verdicts[0], verdicts[2]), (Verdict::TooNoisyToSay, Verdict::TooNoisyToSay));
    }

    /// Rates that are not monotone give no verdict: 100 k/s reached 82 k/s while 140 k/s was sustained, so
    /// the knee is unknown.
    #[test]
    fn rates_that_are_not_monotone_say_nothing() {
        let mut found = planted(1_000);
        found.rates[2] = ideal(100e3, 12_200, 100_000);
        let report = report(&found);
        let judged: Vec<_> = report.verdicts.iter().map(|one| one.verdict).collect();
        assert_eq!(judged[..3], [Verdict::TooNoisyToSay; 3]);
        assert!(report.verdicts[0].ours.contains("100 k/s reached 82 k/s"), "{:?}", report.verdicts[0].ours);
        assert!(
            is_monotone(&planted(8_000)) && is_monotone(&planted(1_000)) && is_monotone(&planted(500_000))
        );
    }
}
