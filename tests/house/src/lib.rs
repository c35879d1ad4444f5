//! House rules for every crate that the compiler does not check; the tests of this package check them. The
//! package stands alone so that the checks run in seconds and build no server.

pub mod modules;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The root of the repository.
///
/// # Panics
/// If this package has moved.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .map(Path::to_owned)
        .unwrap_or_else(|| panic!("{} is not two levels deep", here.display()))
}

/// Returns the output of `cargo metadata` for the workspace's own crates.
///
/// # Panics
/// If cargo fails.
#[must_use]
pub fn metadata() -> serde_json::Value {
    let text = cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("cargo metadata: {error}"))
}

/// Returns the name and the licence expression of every library that the workspace is built from, with all
/// features.
///
/// # Panics
/// If cargo fails.
#[must_use]
pub fn licences() -> Vec<(String, String)> {
    // `cargo tree`, because `cargo metadata` also lists packages that no chosen feature enables. Not
    // `--offline`: on a clean machine only the dependencies of this test have been fetched by now.
    let tree = ["tree", "--workspace", "--all-features", "--locked", "--prefix", "none", "--no-dedupe"];
    let text = cargo(&[&tree[..], &["--edges", "normal,build,dev", "--format", "{p}|{l}"]].concat());
    let lines = text.lines().filter_map(|line| line.split_once('|'));
    let mut found: Vec<_> =
        lines.map(|(package, licence)| (package.to_owned(), licence.to_owned())).collect();
    found.sort();
    found.dedup();
    found
}

fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(arguments).current_dir(root()).output();
    let output = output.unwrap_or_else(|error| panic!("cargo: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns all files below `directory` whose name has this ending, sorted, without the `target` directories.
///
/// # Panics
/// If a directory cannot be read.
#[must_use]
pub fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        let entries =
            fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                left.extend(path.file_name().is_some_and(|name| name != "target").then_some(path));
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the files of our crates and tests with this ending: the path from the root, and the text.
///
/// # Panics
/// If a file cannot be read.
#[must_use]
pub fn sources(ending: &str) -> Vec<(String, String)> {
    let root = root();
    ["crates", "tests"]
        .iter()
        .flat_map(|part| files(&root.join(part), ending))
        .map(|path| {
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().into_owned(), text)
        })
        .collect()
}

/// Returns the product's own sources: the path from the root, and the text.
///
/// # Panics
/// If a file cannot be read.
pub fn product() -> impl Iterator<Item = (String, String)> {
    sources(".rs").into_iter().filter(|(path, _)| path.starts_with("crates/") && path.contains("/src/"))
}

/// Asserts a count that may only shrink, and shows the first things counted.
///
/// # Panics
/// If the count is another one than `stands`.
pub fn assert_stands(what: &str, found: &[String], stands: usize) {
    let first: Vec<_> = found.iter().take(20).collect();
    assert!(
        found.len() == stands,
        "{what}: {} in place of {stands} (write down what has shrunk), the first: {first:#?}",
        found.len()
    );
}
