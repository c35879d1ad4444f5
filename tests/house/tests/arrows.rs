//! The arrows between the crates are those of the design, and no others.
//!
//! ```text
//! nighttrain ──▶ cache, feed, mail ──▶ engine, wire ──▶ (engine only) bheap          lab ──▶ any of these but the first
//!      └──▶ httpd ◀── mail      httpd ──▶ engine
//! ```
//! `engine` and `wire` do not know each other, so that protocols stay pure and the engine stays free of meaning. The
//! servers do not know each other: they meet over their public protocols. `lab` is a program beside `nighttrain`: it
//! may look at everything but that, and nothing depends on it, tests included, so that no server waits for its build or
//! carries it. What tests need of it, the counting of allocations, is a crate of its own without dependencies.

#![allow(clippy::expect_used, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};

use house::metadata;

/// Each crate and the crates of this workspace that it may depend on.
const ARROWS: [(&str, &[&str]); 13] = [
    ("unify", &[]),
    ("allocations", &[]),
    ("house", &[]),
    ("bheap", &[]),
    ("wire", &[]),
    ("engine", &["bheap"]),
    ("httpd", &["engine"]),
    ("cache", &["engine", "wire", "bheap"]),
    ("feed", &["engine", "wire", "bheap"]),
    ("mail", &["httpd", "engine", "wire", "bheap"]),
    ("lab", &["allocations", "bheap", "wire", "engine", "cache", "feed", "mail"]),
    ("nighttrain", &["bheap", "wire", "engine", "httpd", "cache", "feed", "mail"]),
    ("tests", &["bheap", "wire", "engine", "cache", "feed", "mail", "nighttrain"]),
];

/// What tests of any crate may use.
const FOR_TESTS: [&str; 2] = ["allocations", "unify"];
/// What nothing may use, tests included.
const LAST: &str = "lab";

/// A dependency of one crate of the workspace on another.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrow {
    from: String,
    to: String,
    for_tests: bool,
}

/// What is wrong about an arrow.
fn objection(arrow: &Arrow) -> Option<String> {
    let Arrow { from, to, for_tests } = arrow;
    let Some((_, may)) = ARROWS.iter().find(|(name, _)| name == from) else {
        return Some(format!("the crate {from} has no rule: add it to ARROWS, and to ARCHITECTURE.md"));
    };
    let allowed = may.contains(&to.as_str()) || (*for_tests && FOR_TESTS.contains(&to.as_str()));
    (!allowed).then(|| format!("{from} must not depend on {to}"))
}

/// Every crate of the workspace, and the arrows between them.
fn workspace() -> (BTreeSet<String>, BTreeSet<Arrow>) {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let names: BTreeSet<String> = packages.iter().filter_map(|package| text(&package["name"])).collect();
    let mut arrows = BTreeSet::new();
    for package in packages {
        let from = text(&package["name"]).expect("a name");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let to = text(&dependency["name"]).expect("a name");
            // A crate of ours is one that comes from a path; the registry has crates of the same names.
            if names.contains(&to) && dependency["path"].is_string() {
                arrows.insert(Arrow { from: from.clone(), to, for_tests: dependency["kind"] == "dev" });
            }
        }
    }
    (names, arrows)
}

#[test]
fn the_crates_depend_on_each_other_as_designed() {
    let (names, arrows) = workspace();
    let known: BTreeSet<String> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let unknown: Vec<_> = names.difference(&known).collect();
    assert!(unknown.is_empty(), "no rule for {unknown:?}: add them to ARROWS, and to ARCHITECTURE.md");
    let objections: Vec<String> = arrows.iter().filter_map(objection).collect();
    assert!(objections.is_empty(), "{}", objections.join("; "));
}

/// Were the reading of cargo's output wrong, no arrow would be found and none be refused.
#[test]
fn the_reading_finds_the_arrows_that_are_there() {
    let (names, arrows) = workspace();
    for name in ["bheap", "wire", "engine", "cache", "lab", "nighttrain", "allocations", "tests"] {
        assert!(names.contains(name), "{name}");
    }
    for (from, to) in
        [("nighttrain", "cache"), ("nighttrain", "engine"), ("cache", "engine"), ("cache", "wire")]
    {
        assert!(arrows.iter().any(|arrow| arrow.from == from && arrow.to == to), "{from} → {to}: {arrows:?}");
    }
}

#[test]
fn the_rules_refuse_what_they_should() {
    let arrow =
        |from: &str, to: &str, for_tests| Arrow { from: from.to_owned(), to: to.to_owned(), for_tests };
    for (from, to) in [
        ("engine", "wire"),
        ("wire", "engine"),
        ("bheap", "engine"),
        ("wire", "bheap"),
        ("cache", "mail"),
        ("feed", "cache"),
        ("mail", "feed"),
        ("engine", "cache"),
        ("cache", "nighttrain"),
        ("lab", "nighttrain"),
        ("newcomer", "engine"),
    ] {
        assert!(objection(&arrow(from, to, false)).is_some(), "{from} → {to}");
        assert!(objection(&arrow(from, to, true)).is_some(), "{from} → {to} for tests");
    }
    for from in ["engine", "cache", "feed", "mail", "nighttrain", "tests"] {
        for for_tests in [false, true] {
            assert!(objection(&arrow(from, LAST, for_tests)).is_some(), "{from} → {LAST}");
        }
    }
    for to in FOR_TESTS {
        assert!(objection(&arrow("cache", to, false)).is_some(), "cache → {to}");
        assert!(objection(&arrow("cache", to, true)).is_none(), "cache → {to} for tests");
    }
    assert!(objection(&arrow("engine", "bheap", false)).is_none());
}

/// The rules themselves have no circle, and the servers none between them.
#[test]
fn the_rules_run_one_way() {
    let rules: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    for (name, may) in &rules {
        for to in *may {
            assert!(rules.contains_key(to), "{name} may depend on {to}, which has no rule");
            assert!(!rules[to].contains(name), "{name} and {to} may depend on each other");
        }
    }
}
