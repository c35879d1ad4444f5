//! A run of the cache bench: starts and fills the servers, measures them in rounds, judges the figures and
//! writes the record.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use lab::paired::place::sibling;
use lab::paired::tree::{Cores, pinned};
use lab::paired::{Sample, interleave, measure};
use lab::peers::PeerError;
use lab::peers::cache::contenders::{Contender, ServerProcess};
use lab::peers::cache::load::{self, Filler, LoadSpec, Scripts};
use lab::peers::cache::origin::Page;

use crate::cache::Options;
use crate::cache::crowd;
use crate::cache::figures::{self, OURS_ONE_SHARED, OURS_TWO};
use crate::cache::scenarios::{self, MISSES_A_ROUND, MISSES_FROM, Scenario, Sides};
use crate::cache::session::{CacheSession, MISS_SHARE_MAX, not_hits};
use crate::record::Comparison;
use crate::session::Outcome;

/// Memory of each cache, in a full and in a quick run.
const MEMORY_MIB: u64 = 2_048;
const MEMORY_QUICK_MIB: u64 = 256;
const SECONDS: u64 = 2;
/// Number of requests for a page that is not stored before it is measured: a cache may remember that the page
/// cannot be stored.
const WARM_UPS: usize = 2;
/// Maximum number of passes over all objects. A cache that still asks the origin after them is measured, but
/// its samples are doubtful.
const FILL_PASSES_MAX: usize = 4;
/// Number of connections that fill a cache in parallel, so that server and filler need not wait for each
/// other's wake-up.
const FILL_CONNECTIONS: usize = 4;
const TOOLS: [(&str, &str); 4] =
    [("wrk", "wrk"), ("cc", "gcc"), ("taskset", "util-linux"), ("setpriv", "util-linux")];

/// Seconds of a round, for each contender.
pub(crate) const fn seconds(quick: bool) -> u64 {
    if quick { 1 } else { SECONDS }
}

/// Runs the bench. Returns `Ok(false)` when an installed contender did not work.
pub(crate) fn run(options: &Options, remarks: Vec<String>) -> Result<bool, PeerError> {
    let mut bench = Bench::prepare(options, remarks)?;
    let all = scenarios::all(options.selection.quick);
    let scenarios = options.selection.scenarios(all, |scenario| scenario.name)?;
    let mut running = bench.start(options, &scenarios)?;
    let mut comparisons = Vec::new();
    for scenario in &scenarios {
        if let Some(comparison) = bench.scenario(options, scenario, &running)? {
            println!("\n{}", comparison.table(Contender::Limit.name()));
            comparisons.push(comparison);
        }
    }
    // The servers are stopped before the store is measured, so that it has the machine to itself.
    running.clear();
    let attached = if options.selection.quick { BTreeMap::new() } else { bench.store() };
    let outcome = Outcome {
        figures: figures::all(&comparisons),
        tables: figures::latencies(&comparisons).into_iter().collect(),
        comparisons,
        attached,
    };
    let name = ("bench-cache", Contender::Limit.name());
    bench.session.end().record(&options.selection.records(), name, outcome, |_, series| {
        ![OURS_TWO, OURS_ONE_SHARED].contains(&series.name.as_str())
    })
}

/// State of a run.
struct Bench {
    session: CacheSession,
    scripts: Scripts,
    is_quick: bool,
    seconds: u64,
    /// Lowest URL number that no miss has requested yet.
    fresh: AtomicU64,
}

impl Bench {
    fn prepare(options: &Options, remarks: Vec<String>) -> Result<Self, PeerError> {
        let memory_mib = if options.selection.quick { MEMORY_QUICK_MIB } else { MEMORY_MIB };
        let mut session = CacheSession::begin(&TOOLS, memory_mib, remarks)?;
        let scripts = Scripts::write(session.work.path())?;
        let seconds = options.seconds.unwrap_or(seconds(options.selection.quick));
        session.set([("seconds a round and contender", seconds.to_string())]);
        Ok(Self {
            session,
            scripts,
            is_quick: options.selection.quick,
            seconds,
            fresh: AtomicU64::new(MISSES_FROM),
        })
    }

    /// Starts and fills every selected contender that is installed.
    fn start(&mut self, options: &Options, scenarios: &[Scenario]) -> Result<Vec<ServerProcess>, PeerError> {
        let contenders = options.selection.contenders(&Contender::ALL, Contender::name)?;
        let hits = scenarios.iter().filter(|scenario| scenario.is_hit());
        let mut bodies: Vec<u64> = hits.map(|scenario| scenario.body_bytes).collect();
        bodies.sort_unstable();
        bodies.dedup();
        let two_cores_wanted = scenarios.iter().any(|scenario| scenario.sides == Sides::OneAndTwo);
        let mut all = Vec::new();
        for contender in contenders {
            if !scenarios.iter().any(|scenario| scenario.is_for(contender)) {
                continue;
            }
            let Some(program) = self.session.program(contender) else { continue };
            if contender.is_storeless() && !contender.is_floor() {
                all.extend(self.started(contender, contender.name(), &program, Sides::Apart, None));
                continue;
            }
            if contender.is_floor() {
                for &body_bytes in &bodies {
                    all.extend(self.started(
                        contender,
                        contender.name(),
                        &program,
                        Sides::Apart,
                        Some(body_bytes),
                    ));
                }
                continue;
            }
            let one = self.filled(contender, contender.name(), &program, Sides::Apart, scenarios);
            let both = one.is_some() && contender == Contender::Ours && two_cores_wanted;
            all.extend(one);
            if both {
                all.extend(self.filled(contender, OURS_TWO, &program, Sides::OneAndTwo, scenarios));
            }
        }
        Ok(all)
    }

    fn started(
        &mut self,
        contender: Contender,
        name: &str,
        program: &Path,
        sides: Sides,
        body_bytes: Option<u64>,
    ) -> Option<ServerProcess> {
        let (server, load) = match sides {
            Sides::Apart => (self.session.server.clone(), self.session.load.clone()),
            Sides::OneAndTwo => (self.session.both.clone(), self.session.both.clone()),
        };
        self.session.started(contender, name, program, (&server, &load), body_bytes)
    }

    fn filled(
        &mut self,
        contender: Contender,
        name: &str,
        program: &Path,
        sides: Sides,
        scenarios: &[Scenario],
    ) -> Option<ServerProcess> {
        let server = self.started(contender, name, program, sides, None)?;
        let begun = Instant::now();
        match self.fill(&server, scenarios) {
            Ok(objects) => {
                println!("{name}: filled with {objects} objects in {:.1} s", begun.elapsed().as_secs_f64());
                Some(server)
            }
            Err(error) => {
                self.session.fail(format!("{name} could not be filled: {error}"));
                None
            }
        }
    }

    /// Requests every object of every scenario until a whole pass causes no request to the origin. The first
    /// pass fills the cache and the next proves it (and opens files, or moves objects to faster memory, in
    /// caches that do such things). Objects that are revalidated each time are requested once.
    fn fill(&self, server: &ServerProcess, scenarios: &[Scenario]) -> Result<usize, PeerError> {
        let objects_of = |page| {
            let of_page = scenarios.iter().filter(|scenario| scenario.page == page);
            let mut objects: Vec<(u64, u64)> =
                of_page.flat_map(|scenario| scenario.ids().map(|id| (scenario.body_bytes, id))).collect();
            objects.sort_unstable();
            objects.dedup();
            objects
        };
        let (shared, checked) = (objects_of(Page::Shared), objects_of(Page::Checked));
        for _ in 0..FILL_PASSES_MAX {
            let before = self.session.origin.requests();
            self.fetch_all(server, Page::Shared, &shared)?;
            if self.session.origin.requests() == before {
                break;
            }
        }
        if !self.is_quick {
            self.fetch_all(server, Page::Checked, &checked)?;
        }
        Ok(shared.len() + checked.len())
    }

    fn fetch_all(&self, server: &ServerProcess, page: Page, objects: &[(u64, u64)]) -> Result<(), PeerError> {
        let share = objects.len().div_ceil(FILL_CONNECTIONS).max(1);
        let fetch = |objects: &[(u64, u64)]| {
            let mut filler = Filler::new(server.port, &self.session.bodies);
            objects.iter().try_for_each(|&(body_bytes, id)| filler.fetch_page(page, body_bytes, id))
        };
        thread::scope(|scope| {
            let fillers: Vec<_> =
                objects.chunks(share).map(|share| scope.spawn(move || fetch(share))).collect();
            fillers.into_iter().try_for_each(|filler| {
                filler.join().unwrap_or_else(|_| Err(PeerError::failed("a filling thread panicked")))
            })
        })
    }

    /// Measures every contender of one scenario; `None` when there is none.
    fn scenario(
        &self,
        options: &Options,
        scenario: &Scenario,
        running: &[ServerProcess],
    ) -> Result<Option<Comparison>, PeerError> {
        let takes_part = |server: &&ServerProcess| match scenario.sides {
            Sides::Apart => {
                scenario.is_for(server.contender)
                    && server.name != OURS_TWO
                    && server.body_bytes.is_none_or(|only| only == scenario.body_bytes)
            }
            Sides::OneAndTwo => server.contender == Contender::Ours,
        };
        let mut contenders: Vec<(String, (&ServerProcess, &Cores))> = running
            .iter()
            .filter(takes_part)
            .map(|server| (server.name.clone(), (server, &server.load_cores)))
            .collect();
        if scenario.sides == Sides::OneAndTwo
            && let Some(ours) = running.iter().find(|server| server.name == Contender::Ours.name())
        {
            // A load on the server's own core wakes the server without an interrupt to another core, which is
            // cheaper. So Nighttrain on two cores is also compared with one core under the same shared load.
            contenders.push((OURS_ONE_SHARED.into(), (ours, &self.session.both)));
        }
        if contenders.is_empty() {
            return Ok(None);
        }
        let rounds = options.selection.pairs(scenario.rounds);
        println!("{}: {} contenders × {rounds} rounds × {} s", scenario.name, contenders.len(), self.seconds);
        let series =
            interleave(&contenders, rounds, |(server, load), _| self.sample(server, load, scenario))?;
        Ok(Some(Comparison {
            scenario: scenario.name.into(),
            what: scenario.what(),
            unit: if scenario.is_hit() { "hit" } else { "request" }.into(),
            series,
        }))
    }

    /// Measures one contender in one round. If the server dies or the load fails, the sample is empty, with
    /// the reason.
    fn sample(
        &self,
        server: &ServerProcess,
        load_cores: &Cores,
        scenario: &Scenario,
    ) -> Result<Sample, PeerError> {
        let measured = self.warm_up(server, scenario).and_then(|()| {
            let first = self.fresh.fetch_add(MISSES_A_ROUND, Ordering::Relaxed);
            let asked = scenario.asked(first);
            measure(&server.tree, &server.cores, || {
                let before = (self.session.origin.requests(), self.session.origin.not_modified());
                let mut work = if scenario.page == Page::Awaited {
                    let LoadSpec { connections, body_bytes, .. } = asked;
                    crowd::ask(&self.session.origin, server.port, connections, body_bytes, first)?
                } else {
                    load::wrk(&self.scripts, &asked, server.port, load_cores, self.seconds)?
                };
                let at_origin = self.session.origin.requests() - before.0;
                work.doubts.extend(doubt(scenario, work.units, at_origin));
                if self.is_to_validate(server, scenario) {
                    work.doubts.extend(unvalidated(at_origin, self.session.origin.not_modified() - before.1));
                }
                Ok::<_, PeerError>(work)
            })
        });
        measured.or_else(|error| {
            let why = format!("{}: {error}", server.name);
            println!("{why}");
            Ok(Sample::nothing(why))
        })
    }

    /// Returns whether every answer must have been revalidated. Exceptions: HAProxy's cache fetches stale
    /// objects whole, and in a quick run nothing is stored beforehand.
    fn is_to_validate(&self, server: &ServerProcess, scenario: &Scenario) -> bool {
        scenario.page == Page::Checked && !self.is_quick && server.contender != Contender::Haproxy
    }

    /// Requests a page that no cache stores, and checks the answer. (Stored pages were requested and checked
    /// while filling, and a warm-up request for a URL of the miss scenario would store it.)
    fn warm_up(&self, server: &ServerProcess, scenario: &Scenario) -> Result<(), PeerError> {
        if matches!(scenario.page, Page::Shared | Page::Checked | Page::Awaited) {
            return Ok(());
        }
        let mut filler = Filler::new(server.port, &self.session.bodies);
        (0..WARM_UPS).try_for_each(|_| filler.fetch_page(scenario.page, scenario.body_bytes, 0))
    }

    /// Measures the engine's store with its own bench, if that is built.
    fn store(&mut self) -> BTreeMap<String, serde_json::Value> {
        let program = sibling("examples/store_bench").filter(|path| path.exists());
        let Some(program) = program else {
            self.session.remarks.push(
                "the store is not measured: cargo build --profile dist --package engine --example store_bench"
                    .into(),
            );
            return BTreeMap::new();
        };
        println!("store: {}", program.display());
        let output = pinned(&self.session.server, &program.to_string_lossy()).output();
        let text =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        match printed(&text) {
            Some(value) => BTreeMap::from([("store".to_owned(), value)]),
            None => {
                self.session.fail(format!("{} printed no figures", program.display()));
                BTreeMap::new()
            }
        }
    }
}

/// Returns the reason for doubt if the number of requests that reached the origin does not fit the scenario.
fn doubt(scenario: &Scenario, requests: u64, at_origin: u64) -> Option<String> {
    if scenario.page == Page::Awaited {
        (at_origin != 1)
            .then(|| format!("{at_origin} of {requests} requests reached the origin, where one does"))
    } else if scenario.is_hit() {
        not_hits(requests, at_origin)
    } else {
        let fewest = requests.saturating_sub((requests as f64 * MISS_SHARE_MAX) as u64);
        (at_origin < fewest).then(|| format!("{at_origin} of {requests} requests reached the origin"))
    }
}

/// Returns the reason for doubt if too many answers were fetched whole instead of revalidated.
fn unvalidated(at_origin: u64, not_modified: u64) -> Option<String> {
    let fetched = at_origin.saturating_sub(not_modified);
    (fetched as f64 > at_origin as f64 * MISS_SHARE_MAX)
        .then(|| format!("{fetched} of {at_origin} were fetched whole"))
}

/// Parses a program's output as JSON: the last line that is an object, or else the lines of the form `name
/// 1.5   unit`, with columns separated by two or more spaces.
fn printed(text: &str) -> Option<serde_json::Value> {
    let object = |line: &str| serde_json::from_str(line).ok().filter(serde_json::Value::is_object);
    text.lines().rev().find_map(object).or_else(|| {
        let figure = |line: &str| {
            let (name, rest) = line.trim().split_once("  ")?;
            let mut rest = rest.trim().splitn(2, ' ');
            let value: f64 = rest.next()?.parse().ok()?;
            let unit = rest.next().unwrap_or("").trim();
            Some((name.to_owned(), serde_json::json!({ "value": value, "unit": unit })))
        };
        let figures: serde_json::Map<_, _> = text.lines().filter_map(figure).collect();
        (!figures.is_empty()).then(|| figures.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_hits_and_false_misses_are_doubtful() {
        let all = scenarios::all(false);
        let of = |name: &str| all.iter().find(|scenario| scenario.name == name).expect("known");
        let hit = of("one-1k-64");
        assert_eq!(doubt(hit, 10_000, 10), None);
        assert!(doubt(hit, 10_000, 11).is_some_and(|doubt| doubt.contains("11 of 10000")));
        assert_eq!(doubt(of(scenarios::CROWD), 1_000, 1), None);
        assert!(doubt(of(scenarios::CROWD), 1_000, 2).is_some());
        assert_eq!(unvalidated(10_000, 9_990), None);
        assert!(unvalidated(10_000, 9_989).is_some());
        for name in [scenarios::MISS, scenarios::CHECKED, scenarios::PASS_SMALL, scenarios::UPLOAD] {
            assert_eq!(doubt(of(name), 10_000, 10_064), None, "{name}");
            assert_eq!(doubt(of(name), 10_000, 9_990), None, "{name}");
            assert!(doubt(of(name), 10_000, 9_989).is_some(), "{name}");
        }
    }

    #[test]
    fn figures_are_read_from_json_and_from_columns() {
        let value = serde_json::json!({"metadata": 60});
        assert_eq!(printed("words\n{\"metadata\": 60}\n"), Some(value));
        let columns =
            "objects      100   (200 bytes each)\n  of these the index   30.5\nno figure here\nx  y\n";
        let value = serde_json::json!({
            "objects": {"value": 100.0, "unit": "(200 bytes each)"},
            "of these the index": {"value": 30.5, "unit": ""},
        });
        assert_eq!(printed(columns), Some(value));
        assert_eq!(printed("3\nno object"), None);
    }
}
