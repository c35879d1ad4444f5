//! Effect of each signal on a running program: a few are requests, and no other ends it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Stdio},
};

use crate::support::program;

/// A server as a process, with its log.
struct Server {
    child: Child,
    admin: SocketAddr,
    smtp: Option<SocketAddr>,
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
        let mut smtp = None;
        let admin = stdout
            .lines()
            .map(|line| line.expect("text"))
            .find_map(|line| {
                if let Some(address) = line.strip_prefix("mail: listening on smtp://") {
                    smtp = Some(address.parse().expect("an address"));
                }
                line.strip_prefix("admin: listening on http://").map(str::to_owned)
            })
            .expect("the admin address");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        Self { child, admin: admin.parse().expect("an address"), smtp, log, _state: state }
    }

    fn ask(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn until_mails_wait_for_the_index(&self) {
        loop {
            let metrics = self.ask("/metrics");
            let waiting = metrics.lines().find_map(|line| line.strip_prefix("mail_search_index_pending "));
            if waiting.is_some_and(|waiting| waiting != "0") {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn send(&self, signal: i32) {
        // Sent by the shell's `kill`: the tests' library names no real-time signals.
        let sent = std::process::Command::new("sh")
            .args(["-c", &format!("kill -{signal} {}", self.child.id())])
            .status()
            .expect("a shell");
        assert!(sent.success(), "signal {signal}");
    }

    fn answers(&mut self, after: &str) {
        let ended = self.child.try_wait().expect("our child");
        assert!(ended.is_none(), "{after} ended it: {ended:?}");
        let answer = self.ask("/healthz");
        assert!(answer.starts_with("HTTP/1.1 200 "), "after {after}: {answer}");
    }

    /// Reads the log up to a line that contains `words`.
    fn logs(&mut self, words: &str) {
        let mut seen = String::new();
        while !seen.contains(words) {
            assert!(self.log.read_line(&mut seen).expect("text") > 0, "it ended without `{words}`: {seen}");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended by itself.
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

/// Delivers `mails` mails, each to an inbox of its own.
fn fill(server: &Server, mails: usize) {
    let stream = TcpStream::connect(server.smtp.expect("it takes mail")).expect("it listens");
    let mut replies = BufReader::new(stream.try_clone().expect("a second handle")).lines();
    let mut next = move || replies.next().expect("a reply").expect("text");
    let mut say = |text: &str, begin: &str| {
        (&stream).write_all(text.as_bytes()).expect("it reads");
        let mut reply = next();
        while reply.as_bytes().get(3) == Some(&b'-') {
            reply = next();
        }
        assert!(reply.starts_with(begin), "{text}: {reply}");
    };
    say("", "220");
    say("EHLO here\r\n", "250");
    let text = "words that are to be found some day\r\n".repeat(50);
    for number in 0..mails {
        say("MAIL FROM:<a@b.test>\r\n", "250");
        say(&format!("RCPT TO:<inbox{number}@here.test>\r\n"), "250");
        say("DATA\r\n", "354");
        say(&format!("Subject: {number}\r\n\r\n{text}.\r\n"), "250");
    }
}

const ALL: [&[&str]; 4] = [&["serve"], &["cache", "--demo"], &["feed"], &["mail"]];

/// HUP, USR1, PIPE, ALRM, STKFLT, CHLD, CONT, TTIN, TTOU, URG, XFSZ, VTALRM, PROF, WINCH, IO, PWR, and
/// real-time signals, by their numbers on Linux (signal(7); the same on x86-64 and on ARM). INT, QUIT and
/// TERM stop the program; KILL and STOP cannot be caught; TSTP is Ctrl-Z; the other signals are faults of the
/// program itself.
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
fn an_unsupported_signal_is_logged_and_ignored() {
    for command in ALL {
        let mut server = Server::start(command);
        server.send(10);
        server.logs("SIGUSR1: no log file to reopen");
        if command != ["feed"] {
            server.send(12);
            server.logs("SIGUSR2: this version cannot hand over to a new binary");
        }
        server.answers(&format!("SIGUSR1 and SIGUSR2 to {command:?}"));
    }
}

/// SIGUSR2 puts the feed into lame-duck mode, as `nats-server --signal ldm` expects.
#[test]
fn sigusr2_drains_the_feed_sigquit_stops_others() {
    let mut feed = Server::start(&["feed"]);
    feed.send(12);
    feed.logs("stopped: all clients have disconnected or were told to");
    assert_eq!(feed.child.wait().expect("our child").code(), Some(0));

    let mut cache = Server::start(&["cache", "--demo"]);
    cache.send(3);
    cache.logs("stopped: all requests were answered");
    assert_eq!(cache.child.wait().expect("our child").code(), Some(0));
}

/// Mails that wait to be indexed: more than a search reads unindexed, since fewer are never indexed.
const INDEXED_MAILS: usize = 2_200;

/// A stop ends in time although the indexer keeps sending requests to the mail loops, which end first.
#[test]
fn a_stop_ends_while_mails_are_indexed() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("mail").display().to_string();
    let arguments = [
        "mail",
        "--smtp",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--store",
        &store,
        "--store-size",
        "128MiB",
    ];
    let mut server = Server::start(&arguments);
    fill(&server, INDEXED_MAILS);
    for round in 0..3 {
        server.until_mails_wait_for_the_index();
        server.send(15);
        assert_eq!(server.child.wait().expect("our child").code(), Some(0), "round {round}");
        let index = format!("{store}.index");
        std::fs::remove_dir_all(index).expect("the index is made anew");
        server = Server::start(&arguments);
    }
}
