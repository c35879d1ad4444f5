//! Common parts of all servers' commands: the configuration, at startup and at SIGHUP, the signals, and the
//! stop.
//!
//! ```text
//!  flags, environment, file ──ConfigSources──▶ ActiveSettings ──▶ RunningCommand: active settings, the log's filter, the admin token
//!  SIGHUP           the configuration is read, checked and applied, with the log's filter and the token; settings that need a restart are logged
//!  SIGTERM, SIGINT  the server drains on a thread that may block; a second signal ends the process at once
//!  SIGQUIT          as SIGTERM, for operators who know nginx
//!  SIGUSR1          log and access log are reopened after a rotation; a log without a file logs that
//!  SIGUSR2          lame duck if the feed runs alone, as nats-server; otherwise an upgrade, which does not exist yet: logged
//!  others           from timers, terminals or scripts for other servers: ignored ([`IGNORED`])
//! ```

use std::{
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
    admin::{Access, Token, read_token},
    failure::{Failure, Fault, failed, fault},
    log::{self, FilterHandle},
    machine::{self, ServerSet},
    settings::{
        Setting, Settings, by_key, effective,
        precedence::{self, ActiveSettings, Flags, Source},
    },
};

/// Sources of the configuration.
pub(crate) struct ConfigSources {
    /// Configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// Settings from the command line.
    pub flags: Flags,
    /// Function that adds the server's own settings to the configuration.
    pub complete: ConfigCompletion,
    /// Servers for which the configuration is meant.
    pub servers: ServerSet,
}

/// Function that adds a server's own settings to the configuration.
pub(crate) type ConfigCompletion = Box<dyn Fn(&mut ActiveSettings) -> Result<(), Vec<Fault>> + Send>;

impl ConfigSources {
    fn read(&self) -> Result<ActiveSettings, Vec<Fault>> {
        let mut in_force =
            precedence::in_force(self.file.as_deref(), |name| std::env::var_os(name), &self.flags)?;
        (self.complete)(&mut in_force)?;
        Ok(in_force)
    }

    /// Reads the configuration, lowers its connection limits to what the machine's file descriptors allow,
    /// and gives its servers one memory budget for their clients. Returns a warning if the limits are lower
    /// than configured.
    fn read_and_fit(&self) -> Result<(ActiveSettings, Option<String>), Vec<Fault>> {
        let mut in_force = self.read()?;
        let warning = machine::fit_descriptors(&mut in_force.settings, self.servers);
        machine::share_client_memory(&mut in_force.settings, self.servers);
        Ok((in_force, warning))
    }
}

/// Sets the admin server's address to `address` if no source configures it.
pub(crate) fn admin_by_default(in_force: &mut ActiveSettings, address: SocketAddr) {
    let nobody_said = by_key("admin").is_some_and(|(place, _)| in_force.sources[place] == Source::Default);
    if nobody_said {
        in_force.settings.admin = address;
    }
}

/// A server's command while it runs: the active settings, and everything that SIGHUP may change.
pub(crate) struct RunningCommand {
    /// Configuration that was read last.
    in_force: ActiveSettings,
    /// Configuration at the start; settings that take effect only after a restart still have these values.
    at_start: ActiveSettings,
    sources: ConfigSources,
    filter: FilterHandle,
    /// Number of dropped log lines that have already been reported.
    dropped_lines: usize,
    /// Warnings about the machine's limits, until they are logged.
    warnings: Vec<String>,
    token: Option<watch::Sender<Token>>,
    _pid_file: Option<PidFile>,
}

/// The PID file, which is removed when the process ends.
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
        // Another process may have replaced the file with its own by now.
        if std::fs::read_to_string(&self.0).is_ok_and(|text| text == std::process::id().to_string()) {
            _ = std::fs::remove_file(&self.0);
        }
    }
}

impl RunningCommand {
    /// Reads the configuration, starts the log, and returns the access rules of the admin server.
    ///
    /// # Errors
    /// Returns a `Failure` that describes the fault in the settings, the log or the token.
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

    /// Returns the active settings.
    pub(crate) fn settings(&self) -> &Settings {
        &self.in_force.settings
    }

    /// Logs the warnings once the server has started. A start that fails reports only its reason.
    pub(crate) fn tell_warnings(&mut self) {
        for warning in self.warnings.drain(..) {
            tracing::warn!("{warning}");
        }
    }

    /// Logs how many lines the log has dropped since the last report.
    pub(crate) fn tell_dropped_lines(&mut self) {
        let dropped = self.filter.dropped();
        if dropped > self.dropped_lines {
            let lines = dropped - self.dropped_lines;
            tracing::warn!("{lines} log lines dropped: stderr is too slow");
            self.dropped_lines = dropped;
        }
    }

    /// Reopens the log's file after it was moved away.
    pub(crate) fn reopen_log(&self) {
        if self.filter.reopen() {
            tracing::info!("SIGUSR1: log file reopened");
        } else {
            tracing::info!("SIGUSR1: no log file to reopen; the log goes to stderr");
        }
    }

    /// Reads the configuration again and has the server check it. Faults are logged, and then nothing
    /// changes.
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
            tracing::error!("reload failed: keeping the current configuration");
        })
        .ok()
    }

    /// Activates the new configuration and logs which settings changed. `follows` returns whether a setting
    /// takes effect now or only after a restart, and `None` for a setting of a server that does not run.
    pub(crate) fn activate(
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

    /// Applies the log's filter and the admin token. The token is read again even if the path is unchanged,
    /// because the file may have new content.
    fn follow(&mut self, new: &ActiveSettings) {
        if new.settings.log != self.in_force.settings.log
            && let Err(error) = self.filter.change(&new.settings.log)
        {
            tracing::error!("reload: cannot apply the new log filter: {error}; the old filter stays in use");
        }
        if let (Some(token), Some(path)) = (&self.token, &self.at_start.settings.admin_token_file) {
            match read_token("admin-token-file", path) {
                Ok(new) => _ = token.send_replace(new),
                Err(message) => tracing::error!("reload: {message}; the old token stays in use"),
            }
        }
    }
}

fn token_of(settings: &Settings) -> Result<Option<watch::Sender<Token>>, Failure> {
    let Some(path) = &settings.admin_token_file else { return Ok(None) };
    let token = read_token("admin-token-file", path).map_err(|message| fault("admin-token-file", message))?;
    Ok(Some(watch::Sender::new(token)))
}

/// Makes a panic in any thread end the process: a server that continues with one loop missing, or with an
/// inconsistent store, is worse than one that is restarted.
fn stop_on_panic() {
    let show = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        show(panic);
        std::process::abort();
    }));
}

/// Action that a signal requests.
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

/// Signals that are ignored because they would end or stop the process although no operator uses them to
/// control a server: timers, a terminal that is written to from the background, a limit on the size of files
/// (the write then fails with EFBIG, like any other error). The standard library already ignores SIGPIPE.
/// SIGTSTP keeps its effect: Ctrl-Z is meant to stop the process.
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

/// Signals that a server handles.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
    reopen: Signal,
    upgrade: Signal,
}

impl Signals {
    /// Installs the handlers, and returns the main thread's runtime. This must happen before anything else,
    /// because a parent process may send a signal as soon as it reads the announcement of the listening
    /// address.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn install_handlers() -> Result<(Runtime, Self), Failure> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed("cannot start"))?;
        let inside = runtime.enter();
        let caught = || {
            // Real-time signals are ignored too: log rotation sends the first of them to mosquitto to reopen
            // its log, for example.
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

    /// Waits for the next request.
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

    /// Logs the answer to SIGUSR2: there is no upgrade yet.
    pub(crate) fn cannot_upgrade() {
        tracing::warn!("SIGUSR2: this version cannot hand over to a new binary; continuing");
    }

    /// Drains on a thread that may block, and logs the outcome: the message `whole` if `drain` returns true,
    /// because nothing was cut short, and `cut` otherwise. A second signal ends the process at once.
    ///
    /// # Errors
    /// Returns the failure of `drain`, or `Failure::Failed` if its thread panicked.
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
                Ok(Ok(false)) => tracing::warn!("stopped with work unfinished: {cut}"),
                Ok(Err(failure)) => return Err(failure),
                Err(error) => return Err(Failure::Failed(format!("the drain was interrupted: {error}"))),
            },
            () = stop => {
                tracing::warn!("stopped at once by a second signal");
                // The drain blocks its thread, and only the end of the process can stop it.
                std::process::exit(1);
            }
        }
        Ok(())
    }
}
