//! `deny.toml` says which libraries are allowed, and `Cargo.lock` is checked against it.
//!
//! `cargo deny` reads the same file and checks more (advisories, texts of licences), but building it takes
//! longer than building the servers: `make deny` runs it, while these tests run each time.

use std::{collections::BTreeSet, fs};

use house::{licences, metadata, root, sources};
use serde_json::Value;
use spdx::{Expression, LicenseReq};

fn rules() -> toml::Table {
    fs::read_to_string(root().join("deny.toml")).expect("text").parse().expect("TOML")
}

fn texts<'v>(list: &'v toml::Value, key: Option<&str>) -> BTreeSet<&'v str> {
    let list = list.as_array().expect("a list");
    list.iter().map(|entry| key.map_or(entry, |key| &entry[key]).as_str().expect("text")).collect()
}

fn text<'v>(package: &'v Value, key: &str) -> &'v str {
    package[key].as_str().unwrap_or_default()
}

/// Returns whether a licence expression can be met with licences of this list.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    // Older packages write `A/B` for `A OR B`.
    let expression = Expression::parse(&expression.replace('/', " OR "));
    expression.is_ok_and(|expression| {
        expression.evaluate(|asked: &LicenseReq| {
            // A licence exception (`WITH …`) only grants more rights, so it is ignored.
            asked.license.id().is_some_and(|id| allowed.contains(id.name))
        })
    })
}

#[test]
fn every_licence_is_one_that_was_decided_on() {
    let (libraries, rules) = (licences(), rules());
    let allowed = texts(&rules["licenses"]["allow"], None);
    assert!(libraries.len() > 100, "only {} libraries were found", libraries.len());
    let refused: Vec<_> = libraries.iter().filter(|(_, licence)| !is_allowed(licence, &allowed)).collect();
    assert!(
        refused.is_empty(),
        "{refused:?}: a new licence is a decision (docs/decisions/002-dependencies.md)"
    );
}

#[test]
fn licence_expressions_are_read_as_they_are_meant() {
    let allowed = BTreeSet::from(["MIT", "Apache-2.0"]);
    for good in [
        "MIT",
        "MIT OR GPL-3.0-only",
        "GPL-3.0-only/MIT",
        "Apache-2.0 WITH LLVM-exception",
        "(MIT AND Apache-2.0)",
    ] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["", "GPL-3.0-only", "MIT AND GPL-3.0-only", "no licence"] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}

/// Every library comes from the registry, with a checksum in the lock file, and from nowhere else.
#[test]
fn all_libraries_are_unbanned_and_from_the_registry() {
    let rules = rules();
    let banned = texts(&rules["bans"]["deny"], Some("crate"));
    let locks = ["Cargo.lock", "bench/Cargo.lock"].map(|name| {
        let lock = fs::read_to_string(root().join(name)).expect("text");
        lock.parse::<toml::Table>().expect("TOML")
    });
    for package in locks.iter().flat_map(|lock| {
        let packages = lock["package"].as_array().expect("packages");
        assert!(packages.len() > 100, "only {} packages were found", packages.len());
        packages
    }) {
        let name = package["name"].as_str().expect("a name");
        assert!(!banned.contains(name), "{name} is banned by deny.toml");
        // Our own crates come from a path and have no source.
        if let Some(source) = package.get("source").and_then(toml::Value::as_str) {
            let pinned = source.starts_with("registry+") && package.get("checksum").is_some();
            assert!(pinned, "{name} comes from {source}");
        }
    }
}

/// Returns the texts of the files that a source includes as modules by `#[path = "…"]`.
fn included<'s>(file: &'s str, source: &'s str) -> impl Iterator<Item = String> + 's {
    let paths =
        source.lines().filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"));
    paths.filter_map(move |path| std::fs::read_to_string(root().join(file).parent()?.join(path)).ok())
}

/// A dependency that a crate declares but does not use is built, audited and waited for in vain.
#[test]
fn every_declared_dependency_is_used() {
    // Packages whose library has another name.
    const NAMED: [(&str, &str); 1] = [("md_5", "md5")];
    let (metadata, sources) = (metadata(), sources(".rs"));
    let root = root();
    let mut unused = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let manifest = std::path::Path::new(text(package, "manifest_path"));
        let directory = manifest.parent().expect("a directory").strip_prefix(&root).expect("below the root");
        let inside = |name: &str, part: &str| std::path::Path::new(name).starts_with(directory.join(part));
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let declared = dependency["rename"].as_str().unwrap_or_else(|| text(dependency, "name"));
            let declared = declared.replace('-', "_");
            let name = NAMED
                .iter()
                .find(|(package, _)| *package == declared)
                .map_or(&*declared, |(_, library)| library);
            let for_tests = dependency["kind"] == "dev";
            let is_named = sources.iter().any(|(file, source)| {
                // Normal dependencies are named in the crate's sources; dependencies of its tests may be
                // named anywhere in it.
                (inside(file, "src") || (for_tests && inside(file, "")))
                    && (names(source, name) || included(file, source).any(|text| names(&text, name)))
            });
            // `unify` exists only for the features of its dependencies.
            let is_unify = name == "unify" || text(package, "name") == "unify";
            if !is_named && !is_unify {
                unused.push(format!("{} declares {name}", text(package, "name")));
            }
        }
    }
    assert!(unused.is_empty(), "{unused:?}, and no source of it says so");
}

/// Returns whether a source names a crate as a whole word: in a path (`name::`), an import or a macro.
fn names(source: &str, name: &str) -> bool {
    source.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
        line.match_indices(name).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = &line[at + name.len()..];
            let is_word = !before.is_some_and(|c| c.is_alphanumeric() || c == '_');
            is_word
                && (after.starts_with("::")
                    || ((after.starts_with(';') || after.starts_with(" as ")) && line.contains("use ")))
        })
    })
}

#[test]
fn a_dependency_is_matched_by_its_whole_name() {
    for source in
        ["use serde::Serialize;", "#[derive(serde::Serialize)]", "let x = ::serde::a();", "use serde as s;"]
    {
        assert!(names(source, "serde"), "{source}");
    }
    for source in ["// serde::Serialize", "use my_serde::x;", "let serde = 1;", "use serde_json::Value;"] {
        assert!(!names(source, "serde"), "{source}");
    }
}

/// Both workspaces have the same versions, so that a library is compiled once for both.
#[test]
fn the_bench_has_the_products_versions() {
    let versions = |name: &str| -> BTreeSet<(String, String)> {
        let lock: toml::Table = fs::read_to_string(root().join(name)).expect("text").parse().expect("TOML");
        let packages = lock["package"].as_array().expect("packages");
        let text = |package: &toml::Value, key: &str| package[key].as_str().expect("text").to_owned();
        packages.iter().map(|package| (text(package, "name"), text(package, "version"))).collect()
    };
    let product = versions("Cargo.lock");
    let names: BTreeSet<&str> = product.iter().map(|(name, _)| name.as_str()).collect();
    let bench = versions("bench/Cargo.lock");
    // A library of the bench's own may bring a second version of one that the product has, too, but not in its place.
    let others: Vec<_> = bench
        .iter()
        .filter(|(name, version)| {
            names.contains(name.as_str()) && !product.contains(&(name.clone(), version.clone()))
        })
        .filter(|(name, _)| !bench.iter().any(|one| one.0 == *name && product.contains(one)))
        .collect();
    assert!(others.is_empty(), "{others:?}: copy the root's Cargo.lock to bench/, and let cargo shorten it");
}
