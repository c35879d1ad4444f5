//! Runs the README's two commands: each prints what the README shows.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

use tests::{PATIENCE, node::source_tree, program};

/// Each command in the README's console blocks, with its output.
fn console() -> Vec<(String, Vec<String>)> {
    let readme = fs::read_to_string(source_tree().join("README.md")).expect("the README");
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for block in readme.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        for line in block.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => found.push((command.to_owned(), Vec::new())),
                None => found.last_mut().expect("a command first").1.push(line.to_owned()),
            }
        }
    }
    found
}

/// `make run` ends in `nighttrain serve --demo`; the test runs it in its own network namespace, so that its
/// ports are free.
#[test]
fn make_run_prints_what_the_readme_says() {
    let console = console();
    let (_, printed) = console.iter().find(|(command, _)| command == "make run").expect("in the README");
    let makefile = fs::read_to_string(source_tree().join("Makefile")).expect("text");
    assert!(makefile.contains("/nighttrain serve --demo $(ARGS)"), "make run does something else now");
    let kinds = [&["--net"][..], &["--user", "--map-root-user", "--net"]];
    let Some(kind) = kinds.into_iter().find(|kind| {
        let probe =
            Command::new("unshare").args(*kind).args(["--", "ip", "link", "set", "lo", "up"]).output();
        probe.is_ok_and(|probe| probe.status.success())
    }) else {
        eprintln!("this user may not make a network, so `make run` is not tried");
        return;
    };
    let state = tempfile::tempdir().expect("a directory");
    let mut running = Command::new("unshare")
        .args(kind)
        .args(["--", "sh", "-ec", "ip link set lo up; exec \"$@\"", "sh"])
        .arg(program::program())
        .args(["serve", "--demo", "--state"])
        .arg(state.path())
        .env_remove("NIGHTTRAIN_CONFIG")
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .expect("unshare starts");
    let mut said = Vec::new();
    for line in BufReader::new(running.stdout.take().expect("piped")).lines() {
        said.push(line.expect("text"));
        if said.last() == printed.last() {
            break;
        }
    }
    // The server may have ended by itself; then a line is missing.
    let _ = running.kill();
    let _ = running.wait();
    for line in printed {
        assert!(said.contains(line), "{line} is in the README, and not among\n{}", said.join("\n"));
    }
}

#[test]
fn the_readmes_demo_answers_as_promised() {
    let console = console();
    let promised: Vec<&str> = console
        .iter()
        .flat_map(|(_, printed)| printed)
        .filter(|line| line.starts_with("Cache-Status"))
        .map(String::as_str)
        .collect();
    assert_eq!(promised.len(), 2, "a miss and a hit");
    assert!(console.iter().any(|(command, _)| command.contains("nighttrain cache --demo ")), "the command");
    let mut running = program::command()
        .args(["cache", "--demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let said = BufReader::new(running.stdout.take().expect("piped"));
    let address = said
        .lines()
        .map(|line| line.expect("text"))
        .find_map(|line| Some(line.strip_prefix("cache: listening on http://")?.to_owned()))
        .expect("it says where it listens");
    for line in promised {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        write!(stream, "HEAD / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut head = String::new();
        stream.read_to_string(&mut head).expect("it answers");
        // The remaining seconds depend on when a second ends.
        let promised = line.split("ttl=").next().expect("text");
        assert!(head.contains(promised), "{promised}: {head}");
    }
    // No request is under way.
    let _ = running.kill();
    let _ = running.wait();
}
