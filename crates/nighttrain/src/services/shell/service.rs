//! A server as the shell runs it, whichever of the three it is.

use std::{future::Future, pin::Pin, time::Duration};

use crate::{
    admin::OperatorView,
    failure::{Failure, Fault},
    settings::{Section, Setting, Settings},
};

/// Closure that makes a service apply a configuration. It returns a remark for the log, or an error.
pub(crate) type ConfigApply<'a> = Box<dyn FnOnce() -> Result<Option<String>, String> + 'a>;

/// A server as the program runs it.
pub(crate) trait Service: OperatorView {
    /// Returns the startup announcement: every bound address, one per line, and any further lines.
    fn announcement(&self) -> String;

    /// Returns the section of the configuration file that belongs to the service.
    fn section(&self) -> Section;

    /// Returns whether SIGHUP changes this setting of the service's section. (The shell handles the common
    /// settings.)
    fn follows(&self, setting: &Setting) -> bool;

    /// Checks a configuration and reads everything that is needed to apply it.
    ///
    /// # Errors
    /// Returns the `Fault` in the configuration.
    fn check(&self, settings: &Settings) -> Result<ConfigApply<'_>, Fault>;

    /// Returns whether SIGUSR2 drains the service, as in nats-server's lame duck mode.
    fn is_lame_duck_by_signal(&self) -> bool {
        false
    }

    /// Returns a line for stdout, if there is something to report.
    fn remark(&self) -> Option<String> {
        None
    }

    /// Returns a future that is ready once a loop has failed.
    fn until_loop_fails(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Makes the service report that it is not ready.
    fn begin_drain(&self);

    /// Returns the maximum time of the drain.
    fn drain_time(&self, settings: &Settings) -> Duration {
        settings.drain_time_max
    }

    /// Accepts no more requests, and blocks until those under way have ended (then it returns true) or the
    /// time is up.
    ///
    /// # Errors
    /// Returns a `Failure` if a loop had ended before the drain.
    fn drain(&self, at_most: Duration) -> Result<bool, Failure>;

    /// Returns the service's position in the order of data flow: services with a lower stage drain first.
    fn stage(&self) -> u8;

    /// Returns the log messages for a stop; `at_most` is the drain time.
    fn words(&self, at_most: Duration) -> StopMessages;
}

/// Log messages of a stop.
pub(crate) struct StopMessages {
    /// Message at the beginning of the drain.
    pub stopping: String,
    /// Message if everything under way has ended.
    pub whole: &'static str,
    /// Message if the drain time ran out first.
    pub cut: &'static str,
}
