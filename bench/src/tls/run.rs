//! A run of the TLS bench: starts the servers, measures them in rounds, judges the figures and writes the
//! record.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lab::latency::LatencyOrigin;
use lab::load::{self, Arrivals, Plan, Target};
use lab::paired::machine::first_line;
use lab::paired::{Latency, Sample, Work, interleave, measure};
use lab::peers::PeerError;
use lab::peers::cache::certificates::{Certificates, ECDSA_NAME, RSA_NAME};
use lab::peers::cache::contenders::{Contender, ServerProcess};
use lab::peers::cache::load::{Filler, Scripts, wrk_secured};
use lab::secured;

use crate::cache::session::{Amount, CacheSession, not_hits};
use crate::record::Comparison;
use crate::session::Outcome;
use crate::tls::handshakes;
use crate::tls::scenarios::{self, PACED_CONNECTIONS, PACED_STREAMS, Scenario, Way};
use crate::tls::streams::{Streams, h2load};
use crate::tls::{Options, figures, idle};

/// Memory of each cache, small because there are few objects.
const MEMORY_MIB: u64 = 256;
/// Length of a round of h2load, of handshakes, and of `lab load`; wrk counts whole seconds.
const ROUND: Duration = Duration::from_millis(800);
/// Quick run, which only checks that everything works: length of a round of `lab load`, and number of
/// requests or connections of the other loads.
const ROUND_QUICK: Duration = Duration::from_millis(100);
const UNITS_QUICK: u32 = 200;
const WRK_SECONDS: u64 = 1;
/// Number of requests for an object before it is measured: a cache may store it only on the second request.
const WARM_UPS: usize = 2;
const TOOLS: [(&str, &str); 7] = [
    ("wrk", "wrk"),
    ("h2load", "nghttp2-client"),
    ("openssl", "openssl"),
    ("cc", "gcc"),
    ("sh", "dash"),
    ("taskset", "util-linux"),
    ("setpriv", "util-linux"),
];
/// OpenSSL configuration that sets the TLS offers of programs without command-line options for them.
const OPENSSL: &str = "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = pinned\n[pinned]\n\
                       MinProtocol = TLSv1.3\nCiphersuites = TLS_AES_128_GCM_SHA256\nGroups = X25519\n";

/// Runs the bench. Returns `Ok(false)` when an installed contender did not work.
pub(crate) fn run(options: &Options, remarks: Vec<String>) -> Result<bool, PeerError> {
    let all = scenarios::all(options.selection.quick);
    let scenarios = options.selection.scenarios(all, |scenario| &scenario.name)?;
    let contenders = options.selection.contenders(&Contender::EDGE, Contender::name)?;
    let mut bench = Bench::prepare(options, remarks)?;
    let running = bench.start(&contenders, &scenarios);
    let mut outcome = Outcome::default();
    for scenario in &scenarios {
        if scenario.way == Way::Idle {
            let idle = idle::measure(&mut bench.session, &running, options.selection.quick);
            outcome.tables.extend(idle::table(&idle));
            outcome.figures.extend(idle::figures(&idle));
        } else if let Some(comparison) = bench.scenario(options, scenario, &running)? {
            println!("\n{}", comparison.table(Contender::LimitStreams.name()));
            outcome.comparisons.push(comparison);
        }
    }
    drop(running);
    let judged = figures::all(&outcome.comparisons);
    outcome.figures.splice(0..0, judged);
    outcome.tables.splice(0..0, figures::latencies(&outcome.comparisons));
    let name = ("bench-tls", Contender::LimitStreams.name());
    bench.session.end().record(&options.selection.records(), name, outcome, |_, _| true)
}

struct Bench {
    session: CacheSession,
    scripts: Scripts,
    openssl: PathBuf,
    amount: Amount,
    round: Duration,
}

impl Bench {
    fn prepare(options: &Options, remarks: Vec<String>) -> Result<Self, PeerError> {
        let mut session = CacheSession::begin(&TOOLS, MEMORY_MIB, remarks)?;
        let work = session.work.path();
        let scripts = Scripts::write(work)?;
        let openssl = work.join("openssl.cnf");
        fs::write(&openssl, OPENSSL)?;
        session.certificates = Some(Certificates::make(work)?);
        let (amount, round) = if options.selection.quick {
            (Amount::Units(UNITS_QUICK), ROUND_QUICK)
        } else {
            (Amount::Time(ROUND), ROUND)
        };
        let said =
            |program: &str, flag: &str| first_line(Command::new(program).arg(flag)).unwrap_or_default();
        session.set([
            ("TLS", "1.3, TLS_AES_128_GCM_SHA256, X25519".to_owned()),
            ("OpenSSL of the peers and of wrk and h2load", said("openssl", "version")),
            ("load of streams", said("h2load", "--version")),
            ("a round of wrk", format!("{WRK_SECONDS} s")),
            ("a round of the others", format!("{} ms", round.as_millis())),
        ]);
        Ok(Self { session, scripts, openssl, amount, round })
    }

    /// Starts every selected contender that is installed; a floor once for each body size.
    fn start(&mut self, contenders: &[Contender], scenarios: &[Scenario]) -> Vec<ServerProcess> {
        let in_the_clear = scenarios.iter().filter(|scenario| !scenario.is_secured());
        let mut bodies: Vec<u64> = in_the_clear.map(|scenario| scenario.body_bytes).collect();
        bodies.sort_unstable();
        bodies.dedup();
        let (server, load) = (self.session.server.clone(), self.session.load.clone());
        let mut all = Vec::new();
        for &contender in contenders {
            if !scenarios.iter().any(|scenario| scenario.is_for(contender)) {
                continue;
            }
            let Some(program) = self.session.program(contender) else { continue };
            let sizes: Vec<Option<u64>> =
                if contender.is_floor() { bodies.iter().copied().map(Some).collect() } else { vec![None] };
            for body_bytes in sizes {
                let cores = (&server, &load);
                all.extend(self.session.started(contender, contender.name(), &program, cores, body_bytes));
            }
        }
        all
    }

    /// Measures every contender of one scenario; `None` when there is none.
    fn scenario(
        &self,
        options: &Options,
        scenario: &Scenario,
        running: &[ServerProcess],
    ) -> Result<Option<Comparison>, PeerError> {
        let contenders: Vec<(String, &ServerProcess)> = running
            .iter()
            .filter(|server| scenario.is_for(server.contender))
            .filter(|server| server.body_bytes.is_none_or(|only| only == scenario.body_bytes))
            .map(|server| (server.name.clone(), server))
            .collect();
        if contenders.is_empty() {
            return Ok(None);
        }
        let rounds = options.selection.pairs(scenario.rounds);
        println!("{}: {} contenders × {rounds} rounds", scenario.name, contenders.len());
        let series = interleave(&contenders, rounds, |server, _| {
            // If a server dies or a load fails, the sample is empty, with the reason.
            Ok::<_, PeerError>(self.sample(server, scenario).unwrap_or_else(|error| {
                let why = format!("{}: {error}", server.name);
                println!("{why}");
                Sample::nothing(why)
            }))
        })?;
        let (scenario, what, unit) = (scenario.name.clone(), scenario.what(), scenario.unit().into());
        Ok(Some(Comparison { scenario, what, unit, series }))
    }

    /// Measures one contender in one round.
    fn sample(&self, server: &ServerProcess, scenario: &Scenario) -> Result<Sample, PeerError> {
        self.warm_up(server, scenario)?;
        measure(&server.tree, &server.cores, || {
            let before = self.session.origin.requests();
            let mut work = self.load(server, scenario)?;
            work.doubts.extend(not_hits(work.units, self.session.origin.requests() - before));
            Ok(work)
        })
    }

    /// Requests the scenario's object [`WARM_UPS`] times, so that the server stores it, and checks the
    /// answers.
    fn warm_up(&self, server: &ServerProcess, scenario: &Scenario) -> Result<(), PeerError> {
        if server.contender.is_floor() {
            return Ok(());
        }
        let bodies = &self.session.bodies;
        let mut filler = match scenario.way {
            _ if !scenario.is_secured() => Filler::new(server.port, bodies),
            Way::Anew { is_rsa, .. } => {
                Filler::secured(server.edge.tls, bodies, handshakes::secure(server_name(is_rsa), false)?)
            }
            _ => Filler::secured(server.edge.tls, bodies, handshakes::secure("127.0.0.1", false)?),
        };
        (0..WARM_UPS).try_for_each(|_| filler.fetch(scenario.body_bytes, 0))?;
        if scenario.is_http2() {
            // Some caches use another key for requests over HTTP/2.
            let one = Streams {
                connections: 1,
                streams: 1,
                is_secured: scenario.is_secured(),
                body_bytes: scenario.body_bytes,
            };
            h2load(&one, server.edge, &server.load_cores, Amount::Units(WARM_UPS as u32), &self.openssl)?;
        }
        Ok(())
    }

    fn load(&self, server: &ServerProcess, scenario: &Scenario) -> Result<Work, PeerError> {
        let (ports, body_bytes) = (server.edge, scenario.body_bytes);
        let (cores, openssl) = (&server.load_cores, &self.openssl);
        match scenario.way {
            Way::KeptAlive { connections } => {
                let asked = (connections, body_bytes);
                wrk_secured(&self.scripts, asked, ports.tls, cores, WRK_SECONDS, openssl)
            }
            Way::Anew { kind, is_rsa } => {
                let bodies = &self.session.bodies;
                handshakes::run(kind, server_name(is_rsa), ports.tls, bodies, body_bytes, self.amount)
            }
            Way::Streams { connections, streams, is_secured } => {
                let asked = Streams { connections, streams, is_secured, body_bytes };
                h2load(&asked, ports, cores, self.amount, openssl)
            }
            Way::Paced { is_http2, per_second } => self.paced(ports.tls, is_http2, per_second, body_bytes),
            Way::Idle => Err(PeerError::failed("what rests is no load")),
        }
    }

    fn paced(&self, port: u16, is_http2: bool, per_second: u32, body_bytes: u64) -> Result<Work, PeerError> {
        let failed = |error: &dyn std::fmt::Display| PeerError::failed(error.to_string());
        let scheme = if is_http2 { "h2" } else { "https" };
        let url = format!("{scheme}://127.0.0.1:{port}/size/{body_bytes}/0");
        let mut target = Target::parse(&url, 1, false).map_err(|error| failed(&error))?.by(secured::pinned());
        if is_http2 {
            target = target.with_streams(PACED_STREAMS).map_err(|error| failed(&error))?;
        }
        let plan = Plan {
            rate: f64::from(per_second),
            arrivals: Arrivals::Poisson,
            connections: PACED_CONNECTIONS,
            warm_up: self.round / 8,
            duration: self.round,
            ..Plan::default()
        };
        let outcome = load::run(&target, &plan).map_err(|error| failed(&error))?;
        let us = |quantile| outcome.latencies.quantile(LatencyOrigin::Due, quantile) as f64 / 1e3;
        let mut doubts = Vec::new();
        if outcome.refused + outcome.lost + outcome.unanswered > 0 {
            doubts.extend(outcome.warnings());
        }
        // Requests of the warm-up cost as much CPU time, so they count as units.
        let warmed_up = f64::from(per_second) * plan.warm_up.as_secs_f64();
        Ok(Work {
            units: outcome.answered + warmed_up as u64,
            wall_s: None,
            latency: Some(Latency { p50_us: us(0.5), p95_us: None, p99_us: us(0.99), last_us: None }),
            doubts,
        })
    }
}

const fn server_name(is_rsa: bool) -> &'static str {
    if is_rsa { RSA_NAME } else { ECDSA_NAME }
}
