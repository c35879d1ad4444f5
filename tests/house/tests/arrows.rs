//! The dependencies between the crates are those of the design, and no others.
//!
//! ```text
//! nighttrain ──▶ cache, feed, mail ──▶ engine, wire ──▶ (engine only) bheap          lab ──▶ any of these but the first
//!      ├──▶ httpd ◀── mail      httpd ──▶ engine, wire
//!      └──▶ acme, cluster ──▶ engine, wire
//! ```
//! `engine` and `wire` do not depend on each other: protocols stay pure, and the engine knows no protocol.
//! The servers do not depend on each other: they talk over their public protocols. `lab` is a program beside
//! `nighttrain`: it may use every crate but that, and nothing depends on it, tests included, so that no
//! server's build waits for it or contains it. The counting of allocations, which tests need too, is a crate
//! of its own without dependencies.

use std::collections::{BTreeMap, BTreeSet};

use house::{
    metadata,
    modules::{self, Uses},
};

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

/// Crates that the tests of any crate may use.
const FOR_TESTS: [&str; 2] = ["allocations", "unify"];
/// Crate that no other may use, tests included.
const LAST: &str = "lab";

/// A dependency of one crate of the workspace on another.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrow {
    from: String,
    to: String,
    for_tests: bool,
}

/// Returns why an arrow is not allowed; `None` if it is.
fn objection(arrow: &Arrow) -> Option<String> {
    let Arrow { from, to, for_tests } = arrow;
    let Some((_, may)) = ARROWS.iter().find(|(name, _)| name == from) else {
        return Some(format!("the crate {from} has no rule: add it to ARROWS, and to ARCHITECTURE.md"));
    };
    let allowed = may.contains(&to.as_str()) || (*for_tests && FOR_TESTS.contains(&to.as_str()));
    (!allowed).then(|| format!("{from} must not depend on {to}"))
}

/// Returns every crate of the workspace, and the arrows between them.
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
            // Our crates come from a path; the registry has crates of the same names.
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

/// The parser of cargo's output finds arrows that are known to exist. If it found none, the other tests would
/// pass for nothing.
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

/// The rules contain no circle, and the servers do not depend on each other.
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

/// Sizes of the circles of more than two files that each crate has today, the largest first. They may only
/// shrink; a change that shrinks a circle updates its number here.
const CIRCLES: [(&str, &[usize]); 12] = [
    ("acme", &[]),
    ("bheap", &[3]),
    ("cache", &[]),
    ("cluster", &[6]),
    ("engine", &[]),
    ("feed", &[]),
    ("httpd", &[]),
    ("lab", &[4, 3, 3]),
    ("mail", &[]),
    ("nighttrain", &[]),
    ("wire", &[4, 3]),
    ("tests", &[5]),
];

fn uses_of(name: &str) -> Uses {
    let root = house::root();
    modules::uses(&if name == "tests" { root.join("tests") } else { root.join("crates").join(name) })
}

fn large_circles(uses: &Uses) -> Vec<BTreeSet<String>> {
    let mut large: Vec<_> = modules::circles(uses).into_iter().filter(|circle| circle.len() > 2).collect();
    large.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    large
}

#[test]
fn circles_of_files_may_only_shrink() {
    let mut objections = Vec::new();
    for (name, stand) in CIRCLES {
        let circles = large_circles(&uses_of(name));
        let sizes: Vec<usize> = circles.iter().map(BTreeSet::len).collect();
        if sizes != stand {
            objections.push(format!("{name}: {sizes:?} in place of {stand:?}: {circles:?}"));
        }
    }
    assert!(
        objections.is_empty(),
        "circles of files (write down what has shrunk):\n{}",
        objections.join("\n")
    );
}

/// The request states depend neither on each other nor on the socket's code.
#[test]
fn the_accelerators_states_know_no_socket() {
    let uses = uses_of("cache");
    let states = uses.keys().filter(|name| name.starts_with("states::") || name.starts_with("fetch"));
    for state in states.map(String::as_str).chain(["body::parts", "deliver::answer"]) {
        let knows: Vec<_> = uses[state].iter().filter(|name| name.starts_with("client::http1")).collect();
        assert!(knows.is_empty(), "{state} knows a socket: {knows:?}");
    }
}

/// The parser finds needs that are known to exist. If it found none, the other tests would find no circle.
#[test]
fn the_reading_finds_what_files_need() {
    let cache = uses_of("cache");
    for (from, to) in [
        ("states::respond", "states::miss"),
        ("states::miss", "fetch"),
        ("client::http1::connection", "states::respond"),
        ("states::hit", "deliver::answer"),
    ] {
        assert!(cache[from].contains(to), "{from} → {to}: {:?}", cache[from]);
    }
}

/// Written-out paths, in macros too, `self`, `super`, re-exports and globs are followed to the definition.
/// Tests, other crates and mere re-exports do not count as needs. Shown on a crate of a few files.
#[test]
fn paths_are_followed_to_definitions() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("src");
    let files = [
        ("lib.rs", "mod inner; mod plain; mod reexporter; mod user; pub use inner::Deep; pub struct Own;"),
        ("reexporter.rs", "pub use crate::{inner::Deep, plain::say, user::Me}; fn a(_: Deep) { say() }"),
        ("plain.rs", "pub fn say() {} pub mod within { pub fn go() { super::say() } }"),
        ("inner/mod.rs", "mod deep; mod list; pub use self::deep::*; pub(crate) use list::Other as Another;"),
        ("inner/deep.rs", "pub struct Deep; impl Deep { fn x(_: super::Another) {} }"),
        ("inner/list.rs", "pub struct Other; #[cfg(test)] mod tests { use crate::user::Me; }"),
        (
            "user.rs",
            "use std::fmt; use crate::{Deep, self as root}; pub struct Me; fn a() { vec![self::Me, crate::plain::within::go()]; root::Own; }",
        ),
    ];
    for (name, text) in files {
        let path = source.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, text).expect("written");
    }
    let uses = modules::uses(directory.path());
    let needs = |name: &str| uses[name].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(needs("user"), ["inner::deep", "lib", "plain"]);
    assert_eq!(needs("inner::deep"), ["inner::list"]);
    assert_eq!(needs("inner::list"), [""; 0]);
    assert_eq!(needs("inner"), [""; 0]);
    assert_eq!(needs("lib"), [""; 0]);
    assert_eq!(needs("plain"), [""; 0]);
    assert_eq!(needs("reexporter"), ["inner::deep", "plain"]);
}

#[test]
fn circles_are_found() {
    let uses = |arrows: &[(&str, &str)]| {
        let mut uses = Uses::new();
        for (from, to) in arrows {
            uses.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        uses
    };
    assert!(modules::circles(&uses(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    let found = modules::circles(&uses(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]));
    assert_eq!(found.into_iter().map(|circle| circle.len()).collect::<Vec<_>>(), [3]);
}
