//! The arrows between the crates are those of the design, and no others.
//!
//! ```text
//! nighttrain ──▶ cache, feed, mail ──▶ engine, wire ──▶ (engine only) bheap          lab ──▶ any of these but the first
//!      ├──▶ httpd ◀── mail      httpd ──▶ engine, wire
//!      └──▶ acme, cluster ──▶ engine, wire
//! ```
//! `engine` and `wire` do not know each other, so that protocols stay pure and the engine stays free of meaning. The
//! servers do not know each other: they meet over their public protocols. `lab` is a program beside `nighttrain`: it
//! may look at everything but that, and nothing depends on it, tests included, so that no server waits for its build or
//! carries it. What tests need of it, the counting of allocations, is a crate of its own without dependencies.

#![allow(clippy::expect_used, reason = "a test may fail")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use house::metadata;

/// Each crate and the crates of this workspace that it may depend on.
const ARROWS: [(&str, &[&str]); 16] = [
    ("unify", &[]),
    ("allocations", &[]),
    ("namespaces", &[]),
    ("house", &[]),
    ("bheap", &[]),
    ("wire", &[]),
    ("engine", &["bheap"]),
    ("httpd", &["engine", "wire"]),
    ("acme", &["engine"]),
    ("cluster", &["engine", "wire"]),
    ("cache", &["engine", "wire", "bheap"]),
    ("feed", &["engine", "wire", "bheap"]),
    ("mail", &["httpd", "engine", "wire", "bheap"]),
    ("lab", &["allocations", "namespaces", "bheap", "wire", "engine", "cache", "feed", "mail"]),
    ("nighttrain", &["bheap", "wire", "engine", "acme", "cluster", "httpd", "cache", "feed", "mail"]),
    ("tests", &["namespaces", "bheap", "wire", "engine", "cluster", "cache", "feed", "mail", "nighttrain"]),
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

/// The files of a crate, as modules, and which of them each one uses. A module is everything that its path begins with.
fn uses(crate_root: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut modules = BTreeMap::new();
    let mut directories = vec![crate_root.join("src")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory").map(|entry| entry.expect("an entry"))
        {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let within = path.strip_prefix(crate_root.join("src")).expect("within").with_extension("");
                let name = within.to_string_lossy().replace('/', "::");
                let name = name.strip_suffix("::mod").map_or(name.clone(), str::to_owned);
                modules.insert(name, std::fs::read_to_string(&path).expect("text"));
            }
        }
    }
    let names: BTreeSet<String> = modules.keys().cloned().collect();
    let of = |name: &String, text: &String| {
        // Tests stand at the end of a file, and may use what they like.
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let parent: Vec<&str> = name.split("::").collect();
        let parent = if names.iter().any(|other| other.starts_with(&format!("{name}::"))) {
            parent.join("::")
        } else {
            parent[..parent.len() - 1].join("::")
        };
        let mut used = BTreeSet::new();
        for statement in text.split("use ").skip(1).filter_map(|rest| rest.split(';').next()) {
            let (base, tree) = match (statement.strip_prefix("crate::"), statement.strip_prefix("super::")) {
                (Some(tree), _) => (String::new(), tree),
                (None, Some(tree)) => (parent.clone(), tree),
                (None, None) => continue,
            };
            for path in paths(tree) {
                let path = if base.is_empty() { path } else { format!("{base}::{path}") };
                let mut longest: Vec<&str> = path.split("::").collect();
                while !longest.is_empty() && !names.contains(&longest.join("::")) {
                    longest.pop();
                }
                used.insert(longest.join("::"));
            }
        }
        used.retain(|other| !other.is_empty() && other != name);
        (name.clone(), used)
    };
    modules.iter().map(|(name, text)| of(name, text)).collect()
}

/// The paths that a `use` names: `a::{b, c::{d}}` is `a::b` and `a::c::d`.
fn paths(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, group)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or_default().to_owned()];
    };
    let group = group.strip_suffix('}').unwrap_or(group);
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[from..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(paths).map(|path| format!("{prefix}{path}")).collect()
}

/// Each set of files that can be reached from one another.
fn circles(uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<BTreeSet<String>> {
    let reached = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(at) = open.pop() {
            for to in uses.get(&at).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&String, BTreeSet<String>> = uses.keys().map(|name| (name, reached(name))).collect();
    let circle = |name: &String| {
        let both =
            reach[name].iter().filter(|other| reach.get(other).is_some_and(|back| back.contains(name)));
        both.cloned().collect::<BTreeSet<_>>()
    };
    uses.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

/// In the accelerator no three files need each other: the states know neither each other nor the socket.
#[test]
fn the_accelerators_files_run_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/cache");
    let uses = uses(&root);
    for (from, to) in
        [("respond", "miss"), ("miss", "fetch"), ("http1::connection", "respond"), ("hit", "answer")]
    {
        assert!(uses[from].contains(to), "the reading finds {from} → {to}: {:?}", uses[from]);
    }
    let of_policy = |name: &String| name.starts_with("policy") || name.starts_with("error_page");
    let large: Vec<_> =
        circles(&uses).into_iter().filter(|c| c.len() > 2 && !c.iter().all(of_policy)).collect();
    assert!(large.is_empty(), "{large:?}");
    for state in ["hit", "miss", "pass", "parts", "purge", "synth", "respond", "fetch", "arriving", "answer"]
    {
        let knows: Vec<_> = uses[state].iter().filter(|name| name.starts_with("http1")).collect();
        assert!(knows.is_empty(), "{state} knows a socket: {knows:?}");
    }
}

#[test]
fn circles_are_found() {
    assert_eq!(paths("a::{b, c::{d, e as f}, g::h}"), ["a::b", "a::c::d", "a::c::e", "a::g::h"]);
    let uses = |arrows: &[(&str, &str)]| {
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in arrows {
            uses.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        uses
    };
    assert!(circles(&uses(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    let found = circles(&uses(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]));
    assert_eq!(found.into_iter().map(|circle| circle.len()).collect::<Vec<_>>(), [3]);
}
