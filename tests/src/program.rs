//! Finds the program under test, and sees to it that it is the one of this source tree.
//!
//! Cargo gives a package's own integration tests the path of its binary (`CARGO_BIN_EXE_…`), but these tests are a
//! package of their own. So: the binary lies in the directory above the test's own (`target/PROFILE/deps/` →
//! `target/PROFILE/`), and cargo is asked to bring it and the lab up to date, with the profile that the tests were
//! built with: once for a process, and where each test is a process of its own, once for all of a run. No test ever
//! runs against a stale binary.
//!
//! `NIGHTTRAIN_BIN=/path/to/nighttrain` takes that binary instead and builds nothing (an installed one, or one under
//! a sanitizer).

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, Write},
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
    once_a_run(profile_directory, || {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            // With their own tests, because then the libraries are built as they were for these tests.
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

/// Does it once for all processes of a run of cargo-nextest, which names its runs; the others wait. Without nextest,
/// always.
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
