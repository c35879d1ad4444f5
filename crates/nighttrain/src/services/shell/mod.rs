//! One shell for every server: start, ready, reload, drain, ended.
//!
//! ```text
//!  RunningCommand: what is in force ─┐                 ┌── Accelerator ─┐
//!  Signals ─────────────────────┼──▶ run ─────────┼── Feed         ├── each a Service, around the library's server
//!  Port "admin" ────────────────┘    one or three └── Mail ────────┘
//! ```
//! `cache`, `feed` and `mail` run one service, `serve` all three: what each does at a signal is said once, in the
//! service, and when it does it is said once, here.
//!
//! | | |
//! |---|---|
//! | SIGHUP | the configuration is read again; every service checks it, then each takes it; what needs a restart is named |
//! | SIGTERM, SIGINT, SIGQUIT, a loop that failed | the services drain in the order in which work flows, each within its time whatever hangs (`stop`); a second signal ends the process |
//! | SIGUSR1 | the log and the access log are opened again, after somebody has moved them away |
//! | SIGUSR2 | lame duck where the service says so; else it is logged |

mod running;
mod stop;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use engine::{
    journal::Journal,
    meter::Source,
    tls::{self, CertificateSource, certificates::Certificates},
};
use tokio::time::interval;

pub(crate) use self::running::ServerHandle;
use crate::{
    admin::{self, Access, OperatorView, Port},
    failure::{Failure, Fault},
    log::transactions::{self, AccessLog},
    print,
    services::{
        accelerator::Purger,
        operated::CombinedServers,
        operation::{RunningCommand, SignalRequest, Signals, failed, fault},
    },
    settings::{Section, Setting, Settings},
};

/// How often a service may remark on something, and the log be looked after.
const REMARK_EVERY: Duration = Duration::from_secs(10);

/// What a service will do to follow a configuration: gives a remark for the log, or says what stands in the way.
pub(crate) type ConfigApply<'a> = Box<dyn FnOnce() -> Result<Option<String>, String> + 'a>;

/// A server as the program runs it.
pub(crate) trait Service: OperatorView {
    /// Every address that was bound, one a line, and what else is said of it at the start.
    fn announcement(&self) -> String;

    /// Its part of the file.
    fn section(&self) -> Section;

    /// Whether SIGHUP changes this setting of its section. (The shell sees to the common ones.)
    fn follows(&self, setting: &Setting) -> bool;

    /// Reads in a configuration all that it needs to follow it.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(&self, settings: &Settings) -> Result<ConfigApply<'_>, Fault>;

    /// Whether SIGUSR2 drains it, as nats-server's lame duck.
    fn is_lame_duck_by_signal(&self) -> bool {
        false
    }

    /// A line for stdout, if there is something to say.
    fn remark(&self) -> Option<String> {
        None
    }

    /// Ready once a loop has failed.
    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Says from now on that it is not ready.
    fn begin_drain(&self);

    /// How long its drain may take.
    fn drain_time(&self, settings: &Settings) -> Duration {
        settings.drain_time_max
    }

    /// Takes no more work, and blocks until what is under way has ended (then it is true) or the time is up.
    ///
    /// # Errors
    /// A loop had ended before it was asked to.
    fn drain(&self, at_most: Duration) -> Result<bool, Failure>;

    /// How far down it is where work flows from one service to another: those above drain before it.
    fn stage(&self) -> u8;

    /// What a stop means here; `at_most` is its drain time.
    fn words(&self, at_most: Duration) -> StopMessages;
}

/// What is logged about a stop.
pub(crate) struct StopMessages {
    /// When it begins.
    pub stopping: String,
    /// When all that was under way has ended.
    pub whole: &'static str,
    /// When the time was up before.
    pub cut: &'static str,
}

/// What a command has started.
#[derive(Default)]
pub(crate) struct ServiceSet {
    /// In the order in which they are announced.
    pub services: Vec<Arc<dyn Service>>,
    /// What is counted beside them.
    pub beside: Vec<Arc<dyn Source>>,
    /// What `/purge` of the admin server drops from.
    pub purges: Option<Arc<dyn Purger>>,
    /// The certificates of the process, for the admin server.
    pub certificates: Option<Arc<Certificates>>,
    /// Said last at the start: what to try.
    pub hint: String,
}

/// Starts services and runs them until a signal ends them, or a loop that fails.
///
/// # Errors
/// What stands in the way of the start, or why a loop failed.
pub(crate) fn run(
    mut operation: RunningCommand,
    access: Access,
    start: impl FnOnce(&Settings, Option<&Arc<Journal>>) -> Result<ServiceSet, Failure>,
) -> Result<(), Failure> {
    let (runtime, signals) = Signals::caught()?;
    let port = Port::bind("admin", operation.settings().admin, operation.settings().admin_tls)
        .map_err(failed("admin"))?;
    let admin = port.address();
    let journal = transactions::journal(operation.settings())?;
    // Before what it is about: no request is served that it would miss.
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
            let message = "there are no certificates to be shown: `serve` and `cache` have them, with tls-cert or acme-directory";
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
        .map_err(failed("the admin server cannot start"))?;

    operation.tell_warnings();
    let announced: String = services.iter().map(|service| service.announcement()).collect();
    let version = env!("CARGO_PKG_VERSION");
    print(&format!("nighttrain {version}\n{announced}admin: listening on {scheme}://{admin}\n{hint}"))?;
    services.sort_by_key(|service| service.stage());
    // The access log is dropped behind that: it writes what was said until the end.
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
            // The drain that follows says why.
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

/// Ready once a loop of any has failed.
async fn any_ended(services: &[Arc<dyn Service>]) {
    let mut all: Vec<_> = services.iter().map(|service| service.ended()).collect();
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
                "what is under way has up to {:?} a server",
                times.iter().max().copied().unwrap_or_default()
            ),
            whole: "all that was under way has ended",
            cut: "the time was up before all that was under way had ended",
        },
    }
}

/// Describes a reload that broke off after the sections in `followed` had changed.
fn not_reloaded(followed: &[Section]) -> String {
    if followed.is_empty() {
        return "the configuration stays as it was".to_owned();
    }
    let followed: Vec<&str> = followed.iter().map(|section| section.name().unwrap_or("all")).collect();
    format!("{} has changed already, the rest stays as it was: reload once more", followed.join(" and "))
}

/// Reads the configuration and its files again. What is wrong is logged and changes nothing; what cannot change is
/// named.
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
    // The last first: the feed, which may yet find its files wrong, before those that have read all that they need.
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
    operation.accept(new, &remarks, |setting| {
        let of = services.iter().find(|service| service.section() == setting.section);
        match of {
            Some(service) => Some(service.follows(setting)),
            None if setting.section == Section::Common => {
                Some(matches!(setting.key, "log" | "drain-time-max"))
            }
            // A part of the file that is for a server which does not run here.
            None => None,
        }
    });
}
