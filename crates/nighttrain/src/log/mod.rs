//! The log: messages for the operator, on stderr or into a file. Transactions have a log of their own.
//!
//! ```text
//!  loop ──line──▶ queue of LINES_MAX ──▶ one thread ──write──▶ stderr, or a file that is opened again on a signal
//! ```
//! A loop never waits for stderr, which may be a full pipe: a line that does not fit into the queue is
//! dropped, and [`FilterHandle::dropped`] counts it.

pub(crate) mod transactions;

use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, Registry, layer::SubscriberExt, reload, util::SubscriberInitExt};

/// Handle of the running log: changes its filter and reopens its file.
pub(crate) struct FilterHandle {
    filter: reload::Handle<EnvFilter, Registry>,
    dropped: ErrorCounter,
    /// Flag that makes the writer reopen the file; `None` if the log goes to stderr.
    reopen: Option<Arc<AtomicBool>>,
    /// Guard that writes the queued lines when it is dropped.
    _writer: WorkerGuard,
}

/// Maximum number of lines in the queue; more are dropped.
const LINES_MAX: usize = 8192;

impl FilterHandle {
    /// Activates another filter. `filter` has already passed [`parse_filter`] as a setting.
    pub(crate) fn change(&self, filter: &str) -> Result<(), String> {
        let filter = parse_filter(filter)?;
        self.filter.reload(filter).map_err(|error| error.to_string())
    }

    /// Reopens the file before the next line; returns false if the log goes to stderr.
    pub(crate) fn reopen(&self) -> bool {
        self.reopen.as_ref().inspect(|asked| asked.store(true, Ordering::Release)).is_some()
    }

    /// Returns the number of lines that were dropped so far because the queue was full.
    pub(crate) fn dropped(&self) -> usize {
        self.dropped.dropped_lines()
    }
}

/// Parses a filter.
///
/// # Errors
/// Returns a sentence that says what a correct filter looks like.
pub(crate) fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    if text.trim().is_empty() {
        return Err(
            "invalid log filter: expected error, warn, info, debug, trace or off, or levels by part such as \
             info,cache=debug"
                .to_owned(),
        );
    }
    // tracing-subscriber takes any single word as a module's name, so that `--log verbose` would log nothing.
    if let Some(word) = text.split(',').find(|word| !is_level(word) && !word.contains(['=', '['])) {
        return Err(format!(
            "invalid log level `{word}`: expected error, warn, info, debug, trace or off; by part, such as cache=debug"
        ));
    }
    // The crate `cluster` logs the events of the async-nats library itself, once, so the library's own log is
    // off.
    EnvFilter::try_new(format!("async_nats=off,{text}"))
        .map_err(|error| format!("{error}; expected a filter such as info or info,cache=debug"))
}

fn is_level(word: &str) -> bool {
    ["error", "warn", "info", "debug", "trace", "off"].iter().any(|level| word.eq_ignore_ascii_case(level))
}

/// A log in a file.
struct LogFile {
    path: PathBuf,
    file: File,
    /// True if the file was moved away (SIGUSR1) and must be reopened.
    asked: Arc<AtomicBool>,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<File> {
        OpenOptions::new().append(true).create(true).open(path)
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.asked.swap(false, Ordering::AcqRel) {
            match Self::open(&self.path) {
                Ok(file) => self.file = file,
                // The old file stays in use.
                Err(why) => _ = writeln!(self.file, "cannot reopen the log file: {why}"),
            }
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Starts to log to a file, or to stderr. Colours are used only on a terminal and without `NO_COLOR`
/// (<https://no-color.org>).
pub(crate) fn start(filter: &str, path: Option<&Path>) -> Result<FilterHandle, String> {
    let colours = path.is_none()
        && io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES_MAX);
    let (reopen, (writer, guard)) = match path {
        None => (None, builder.finish(io::stderr())),
        Some(path) => {
            let file = LogFile::open(path).map_err(|why| format!("log-file: {}: {why}", path.display()))?;
            let asked = Arc::new(AtomicBool::new(false));
            let log = LogFile { path: path.to_owned(), file, asked: Arc::clone(&asked) };
            (Some(asked), builder.finish(log))
        }
    };
    let dropped = writer.error_counter();
    let (layer, handle) = reload::Layer::new(parse_filter(filter)?);
    tracing_subscriber::registry()
        .with(layer)
        .with(tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(colours).with_target(false))
        .try_init()
        .map_err(|error| error.to_string())?;
    Ok(FilterHandle { filter: handle, dropped, reopen, _writer: guard })
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
