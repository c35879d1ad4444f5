//! Programs that others wrote, or that stand on others' libraries: what `tests/install-clients.sh` installs.

use std::path::PathBuf;

use crate::node::artifacts;

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
