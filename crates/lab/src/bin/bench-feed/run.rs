//! The run: start, measure in rounds, judge, record.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::paired::machine::{self, Machine};
use lab::paired::place::find;
use lab::paired::record::{Comparison, Figure, Record};
use lab::paired::spread::median;
use lab::paired::tree::Cores;
use lab::paired::{Sample, interleave, measure};
use lab::placement::{restrict, within};
use lab::report::{Table, text};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::crowd::{self, Crowd};
use crate::figures::{self, AT_HUB, TWO_CORES};
use crate::scenarios::{self, OTHERS, Pattern, Scenario, Sides};
use lab::peers::PeerError;
use lab::peers::feed::asking::asking;
use lab::peers::feed::contenders::{self, Contender, Running};
use lab::peers::feed::drive::{Load, driven, driven_across};
use lab::peers::feed::hub::{self, Hub};

use crate::{Options, latency};

/// From here on the record says that others were at work.
const FOREIGN_SHARE_NOISY: f64 = 0.1;
const CROWD_ROUNDS: usize = 3;
const TOOLS: [(&str, &str); 2] = [("cc", "gcc"), ("taskset", "util-linux")];
const WIDTH: usize = 140;

/// `Ok(false)` when a contender that is here did not work.
pub(crate) fn run(options: &Options, remarks: Vec<String>) -> Result<bool, PeerError> {
    let mut bench = Bench::prepare(options, remarks)?;
    let begun = Instant::now();
    let scenarios = bench.chosen(options)?;
    let mut running = bench.start(options, &scenarios)?;
    let hub = bench.start_leaves(&scenarios, &mut running);
    let mut comparisons = Vec::new();
    for scenario in &scenarios {
        if let Some(comparison) = bench.scenario(options, scenario, &running, hub.as_ref())? {
            println!("\n{}", comparison.table(Contender::Floor.name()));
            comparisons.push(comparison);
        }
    }
    running.retain(|server| !server.name.ends_with(TWO_CORES) && !server.name.ends_with(AT_HUB));
    drop(hub);
    let mut figures = figures::all(&comparisons);
    let mut tables = Vec::new();
    let mut attached = BTreeMap::new();
    if bench.wants("latency") {
        bench.latency(options, &running, &mut figures, &mut tables, &mut attached)?;
    }
    if bench.wants("churn") {
        bench.churn(options, &running, &mut tables, &mut attached)?;
    }
    // Stopped before memory is looked at, so that the fresh ones have the machine to themselves.
    running.clear();
    if bench.wants("crowd") {
        bench.crowd(options, &mut figures, &mut tables, &mut attached)?;
    }
    bench.settings.insert("took".into(), format!("{} s", begun.elapsed().as_secs()));
    if let Some(share) = disturbance(&comparisons).filter(|share| *share > FOREIGN_SHARE_NOISY) {
        let percent = 100.0 * share;
        bench
            .remarks
            .push(format!("not a quiet machine: others used {percent:.0}% of the server's core (median)"));
    }
    let record = Record {
        name: "bench-feed".into(),
        date: bench.date,
        commit: machine::commit(),
        machine: bench.machine,
        settings: bench.settings,
        versions: bench.versions,
        reference: Contender::Floor.name().into(),
        figures,
        comparisons,
        tables,
        attached,
        remarks: bench.remarks,
    };
    for table in &record.tables {
        let mut shown = String::new();
        text::table(&mut shown, table, WIDTH);
        println!("{shown}");
    }
    for figure in &record.figures {
        println!("{}", figure.line());
    }
    for remark in &record.remarks {
        println!("({remark})");
    }
    let directory = options.chosen.records();
    let path = record.write(&directory)?;
    println!("{}", path.display());
    Ok(!bench.failed)
}

/// The median over all rounds in which the server had its core to itself, by the plan, of what others used of it.
fn disturbance(comparisons: &[Comparison]) -> Option<f64> {
    let samples = comparisons
        .iter()
        .filter(|comparison| !comparison.scenario.starts_with("cores"))
        .flat_map(|comparison| &comparison.series);
    let shares: Vec<f64> =
        samples.flat_map(|series| &series.samples).map(|sample| sample.foreign_share).collect();
    median(&shares)
}

type Attached = BTreeMap<String, serde_json::Value>;

/// What stands while contenders come and go.
struct Bench {
    work: tempfile::TempDir,
    server: Cores,
    both: Cores,
    programs: Vec<(Contender, PathBuf)>,
    wanted: Vec<String>,
    date: String,
    machine: Machine,
    settings: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
    remarks: Vec<String>,
    failed: bool,
}

impl Bench {
    fn prepare(options: &Options, remarks: Vec<String>) -> Result<Self, PeerError> {
        let missing: Vec<&str> =
            TOOLS.iter().filter(|(tool, _)| find(tool).is_none()).map(|&(_, package)| package).collect();
        if !missing.is_empty() {
            let packages = missing.join(" ");
            return Err(PeerError::failed(format!(
                "needs {packages}: sudo apt-get install {packages}, or all of it by sudo bench/install-feed-peers.sh"
            )));
        }
        let [first, second, ..] = Cores::allowed()?[..] else {
            return Err(PeerError::failed("needs two processors: one for the server, one for the load"));
        };
        let server = Cores::new(vec![first]).ok_or_else(|| PeerError::failed("no core"))?;
        let both = Cores::new(vec![first, second]).ok_or_else(|| PeerError::failed("no cores"))?;
        let machine = Machine::here();
        restrict(&[second])?;
        // Ten thousand connections on either side.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
            .map_err(std::io::Error::from)?;
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let work = tempfile::Builder::new().prefix("nighttrain-bench-").tempdir_in(parent)?;
        let settings =
            BTreeMap::from([("cores".into(), format!("server {server}, load {second} (one thread)"))]);
        Ok(Self {
            work,
            server,
            both,
            programs: Vec::new(),
            wanted: options.chosen.scenario.clone(),
            date: machine::date(),
            machine,
            settings,
            versions: BTreeMap::new(),
            remarks,
            failed: false,
        })
    }

    fn wants(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|wanted| wanted == name)
    }

    fn chosen(&self, options: &Options) -> Result<Vec<Scenario>, PeerError> {
        let mut all = scenarios::all(options.chosen.quick);
        let mut known: Vec<&str> = all.iter().map(|scenario| scenario.name).collect();
        known.extend(OTHERS.map(|(name, _)| name));
        if let Some(unknown) = self.wanted.iter().find(|name| !known.contains(&name.as_str())) {
            let known = known.join(", ");
            return Err(PeerError::failed(format!("there is no scenario {unknown}; there are {known}")));
        }
        for scenario in &mut all {
            scenario.run = options.milliseconds.map_or(scenario.run, Duration::from_millis);
        }
        Ok(all.into_iter().filter(|scenario| self.wants(scenario.name)).collect())
    }

    /// Starts everybody who is wanted and here; floors once for each number of consumers.
    fn start(&mut self, options: &Options, scenarios: &[Scenario]) -> Result<Vec<Running>, PeerError> {
        let names = Contender::ALL.map(Contender::name);
        if let Some(unknown) = options.chosen.only.iter().find(|name| !names.contains(&name.as_str())) {
            let known = names.join(", ");
            return Err(PeerError::failed(format!("there is no contender {unknown}; there are {known}")));
        }
        let two_cores_wanted = scenarios.iter().any(|scenario| scenario.sides == Sides::OneAndTwo);
        let mut all = Vec::new();
        for contender in Contender::ALL {
            if !options.chosen.only.is_empty()
                && !options.chosen.only.iter().any(|name| name == contender.name())
            {
                continue;
            }
            let program = match contender.program() {
                Ok(program) => program,
                Err(why) => {
                    println!("{why}");
                    self.remarks.push(why);
                    continue;
                }
            };
            self.versions.insert(contender.name().into(), contender.version(&program));
            self.programs.push((contender, program));
            if contender.is_floor() {
                let mut sizes: Vec<usize> = scenarios
                    .iter()
                    .filter(|scenario| scenario.sides == Sides::Apart)
                    .map(|scenario| scenario.shape.consumers)
                    .collect();
                sizes.extend(self.wants("latency").then_some(1));
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

    /// Starts a server; one that does not start is a remark, and makes the run fail in the end.
    fn started(
        &mut self,
        contender: Contender,
        name: &str,
        sides: Sides,
        consumers: Option<usize>,
    ) -> Option<Running> {
        let program = self.programs.iter().find(|(known, _)| *known == contender)?.1.clone();
        let cores = match sides {
            Sides::Apart | Sides::Leaf => &self.server,
            Sides::OneAndTwo => &self.both,
        };
        match contenders::start(
            contender,
            name,
            &program,
            self.work.path(),
            (Ipv4Addr::LOCALHOST, cores),
            consumers,
        ) {
            Ok(server) => Some(server),
            Err(error) => {
                let why = error.to_string();
                println!("{why}");
                self.remarks.push(why);
                self.failed = true;
                None
            }
        }
    }

    /// Starts a hub on the load's core, and who joins it, if a scenario is about that and there is a nats-server.
    fn start_leaves(&mut self, scenarios: &[Scenario], running: &mut Vec<Running>) -> Option<Hub> {
        let is_wanted = scenarios.iter().any(|scenario| scenario.sides == Sides::Leaf);
        let program = |contender| {
            self.programs.iter().find(|(known, _)| *known == contender).map(|(_, program)| program.clone())
        };
        let (nats, ours) = (program(Contender::Nats).filter(|_| is_wanted)?, program(Contender::Ours));
        let load = Cores::new(
            self.both.list().iter().copied().filter(|core| !self.server.list().contains(core)).collect(),
        )?;
        let hub = match hub::start(&nats, self.work.path(), &load) {
            Ok(hub) => hub,
            Err(error) => {
                self.fail(error.to_string());
                return None;
            }
        };
        for (contender, program) in [(Contender::Nats, Some(nats)), (Contender::Ours, ours)] {
            let Some(program) = program else { continue };
            let name = format!("{}{AT_HUB}", contender.name());
            match hub::join(contender, &name, &program, self.work.path(), &self.server, &hub) {
                Ok(server) => running.push(server),
                Err(error) => self.fail(error.to_string()),
            }
        }
        Some(hub)
    }

    /// Measures everybody in one scenario; `None` when nobody takes part.
    fn scenario(
        &mut self,
        options: &Options,
        scenario: &Scenario,
        running: &[Running],
        hub: Option<&Hub>,
    ) -> Result<Option<Comparison>, PeerError> {
        let takes_part = |server: &&Running| match scenario.sides {
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
        let contenders: Vec<(String, &Running)> =
            running.iter().filter(takes_part).map(|server| (server.name.clone(), server)).collect();
        if contenders.is_empty() {
            return Ok(None);
        }
        let rounds = options.chosen.rounds(scenario.rounds);
        let milliseconds = scenario.run.as_millis();
        println!("{}: {} contenders × {rounds} rounds × {milliseconds} ms", scenario.name, contenders.len());
        let both = self.both.list();
        let drive = |server: &Running, threads: usize| {
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
                // From two threads on both cores, where there are flows for two. Threads inherit where they may run.
                Sides::OneAndTwo => within(both, || drive(server, both.len()))?,
            });
            // A server that dies or loses a message is a sample of nothing, with the reason.
            measured.or_else(|error| {
                let why = format!("{} in {}: {error}", server.name, scenario.name);
                println!("{why}");
                failures.push(why.clone());
                Ok::<_, PeerError>(Sample::nothing(why))
            })
        })?;
        self.failed |= !failures.is_empty();
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
        running: &[Running],
        figures: &mut Vec<Figure>,
        tables: &mut Vec<Table>,
        attached: &mut Attached,
    ) -> Result<(), PeerError> {
        let one: Vec<&Running> =
            running.iter().filter(|server| server.consumers.is_none_or(|consumers| consumers == 1)).collect();
        let all = latency::measure(&one, options.chosen.quick, options.chosen.rounds)?;
        figures.extend(latency::figures(&all));
        tables.extend(latency::tables(&all));
        attached.insert("latency".into(), serde_json::to_value(&all).map_err(std::io::Error::from)?);
        Ok(())
    }

    fn churn(
        &mut self,
        options: &Options,
        running: &[Running],
        tables: &mut Vec<Table>,
        attached: &mut Attached,
    ) -> Result<(), PeerError> {
        let mut all = Vec::new();
        for server in
            running.iter().filter(|server| server.contender.wire() == lab::peers::feed::wire::Wire::Nats)
        {
            match crowd::churn(server, options.chosen.quick) {
                Ok(churn) => all.push(churn),
                Err(error) => self.fail(format!("{} in churn: {error}", server.name)),
            }
        }
        tables.extend(crowd::churn_table(&all));
        attached.insert("churn".into(), serde_json::to_value(&all).map_err(std::io::Error::from)?);
        Ok(())
    }

    fn crowd(
        &mut self,
        options: &Options,
        figures: &mut Vec<Figure>,
        tables: &mut Vec<Table>,
        attached: &mut Attached,
    ) -> Result<(), PeerError> {
        let takes_part = |contender: &Contender| contender.wire() == lab::peers::feed::wire::Wire::Nats;
        let here: Vec<Contender> =
            self.programs.iter().map(|(contender, _)| *contender).filter(takes_part).collect();
        let mut all: Vec<Crowd> =
            here.iter().map(|contender| Crowd::of(contender.name(), options.chosen.quick)).collect();
        let rounds = options.chosen.rounds(CROWD_ROUNDS);
        println!("crowd: {} contenders × {rounds} rounds", here.len());
        for _ in 0..rounds {
            for (&contender, crowd) in here.iter().zip(&mut all) {
                let Some(server) = self.started(contender, contender.name(), Sides::Apart, None) else {
                    continue;
                };
                if let Err(error) = crowd.round(&server) {
                    self.fail(format!("{} in crowd: {error}", contender.name()));
                }
            }
        }
        figures.extend(crowd::figures(&all));
        tables.extend(crowd::table(&all));
        attached.insert("crowd".into(), serde_json::to_value(&all).map_err(std::io::Error::from)?);
        Ok(())
    }

    fn fail(&mut self, why: String) {
        println!("{why}");
        self.remarks.push(why);
        self.failed = true;
    }
}
