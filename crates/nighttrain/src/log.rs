//! What is logged: messages for the operator, on stderr. (Transactions do not pass through here.)
//!
//! ```text
//!  loop ──line──▶ queue of LINES_MAX ──▶ one thread ──write──▶ stderr
//! ```
//! A loop never waits for stderr, which may be a full pipe: a line for which the queue has no room is dropped, and
//! [`FilterHandle::dropped`] counts it.

use std::io::{self, IsTerminal};

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, Registry, layer::SubscriberExt, reload, util::SubscriberInitExt};

/// Changes the filter while the program runs.
pub(crate) struct FilterHandle {
    filter: reload::Handle<EnvFilter, Registry>,
    dropped: ErrorCounter,
    /// Writes what is queued when it is dropped.
    _writer: WorkerGuard,
}

/// Lines that wait to be written; more are dropped.
const LINES_MAX: usize = 8192;

impl FilterHandle {
    /// Puts another filter in force; `filter` has passed [`parse_filter`] as a setting.
    pub(crate) fn change(&self, filter: &str) -> Result<(), String> {
        let filter = parse_filter(filter)?;
        self.filter.reload(filter).map_err(|error| error.to_string())
    }

    /// Lines that were dropped so far because the queue was full.
    pub(crate) fn dropped(&self) -> usize {
        self.dropped.dropped_lines()
    }
}

/// A filter from its text.
///
/// # Errors
/// A sentence that says what would be right.
pub(crate) fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    if text.trim().is_empty() {
        return Err(
            "a filter is error, warn, info, debug, trace or off, or such as info,cache=debug".to_owned()
        );
    }
    // tracing-subscriber takes any lone word as the name of a module, so that `--log verbose` would log nothing.
    if let Some(word) = text.split(',').find(|word| !is_level(word) && !word.contains(['=', '['])) {
        return Err(format!(
            "`{word}` is no level: the levels are error, warn, info, debug, trace and off; \
             one part's level is such as cache=debug"
        ));
    }
    EnvFilter::try_new(text).map_err(|error| format!("{error}: a filter is such as info or info,cache=debug"))
}

fn is_level(word: &str) -> bool {
    ["error", "warn", "info", "debug", "trace", "off"].iter().any(|level| word.eq_ignore_ascii_case(level))
}

/// Starts to log to stderr; colours only on a terminal and without `NO_COLOR` (<https://no-color.org>).
pub(crate) fn start(filter: &str) -> Result<FilterHandle, String> {
    let colours =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (writer, guard) =
        NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES_MAX).finish(io::stderr());
    let dropped = writer.error_counter();
    let (layer, handle) = reload::Layer::new(parse_filter(filter)?);
    tracing_subscriber::registry()
        .with(layer)
        .with(tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(colours).with_target(false))
        .try_init()
        .map_err(|error| error.to_string())?;
    Ok(FilterHandle { filter: handle, dropped, _writer: guard })
}

#[cfg(test)]
mod tests {
    use super::parse_filter;

    #[test]
    fn filters() {
        for right in ["info", "WARN", "off", "info,cache=debug", "warn,engine::cores=trace"] {
            assert!(parse_filter(right).is_ok(), "{right}");
        }
        for wrong in ["", "verbose", "info,loud", "cache=loud", "info, cache=debug"] {
            assert!(parse_filter(wrong).is_err(), "{wrong}");
        }
    }
}
