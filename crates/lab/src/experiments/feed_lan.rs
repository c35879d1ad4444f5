//! `feed-lan`: the same flow through a link of 1 Gbit/s, and the share of the link's capacity that it reaches
//! (C11).
//!
//! The arithmetic comes first: 125 million bytes per second at 200 bytes per message are 625,000 messages,
//! and 312,500 each way if incoming and outgoing messages share the link. Then the run: the server in one
//! network namespace, the load in another, and the shaper of [`crate::lan`] between them. Runs with and
//! without the shaper alternate, which shows whether the link was the bottleneck.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;

use super::servers::{all_cores, cell, cores_busy, doubt, middle, middle_of, needed, rates};
use crate::{
    experiment::{Experiment, Options, Refusal, Report, Table, Verdict},
    lan::{FAR, Lan},
    paired::{Sample, Series, interleave, measure, spread::Spread},
    peers::{
        PeerError,
        feed::{
            contenders::{self, Contender, ServerProcess},
            drive::{Load, driven},
        },
    },
    report::grouped,
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "feed-lan",
    claims: &["C11"],
    title: "passing messages on through a cable of 1 Gbit/s",
    statement: "At 200 bytes a message on the wire, a LAN of 1 Gbit/s bounds the feed at 312,500 messages a second each \
                way; 300,000 were measured",
    source: "P. Tyma, How I sped up my server by a factor of 6, June 2010",
    run,
};

/// Rate of the link.
const MEGABITS: u32 = 1_000;
/// Bytes on the wire that the published estimate assumes for a message of 100 bytes, with all its headers.
const ARTICLE_BYTES: f64 = 200.0;
/// Messages per second according to the published estimate.
const ARTICLE_PER_S: f64 = 312_500.0;
/// Share of the link's capacity from which the link is the bottleneck.
const FULL: f64 = 0.85;
/// Largest relative difference at which a rate counts as equal to the published one.
const SAME: f64 = 0.2;

/// Figures of one server.
#[derive(Debug, Clone, Serialize)]
struct ServerFigures {
    server: &'static str,
    megabits: u32,
    /// Rounds through the shaped link.
    shaped: Series,
    /// Rounds without the shaper.
    open: Series,
    /// Bytes per message on the link, in the fuller direction, as the interface counts them.
    wire_bytes: Vec<f64>,
}

impl ServerFigures {
    /// Returns the messages per second that the link can carry at the measured size of a message.
    fn bound(&self) -> Option<f64> {
        let bytes = middle(&self.wire_bytes.iter().copied().map(Some).collect::<Vec<_>>())?;
        Some(f64::from(self.megabits) * 1e6 / 8.0 / bytes)
    }
}

fn run(options: &Options) -> Result<Report, Refusal> {
    let ours = needed(Contender::Ours.program())?;
    let lan = Lan::laid().and_then(|lan| lan.shape(Some(MEGABITS)).map(|()| lan)).map_err(|why| {
        Refusal::Missing(format!("{why} (namespaces and shapers need root, or CAP_NET_ADMIN)"))
    })?;
    let mut programs = vec![(Contender::Ours, ours)];
    let mut remarks = Vec::new();
    match Contender::Nats.program() {
        Ok(program) => programs.push((Contender::Nats, program)),
        Err(why) => remarks.push(why),
    }
    let (rounds, duration) =
        if options.quick { (3, Duration::from_millis(300)) } else { (7, Duration::from_secs(2)) };
    let found = measured(&lan, &programs, (rounds, duration), &|what| options.say(what))?;
    let mut report = report(&found);
    for remark in remarks {
        report.note(remark);
    }
    Ok(report)
}

fn measured(
    lan: &Lan,
    programs: &[(Contender, PathBuf)],
    (rounds, duration): (usize, Duration),
    say: &dyn Fn(&str),
) -> Result<Vec<ServerFigures>, Refusal> {
    let directory = super::servers::directory()?;
    let cores = all_cores()?;
    let load = Load::one(duration);
    let failed = Refusal::Failed;
    let mut all = Vec::new();
    for (contender, program) in programs {
        say(&format!("starting {}", contender.name()));
        let place = (FAR, &cores);
        let server = lan
            .far(|| contenders::start(*contender, contender.name(), program, directory.path(), place, None))
            .map_err(failed)??;
        let mut wire_bytes = Vec::new();
        let turns = [("shaped".to_owned(), Some(MEGABITS)), ("open".to_owned(), None)];
        let series = interleave(&turns, rounds, |megabits, round| {
            say(&format!("{}, round {} of {rounds}", contender.name(), round + 1));
            lan.shape(*megabits).map_err(failed)?;
            let before = lan.carried().map_err(failed)?;
            let sample = lan.near(|| sample(&server, &load)).map_err(failed)?;
            let after = lan.carried().map_err(failed)?;
            let fuller =
                (after.out_bytes - before.out_bytes).max(after.back_bytes - before.back_bytes) as f64;
            if megabits.is_some() && sample.units > 0 {
                wire_bytes.push(fuller / sample.units as f64);
            }
            Ok::<_, Refusal>(sample)
        })?;
        let [shaped, open] = <[Series; 2]>::try_from(series)
            .map_err(|_| Refusal::Failed("two series were measured".to_owned()))?;
        all.push(ServerFigures { server: contender.name(), megabits: MEGABITS, shaped, open, wire_bytes });
    }
    Ok(all)
}

fn sample(server: &ServerProcess, load: &Load) -> Sample {
    measure(&server.tree, &server.cores, || driven(server.contender.wire(), server.address, load))
        .unwrap_or_else(|error: PeerError| Sample::nothing(error.to_string()))
}

fn report(found: &[ServerFigures]) -> Report {
    let mut report = Report { data: serde_json::json!({ "servers": found }), ..Report::default() };
    report.tables.push(arithmetic());
    report.tables.push(table(found));
    for one in found {
        let (verdict, ours) = judged(one);
        report.judge("C11", "bounded at 312,500/s each way by the LAN; 300,000/s measured", ours, verdict);
    }
    report.note(
        "The article counts 200 bytes for a message of 100: a packet of its own for each, with its headers. A server and \
         clients that write what has gathered put many messages into a packet, and a message then takes little more than \
         its own bytes: the same cable carries more of them. It also counts both directions against one gigabit; a \
         switched cable carries a gigabit each way.",
    );
    report.note(
        "Shaped by a token bucket on both ends of a pair of virtual interfaces, 24 bytes added for what a frame costs \
         beside its bytes; no switch, no driver and no interrupt of a real card is in it.",
    );
    report
}

fn arithmetic() -> Table {
    let mut table = Table::new(
        "The arithmetic, before anything is measured",
        &[
            ("bytes a message on the wire", ""),
            ("what", ""),
            ("one way", "1/s"),
            ("both ways share it", "1/s"),
        ],
    );
    let bytes_per_s = f64::from(MEGABITS) * 1e6 / 8.0;
    let rows = [
        (ARTICLE_BYTES, "the article's"),
        // 100 bytes, PUB and its line, TCP and IP with timestamps, Ethernet with preamble and gap.
        (100.0 + 20.0 + 52.0 + 38.0, "a packet for each message"),
        // Twelve and a half messages of 116 bytes fit into 1,448 bytes, in a frame of 1,538.
        (116.0 * 1_538.0 / 1_448.0, "packets filled with messages"),
    ];
    for (bytes, what) in rows {
        let rate = bytes_per_s / bytes;
        table.row([
            format!("{bytes:.0}"),
            what.to_owned(),
            grouped(rate as u64),
            grouped((rate / 2.0) as u64),
        ]);
    }
    table
}

fn table(found: &[ServerFigures]) -> Table {
    let mut table = Table::new(
        format!("Measured, {MEGABITS} Mbit/s each way"),
        &[
            ("server", ""),
            ("cable", ""),
            ("messages", "1/s"),
            ("bytes on the wire", "a message"),
            ("the cable could carry", "1/s"),
            ("server", "cores busy"),
            ("doubt", ""),
        ],
    );
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| grouped(value as u64));
    for one in found {
        let bytes = middle(&one.wire_bytes.iter().copied().map(Some).collect::<Vec<_>>());
        for (cable, series) in [("shaped", &one.shaped), ("as fast as it goes", &one.open)] {
            let is_shaped = cable == "shaped";
            table.row([
                one.server.to_owned(),
                cable.to_owned(),
                shown(middle(&rates(series))),
                if is_shaped { cell(bytes, 0) } else { "–".to_owned() },
                if is_shaped { shown(one.bound()) } else { "–".to_owned() },
                cell(middle_of(series, cores_busy), 2),
                series.doubt().unwrap_or_default().to_owned(),
            ]);
        }
    }
    table
}

/// Largest accepted ratio between the fastest and the slowest round; a larger one is too noisy for a verdict.
const APART: f64 = 1.5;

/// Judges whether the link or something else was the bottleneck.
fn judged(found: &ServerFigures) -> (Verdict, String) {
    let (Some(rate), Some(bound), Some(open)) =
        (middle(&rates(&found.shaped)), found.bound(), middle(&rates(&found.open)))
    else {
        let why = doubt([&found.shaped, &found.open]).unwrap_or_else(|| "nothing arrived".to_owned());
        return (Verdict::TooNoisyToSay, why);
    };
    let share = rate / bound;
    let ours = format!(
        "{}: {} a second through {} Mbit/s, {:.0}% of what it can carry at what a message takes; {} without the shaper",
        found.server,
        grouped(rate as u64),
        found.megabits,
        100.0 * share,
        grouped(open as u64)
    );
    let verdict = if let Some(doubt) = doubt([&found.shaped, &found.open]) {
        return (Verdict::TooNoisyToSay, format!("{ours}; {doubt}"));
    } else if is_apart(&found.shaped) {
        return (Verdict::TooNoisyToSay, format!("{ours}; its rounds lie far apart"));
    } else if share < FULL {
        // The processors are the bottleneck, so the link does not bound the rate.
        Verdict::DoesNotHoldHere
    } else if (rate / ARTICLE_PER_S - 1.0).abs() <= SAME {
        Verdict::Holds
    } else {
        Verdict::HoldsWithAnotherFigure
    };
    (verdict, ours)
}

fn is_apart(series: &Series) -> bool {
    let known: Vec<f64> = rates(series).into_iter().flatten().collect();
    Spread::of(&known).is_none_or(|spread| spread.max > APART * spread.min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::servers::planted;

    fn found(shaped: f64, open: f64, wire_bytes: f64) -> ServerFigures {
        ServerFigures {
            server: "planted",
            megabits: 1_000,
            shaped: planted("shaped", &[shaped; 3], 0.5),
            open: planted("open", &[open; 3], 0.5),
            wire_bytes: vec![wire_bytes; 3],
        }
    }

    #[test]
    fn the_verdict_follows_the_planted_link_limit() {
        // 125 MB/s are 625,000 messages of 200 bytes, or with 400 bytes the published 312,500.
        assert_eq!(judged(&found(300e3, 900e3, 400.0)).0, Verdict::Holds);
        assert_eq!(judged(&found(600e3, 900e3, 200.0)).0, Verdict::HoldsWithAnotherFigure);
        assert_eq!(judged(&found(300e3, 310e3, 200.0)).0, Verdict::DoesNotHoldHere);
        let mut apart = found(300e3, 900e3, 200.0);
        apart.shaped.samples[2].units = 900_000;
        assert_eq!(judged(&apart).0, Verdict::TooNoisyToSay);
        let mut lost = found(300e3, 900e3, 400.0);
        lost.shaped.samples[1].doubts.push("one was lost".into());
        assert_eq!(judged(&lost).0, Verdict::TooNoisyToSay);
        assert_eq!(judged(&ServerFigures { wire_bytes: Vec::new(), ..lost }).0, Verdict::TooNoisyToSay);
    }

    #[test]
    fn the_articles_arithmetic_is_the_articles() {
        let first = &arithmetic().rows[0];
        assert_eq!((first[2].as_str(), first[3].as_str()), ("625,000", "312,500"));
    }

    /// A short run of a real nats-server exercises the whole experiment if namespaces can be created and
    /// nats-server is installed.
    #[test]
    fn a_real_run_counts_what_the_cable_carried() {
        let (Ok(program), Ok(lan)) = (Contender::Nats.program(), Lan::laid()) else { return };
        let run = (1, Duration::from_millis(50));
        let found = measured(&lan, &[(Contender::Nats, program)], run, &|_| ()).unwrap();
        assert_eq!(found[0].shaped.doubt(), None);
        // A message takes more than its 100 bytes of payload on the link, and less than 2,000 bytes.
        assert!((100.0..2_000.0).contains(&found[0].wire_bytes[0]), "{:?}", found[0].wire_bytes);
    }
}
