//! Finds the program under test, and sees to it that it is the one of this source tree.
//!
//! Cargo gives a package's own integration tests the path of its binary (`CARGO_BIN_EXE_…`), but these tests are a
//! package of their own. So: the binary lies in the directory above the test's own (`target/PROFILE/deps/` →
//! `target/PROFILE/`), and cargo is asked once per test process to bring it up to date, with the profile that the
//! tests were built with. That takes a blink when there is nothing to do, and no test ever runs against a stale binary.
//!
//! `NIGHTTRAIN_BIN=/path/to/nighttrain` takes that binary instead and builds nothing (an installed one, or one under
//! a sanitizer).

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// The path of the program.
///
/// # Panics
/// When it cannot be built; cargo's words are then on stderr.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os("NIGHTTRAIN_BIN") {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

/// A command that runs the program, free of whatever `NIGHTTRAIN_…` the developer has set.
pub fn command() -> Command {
    let mut command = Command::new(program());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("NIGHTTRAIN_") {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null());
    command
}

fn build() -> PathBuf {
    let test = std::env::current_exe().expect("a process knows its own file");
    let profile_directory = test
        .ancestors()
        .find(|directory| directory.file_name().is_some_and(|name| name == "deps"))
        .and_then(Path::parent)
        .expect("cargo puts tests into target/PROFILE/deps");
    let profile = match profile_directory.file_name().and_then(|name| name.to_str()) {
        // The directory of cargo's `dev` profile has the older name.
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let target_directory =
        profile_directory.parent().expect("a profile's directory lies in the target directory");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--package", "nighttrain", "--bin", "nighttrain", "--profile", profile])
        .arg("--target-dir")
        .arg(target_directory)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stdin(Stdio::null())
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the program could not be built");
    profile_directory.join("nighttrain")
}
