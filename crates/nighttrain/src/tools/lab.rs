//! `nighttrain lab`: finds the program `nighttrain-lab` and replaces this process with it.
//!
//! The lab is a separate program, so that no server contains its experiments, the servers that it compares
//! with, and its counting allocator. It is installed in the same directory as `nighttrain`, where a build
//! puts it too.

use std::{
    env,
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::failure::Failure;

/// File name of the lab.
const PROGRAM: &str = "nighttrain-lab";

/// Replaces this process with the lab, whose exit code then counts.
///
/// # Errors
/// Returns `Failure::Failed` if the lab is not installed or cannot be started. Otherwise this does not
/// return.
pub(crate) fn start(arguments: &[OsString]) -> Result<(), Failure> {
    let program = found()?;
    let error = Command::new(&program).args(arguments).exec();
    Err(Failure::Failed(format!("cannot start {}: {error}", program.display())))
}

/// Runs the lab with these arguments and `input` on its standard input.
///
/// # Errors
/// Returns `Failure::Failed` if the lab is not installed, cannot be started, or exits with an error.
pub(crate) fn run(arguments: &[OsString], input: &[u8]) -> Result<(), Failure> {
    let program = found()?;
    let failed = |error: io::Error| Failure::Failed(format!("{}: {error}", program.display()));
    let mut child = Command::new(&program).args(arguments).stdin(Stdio::piped()).spawn().map_err(failed)?;
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| io::Write::write_all(&mut stdin, input));
    let status = child.wait().map_err(failed)?;
    // The lab has already printed its reason on stderr; a write error on its stdin adds nothing.
    if !status.success() {
        return Err(Failure::Failed(format!("{PROGRAM} ended with {status}")));
    }
    written.map_err(failed)
}

fn found() -> Result<PathBuf, Failure> {
    let beside = env::current_exe().ok();
    let path = env::var_os("PATH").unwrap_or_default();
    let places = beside.as_deref().and_then(Path::parent).map(Path::to_owned).into_iter();
    places.chain(env::split_paths(&path)).map(|place| place.join(PROGRAM)).find(|file| file.is_file()).ok_or_else(
        || {
            Failure::Failed(format!(
                "the lab is a separate program, {PROGRAM}, and was found neither beside this one nor on the PATH: \
                 install it from the same package, or build it with `cargo build --release --package lab`"
            ))
        },
    )
}
