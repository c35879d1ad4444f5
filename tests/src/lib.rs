//! Harness of the tests that cross the crates.
//!
//! ```text
//!   a test ──Client──▶ Accelerator (the program, a process of its own) ──▶ ScriptedOrigin (threads of the test)
//!                          │ admin port                                    Nginx (Debian's, a process of its own)
//!                          └─▶ Stat, metrics, purge
//! ```
//!
//! The program is used as its users use it: a binary, its flags, its sockets, its signals and exit codes. The
//! harness does not link to the crates under test, so that no test can pass because both sides share a
//! parser.
//!
//! * [`program`] finds the binary, and builds it if necessary;
//! * [`accelerator`] starts it, waits until it serves, and ends it;
//! * [`clean_root`] is an empty root directory in which a package is tried;
//! * [`client`] is an HTTP/1.1 client that keeps every byte and can be as rude as a test needs;
//! * [`origin`] is a server that follows its script, good or bad, and remembers the requests;
//! * [`nginx`] runs a real web server over a real documentation tree, [`wordpress`] a real program with its database;
//! * [`connections`] connects from other addresses of this machine, and with small windows;
//! * [`content`] makes bodies of any size that can be checked without keeping them, and [`gate`] holds a script back;
//! * [`clients`] finds third-party programs, [`node`] installs programs for Node.js and Python;
//! * [`conformance`] runs the public suite for RFC 9111, [`corpus`] the tables of ambiguous messages;
//! * [`hub`] runs nats-server, which feeds join; [`nats_cluster`] three of them, with connections that can be cut, and
//!   [`purge_history`] finds stale answers;
//! * [`certificate`] makes certificates and their keys, [`pebble`] is an ACME authority that issues them;
//! * [`slow_disk`] is a disk that answers when a test says so;
//! * [`fault`] checks error pages;
//! * [`stat`] reads the program's counters.
//!
//! No test depends on the machine's speed: every wait is for an event, and fails after [`PATIENCE`].

use std::time::{Duration, Instant};

pub mod accelerator;
pub mod byteranges;
pub mod certificate;
pub mod clean_root;
pub mod client;
pub mod clients;
pub mod conformance;
pub mod connections;
pub mod content;
pub mod corpus;
pub mod crawl;
pub mod fault;
pub mod feed;
pub mod gate;
pub mod guide;
pub mod hub;
pub mod mail;
pub mod mail_service;
pub mod message;
pub mod nats_cluster;
pub mod network;
pub mod nginx;
pub mod node;
pub mod origin;
pub mod pebble;
pub mod program;
pub mod purge_history;
pub mod purging;
pub mod siege;
pub mod slow_disk;
pub mod stat;
pub mod wordpress;

pub use accelerator::Accelerator;
pub use client::{Client, End, Response};
pub use gate::Gate;
pub use message::{Answer, Headers, Request};
pub use nginx::Nginx;
pub use origin::{Next, ScriptedOrigin};
pub use slow_disk::SlowDisk;
pub use stat::Stat;

/// Longest wait for an event that is immediate on a healthy machine, before a test fails. The time is long
/// because the machine may be busy with a hundred other tasks: only a failing test ever waits that long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats the question until the answer is yes.
///
/// # Panics
/// When the answer is still no after [`PATIENCE`]; the message contains `what`, the sentence that should have
/// come true.
#[track_caller]
pub fn eventually(what: &str, mut question: impl FnMut() -> bool) {
    let start = Instant::now();
    while !question() {
        assert!(start.elapsed() < PATIENCE, "did not come true in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the first `wanted` processors that this process may use, as a value for `--cores`; `None` if there
/// are fewer.
pub fn cores(wanted: usize) -> Option<String> {
    let allowed = rustix::thread::sched_getaffinity(None).expect("a process may ask for its own processors");
    let first: Vec<String> = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .take(wanted)
        .map(|cpu| cpu.to_string())
        .collect();
    (first.len() == wanted).then(|| first.join(","))
}

/// Runs a test's body with so many cores; on a machine with fewer it prints that it tests nothing.
pub fn run_on(wanted: usize, test: impl FnOnce(&str)) {
    match cores(wanted) {
        Some(cores) => test(&cores),
        None => eprintln!("this machine has fewer than {wanted} processors: nothing was tested"),
    }
}

/// Runs a test's body with one core: for tests of one connection's answers, to which another core adds
/// nothing.
///
/// `on_one_core! { name, ... }` expects functions `fn name(cores: &str)`.
#[macro_export]
macro_rules! on_one_core {
    ($($name:ident),* $(,)?) => {
        mod on_one_core {
            $(#[test] fn $name() { $crate::run_on(1, super::$name) })*
        }
    };
}

/// Runs a test's body once with one core and once with two, as separate tests: for tests of what cores share,
/// such as stored objects, purges, fetches that others join, and limits.
///
/// `on_one_core_and_on_two! { name, ... }` expects functions `fn name(cores: &str)`. On a machine with one
/// processor the second half prints that it tests nothing, and passes.
#[macro_export]
macro_rules! on_one_core_and_on_two {
    ($($name:ident),* $(,)?) => {
        mod one_core {
            $(#[test] fn $name() { $crate::run_on(1, super::$name) })*
        }
        mod two_cores {
            $(#[test] fn $name() { $crate::run_on(2, super::$name) })*
        }
    };
}
