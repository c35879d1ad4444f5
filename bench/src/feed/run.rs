//! A run of the feed bench: starts the servers, measures them in rounds, judges the figures and writes the
//! record.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::paired::{Sample, interleave, measure};
use lab::peers::PeerError;
use lab::peers::feed::contenders::{self, Contender, ServerProcess};
use lab::peers::feed::drive::{Load, driven, driven_across};
use lab::placement::within;

use crate::feed::asking::asking;
use crate::feed::crowd::{self, Crowd};
use crate::feed::figures::{self, AT_HUB, TWO_CORES};
use crate::feed::hub::{self, Hub};
use crate::feed::scenarios::{self, OTHERS, Pattern, Scenario, Sides};
use crate::feed::{Options, latency};
use crate::record::Comparison;
use crate::selection;
use crate::session::{Outcome, Session, Tools};

const CROWD_ROUNDS: usize = 3;
const TOOLS: Tools =
    Tools { all: &[("cc", "gcc"), ("taskset", "util-linux")], script: "bench/install-feed-peers.sh" };

/// Runs the bench. Returns `Ok(false)` when an installed contender did not work.
pub(crate) fn run(options: &Options, remarks: Vec<String>) -> Result<bool, PeerError> {
    let mut bench = Bench::prepare(options, remarks)?;
    let scenarios = bench.selected(options)?;
    let mut running = bench.start(options, &scenarios)?;
    let hub = bench.start_leaves(&scenarios, &mut running);
    let mut outcome = Outcome::default();
    for scenario in &scenarios {
        if let Some(comparison) = bench.scenario(options, scenario, &running, hub.as_ref())? {
            println!("\n{}", comparison.table(Contender::Floor.name()));
            outcome.comparisons.push(comparison);
        }
    }
    running.retain(|server| !server.name.ends_with(TWO_CORES) && !server.name.ends_with(AT_HUB));
    drop(hub);
    outcome.figures = figures::all(&outcome.comparisons);
    if options.selection.has_scenario("latency") {
        bench.latency(options, &running, &mut outcome)?;
    }
    if options.selection.has_scenario("churn") {
        bench.churn(options, &running, &mut outcome)?;
    }
    // The servers are stopped before memory is measured, so that the fresh ones have the machine to
    // themselves.
    running.clear();
    if options.selection.has_scenario("crowd") {
        bench.crowd(options, &mut outcome)?;
    }
    let name = ("bench-feed", Contender::Floor.name());
    bench.session.record(&options.selection.records(), name, outcome, |comparison, _| {
        !comparison.scenario.starts_with("cores")
    })
}

/// A [`Session`] with the programs of the contenders.
struct Bench {
    session: Session,
    programs: Vec<(Contender, PathBuf)>,
}

impl Bench {
    fn prepare(options: &Options, remarks: Vec<String>) -> Result<Self, PeerError> {
        options.selection.contenders(&Contender::ALL, Contender::name)?;
        let mut session = Session::begin(TOOLS, remarks)?;
        session.take_load_core()?;
        let cores = format!("server {}, load {} (one thread)", session.server, session.load);
        session.set([("cores", cores)]);
        Ok(Self { session, programs: Vec::new() })
    }

    /// Returns the selected closed-loop scenarios.
    fn selected(&self, options: &Options) -> Result<Vec<Scenario>, PeerError> {
        let mut all = scenarios::all(options.selection.quick);
        let names = all.iter().map(|scenario| scenario.name).chain(OTHERS.map(|(name, _)| name));
        selection::known("scenario", &options.selection.scenario, names)?;
        all.retain(|scenario| options.selection.has_scenario(scenario.name));
        for scenario in &mut all {
            scenario.run = options.milliseconds.map_or(scenario.run, Duration::from_millis);
        }
        Ok(all)
    }

    /// Starts every selected contender that is installed; floors once for each number of consumers.
    fn start(&mut self, options: &Options, scenarios: &[Scenario]) -> Result<Vec<ServerProcess>, PeerError> {
        let two_cores_wanted = scenarios.iter().any(|scenario| scenario.sides == Sides::OneAndTwo);
        let mut all = Vec::new();
        for contender in options.selection.contenders(&Contender::ALL, Contender::name)? {
            let version = |program: &Path| contender.version(program);
            let Some(program) = self.session.program(contender.name(), contender.program(), version) else {
                continue;
            };
            self.programs.push((contender, program));
            if contender.is_floor() {
                let mut sizes: Vec<usize> = scenarios
                    .iter()
                    .filter(|scenario| scenario.sides == Sides::Apart)
                    .map(|scenario| scenario.shape.consumers)
                    .collect();
                sizes.extend(options.selection.has_scenario("latency").then_some(1));
                sizes.sort_unstable();
                sizes.dedup();
                for consumers in sizes {
                    all.extend(self.started(contender, contender.name(), Sides::Apart, Some(consumers)));
                }
                continue;
            }
            all.extend(self.started(contender, contender.name(), Sides::Apart, None));
            if two_cores_wanted && matches!(contender, Contender::Ours | Contender::Nats) {
                let name = format!("{}{TWO_CORES}", contender.name());
                all.extend(self.started(contender, &name, Sides::OneAndTwo, None));
            }
        }
        Ok(all)
    }

    /// Starts a server. A failed start is recorded as a remark and makes the bench fail at its end.
    fn started(
        &mut self,
        contender: Contender,
        name: &str,
        sides: Sides,
        consumers: Option<usize>,
    ) -> Option<ServerProcess> {
        let program = self.programs.iter().find(|(known, _)| *known == contender)?.1.clone();
        let cores = match sides {
            Sides::Apart | Sides::Leaf => &self.session.server,
            Sides::OneAndTwo => &self.session.both,
        };
        let started = contenders::start(
            contender,
            name,
            &program,
            self.session.work.path(),
            (Ipv4Addr::LOCALHOST, cores),
            consumers,
        );
        self.session.up(started)
    }

    /// Starts a hub on the load's core and its leaf nodes, if a scenario needs them and nats-server is
    /// installed.
    fn start_leaves(&mut self, scenarios: &[Scenario], running: &mut Vec<ServerProcess>) -> Option<Hub> {
        let is_wanted = scenarios.iter().any(|scenario| scenario.sides == Sides::Leaf);
        let program = |contender| {
            self.programs.iter().find(|(known, _)| *known == contender).map(|(_, program)| program.clone())
        };
        let (nats, ours) = (program(Contender::Nats).filter(|_| is_wanted)?, program(Contender::Ours));
        let hub = hub::start(&nats, self.session.work.path(), &self.session.load);
        let hub = self.session.up(hub)?;
        for (contender, program) in [(Contender::Nats, Some(nats)), (Contender::Ours, ours)] {
            let Some(program) = program else { continue };
            let name = format!("{}{AT_HUB}", contender.name());
            let work = self.session.work.path();
            let joined = hub::join(contender, &name, &program, work, &self.session.server, &hub);
            running.extend(self.session.up(joined));
        }
        Some(hub)
    }

    /// Measures every contender of one scenario; `None` when there is none.
    fn scenario(
        &mut self,
        options: &Options,
        scenario: &Scenario,
        running: &[ServerProcess],
        hub: Option<&Hub>,
    ) -> Result<Option<Comparison>, PeerError> {
        let takes_part = |server: &&ServerProcess| match scenario.sides {
            Sides::Apart => {
                !server.name.ends_with(TWO_CORES)
                    && !server.name.ends_with(AT_HUB)
                    && server.consumers.is_none_or(|only| only == scenario.shape.consumers)
                    && scenario.is_for(server.contender)
            }
            Sides::OneAndTwo => {
                matches!(server.contender, Contender::Ours | Contender::Nats)
                    && !server.name.ends_with(AT_HUB)
            }
            Sides::Leaf => {
                hub.is_some() && (server.name.ends_with(AT_HUB) || server.name == Contender::Ours.name())
            }
        };
        let contenders: Vec<(String, &ServerProcess)> =
            running.iter().filter(takes_part).map(|server| (server.name.clone(), server)).collect();
        if contenders.is_empty() {
            return Ok(None);
        }
        let rounds = options.selection.pairs(scenario.rounds);
        let milliseconds = scenario.run.as_millis();
        println!("{}: {} contenders × {rounds} rounds × {milliseconds} ms", scenario.name, contenders.len());
        let both = self.session.both.list();
        let drive = |server: &ServerProcess, threads: usize| {
            if let Pattern::Asking(askers) = scenario.pattern {
                return asking(server.address, askers, scenario.shape.payload_bytes, scenario.run);
            }
            let threads = threads.min(scenario.shape.flows);
            let load = Load { shape: scenario.shape.clone(), threads, duration: scenario.run };
            match hub.filter(|_| server.name.ends_with(AT_HUB)) {
                Some(hub) => {
                    driven_across(server.contender.wire(), server.address, hub.running.address, &load)
                }
                None => driven(server.contender.wire(), server.address, &load),
            }
        };
        let mut failures = Vec::new();
        let series = interleave(&contenders, rounds, |server, _| {
            let measured = measure(&server.tree, &server.cores, || match scenario.sides {
                Sides::Apart | Sides::Leaf => drive(server, 1),
                // Two threads on both cores drive the load if there are enough flows. Threads inherit their
                // CPU affinity.
                Sides::OneAndTwo => within(both, || drive(server, both.len()))?,
            });
            // If a server dies or loses a message, the sample is empty, with the reason.
            measured.or_else(|error| {
                let why = format!("{} in {}: {error}", server.name, scenario.name);
                println!("{why}");
                failures.push(why.clone());
                Ok::<_, PeerError>(Sample::nothing(why))
            })
        })?;
        self.session.has_failed |= !failures.is_empty();
        Ok(Some(Comparison {
            scenario: scenario.name.into(),
            what: scenario.what(),
            unit: scenario.unit().into(),
            series,
        }))
    }

    fn latency(
        &mut self,
        options: &Options,
        running: &[ServerProcess],
        outcome: &mut Outcome,
    ) -> Result<(), PeerError> {
        let one: Vec<&ServerProcess> =
            running.iter().filter(|server| server.consumers.is_none_or(|consumers| consumers == 1)).collect();
        let all = latency::measure(&one, &options.selection)?;
        outcome.figures.extend(latency::figures(&all));
        outcome.tables.extend(latency::tables(&all));
        outcome.attached.insert("latency".into(), serde_json::to_value(&all).map_err(std::io::Error::from)?);
        Ok(())
    }

    fn churn(
        &mut self,
        options: &Options,
        running: &[ServerProcess],
        outcome: &mut Outcome,
    ) -> Result<(), PeerError> {
        let mut all = Vec::new();
        for server in
            running.iter().filter(|server| server.contender.wire() == lab::peers::feed::wire::Wire::Nats)
        {
            match crowd::churn(server, options.selection.quick) {
                Ok(churn) => all.push(churn),
                Err(error) => self.session.fail(format!("{} in churn: {error}", server.name)),
            }
        }
        outcome.tables.extend(crowd::churn_table(&all));
        outcome.attached.insert("churn".into(), serde_json::to_value(&all).map_err(std::io::Error::from)?);
        Ok(())
    }

    fn crowd(&mut self, options: &Options, outcome: &mut Outcome) -> Result<(), PeerError> {
        let takes_part = |contender: &Contender| contender.wire() == lab::peers::feed::wire::Wire::Nats;
        let here: Vec<Contender> =
            self.programs.iter().map(|(contender, _)| *contender).filter(takes_part).collect();
        let mut all: Vec<Crowd> =
            here.iter().map(|contender| Crowd::of(contender.name(), options.selection.quick)).collect();
        let rounds = options.selection.pairs(CROWD_ROUNDS);
        println!("crowd: {} contenders × {rounds} rounds", here.len());
        for _ in 0..rounds {
            for (&contender, crowd) in here.iter().zip(&mut all) {
                let Some(server) = self.started(contender, contender.name(), Sides::Apart, None) else {
                    continue;
                };
                if let Err(error) = crowd.round(&server) {
                    self.session.fail(format!("{} in crowd: {error}", contender.name()));
                }
            }
        }
        outcome.figures.extend(crowd::figures(&all));
        outcome.tables.extend(crowd::table(&all));
        outcome.attached.insert("crowd".into(), serde_json::to_value(&all).map_err(std::io::Error::from)?);
        Ok(())
    }
}
