//! Programs in other languages that the tests run, with their libraries: installed once, below the target
//! directory.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Path of the source tree.
#[must_use]
pub fn source_tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the tree").to_owned()
}

/// Directory that tests may write to: `target/NAME`, kept between runs.
///
/// # Panics
/// If the directory cannot be made.
#[must_use]
pub fn artifacts(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a process knows its own file");
    // `target/PROFILE/deps/NAME` for a test, `target/PROFILE/NAME` for a program.
    let profile = program.ancestors().skip(1).find(|directory| !directory.ends_with("deps"));
    let target = profile.and_then(std::path::Path::parent);
    let directory = target.expect("tests run from the target directory").join(name);
    fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// Installs the libraries of `tests/browser/package-lock.json`, and returns their directory.
///
/// # Panics
/// If they cannot be installed; npm's output is in the message.
#[must_use]
pub fn node_modules() -> PathBuf {
    npm_installed("tests-node", &source_tree().join("tests/browser"))
}

/// Installs the mail templates of `tests/browser/templates/package-lock.json` and the programs that build
/// them.
///
/// # Panics
/// If they cannot be installed; npm's output is in the message.
#[must_use]
pub fn mail_templates() -> PathBuf {
    npm_installed("tests-templates", &source_tree().join("tests/browser/templates"))
}

/// Installs the public suite for RFC 9111 of `tests/clients/conformance/package-lock.json`.
///
/// # Panics
/// If it cannot be installed; npm's output is in the message.
#[must_use]
pub fn cache_tests() -> PathBuf {
    npm_installed("tests-conformance", &source_tree().join("tests/clients/conformance"))
        .join("http-cache-tests")
}

/// Installs the packages of the package file in `from` below `target/NAME`.
fn npm_installed(name: &str, from: &Path) -> PathBuf {
    let directory = artifacts(name);
    installed(&directory, &from.join("package-lock.json"), || {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(from.join(file), directory.join(file)).expect("copied");
        }
        Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"])
            .current_dir(&directory)
            .output()
    });
    directory.join("node_modules")
}

/// Installs a Python with the libraries of `tests/clients/requirements.txt`.
///
/// # Panics
/// If they cannot be installed; pip's output is in the message.
#[must_use]
pub fn python() -> PathBuf {
    let directory = artifacts("tests-python");
    let requirements = source_tree().join("tests/clients/requirements.txt");
    installed(&directory, &requirements, || {
        let made =
            Command::new("python3").args(["-m", "venv", "--clear"]).arg(directory.join("venv")).output()?;
        if !made.status.success() {
            return Ok(made);
        }
        Command::new(directory.join("venv/bin/pip"))
            .args(["install", "--quiet", "--disable-pip-version-check", "-r"])
            .arg(&requirements)
            .output()
    });
    directory.join("venv/bin/python")
}

/// Installs once for each content of `list`; other test processes wait meanwhile.
///
/// # Panics
/// If the installation fails; the installer's output is in the message.
pub fn installed(directory: &Path, list: &Path, install: impl FnOnce() -> std::io::Result<Output>) {
    let lock = File::create(directory.join("lock")).expect("a file");
    lock.lock().expect("a lock");
    let stamp = directory.join("installed");
    let wanted = fs::read(list).expect("the list of libraries");
    if fs::read(&stamp).is_ok_and(|is| is == wanted) {
        return;
    }
    let output = install().expect("the installer is there (tests/install-packages.sh)");
    assert!(
        output.status.success(),
        "the libraries of {} cannot be installed: {}",
        list.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    fs::write(stamp, wanted).expect("written");
}

/// Runs a program to its end, and returns its output.
///
/// # Panics
/// If the program fails; its output is in the message.
pub fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} failed:\n{said}");
    said
}
