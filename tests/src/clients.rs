//! Third-party programs, and programs that use third-party libraries, as `tests/install-clients.sh` installs
//! them.

use std::{fs, path::PathBuf, process::Command};

use crate::node::{artifacts, source_tree};

/// Returns the program at a path below `target/clients`; `None`, with a line on stderr, if it is not
/// installed. With `NIGHTTRAIN_CLIENTS=all` in the environment every program is required.
///
/// # Panics
/// When the program is required and not installed.
#[must_use]
pub fn installed(path: &str) -> Option<PathBuf> {
    let program = artifacts("clients").join(path);
    if program.exists() {
        return Some(program);
    }
    assert!(
        std::env::var_os("NIGHTTRAIN_CLIENTS").is_none(),
        "{} is not there: sh tests/install-clients.sh",
        program.display()
    );
    eprintln!("{path} is left out: sh tests/install-clients.sh");
    None
}

/// Returns the command for a script of `tests/clients/python`, with the packages that are installed for it;
/// `None` as for [`installed`].
#[must_use]
pub fn python(script: &str) -> Option<Command> {
    let mut command = Command::new(installed("python/bin/python")?);
    command.arg(source_tree().join("tests/clients/python").join(script));
    Some(command)
}

/// Returns the command for a script of `tests/clients/node`; `None` as for [`installed`].
///
/// # Panics
/// When the script cannot be copied.
#[must_use]
pub fn node(script: &str) -> Option<Command> {
    installed("node/node_modules/nats/package.json")?;
    // Node looks for packages beside the script, so the script is copied to where they are.
    let copy = artifacts("clients").join(format!("node/{}-{script}", std::process::id()));
    fs::copy(source_tree().join("tests/clients/node").join(script), &copy).expect("a copy");
    let mut command = Command::new("node");
    command.arg(copy);
    Some(command)
}
