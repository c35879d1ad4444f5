//! House rules for every crate that the compiler does not check. The reasons: docs/decisions/001-house.md.

use std::fs;

use house::{root, sources};

/// Paths, from the root of the repository, that may contain `unsafe`, and why.
const UNSAFE_ALLOWED: [(&str, &str); 4] = [
    ("crates/engine/src/sys/", "mappings, affinity, what the kernel is handed"),
    ("crates/bheap/src/", "layout of the rows in pages"),
    ("crates/allocations/src/lib.rs", "GlobalAlloc is an unsafe trait"),
    ("crates/allocations/tests/counted.rs", "its test calls the allocator as a collection would"),
];

/// The compiler denies `unsafe` unless a file allows it; only the listed files may.
#[test]
fn unsafe_is_allowed_in_listed_files_only() {
    // Joined from two words, so that the search does not find this file itself.
    let lint = ["unsafe", "code"].join("_");
    let sources = sources(".rs");
    assert!(sources.len() > 20, "only {} files were found", sources.len());
    let allowing: Vec<&String> = sources
        .iter()
        .filter(|(_, text)| {
            let text: String = text.split_whitespace().collect();
            // `allow(…)` and `expect(…)` that name the lint, perhaps among several.
            ["allow(", "expect("].iter().any(|word| {
                text.match_indices(word)
                    .any(|(at, _)| text[at..].split(')').next().is_some_and(|inside| inside.contains(&lint)))
            })
        })
        .map(|(name, _)| name)
        .collect();
    assert!(
        allowing.iter().any(|name| name.starts_with("crates/engine/src/sys/")),
        "the search finds nothing"
    );
    for name in allowing {
        assert!(UNSAFE_ALLOWED.iter().any(|(place, _)| name.starts_with(place)), "{name} allows unsafe code");
    }
}

/// Packages that are nothing but tests. They have the workspace's lints, but for [`TESTS_MAY`].
const TESTS_ONLY: [&str; 2] = ["tests/Cargo.toml", "tests/house/Cargo.toml"];
/// Lints that do not hold for tests: they fail by panicking, say what they found, wait, lock and ask the time.
const TESTS_MAY: [&str; 6] =
    ["unwrap_used", "expect_used", "print_stdout", "print_stderr", "disallowed_methods", "disallowed_types"];

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let manifests = sources("Cargo.toml");
    assert!(manifests.len() >= 7, "{manifests:?}");
    assert!(TESTS_ONLY.iter().all(|only| manifests.iter().any(|(name, _)| name == only)), "{TESTS_ONLY:?}");
    for (name, text) in manifests {
        let manifest: toml::Table = text.parse().expect("TOML");
        let Some(package) = manifest.get("package") else { continue };
        assert_eq!(package["license"], of_workspace(), "{name} has no licence");
        let lints = manifest.get("lints").unwrap_or_else(|| panic!("{name} has no lints"));
        let wanted = if TESTS_ONLY.contains(&name.as_str()) { lints_of_tests() } else { of_workspace() };
        assert_eq!(*lints, wanted, "{name} has lints of its own");
    }
}

/// The value of a key that a package takes from the workspace.
fn of_workspace() -> toml::Value {
    toml::Value::Table(toml::Table::from_iter([("workspace".to_owned(), true.into())]))
}

/// The workspace's lints, without those that do not hold for tests.
fn lints_of_tests() -> toml::Value {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("text");
    let mut manifest: toml::Table = manifest.parse().expect("TOML");
    let clippy = manifest["workspace"]["lints"]["clippy"].as_table_mut().expect("a table");
    for lint in TESTS_MAY {
        assert!(clippy.insert(lint.to_owned(), "allow".into()).is_some(), "the workspace has no lint {lint}");
    }
    manifest["workspace"]["lints"].clone()
}

/// Every dependency has a reason in docs/decisions/002-dependencies.md.
#[test]
fn every_dependency_has_its_reason() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("text");
    let decision = fs::read_to_string(root().join("docs/decisions/002-dependencies.md")).expect("text");
    let section = manifest.split("[workspace.dependencies]").nth(1).expect("a section");
    let names: Vec<&str> = section
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.contains("path ="))
        .filter_map(|line| Some(line.split_once('=')?.0.trim()))
        .filter(|name| !name.starts_with('#') && !name.is_empty())
        .collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        assert!(
            decision.contains(&format!("`{name}`")),
            "docs/decisions/002-dependencies.md does not say why {name}"
        );
    }
}
