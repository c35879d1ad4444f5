//! Finds the program under test, and makes sure that it is built from this source tree.
//!
//! Cargo gives a package's own integration tests the path of its binary (`CARGO_BIN_EXE_…`), but these tests
//! are a package of their own. So the binary is looked up in the directory above the test's own
//! (`target/PROFILE/deps/` → `target/PROFILE/`), and cargo is run to bring it and the lab up to date, with
//! the profile of the tests: once per process, or once per run where each test is a process of its own. No
//! test ever runs against a stale binary.
//!
//! `NIGHTTRAIN_BIN=/path/to/nighttrain` uses that binary instead and builds nothing (an installed one, or one
//! with a sanitizer).

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// Returns the path of the program.
///
/// # Panics
/// When the program cannot be built; cargo's output is on stderr.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os("NIGHTTRAIN_BIN") {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

/// Returns a command that runs the program without the developer's own `NIGHTTRAIN_…` variables.
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
    once_a_run(profile_directory, || {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            // Built with their own tests, so that the libraries are built with the same features as for these
            // tests.
            .args([
                "test",
                "--no-run",
                "--quiet",
                "--package",
                "nighttrain",
                "--package",
                "lab",
                "--test",
                "it",
            ])
            .args(["--profile", profile, "--target-dir"])
            .arg(target_directory)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .stdin(Stdio::null())
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the program could not be built");
    });
    profile_directory.join("nighttrain")
}

/// Builds once for all processes of a cargo-nextest run, which has an id; the other processes wait. Without
/// nextest, each process builds.
fn once_a_run(directory: &Path, build: impl FnOnce()) {
    let Some(run) = std::env::var_os("NEXTEST_RUN_ID") else { return build() };
    let mut file: File = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(directory.join(".built-for-tests"))
        .expect("the target directory can be written");
    file.lock().expect("a lock");
    let mut built_for = String::new();
    file.read_to_string(&mut built_for).expect("text");
    if run.to_string_lossy() == built_for {
        return;
    }
    build();
    file.rewind().expect("a file");
    file.set_len(0).expect("a file");
    file.write_all(run.to_string_lossy().as_bytes()).expect("written");
}
