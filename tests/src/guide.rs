//! Runs the commands of a guide's page as they are written.

use std::process::{Command, Output};

/// Runs a page's first commands in a network namespace of their own, so that their ports are free, and ends
/// the processes that they start. `None`, with a line on stderr, if this kernel does not let a test make such
/// a namespace.
///
/// # Panics
/// When the page has no commands, or they cannot be started or fail.
pub fn run(page: &str) -> Option<Output> {
    let path = crate::node::source_tree().join("docs/guide").join(page);
    let guide = std::fs::read_to_string(path).expect("a page of the guide");
    let script = guide.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("commands");
    let kinds = [
        &["--net", "--pid", "--fork", "--kill-child", "--mount-proc"][..],
        &["--user", "--map-root-user", "--net"],
    ];
    let Some(kind) = kinds.into_iter().find(|kind| {
        let probe =
            Command::new("unshare").args(*kind).args(["--", "ip", "link", "set", "lo", "up"]).output();
        probe.is_ok_and(|probe| probe.status.success())
    }) else {
        eprintln!("left out: this kernel gives a test no network of its own");
        return None;
    };
    let bin = crate::program::program().parent().expect("a directory");
    let [pebble, hub] = ["clients/acme", "clients/hub"].map(crate::node::artifacts);
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{}:{path}", bin.display(), pebble.display(), hub.display());
    // A page may have ended its process itself, so `kill` may fail.
    let script = format!("ip link set lo up\n{script}kill $! 2>/dev/null || :\n");
    let output = Command::new("unshare")
        .args(kind)
        .args(["--", "sh", "-ec", &script])
        .env("PATH", path)
        .env_remove("NIGHTTRAIN_CONFIG")
        .output()
        .expect("unshare runs");
    assert!(output.status.success(), "{output:?}");
    Some(output)
}
