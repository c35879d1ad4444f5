//! `cache-vs-peers`: CPU time per hit of our accelerator and of five others, measured alternately (C1).
//!
//! ```text
//!   first core: the server being measured (all run, one is busy)     last core: wrk, 64 connections, one page of 1 KiB
//! ```
//! The servers, their settings and the load are those of `make bench PART=cache`, which has more scenarios
//! and a record.

use std::path::PathBuf;

use serde::Serialize;

use super::servers::{cell, cores_busy, doubt, gain, middle, middle_of, rates, times};
use crate::{
    experiment::{Experiment, Options, Refusal, Report, Table, Verdict},
    paired::{Sample, Series, Work, interleave, measure, place::find, spread::Ratio, tree::Cores},
    peers::{
        PeerError,
        cache::{
            contenders::{self, Contender, Ground, KIB, ServerProcess},
            load::{Filler, LoadSpec, Scripts, Urls, wrk},
            origin::{Bodies, Origin, Page},
        },
    },
    placement::allowed,
    report::grouped,
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cache-vs-peers",
    claims: &["C1"],
    title: "what a hit costs: ours beside Squid, Varnish and three others",
    statement: "An accelerator that leaves memory to the kernel needs far less CPU than one that does not: twelve Squids \
                at their limit became three Varnishes that were 90% idle (about 40 times)",
    source: "P.-H. Kamp, You're Doing It Wrong, ACM Queue 8(6), June 2010",
    run,
};

/// Published factor: 12 fully loaded machines against 3 that are 10% busy.
const PUBLISHED: f64 = 40.0;
const MEMORY_MIB: u64 = 256;
const CONNECTIONS: u32 = 64;
/// Maximum share of answers that may come from the origin.
const MISS_SHARE_MAX: f64 = 0.001;
/// Requests for the page before the measurement, so that each cache has it in its fastest storage.
const FILLS: usize = 4;

/// Servers that the claim is about; a quick run has only these.
const CLAIMED: [Contender; 3] = [Contender::Ours, Contender::Squid, Contender::Varnish];
/// Servers in the comparison, without the minimal programs (`Contender::is_floor`) that only mark a lower
/// bound of the cost.
const WANTED: [Contender; 6] = [
    Contender::Ours,
    Contender::Squid,
    Contender::Varnish,
    Contender::Nginx,
    Contender::Haproxy,
    Contender::TrafficServer,
];

/// The part of the setup that does not change from server to server.
#[derive(Debug)]
pub(super) struct Bench {
    directory: tempfile::TempDir,
    origin: Origin,
    bodies: Bodies,
    scripts: Scripts,
}

impl Bench {
    /// Prepares the bench, and checks that wrk and the tools that start servers as another user are
    /// installed.
    pub(super) fn prepared() -> Result<Self, Refusal> {
        for (tool, package) in [("wrk", "wrk"), ("taskset", "util-linux"), ("setpriv", "util-linux")] {
            if find(tool).is_none() {
                return Err(Refusal::Missing(format!("{tool} is not installed: apt-get install {package}")));
            }
        }
        Self::plain()
    }

    /// Prepares the bench without checking the tools: for our server alone, under our own load generator.
    pub(super) fn plain() -> Result<Self, Refusal> {
        let directory = super::servers::directory()?;
        let scripts = Scripts::write(directory.path())?;
        let origin = Origin::start().map_err(PeerError::from)?;
        Ok(Self { directory, origin, bodies: Bodies::new(), scripts })
    }

    /// Starts a server and requests the page until it is stored.
    pub(super) fn filled(
        &self,
        contender: Contender,
        name: &str,
        program: &std::path::Path,
        cores: &Cores,
        load: &Cores,
    ) -> Result<ServerProcess, PeerError> {
        let ground = Ground {
            directory: self.directory.path(),
            origin_port: self.origin.port,
            memory_mib: MEMORY_MIB,
            bodies: &self.bodies,
            certificates: None,
        };
        let server = contenders::start(contender, name, program, &ground, (cores, load), None)?;
        let mut filler = Filler::new(server.port, &self.bodies);
        for _ in 0..FILLS {
            filler.fetch(KIB, 0)?;
        }
        Ok(server)
    }

    /// Measures one round. If the server dies or the load fails, the sample is empty and states the reason.
    pub(super) fn sample(&self, server: &ServerProcess, seconds: u64) -> Sample {
        let asked =
            LoadSpec { page: Page::Shared, body_bytes: KIB, connections: CONNECTIONS, urls: Urls::One };
        let measured = measure(&server.tree, &server.cores, || {
            let before = self.origin.requests();
            let mut work: Work = wrk(&self.scripts, &asked, server.port, &server.load_cores, seconds)?;
            let missed = self.origin.requests() - before;
            if missed as f64 > work.units as f64 * MISS_SHARE_MAX {
                work.doubts.push(format!("{missed} of {} answers came from the origin", work.units));
            }
            Ok::<_, PeerError>(work)
        });
        measured.unwrap_or_else(|error| Sample::nothing(error.to_string()))
    }
}

fn run(options: &Options) -> Result<Report, Refusal> {
    let mut here = Vec::new();
    let mut remarks = Vec::new();
    for contender in WANTED {
        if options.quick && !CLAIMED.contains(&contender) {
            continue;
        }
        match contender.program() {
            Ok(program) => here.push((contender, program)),
            Err(why) if contender == Contender::Ours => return Err(Refusal::Missing(why)),
            Err(why) => remarks.push(why),
        }
    }
    let (rounds, seconds) = if options.quick { (3, 1) } else { (7, 2) };
    let series = measured(&here, (rounds, seconds), &mut remarks, &|what| options.say(what))?;
    let mut report = report(&series);
    if options.quick {
        report.note("nginx, haproxy and Traffic Server take part without --quick only.");
    }
    for remark in remarks {
        report.note(remark);
    }
    Ok(report)
}

fn measured(
    here: &[(Contender, PathBuf)],
    (rounds, seconds): (usize, u64),
    remarks: &mut Vec<String>,
    say: &dyn Fn(&str),
) -> Result<Vec<Series>, Refusal> {
    let bench = Bench::prepared()?;
    let allowed = allowed().map_err(PeerError::from)?;
    let core = |core: Option<&usize>| {
        core.and_then(|core| Cores::new(vec![*core]))
            .ok_or_else(|| Refusal::Missing("no processor may be used".to_owned()))
    };
    let (server, load) = (core(allowed.first())?, core(allowed.last())?);
    if allowed.len() < 2 {
        remarks.push("there is one core only: server and load share it".to_owned());
    }
    let mut running = Vec::new();
    for (contender, program) in here {
        say(&format!("starting {}", contender.name()));
        match bench.filled(*contender, contender.name(), program, &server, &load) {
            Ok(started) => running.push((contender.name().to_owned(), started)),
            Err(error) => remarks.push(error.to_string()),
        }
    }
    interleave(&running, rounds, |started, round| {
        say(&format!("round {} of {rounds}: {}", round + 1, started.name));
        Ok(bench.sample(started, seconds))
    })
}

/// Ratio of the costs of two servers.
#[derive(Debug, Clone, Serialize)]
struct CostRatio {
    dear: &'static str,
    cheap: &'static str,
    ratio: Option<Ratio>,
}

fn report(series: &[Series]) -> Report {
    let of = |name: &str| series.iter().find(|series| series.name == name);
    let against =
        [(Contender::Squid, Contender::Varnish), (Contender::Squid, Contender::Ours)].map(|(dear, cheap)| {
            let ratio = of(dear.name())
                .zip(of(cheap.name()))
                .and_then(|(dear, cheap)| Ratio::paired(&dear.costs_us(), &cheap.costs_us()));
            CostRatio { dear: dear.name(), cheap: cheap.name(), ratio }
        });
    let mut report =
        Report { data: serde_json::json!({ "series": series, "against": against }), ..Report::default() };
    report.tables.push(table(series));
    for one in &against {
        let ours = format!("{} costs {} as much a hit as {}", one.dear, times(one.ratio.as_ref()), one.cheap);
        let doubted = doubt([one.dear, one.cheap].into_iter().filter_map(of));
        let (verdict, ours) = match (&one.ratio, doubted) {
            (Some(_), Some(doubt)) => (Verdict::TooNoisyToSay, format!("{ours}; {doubt}")),
            (None, _) => (Verdict::CannotBeTestedHere, format!("{} or {} took no part", one.dear, one.cheap)),
            (ratio, None) => (gain(ratio.as_ref(), PUBLISHED), ours),
        };
        report.judge("C1", "Varnish for Squid: about 40 times less CPU", ours, verdict);
    }
    report.note(
        "CPU of the server's whole process tree, one core each, logs off, memory alike, one page of 1 KiB that is in \
         memory. Most of a hit is the kernel's today (receiving, sending): it costs everybody the same. The published \
         factor was one site's, with disks, and against the Squid of its time.",
    );
    report.note("More scenarios, floors and a record: make bench PART=cache.");
    report
}

fn table(series: &[Series]) -> Table {
    let mut table = Table::new(
        "A hit on a page of 1 KiB, 64 connections",
        &[
            ("server", ""),
            ("CPU", "µs a hit"),
            ("to ours", ""),
            ("of it in the kernel", "%"),
            ("hits", "1/s"),
            ("its core busy", "%"),
            ("resident", "MiB"),
            ("doubt", ""),
        ],
    );
    let ours = series.iter().find(|series| series.name == Contender::Ours.name());
    let base = ours.map(Series::costs_us).unwrap_or_default();
    for one in series {
        let costs = one.costs_us();
        let kernel = |sample: &Sample| {
            100.0 * sample.cpu_system_s / (sample.cpu_user_s + sample.cpu_system_s).max(1e-9)
        };
        table.row([
            one.name.clone(),
            cell(middle(&costs), 2),
            times(Ratio::paired(&costs, &base).as_ref()),
            cell(middle_of(one, kernel), 0),
            middle(&rates(one)).map_or_else(|| "–".to_owned(), |rate| grouped(rate as u64)),
            cell(middle_of(one, cores_busy).map(|busy| 100.0 * busy), 0),
            cell(middle_of(one, |sample| sample.rss_bytes as f64 / f64::from(1 << 20)), 0),
            one.doubt().unwrap_or_default().to_owned(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::servers::planted;

    fn verdicts(squid: &[f64], varnish: &[f64]) -> Vec<Verdict> {
        // Each server used one second of CPU time, so more served requests mean a lower cost per request.
        let all = [planted("squid", squid, 1.0), planted("varnish", varnish, 1.0)];
        report(&all).verdicts.iter().map(|judgement| judgement.verdict).collect()
    }

    #[test]
    fn the_verdict_follows_the_planted_difference() {
        let squid = [1_000.0, 1_010.0, 990.0];
        assert_eq!(verdicts(&squid, &[45_000.0; 3])[0], Verdict::Holds);
        assert_eq!(verdicts(&squid, &[1_300.0; 3])[0], Verdict::HoldsWithAnotherFigure);
        assert_eq!(verdicts(&squid, &[1_000.0; 3])[0], Verdict::DoesNotHoldHere);
        assert_eq!(verdicts(&squid, &[700.0, 2_000.0, 900.0])[0], Verdict::TooNoisyToSay);
        assert_eq!(verdicts(&squid, &[500.0; 3])[0], Verdict::DoesNotHoldHere);
    }

    #[test]
    fn absent_or_doubtful_peers_are_not_judged() {
        assert_eq!(
            verdicts(&[1_000.0; 3], &[9_000.0; 3])[1],
            Verdict::CannotBeTestedHere,
            "ours is not here"
        );
        let mut squid = planted("squid", &[1_000.0; 3], 1.0);
        squid.samples[2].doubts.push("timeouts".into());
        let all = [squid, planted("varnish", &[9_000.0; 3], 1.0)];
        assert_eq!(report(&all).verdicts[0].verdict, Verdict::TooNoisyToSay);
    }
}
