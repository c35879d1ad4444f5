//! Programs that others wrote, or that stand on others' libraries: what `tests/install-clients.sh` installs.

use std::{fs, path::PathBuf, process::Command};

use crate::node::{artifacts, source_tree};

/// The program at a path below `target/clients`; `None` if it was not installed and may be left out, which is said. With
/// `NIGHTTRAIN_CLIENTS=all` in the environment, nothing may be.
///
/// # Panics
/// It may not be left out.
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

/// A script of `tests/clients/python`, with the packages that are installed for it; `None`: as of [`installed`].
#[must_use]
pub fn python(script: &str) -> Option<Command> {
    let mut command = Command::new(installed("python/bin/python")?);
    command.arg(source_tree().join("tests/clients/python").join(script));
    Some(command)
}

/// A script of `tests/clients/node`, likewise.
///
/// # Panics
/// It cannot be copied.
#[must_use]
pub fn node(script: &str) -> Option<Command> {
    installed("node/node_modules/nats/package.json")?;
    // Node looks for packages beside the program: a copy goes where they are.
    let copy = artifacts("clients").join(format!("node/{}-{script}", std::process::id()));
    fs::copy(source_tree().join("tests/clients/node").join(script), &copy).expect("a copy");
    let mut command = Command::new("node");
    command.arg(copy);
    Some(command)
}
