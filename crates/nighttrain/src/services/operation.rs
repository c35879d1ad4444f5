//! What the commands of all servers have in common: the configuration, now and at SIGHUP, the signals, and the stop.
//!
//! ```text
//!  flags, environment, file ──ConfigSources──▶ ActiveSettings ──▶ RunningCommand: what is in force, the log's filter, the admin token
//!  SIGHUP           read again, checked by the server, told to it; log and token follow; what needs a restart is named
//!  SIGTERM, SIGINT  the server drains on a thread that may block; a second signal ends the process at once
//!  SIGQUIT          the same: nginx's word for it
//!  SIGUSR1          the files of log and access log are opened again, after a rotation; where the log has none, it is logged
//!  SIGUSR2          lame duck for the feed alone, as nats-server; for others an upgrade, which cannot be done yet: logged
//!  all others       that a timer, a terminal or another server's habit sends: ignored ([`IGNORED`])
//! ```

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use engine::sys::signals::{ignore, real_time};
use rustix::process::Signal as Named;
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use crate::{
    admin::{self, Access, Token},
    failure::{Failure, Fault},
    log::{self, FilterHandle},
    machine::{self, ServerSet},
    settings::{
        Setting, Settings, by_key, effective,
        precedence::{self, ActiveSettings, Flags, Source},
    },
};

/// Where the configuration comes from.
pub(crate) struct ConfigSources {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// What the command line said.
    pub flags: Flags,
    /// What the server adds to what was read.
    pub complete: ConfigCompletion,
    /// The servers that the configuration is for.
    pub servers: ServerSet,
}

/// What a server adds to what was read.
pub(crate) type ConfigCompletion = Box<dyn Fn(&mut ActiveSettings) -> Result<(), Vec<Fault>> + Send>;

impl ConfigSources {
    fn read(&self) -> Result<ActiveSettings, Vec<Fault>> {
        let mut in_force =
            precedence::in_force(self.file.as_deref(), |name| std::env::var_os(name), &self.flags)?;
        (self.complete)(&mut in_force)?;
        Ok(in_force)
    }

    /// Reads the configuration, lowers its connections to what the machine's file descriptors allow, and gives its servers
    /// one budget of memory for their clients. Returns a warning where the connections are less than was asked for.
    fn read_and_fit(&self) -> Result<(ActiveSettings, Option<String>), Vec<Fault>> {
        let mut in_force = self.read()?;
        let warning = machine::fit_descriptors(&mut in_force.settings, self.servers);
        machine::share_client_memory(&mut in_force.settings, self.servers);
        Ok((in_force, warning))
    }
}

/// Lets the admin server listen at `address` where nobody has said anything else.
pub(crate) fn admin_by_default(in_force: &mut ActiveSettings, address: SocketAddr) {
    let nobody_said = by_key("admin").is_some_and(|(place, _)| in_force.sources[place] == Source::Default);
    if nobody_said {
        in_force.settings.admin = address;
    }
}

/// A server's command while it runs: what is in force, and what SIGHUP may change.
pub(crate) struct RunningCommand {
    /// The configuration as it was read last.
    in_force: ActiveSettings,
    /// The configuration of the start: what only a restart changes is as it says.
    at_start: ActiveSettings,
    sources: ConfigSources,
    filter: FilterHandle,
    /// Lines that the log had dropped when it was last said.
    dropped_lines: usize,
    /// Warnings of what the machine does not give, until they are logged.
    warnings: Vec<String>,
    token: Option<watch::Sender<Token>>,
    _pid_file: Option<PidFile>,
}

/// The file that says which process this is, as long as it runs.
struct PidFile(PathBuf);

impl PidFile {
    fn write(path: &Path) -> Result<Self, Failure> {
        let written = std::fs::write(path, std::process::id().to_string());
        written.map_err(|why| fault("pid-file", format!("{}: {why}", path.display())))?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Another process may have written its own by now.
        if std::fs::read_to_string(&self.0).is_ok_and(|text| text == std::process::id().to_string()) {
            _ = std::fs::remove_file(&self.0);
        }
    }
}

impl RunningCommand {
    /// Reads the configuration, starts the log, and says who may ask the admin server.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn begin(sources: ConfigSources) -> Result<(Self, Access), Failure> {
        let (in_force, few_descriptors) = sources.read_and_fit().map_err(Failure::Configuration)?;
        let settings = &in_force.settings;
        let little_memory = machine::check_memory(settings, sources.servers)?;
        let filter = log::start(&settings.log, settings.log_file.as_deref()).map_err(Failure::Failed)?;
        let pid_file = settings.pid_file.as_deref().map(PidFile::write).transpose()?;
        stop_on_panic();
        let token = token_of(settings)?;
        let access = Access::for_address(settings.admin, token.as_ref().map(watch::Sender::subscribe))
            .map_err(|message| fault("admin", message))?;
        let warnings = [few_descriptors, little_memory].into_iter().flatten().collect();
        let at_start = in_force.clone();
        Ok((
            Self {
                in_force,
                at_start,
                sources,
                filter,
                dropped_lines: 0,
                warnings,
                token,
                _pid_file: pid_file,
            },
            access,
        ))
    }

    /// What is in force.
    pub(crate) fn settings(&self) -> &Settings {
        &self.in_force.settings
    }

    /// Logs the warnings once, of a server that has started: a start that fails says why and no more.
    pub(crate) fn tell_warnings(&mut self) {
        for warning in self.warnings.drain(..) {
            tracing::warn!("{warning}");
        }
    }

    /// Says how many lines the log had to drop since it was last said.
    pub(crate) fn tell_dropped_lines(&mut self) {
        let dropped = self.filter.dropped();
        if dropped > self.dropped_lines {
            let lines = dropped - self.dropped_lines;
            tracing::warn!("{lines} lines of this log were dropped: stderr is too slow for them");
            self.dropped_lines = dropped;
        }
    }

    /// Opens the log's file again, after somebody has moved it away.
    pub(crate) fn reopen_log(&self) {
        if self.filter.reopen() {
            tracing::info!("SIGUSR1: log file reopened");
        } else {
            tracing::info!("SIGUSR1: no log file to reopen; the log goes to stderr");
        }
    }

    /// Reads the configuration again and has it checked by the server. What is wrong is logged, and changes nothing.
    pub(crate) fn read_again<T>(
        &self,
        check: impl FnOnce(&Settings) -> Result<T, Fault>,
    ) -> Option<(ActiveSettings, T)> {
        let read = self.sources.read_and_fit().and_then(|(new, _)| {
            let checked = check(&new.settings).map_err(|fault| vec![fault])?;
            Ok((new, checked))
        });
        read.map_err(|faults| {
            for fault in faults {
                tracing::error!("reload: {fault}");
            }
            tracing::error!("reload: the configuration stays as it was");
        })
        .ok()
    }

    /// Takes what was read into force, and says what came of it. `follows` says of a setting whether it has changed
    /// with this (or only a restart changes it), and nothing of one that is for nobody here.
    pub(crate) fn accept(
        &mut self,
        new: ActiveSettings,
        remarks: &[String],
        follows: impl Fn(&Setting) -> Option<bool>,
    ) {
        let keys = |before: &ActiveSettings, wanted: bool| -> Vec<&'static str> {
            let changed = effective::changed(before, &new).into_iter();
            changed.filter(|setting| follows(setting) == Some(wanted)).map(|setting| setting.key).collect()
        };
        let (mut now, later) = (keys(&self.in_force, true), keys(&self.at_start, false));
        let has_sites = by_key("origin").is_some_and(|(_, origin)| follows(origin) == Some(true));
        if has_sites && effective::has_other_sites(&self.in_force, &new) {
            now.push("sites");
        }
        let has_feed = by_key("leaf").is_some_and(|(_, leaf)| follows(leaf) == Some(true));
        if has_feed && self.in_force.settings.feed.leaf_remotes != new.settings.feed.leaf_remotes {
            now.push("leaf-remote");
        }
        self.follow(&new);
        self.in_force = new;
        let mut said: Vec<String> = Vec::new();
        if !now.is_empty() {
            said.push(format!("changed {}", now.join(", ")));
        }
        said.extend_from_slice(remarks);
        if later.is_empty() {
            let said = if said.is_empty() { "nothing changed".to_owned() } else { said.join("; ") };
            tracing::info!("reload: {said}");
        } else {
            said.push(format!("only a restart changes {}", later.join(", ")));
            tracing::warn!("reload: {}", said.join("; "));
        }
    }

    /// Lets the log's filter and the admin token follow. The token's file may hold another one under the same name.
    fn follow(&mut self, new: &ActiveSettings) {
        if new.settings.log != self.in_force.settings.log
            && let Err(error) = self.filter.change(&new.settings.log)
        {
            tracing::error!("reload: log: {error}");
        }
        if let (Some(token), Some(path)) = (&self.token, &self.at_start.settings.admin_token_file) {
            match admin::read_token("admin-token-file", path) {
                Ok(new) => _ = token.send_replace(new),
                Err(message) => tracing::error!("reload: {message}; the old token stays"),
            }
        }
    }
}

/// One wrong setting.
pub(crate) fn fault(key: &str, message: String) -> Failure {
    Failure::Configuration(vec![Fault { place: key.to_owned(), message }])
}

/// What the system refused.
pub(crate) fn failed(what: &'static str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::Failed(format!("{what}: {error}"))
}

fn token_of(settings: &Settings) -> Result<Option<watch::Sender<Token>>, Failure> {
    let Some(path) = &settings.admin_token_file else { return Ok(None) };
    let token =
        admin::read_token("admin-token-file", path).map_err(|message| fault("admin-token-file", message))?;
    Ok(Some(watch::Sender::new(token)))
}

/// A broken invariant of our own ends the process, whichever thread finds it: a server that goes on with one loop
/// less, or with a store that is not what it says, is worse than one that is restarted.
fn stop_on_panic() {
    let show = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        show(panic);
        std::process::abort();
    }));
}

/// What a signal asks for.
pub(crate) enum SignalRequest {
    /// SIGHUP.
    Reload,
    /// SIGTERM, SIGINT, SIGQUIT.
    Stop,
    /// SIGUSR1.
    Reopen,
    /// SIGUSR2.
    Upgrade,
}

/// Signals that would end or stop the process, and by which nobody asks a server for anything: timers, a terminal that
/// is written to from the background, a limit on the size of files (the write then says EFBIG, which is an error like
/// any other). SIGPIPE is ignored by the standard library's start. SIGTSTP stays: whoever presses Ctrl-Z wants a stop.
const IGNORED: [Named; 9] = [
    Named::ALARM,
    Named::VTALARM,
    Named::PROF,
    Named::IO,
    Named::POWER,
    Named::STKFLT,
    Named::TTIN,
    Named::TTOU,
    Named::XFSZ,
];

/// The signals that a server listens to.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
    reopen: Signal,
    upgrade: Signal,
}

impl Signals {
    /// Catches them, and gives the main thread's runtime. First of all: who reads that we listen may send one at once.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn caught() -> Result<(Runtime, Self), Failure> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed("cannot start"))?;
        let inside = runtime.enter();
        let caught = || {
            // Those without a name, too: mosquitto, for one, is told by the first of them to open its log again.
            for ignored in IGNORED.iter().map(|signal| signal.as_raw()).chain(real_time()) {
                ignore(ignored)?;
            }
            Ok(Self {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                quit: signal(SignalKind::quit())?,
                hangup: signal(SignalKind::hangup())?,
                reopen: signal(SignalKind::user_defined1())?,
                upgrade: signal(SignalKind::user_defined2())?,
            })
        };
        let signals = caught().map_err(failed("cannot catch signals"))?;
        drop(inside);
        Ok((runtime, signals))
    }

    /// The next wish.
    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.hangup.recv() => SignalRequest::Reload,
            _ = self.terminate.recv() => SignalRequest::Stop,
            _ = self.interrupt.recv() => SignalRequest::Stop,
            _ = self.quit.recv() => SignalRequest::Stop,
            _ = self.upgrade.recv() => SignalRequest::Upgrade,
            _ = self.reopen.recv() => SignalRequest::Reopen,
        }
    }

    /// What is said to SIGUSR2 while there is no upgrade.
    pub(crate) fn cannot_upgrade() {
        tracing::warn!("SIGUSR2: this version cannot hand its work to a new binary; it goes on");
    }

    /// Drains on a thread that may block, and says how it ended: `whole` if `drain` says that nothing was cut short. A
    /// second signal ends the process at once.
    ///
    /// # Errors
    /// What `drain` says.
    pub(crate) async fn drain(
        mut self,
        drain: impl FnOnce() -> Result<bool, Failure> + Send + 'static,
        whole: &str,
        cut: &str,
    ) -> Result<(), Failure> {
        let drained = tokio::task::spawn_blocking(drain);
        let stop = async { while !matches!(self.next().await, SignalRequest::Stop) {} };
        tokio::select! {
            drained = drained => match drained {
                Ok(Ok(true)) => tracing::info!("stopped: {whole}"),
                Ok(Ok(false)) => tracing::warn!("stopped: {cut}"),
                Ok(Err(failure)) => return Err(failure),
                Err(error) => return Err(Failure::Failed(format!("the drain broke off: {error}"))),
            },
            () = stop => {
                tracing::warn!("stopped at once by a second signal");
                // The drain holds a thread that nothing can end.
                std::process::exit(1);
            }
        }
        Ok(())
    }
}
