//! Text for the user of a command, on stdout and stderr. (Messages of a running server go to [`crate::log`].)

use std::{
    fmt::Display,
    io::{self, ErrorKind, Write as _, stderr, stdout},
};

use crate::failure::Failure;

/// Writes to stdout. A reader that has gone away, such as `head`, is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes to stdout without delay. Returns false if the reader has gone away, such as `head`.
///
/// # Errors
/// Returns any other error of the system.
pub(crate) fn print_at_once(bytes: &[u8]) -> io::Result<bool> {
    let mut stdout = stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// Writes a line to stderr: no log filter hides it, and it works before the log has started. An error is
/// ignored: if stderr is gone, there is no reader, and the exit code still reports a failure.
pub(crate) fn print_to_stderr(line: &impl Display) {
    _ = writeln!(stderr(), "{line}");
}
