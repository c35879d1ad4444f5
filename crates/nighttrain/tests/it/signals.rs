//! What each signal does to a running program: a few are wishes, and no other ends it.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    missing_docs,
    reason = "a test of a process waits, and may fail"
)]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Stdio},
};

use crate::support::program;

/// A server with its log, as a process.
struct Server {
    child: Child,
    admin: SocketAddr,
    log: BufReader<std::process::ChildStderr>,
    _state: tempfile::TempDir,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let state = tempfile::tempdir().expect("a directory");
        let mut child = program(arguments)
            .args(["--admin", "127.0.0.1:0", "--config"])
            .arg(file(&state))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let admin = stdout
            .lines()
            .map(|line| line.expect("text"))
            .find_map(|line| line.strip_prefix("admin: listening on http://").map(str::to_owned))
            .expect("the admin address");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        Self { child, admin: admin.parse().expect("an address"), log, _state: state }
    }

    fn send(&self, signal: i32) {
        // The shell's: the library that the tests have names no real-time signals.
        let sent = std::process::Command::new("sh")
            .args(["-c", &format!("kill -{signal} {}", self.child.id())])
            .status()
            .expect("a shell");
        assert!(sent.success(), "signal {signal}");
    }

    fn answers(&mut self, after: &str) {
        let ended = self.child.try_wait().expect("our child");
        assert!(ended.is_none(), "{after} ended it: {ended:?}");
        let mut stream = TcpStream::connect(self.admin).expect("it listens");
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 "), "after {after}: {answer}");
    }

    /// Reads the log up to a line with these words.
    fn logs(&mut self, words: &str) {
        let mut seen = String::new();
        while !seen.contains(words) {
            assert!(self.log.read_line(&mut seen).expect("text") > 0, "it ended without `{words}`: {seen}");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn file(state: &tempfile::TempDir) -> std::path::PathBuf {
    let path = state.path().join("nighttrain.toml");
    let text = "[cache]\nlisten = \"127.0.0.1:0\"\nmemory = \"64MiB\"\n\
                [feed]\nlisten = \"127.0.0.1:0\"\nmonitor = \"127.0.0.1:0\"\n\
                lame-duck-duration = \"1ms\"\nlame-duck-grace-period = \"1ms\"\n\
                [mail]\nsmtp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nstore = \"anon\"\nstore-size = \"128MiB\"\n";
    std::fs::write(&path, text).expect("written");
    path
}

const ALL: [&[&str]; 4] = [&["serve"], &["cache", "--demo"], &["feed"], &["mail"]];

/// HUP, USR1, PIPE, ALRM, STKFLT, CHLD, CONT, TTIN, TTOU, URG, XFSZ, VTALRM, PROF, WINCH, IO, PWR, and real-time ones
/// by their numbers on Linux (signal(7); the same on x86-64 and on ARM). INT, QUIT, TERM stop it; KILL and STOP cannot
/// be caught; TSTP is Ctrl-Z; the others are faults of the program itself.
const HARMLESS: [i32; 19] = [1, 10, 13, 14, 16, 17, 18, 21, 22, 23, 25, 26, 27, 28, 29, 30, 35, 50, 64];

#[test]
fn no_signal_of_others_habits_ends_a_server() {
    for command in ALL {
        let mut server = Server::start(command);
        for signal in HARMLESS {
            server.send(signal);
            server.answers(&format!("signal {signal} to {command:?}"));
        }
    }
}

#[test]
fn what_cannot_be_done_by_a_signal_is_logged_and_it_goes_on() {
    for command in ALL {
        let mut server = Server::start(command);
        server.send(10);
        server.logs("SIGUSR1: there is no log file to open again");
        if command != ["feed"] {
            server.send(12);
            server.logs("SIGUSR2: this version cannot hand its work to a new binary");
        }
        server.answers(&format!("SIGUSR1 and SIGUSR2 to {command:?}"));
    }
}

/// `nats-server --signal ldm` sends SIGUSR2.
#[test]
fn the_feed_alone_is_a_lame_duck_by_usr2_and_others_stop_by_quit() {
    let mut feed = Server::start(&["feed"]);
    feed.send(12);
    feed.logs("stopped: every client has left or was asked to");
    assert_eq!(feed.child.wait().expect("our child").code(), Some(0));

    let mut cache = Server::start(&["cache", "--demo"]);
    cache.send(3);
    cache.logs("stopped: every request was answered");
    assert_eq!(cache.child.wait().expect("our child").code(), Some(0));
}
