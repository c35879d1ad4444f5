//! `nighttrain cache`: puts the parts together, runs until a signal ends it.
//!
//! The main thread starts the loops, the admin server and, for `--demo`, the slow site; then it waits for signals and
//! says once in a while what was saved. SIGTERM and SIGINT drain, a second one ends at once; SIGHUP reads the
//! configuration again.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use cache::config::Origin;

use crate::{
    accelerator::{Accelerator, Drained, Started},
    admin::{self, Operated, Port},
    cli::CacheTask,
    demo, effective,
    failure::Failure,
    operated::Together,
    operation::{Operation, Signals, Sources, Wish, failed},
    print,
    savings::Savings,
    settings::{Settings, origin_text},
    stat::Report,
    units::size_text,
};

/// How often it may be said what was saved.
const SAVINGS_EVERY: Duration = Duration::from_secs(10);

/// What SIGHUP changes without a restart; the rest it names.
const CHANGEABLE: [&str; 2] = ["log", "drain-time-max"];

/// Runs the accelerator until a signal ends it.
pub(crate) fn cache(task: &CacheTask) -> Result<(), Failure> {
    let sources = Sources { file: task.config.path(), flags: task.settings.0.clone(), complete: |_| Ok(()) };
    let (mut operation, access) = Operation::begin(sources)?;
    let settings = operation.settings();
    if !task.demo && settings.origin.is_none() {
        return Err(Failure::Usage(
            "no origin: which web server is to be accelerated? Say --origin http://HOST:PORT (or `origin` in [cache], \
             or NIGHTTRAIN_CACHE_ORIGIN), or --demo to try it on a site of its own"
                .to_owned(),
        ));
    }
    let (runtime, signals) = Signals::caught()?;
    let port = Port::bind("admin", settings.admin).map_err(failed("admin"))?;
    let admin_address = port.address();
    let origin = match (&settings.origin, task.demo) {
        (Some(origin), false) => origin.clone(),
        _ => origin_at(demo::start().map_err(failed("the demonstration site cannot start"))?),
    };
    let accelerator = Started::start(settings.accelerator(origin.clone()))?;
    let parts = vec![Arc::clone(&accelerator) as Arc<dyn Operated>];
    let operated = Arc::new(Together::new(parts, vec![port.counters()]));
    let purges = Arc::clone(&accelerator) as Arc<dyn Accelerator>;
    port.serve(admin::pages(access, operated, Some(purges)))
        .map_err(failed("the admin server cannot start"))?;

    print(&announcement(settings, &origin, accelerator.addresses(), admin_address, task.demo))?;
    runtime.block_on(until_stopped(signals, &accelerator, &mut operation))
}

pub(crate) fn origin_at(address: SocketAddr) -> Origin {
    Origin { host: address.ip().to_string(), port: address.port() }
}

/// What is said at the start: every address that was bound, one a line.
fn announcement(
    settings: &Settings,
    origin: &Origin,
    addresses: &[SocketAddr],
    admin: SocketAddr,
    demo: bool,
) -> String {
    let mut text = format!("nighttrain {}\n", env!("CARGO_PKG_VERSION"));
    for address in addresses {
        text.push_str(&format!("cache: listening on http://{address}\n"));
    }
    let site = if demo { ", a slow demonstration site (200 ms an answer)" } else { "" };
    text.push_str(&format!(
        "cache: in front of {}{site}, with {} of memory\nadmin: listening on http://{admin}\n",
        origin_text(origin),
        size_text(settings.cache.memory_bytes),
    ));
    if let Some(path) = &settings.cache.store {
        text.push_str(&format!(
            "cache: keeps what it stores in {}, {}\n",
            path.display(),
            size_text(settings.cache.store_bytes)
        ));
    }
    if let (true, Some(address)) = (demo, addresses.first()) {
        text.push_str(&format!("Open http://{address}/ in a browser, and reload. Ctrl-C stops.\n"));
    }
    text
}

async fn until_stopped(
    mut signals: Signals,
    accelerator: &Arc<Started>,
    operation: &mut Operation,
) -> Result<(), Failure> {
    let mut savings = Savings::default();
    let mut say = || match savings.line(&Report::new(&accelerator.registry().snapshot(), true, 0)) {
        Some(line) => print(&format!("{line}\n")),
        None => Ok(()),
    };
    let mut every = tokio::time::interval(SAVINGS_EVERY);
    let mut dropped_lines = 0;
    loop {
        tokio::select! {
            _ = every.tick() => {
                say()?;
                let dropped = operation.dropped_lines();
                if dropped > dropped_lines {
                    tracing::warn!("{} lines of this log were dropped: stderr is too slow for them", dropped - dropped_lines);
                    dropped_lines = dropped;
                }
            }
            // The drain that follows says why.
            () = accelerator.ended() => break,
            wish = signals.next() => match wish {
                Wish::Reload => reload(operation),
                Wish::Upgrade => Signals::cannot_upgrade(),
                Wish::Stop => break,
            },
        }
    }
    accelerator.begin_drain();
    let at_most = operation.settings().drain_time_max;
    tracing::info!(
        "stopping: no new requests; those under way have up to {at_most:?}; a second signal stops at once"
    );
    let draining = Arc::clone(accelerator);
    let drain = move || Ok(draining.drain(at_most)? == Drained::Clean);
    let (whole, cut) = ("every request was answered", "the time was up before every request was answered");
    signals.drain(drain, whole, cut).await?;
    say()
}

/// Reads the configuration again. What cannot change is named, and stays as it was.
fn reload(operation: &mut Operation) {
    let Some((new, ())) = operation.read_again(|_| Ok(())) else { return };
    let changed = effective::changed(&operation.in_force, &new);
    let (now, later): (Vec<_>, Vec<_>) = changed.into_iter().partition(|key| CHANGEABLE.contains(key));
    operation.in_force.settings.drain_time_max = new.settings.drain_time_max;
    operation.follow(&new);
    match (now.is_empty(), later.is_empty()) {
        (true, true) => tracing::info!("reload: nothing changed"),
        (false, true) => tracing::info!("reload: changed {}", now.join(", ")),
        (true, false) => tracing::warn!("reload: only a restart changes {}", later.join(", ")),
        (false, false) => {
            tracing::warn!("reload: changed {}; only a restart changes {}", now.join(", "), later.join(", "))
        }
    }
}
