//! The common shell of every server: start, ready, reload, drain, end.
//!
//! ```text
//!  RunningCommand: settings ────┐                 ┌── Accelerator ─┐
//!  Signals ─────────────────────┼──▶ run ─────────┼── Feed         ├── each a Service, around the library's server
//!  Port "admin" ────────────────┘    one or three └── Mail ────────┘
//! ```
//! `cache`, `feed` and `mail` run one service, `serve` all three. Each service defines how it reacts to a
//! signal; this module defines when.
//!
//! | | |
//! |---|---|
//! | SIGHUP | the configuration is read again; every service checks it, then each applies it; settings that need a restart are logged |
//! | SIGTERM, SIGINT, SIGQUIT, a loop that failed | the services drain in the order in which data flows, each within its time limit, even if another one hangs (`stop`); a second signal ends the process |
//! | SIGUSR1 | the log and the access log are reopened after they were moved away |
//! | SIGUSR2 | lame duck mode if the service has one; else it is logged |

mod running;
mod service;
mod stop;

use std::{sync::Arc, time::Duration};

use engine::{
    journal::Journal,
    meter::Source,
    tls::{self, CertificateSource, certificates::Certificates},
};
use tokio::time::interval;

pub(crate) use self::{
    running::ServerHandle,
    service::{ConfigApply, Service, StopMessages},
};
use crate::{
    admin::{self, Access, OperatorView, Port, Purger},
    console::print,
    failure::{Failure, Fault, failed, fault},
    log::transactions::{self, AccessLog},
    services::{
        operated::CombinedServers,
        operation::{RunningCommand, SignalRequest, Signals},
    },
    settings::{Section, Settings},
};

/// Interval at which services print their remarks and dropped log lines are reported.
const REMARK_EVERY: Duration = Duration::from_secs(10);

/// Services that a command has started.
#[derive(Default)]
pub(crate) struct ServiceSet {
    /// Services in the order in which they are announced.
    pub services: Vec<Arc<dyn Service>>,
    /// Sources of counters other than the services.
    pub beside: Vec<Arc<dyn Source>>,
    /// Accelerator that the admin server's `/purge` uses.
    pub purges: Option<Arc<dyn Purger>>,
    /// Certificates of the process, for the admin server.
    pub certificates: Option<Arc<Certificates>>,
    /// Last line of the announcement: what to try.
    pub hint: String,
}

/// Starts services and runs them until a signal arrives or a loop fails.
///
/// # Errors
/// Returns a `Failure` that says what prevents the start, or why a loop failed.
pub(crate) fn run(
    mut operation: RunningCommand,
    access: Access,
    start: impl FnOnce(&Settings, Option<&Arc<Journal>>) -> Result<ServiceSet, Failure>,
) -> Result<(), Failure> {
    let (runtime, signals) = Signals::install_handlers()?;
    let port = Port::bind("admin", operation.settings().admin, operation.settings().admin_tls)
        .map_err(failed("admin"))?;
    let admin = port.address();
    let journal = transactions::journal(operation.settings())?;
    // The access log starts before the services, so that it misses no request.
    let access_log = match &journal {
        Some(journal) => AccessLog::start(operation.settings(), journal)?,
        None => None,
    };
    let ServiceSet { mut services, mut beside, purges, certificates, hint } =
        start(operation.settings(), journal.as_ref())?;
    let secured = match (operation.settings().admin_tls, certificates) {
        (false, _) => None,
        (true, Some(table)) => {
            let acceptor = tls::acceptor(&CertificateSource::Table(table), &[b"http/1.1"], None);
            Some(acceptor.map_err(|error| Failure::Failed(format!("admin: {error}")))?)
        }
        (true, None) => {
            let message = "no certificates are available: `serve` and `cache` have them, with tls-cert or acme-directory";
            return Err(fault("admin-tls", message.to_owned()));
        }
    };
    let scheme = if secured.is_some() { "https" } else { "http" };
    beside.push(port.counters());
    beside.extend(journal.iter().map(|journal| Arc::clone(journal) as Arc<dyn Source>));
    beside.extend(access_log.iter().map(AccessLog::counters));
    let operated = services.iter().map(|service| Arc::clone(service) as Arc<dyn OperatorView>).collect();
    let together = Arc::new(CombinedServers::new(operated, beside));
    port.serve(admin::pages(access, together, purges, journal), secured)
        .map_err(failed("cannot start the admin server"))?;

    operation.tell_warnings();
    let announced: String = services.iter().map(|service| service.announcement()).collect();
    let version = env!("CARGO_PKG_VERSION");
    print(&format!("nighttrain {version}\n{announced}admin: listening on {scheme}://{admin}\n{hint}"))?;
    services.sort_by_key(|service| service.stage());
    // The access log is dropped after the services have ended, so that it writes their last records.
    runtime.block_on(until_stopped(signals, services, &mut operation, access_log.as_ref()))
}

async fn until_stopped(
    mut signals: Signals,
    services: Vec<Arc<dyn Service>>,
    operation: &mut RunningCommand,
    access_log: Option<&AccessLog>,
) -> Result<(), Failure> {
    let remark = || services.iter().filter_map(|service| service.remark()).try_for_each(|line| print(&line));
    let mut every = interval(REMARK_EVERY);
    loop {
        tokio::select! {
            _ = every.tick() => {
                remark()?;
                operation.tell_dropped_lines();
            }
            // The drain that follows reports the reason.
            () = any_ended(&services) => break,
            wish = signals.next() => match wish {
                SignalRequest::Reload => reload(operation, &services),
                SignalRequest::Reopen => {
                    operation.reopen_log();
                    if let Some(access_log) = access_log {
                        access_log.reopen();
                    }
                }
                SignalRequest::Upgrade if services.iter().all(|service| service.is_lame_duck_by_signal()) => break,
                SignalRequest::Upgrade => Signals::cannot_upgrade(),
                SignalRequest::Stop => break,
            },
        }
    }
    let times: Vec<Duration> =
        services.iter().map(|service| service.drain_time(operation.settings())).collect();
    let StopMessages { stopping, whole, cut } = words(&services, &times);
    services.iter().for_each(|service| service.begin_drain());
    tracing::info!("stopping: {stopping}; a second signal stops at once");
    stop::end_in_time(&times);
    let draining = services.clone();
    signals.drain(move || stop::drain(&draining, &times), whole, cut).await?;
    remark()
}

/// Completes once a loop of any service has failed.
async fn any_ended(services: &[Arc<dyn Service>]) {
    let mut all: Vec<_> = services.iter().map(|service| service.until_loop_fails()).collect();
    std::future::poll_fn(|cx| {
        let any = all.iter_mut().any(|ended| ended.as_mut().poll(cx).is_ready());
        if any { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

fn words(services: &[Arc<dyn Service>], times: &[Duration]) -> StopMessages {
    match (services, times) {
        ([service], [at_most]) => service.words(*at_most),
        _ => StopMessages {
            stopping: format!(
                "requests under way have up to {:?} per server",
                times.iter().max().copied().unwrap_or_default()
            ),
            whole: "everything under way has ended",
            cut: "time limit reached before everything under way had ended",
        },
    }
}

/// Describes a reload that failed after the sections in `followed` had already changed.
fn not_reloaded(followed: &[Section]) -> String {
    if followed.is_empty() {
        return "configuration unchanged".to_owned();
    }
    let followed: Vec<&str> = followed.iter().map(|section| section.name().unwrap_or("all")).collect();
    format!("{} has changed already, the rest is unchanged: reload once more", followed.join(" and "))
}

/// Reads the configuration and its files again. Faults are logged and change nothing; settings that need a
/// restart are named.
fn reload(operation: &mut RunningCommand, services: &[Arc<dyn Service>]) {
    let Some((new, follows)) = operation.read_again(|settings| {
        services
            .iter()
            .map(|service| service.check(settings))
            .collect::<Result<Vec<ConfigApply<'_>>, Fault>>()
    }) else {
        return;
    };
    let (mut remarks, mut followed) = (Vec::new(), Vec::new());
    // Services apply the configuration in reverse order: the feed may still find faults in its files, while
    // the others have already read everything that they need.
    for (service, follow) in services.iter().zip(follows).rev() {
        match follow() {
            Ok(remark) => remarks.extend(remark),
            Err(error) => {
                tracing::error!("reload: {error}; {}", not_reloaded(&followed));
                return;
            }
        }
        followed.push(service.section());
    }
    operation.activate(new, &remarks, |setting| {
        let of = services.iter().find(|service| service.section() == setting.section);
        match of {
            Some(service) => Some(service.follows(setting)),
            None if setting.section == Section::Common => {
                Some(matches!(setting.key, "log" | "drain-time-max"))
            }
            // The setting belongs to a server that does not run in this process.
            None => None,
        }
    });
}
