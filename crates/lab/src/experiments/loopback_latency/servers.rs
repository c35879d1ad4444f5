//! The knee of our three servers, one request after another on one connection (C19).
//!
//! The round trip of a request is the service time of that loop; its inverse is the rate that the loop should
//! sustain. The knee is found as in `lab load --sweep`: the highest rate at which 99 of a hundred requests
//! are answered within [`BOUND`] from when they were due.

use std::{net::Ipv4Addr, time::Duration};

use serde::Serialize;

use crate::{
    experiments::cache_vs_peers::Bench,
    load::{
        Plan, Target, run,
        sweep::{LatencyBound, Search, holds, sweep},
    },
    paired::{place::ours, tree::Cores},
    peers::{cache, feed, mail},
    placement::within,
};

/// Latency bound: long compared with a service time, short compared with the queue of a run beyond the knee.
const BOUND: Duration = Duration::from_millis(10);
/// Rate beyond the reach of any loop on one connection, to find the loop's maximum.
const ENDLESS_PER_S: f64 = 2e6;
/// Bytes of a message.
const MESSAGE_BYTES: usize = 100;
/// Factor around the inverse of the service time: the search for the knee starts at the inverse divided by
/// this factor and ends at the inverse multiplied by it.
pub(super) const LEAST: f64 = 4.0;
/// Rounds of the closed loop; the best counts, because disturbances can only slow it down.
const ROUNDS: usize = 3;

/// Knee of one server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Knee {
    pub(super) server: &'static str,
    /// Nanoseconds of a request's round trip.
    pub(super) service_ns: f64,
    /// Highest rate that the server sustained.
    pub(super) held: Option<f64>,
    /// Lowest rate above `held` that the server did not sustain.
    pub(super) broke: Option<f64>,
}

/// Measures the three servers on the first core, with the load on the last; returns the reason if they cannot
/// be started.
pub(super) fn knees(
    (first, last): (usize, usize),
    duration: Duration,
    say: &dyn Fn(&str),
) -> Result<Vec<Knee>, String> {
    let program = ours()?;
    let cores = |core| Cores::new(vec![core]).ok_or_else(|| "no processor".to_owned());
    let (server, load) = (cores(first)?, cores(last)?);
    let mut all = Vec::new();
    let mut knee = |name, url: &str, bytes| -> Result<(), String> {
        say(&format!("the knee of {name}"));
        let target = Target::parse(url, bytes, false).map_err(|error| error.to_string())?.one_at_a_time();
        let found = within(&[last], || found(name, &target, duration)).map_err(|error| error.to_string())?;
        all.push(found.map_err(|error| format!("{name}: {error}"))?);
        Ok(())
    };
    {
        let bench = Bench::plain().map_err(|refusal| refusal.to_string())?;
        let contender = cache::contenders::Contender::Ours;
        let running = bench
            .filled(contender, contender.name(), &program, &server, &load)
            .map_err(|error| error.to_string())?;
        knee("accelerator", &format!("http://127.0.0.1:{}/size/1024/0", running.port), 1)?;
    }
    {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let contender = feed::contenders::Contender::Ours;
        let place = (Ipv4Addr::LOCALHOST, &server);
        let running =
            feed::contenders::start(contender, contender.name(), &program, directory.path(), place, None)
                .map_err(|error| error.to_string())?;
        knee("feed", &format!("nats://{}", running.address), MESSAGE_BYTES)?;
    }
    let running = mail::contenders::start(mail::contenders::Contender::Ours, (Ipv4Addr::LOCALHOST, &server))?;
    knee("mail", &format!("smtp://{}/knee@bench.test", running.address), mail::MAIL_BYTES)?;
    Ok(all)
}

fn found(server: &'static str, target: &Target, duration: Duration) -> Result<Knee, crate::load::LoadError> {
    let plan = Plan {
        rate: ENDLESS_PER_S,
        connections: 1,
        // There is no warm-up: at rates beyond the knee its requests would be answered during the run without
        // being counted.
        warm_up: Duration::ZERO,
        duration,
        drain: Duration::ZERO,
        ..Plan::default()
    };
    let mut fastest = 0.0_f64;
    for _ in 0..ROUNDS {
        fastest = fastest.max(run(target, &plan)?.achieved);
    }
    let service_ns = 1e9 / fastest.max(1.0);
    let bound = LatencyBound { quantile: 0.99, at_most_ns: BOUND.as_nanos() as u64 };
    let search = Search { from: fastest / LEAST, to: fastest * LEAST, precision: 1.1, bound };
    let plan = Plan { drain: BOUND, ..plan };
    // On a machine that is busy with other work no rate is sustained, and the search would go far down to
    // find that out.
    let least = Plan { rate: search.from, ..plan.clone() };
    let mut held = false;
    for _ in 0..ROUNDS {
        held = held || holds(&run(target, &least)?, bound);
    }
    if !held {
        return Ok(Knee { server, service_ns, held: None, broke: Some(search.from) });
    }
    let knee = sweep(target, &plan, &search, |_| ())?;
    Ok(Knee { server, service_ns, held: knee.held, broke: knee.broke })
}
