//! `docs/guide/feed.md` as a reader would follow it: every command as it is written, in order, in one shell;
//! and the page of live messages in a real browser.
//!
//! The commands use the ports that the guide names, so they run in a network namespace of their own. That
//! takes root, or a kernel with unprivileged namespaces; without either, the test says so and does nothing.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use tests::{
    clients::installed,
    node::{artifacts, source_tree},
    program,
};

/// Returns the blocks between ```` ```sh ```` and ```` ``` ````.
fn blocks(guide: &str) -> Vec<String> {
    let parts = guide.split("```sh\n").skip(1);
    parts.filter_map(|part| part.split_once("```").map(|(block, _)| block.to_owned())).collect()
}

/// Runs `script` in a shell with network and process namespaces of its own.
fn apart(script: &str, directory: &Path) -> Option<Output> {
    let mut kinds = vec![vec!["--net", "--pid", "--fork", "--kill-child"]];
    kinds.push([&["--user", "--map-root-user"], &kinds[0][..]].concat());
    let kind = kinds.into_iter().find(|kind| {
        let probe = Command::new("unshare").args(kind).args(["--", "ip", "link", "set", "lo", "up"]).output();
        probe.is_ok_and(|probe| probe.status.success())
    })?;
    let bin = program::program().parent().expect("a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("unshare")
        .args(kind)
        .args(["--", "sh", "-ec", &format!("ip link set lo up\n{script}")])
        .env("PATH", format!("{}:{path}", bin.display()))
        .env_remove("NIGHTTRAIN_CONFIG")
        .current_dir(directory)
        .stdin(Stdio::null())
        .output();
    Some(output.expect("unshare runs"))
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Wait between two commands: a reader would look at the first one's output.
const UNTIL_IT_LISTENS: &str =
    "n=0; until nighttrain feed pub a b 2>/dev/null; do n=$((n+1)); [ $n -lt 600 ]; sleep 0.1; done\n";

#[test]
fn the_guides_commands_work() {
    let guide = fs::read_to_string(source_tree().join("docs/guide/feed.md")).expect("the guide");
    let blocks = blocks(&guide);
    assert!(blocks.len() >= 6, "{} blocks", blocks.len());
    let mut script = String::new();
    for (n, block) in blocks.iter().enumerate() {
        script += block;
        if n == 0 {
            script += UNTIL_IT_LISTENS;
        }
    }
    script += "n=0; until [ $(wc -l < heard.txt) -ge 2 ]; do n=$((n+1)); [ $n -lt 600 ]; sleep 0.1; done\n";
    script += "! nighttrain feed pub orders.new x --url nats://shop:wrong@127.0.0.1:4333\necho all of it\n";
    let directory = tempfile::tempdir().expect("a directory");
    let Some(output) = apart(&script, directory.path()) else {
        eprintln!("left out: this kernel gives a test no network of its own");
        return;
    };
    let said = text(&output);
    assert!(output.status.success() && said.contains("all of it"), "{said}");
    let heard = fs::read_to_string(directory.path().join("heard.txt")).expect("what was heard");
    assert!(heard.contains("three books") && heard.contains("two lamps"), "{heard}");
    for part in [
        "listening on nats://127.0.0.1:4222",
        "listening on ws://127.0.0.1:8081",
        "\"max_payload\"",
        "\"connections\"",
        "Messages",
        "every message verified",
        "p99",
        "Authorization Violation",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    let page = fs::read_to_string(directory.path().join("latency.html")).expect("the page");
    assert!(page.contains("<svg"), "no plot");
}

#[test]
fn a_browser_shows_live_messages() {
    let Some(_) = installed("node/node_modules/ws/package.json") else { return };
    let modules = artifacts("clients").join("node");
    let guide = fs::read_to_string(source_tree().join("docs/guide/feed.md")).expect("the guide");
    let blocks = blocks(&guide);
    let publish = blocks.iter().find(|block| block.contains("news.today")).expect("the guide publishes news");
    let script = modules.join(format!("browser-{}.mjs", std::process::id()));
    fs::copy(source_tree().join("tests/clients/node/browser.mjs"), &script).expect("a copy");
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("publish.sh"), publish).expect("a file");
    let page = source_tree().join("docs/guide/feed-live.html");
    let run = format!(
        "{}{UNTIL_IT_LISTENS}node {} file://{} 'Listening on news.>' 'The night train is on time.' sh publish.sh\n",
        blocks[0],
        script.display(),
        page.canonicalize().expect("the page").display()
    );
    let output = apart(&run, directory.path());
    fs::remove_file(&script).expect("it was there");
    let Some(output) = output else {
        eprintln!("left out: this kernel gives a test no network of its own");
        return;
    };
    assert!(output.status.success() && text(&output).contains("ok"), "{}", text(&output));
}
