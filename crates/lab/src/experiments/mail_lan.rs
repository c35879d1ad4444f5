//! `mail-lan`: mail through links of 10, 100 and 1,000 Mbit/s, and the bottleneck at each speed (C23).
//!
//! The server is in one network namespace, the senders in another, and the shaper of [`crate::lan`] is
//! between them. The figures at each speed: use of the link, load of the server and of the machine, bytes
//! written to the disk. The first of these that reaches its limit is the bottleneck.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::servers::{all_cores, cell, cores_busy, gain, middle, middle_of, rates, times};
use crate::{
    experiment::{Experiment, Options, Refusal, Report, Table, Verdict},
    lan::{FAR, Lan},
    paired::{
        Sample, Series, Work, interleave, measure,
        place::ours,
        spread::{Ratio, median},
    },
    peers::{
        PeerError,
        mail::{
            MAIL_BYTES, SESSIONS,
            contenders::{self, Contender, ServerProcess},
            load::pipelined,
        },
    },
    report::{
        grouped,
        plot::{Axis, Plot, Series as Curve, Stroke},
    },
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mail-lan",
    claims: &["C23"],
    title: "mail through cables of 10, 100 and 1,000 Mbit/s: which wall comes next",
    statement: "After the rewrite the network was the wall: 100 Mbit/s in place of 10 took it from 3 to 6 million mails a \
                day",
    source: "P. Tyma, Mailinator and (not) Death-by-Popularity, March 2010",
    run,
};

const LINKS_MEGABITS: [u32; 3] = [10, 100, 1_000];
const DAY_S: f64 = 86_400.0;
/// Published factor: twice as many mails with the faster link.
const PUBLISHED: f64 = 2.0;
/// Share of its capacity at which a resource counts as exhausted.
const FULL: f64 = 0.85;

/// Resource that limited the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Bottleneck {
    Link,
    /// CPU of the server.
    Server,
    /// CPU of the machine, which server and senders share.
    Machine,
    /// No resource is exhausted: the senders wait for replies, or the server for the disk.
    Waiting,
}

impl Bottleneck {
    const fn words(self) -> &'static str {
        match self {
            Self::Link => "the cable",
            Self::Server => "the server's CPU",
            Self::Machine => "the machine's CPU",
            Self::Waiting => "waiting (replies, disk)",
        }
    }
}

/// Utilization of link, machine and disk at one speed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Utilization {
    /// Used fraction of the link towards the server.
    link: f64,
    /// Busy fraction of all cores, whichever process used them.
    machine: f64,
    /// Bytes per mail on the link towards the server.
    wire_bytes: f64,
    /// Bytes per second that the server wrote to the disk.
    disk_bytes_per_s: f64,
}

/// Figures of one speed.
#[derive(Debug, Clone, Serialize)]
struct SpeedFigures {
    megabits: u32,
    series: Series,
    uses: Vec<Utilization>,
    cores: usize,
}

impl SpeedFigures {
    fn middle(&self, figure: impl Fn(&Utilization) -> f64) -> Option<f64> {
        median(&self.uses.iter().map(figure).collect::<Vec<_>>())
    }

    fn wall(&self) -> Bottleneck {
        let cores = self.cores as f64;
        if self.middle(|used| used.link).is_some_and(|share| share >= FULL) {
            Bottleneck::Link
        } else if middle_of(&self.series, cores_busy).is_some_and(|busy| busy >= FULL * cores) {
            Bottleneck::Server
        } else if self.middle(|used| used.machine).is_some_and(|share| share >= FULL) {
            Bottleneck::Machine
        } else {
            Bottleneck::Waiting
        }
    }
}

fn run(options: &Options) -> Result<Report, Refusal> {
    ours().map_err(Refusal::Missing)?;
    let lan =
        Lan::laid().and_then(|lan| lan.shape(Some(LINKS_MEGABITS[0])).map(|()| lan)).map_err(|why| {
            Refusal::Missing(format!("{why} (namespaces and shapers need root, or CAP_NET_ADMIN)"))
        })?;
    let (rounds, duration) =
        if options.quick { (3, Duration::from_millis(900)) } else { (7, Duration::from_secs(6)) };
    Ok(report(&measured(&lan, (rounds, duration), &|what| options.say(what))?))
}

fn measured(
    lan: &Lan,
    (rounds, duration): (usize, Duration),
    say: &dyn Fn(&str),
) -> Result<Vec<SpeedFigures>, Refusal> {
    let failed = Refusal::Failed;
    let cores = all_cores()?;
    let server =
        lan.far(|| contenders::start(Contender::Ours, (FAR, &cores))).map_err(failed)?.map_err(failed)?;
    let links = LINKS_MEGABITS.map(|megabits| (format!("{megabits} Mbit/s"), megabits));
    let mut uses: Vec<Vec<Utilization>> = vec![Vec::new(); links.len()];
    let series = interleave(&links, rounds, |megabits, round| {
        say(&format!("round {} of {rounds}: {megabits} Mbit/s", round + 1));
        lan.shape(Some(*megabits)).map_err(failed)?;
        let disk = disk_bytes(&server);
        let busy = crate::paired::tree::busy_s(&cores).map_err(PeerError::from)?;
        let carried = lan.carried().map_err(failed)?;
        let sample = sample(lan, &server, &cores, duration)?;
        let bytes = (lan.carried().map_err(failed)?.out_bytes - carried.out_bytes) as f64;
        let busy = crate::paired::tree::busy_s(&cores).map_err(PeerError::from)? - busy;
        if sample.units > 0 {
            let at = LINKS_MEGABITS.iter().position(|link| link == megabits).unwrap_or(0);
            uses[at].push(Utilization {
                link: bytes * 8.0 / sample.wall_s / (f64::from(*megabits) * 1e6),
                machine: busy / sample.wall_s / cores.count() as f64,
                wire_bytes: bytes / sample.units as f64,
                disk_bytes_per_s: disk_bytes(&server).saturating_sub(disk) as f64 / sample.wall_s,
            });
        }
        Ok::<_, Refusal>(sample)
    })?;
    Ok(series
        .into_iter()
        .zip(uses)
        .zip(LINKS_MEGABITS)
        .map(|((series, uses), megabits)| SpeedFigures { megabits, series, uses, cores: cores.count() })
        .collect())
}

fn sample(
    lan: &Lan,
    server: &ServerProcess,
    cores: &crate::paired::tree::Cores,
    duration: Duration,
) -> Result<Sample, Refusal> {
    let sampled = lan.near(|| {
        measure(&server.tree, cores, || {
            let begun = Instant::now();
            let units = pipelined(server.address, duration)?;
            Ok::<_, PeerError>(Work { units, wall_s: Some(begun.elapsed().as_secs_f64()), ..Work::default() })
        })
        .unwrap_or_else(|error| Sample::nothing(error.to_string()))
    });
    sampled.map_err(Refusal::Failed)
}

/// Returns the bytes that the server has written to the disk so far (proc(5), `io`); 0 if the kernel does not
/// count them.
fn disk_bytes(server: &ServerProcess) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/io", server.tree.id())).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("write_bytes:")?.trim().parse().ok()).unwrap_or(0)
}

fn report(found: &[SpeedFigures]) -> Report {
    let mut report = Report { data: serde_json::json!({ "links": found }), ..Report::default() };
    report.tables.push(table(found));
    figure(found, &mut report);
    let (verdict, said) = judged(found);
    report.judge(
        "C23",
        "10 to 100 Mbit/s: from 3 to 6 M mails a day; the network was the wall",
        said,
        verdict,
    );
    report.note(format!(
        "Mails of {MAIL_BYTES} bytes on {SESSIONS} connections that pipeline (BDAT), each to be found in its inbox when \
         its 250 is said. The wall is the first at {:.0}% of what it can: cable, server's CPU, machine's CPU. A million \
         mails cost what a mail costs, a million times.",
        100.0 * FULL
    ));
    report.note("No switch, no driver and no interrupt of a real card is in it; server and senders share this machine's cores.");
    report
}

fn table(found: &[SpeedFigures]) -> Table {
    let mut table = Table::new(
        "Mail through a cable",
        &[
            ("cable", "Mbit/s"),
            ("mails", "1/s"),
            ("a day", "M"),
            ("the wall", ""),
            ("cable", "%"),
            ("server", "cores"),
            ("machine", "%"),
            ("disk", "MB/s"),
            ("memory", "MiB"),
            ("a million", "CPU s"),
            ("a million", "GB"),
        ],
    );
    for one in found {
        let rate = middle(&rates(&one.series));
        let doubt = one.series.doubt().map(|doubt| format!(" ({doubt})")).unwrap_or_default();
        table.row([
            one.megabits.to_string(),
            rate.map_or_else(|| "–".to_owned(), |rate| grouped(rate as u64)),
            cell(rate.map(|rate| rate * DAY_S / 1e6), 1),
            format!("{}{doubt}", one.wall().words()),
            cell(one.middle(|used| 100.0 * used.link), 0),
            cell(middle_of(&one.series, cores_busy), 2),
            cell(one.middle(|used| 100.0 * used.machine), 0),
            cell(one.middle(|used| used.disk_bytes_per_s / 1e6), 1),
            cell(middle_of(&one.series, |sample| sample.rss_bytes as f64 / f64::from(1 << 20)), 0),
            cell(middle(&one.series.costs_us()), 0),
            cell(one.middle(|used| used.wire_bytes / 1e3), 1),
        ]);
    }
    table
}

/// Judges whether the link was the bottleneck, and whether a faster link brought more mails.
fn judged(found: &[SpeedFigures]) -> (Verdict, String) {
    let of = |megabits| found.iter().find(|one: &&SpeedFigures| one.megabits == megabits);
    let (Some(slow), Some(fast)) = (of(10), of(100)) else {
        return (Verdict::CannotBeTestedHere, "not both cables were laid".to_owned());
    };
    let ratio = Ratio::paired(&rates(&fast.series), &rates(&slow.series));
    let day = |one: &SpeedFigures| middle(&rates(&one.series)).unwrap_or(0.0) * DAY_S / 1e6;
    let said = format!(
        "{:.0} M a day by 10 Mbit/s ({}), {:.0} M by 100 ({}): {}",
        day(slow),
        slow.wall().words(),
        day(fast),
        fast.wall().words(),
        times(ratio.as_ref())
    );
    if let Some(doubt) = slow.series.doubt().or(fast.series.doubt()) {
        return (Verdict::TooNoisyToSay, format!("{said}; {doubt}"));
    }
    let verdict = match (slow.wall(), gain(ratio.as_ref(), PUBLISHED)) {
        // A factor more than one and a half times the published one counts as another figure.
        (Bottleneck::Link, Verdict::Holds)
            if ratio.as_ref().is_some_and(|ratio| ratio.low > 1.5 * PUBLISHED) =>
        {
            Verdict::HoldsWithAnotherFigure
        }
        (Bottleneck::Link, verdict) => verdict,
        (_, Verdict::TooNoisyToSay) => Verdict::TooNoisyToSay,
        _ => Verdict::DoesNotHoldHere,
    };
    (verdict, said)
}

fn figure(found: &[SpeedFigures], report: &mut Report) {
    let points: Vec<(f64, f64)> = found
        .iter()
        .filter_map(|one| Some((f64::from(one.megabits), middle(&rates(&one.series))? * DAY_S / 1e6)))
        .collect();
    let bound: Vec<(f64, f64)> = found
        .iter()
        .filter_map(|one| {
            let bytes = one.middle(|used| used.wire_bytes)?;
            let megabits = f64::from(one.megabits);
            Some((megabits, megabits * 1e6 / 8.0 / bytes * DAY_S / 1e6))
        })
        .collect();
    if points.len() < 2 {
        return;
    }
    let highest = points.iter().chain(&bound).map(|point| point.1).fold(10.0, f64::max);
    let lowest = points.iter().chain(&bound).map(|point| point.1).fold(1e3, f64::min);
    let plot = Plot {
        x: Axis::log("cable [Mbit/s]", 10.0, 1_000.0),
        left: Axis::log(
            "mails a day [millions]",
            10_f64.powf(lowest.max(0.1).log10().floor()),
            10_f64.powf(highest.log10().ceil()),
        ),
        right: None,
        series: vec![
            Curve::new("measured", Stroke::One, points).with_discs(),
            Curve::new("what the cable can carry", Stroke::Three, bound),
        ],
        references: Vec::new(),
    };
    let title = "Mails a day over the speed of the cable";
    report.figure(
        title,
        plot.draw(title),
        "Where the curves part, something else than the cable is the wall.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::servers::planted;

    fn found(megabits: u32, per_s: f64, link: f64, cpu_s: f64, machine: f64) -> SpeedFigures {
        let used = Utilization { link, machine, wire_bytes: 4_300.0, disk_bytes_per_s: 0.0 };
        let series = planted("mail", &[per_s, per_s * 1.01, per_s * 0.99], cpu_s);
        SpeedFigures { megabits, series, uses: vec![used; 3], cores: 2 }
    }

    #[test]
    fn the_planted_wall_is_named() {
        assert_eq!(found(10, 290.0, 0.97, 0.1, 0.1).wall(), Bottleneck::Link);
        assert_eq!(found(100, 290.0, 0.5, 1.9, 1.0).wall(), Bottleneck::Server);
        assert_eq!(found(100, 290.0, 0.5, 0.9, 0.98).wall(), Bottleneck::Machine);
        assert_eq!(found(100, 290.0, 0.5, 0.3, 0.4).wall(), Bottleneck::Waiting);
    }

    #[test]
    fn the_verdict_follows_the_planted_gain() {
        let slow = || found(10, 290.0, 0.97, 0.1, 0.1);
        let judged = |slow: SpeedFigures, fast: SpeedFigures| judged(&[slow, fast]).0;
        assert_eq!(judged(slow(), found(100, 600.0, 0.2, 1.9, 1.0)), Verdict::Holds);
        assert_eq!(judged(slow(), found(100, 2_800.0, 0.97, 0.9, 0.6)), Verdict::HoldsWithAnotherFigure);
        assert_eq!(judged(slow(), found(100, 400.0, 0.1, 1.9, 1.0)), Verdict::HoldsWithAnotherFigure);
        assert_eq!(judged(slow(), found(100, 250.0, 0.1, 1.9, 1.0)), Verdict::DoesNotHoldHere);
        // The rate rose, but the link was not full before: it was not the bottleneck.
        assert_eq!(
            judged(found(10, 290.0, 0.4, 1.9, 1.0), found(100, 600.0, 0.1, 1.9, 1.0)),
            Verdict::DoesNotHoldHere
        );
        assert_eq!(super::judged(&[slow()]).0, Verdict::CannotBeTestedHere);
    }
}
