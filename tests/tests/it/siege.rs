//! Short runs of `make siege`: several attackers at once, with honest clients beside them.

use std::process::Command;

/// Runs a siege and checks memory, acknowledged messages and mails, and that each limit that was reached is
/// counted. The waiting time of honest clients is checked by `make siege` on a quiet machine.
fn besieged(attackers: &[&str]) {
    let mut siege = Command::new(env!("CARGO_BIN_EXE_siege"));
    siege.args(["run", "--seconds", "25", "--pairs", "0"]).env("NIGHTTRAIN_BIN", tests::program::program());
    siege.args(attackers.iter().flat_map(|name| ["--only", name]));
    let siege = siege.output().expect("it runs");
    let said = String::from_utf8_lossy(&siege.stdout);
    assert!(siege.status.success(), "{said}\n{}", String::from_utf8_lossy(&siege.stderr));
    // Each attacker had connections, so this was a siege.
    for name in attackers {
        let row = said.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{said}"));
        let opened: u64 =
            row.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a row");
        assert!(opened > 0, "{name}: {said}");
    }
}

/// Returns whether an attack is on the accelerator's edge: over HTTP/2, or by slow clients. These attacks get
/// a siege of their own: all attacks at once need more memory than is promised (decision 026).
fn is_of_the_edge(name: &str) -> bool {
    (name.starts_with("h2-") || name.starts_with("cache-slow-")) && !is_of_the_origin(name)
}

/// Returns whether an attack makes the feed hold much, or do much, at little cost. These attacks get a siege
/// of their own, for the reason of [`is_of_the_edge`].
fn is_of_the_feed(name: &str) -> bool {
    const FEED: [&str; 7] = [
        "feed-stuck",
        "feed-silent",
        "feed-refusing",
        "feed-groups",
        "feed-tokens",
        "feed-kept",
        "feed-holders",
    ];
    name.starts_with("web-") || FEED.contains(&name)
}

/// Returns whether an attack burdens an origin.
fn is_of_the_origin(name: &str) -> bool {
    name.starts_with("origin-") || name == "h2-slow-pages"
}

fn attackers(are_wanted: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let names = tests::siege::attacks::ATTACKS.iter().map(|attack| attack.name);
    names.filter(|name| are_wanted(name)).collect()
}

#[test]
fn the_server_keeps_its_promises_under_siege() {
    besieged(&attackers(|name| !is_of_the_edge(name) && !is_of_the_feed(name) && !is_of_the_origin(name)));
}

#[test]
fn half_a_minute_at_the_origin_is_survived() {
    besieged(&attackers(is_of_the_origin));
}

#[test]
fn the_edge_keeps_its_promises_under_siege() {
    besieged(&attackers(is_of_the_edge));
}

#[test]
fn the_feed_keeps_its_promises_under_siege() {
    besieged(&attackers(is_of_the_feed));
}
