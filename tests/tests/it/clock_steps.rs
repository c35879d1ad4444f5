//! The clock is set by hours, forward and back, between two runs of a store on a file and within one. Nothing
//! is served beyond its lifetime, no age is negative or absurd, nothing panics.
//!
//! The server runs in the test's process, because a process can only step its own clock. There is one test,
//! because the clock belongs to the process.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cache::{
    Config, Server,
    config::{Admission, Origin},
};
use engine::cores::clock;
use tests::{Answer, Client, Request, ScriptedOrigin, client::fetch, content::content, eventually};

const HOUR_S: i64 = 3600;
/// Freshness lifetime of the pages.
const LIFETIME_S: u64 = 600;
const PAGES: u64 = 20;
/// Longer than a hit-for-miss note about a private page holds, and shorter than the time after which it is
/// forgotten.
const NOTE_OVER_S: i64 = 90;
/// Clients that request the private page at once.
const CLIENTS: usize = 8;

/// Starts the site, whose own clock is right.
fn origin() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    for page in 0..PAGES {
        origin.on(&path(page), move |_, reply| {
            // Sent without a `Date`, so that only the accelerator's clock counts.
            let answer = Answer::new(200, body(page)).undated();
            reply.answer(&answer.header("Cache-Control", "max-age=600"))
        });
    }
    // Sent with a `Date`, which is hours old or in the future for a stepped clock.
    origin.on("/dated", |_, reply| {
        reply.answer(&Answer::new(200, body(0)).header("Cache-Control", "max-age=600"))
    });
    origin
}

fn path(page: u64) -> String {
    format!("/page/{page}")
}

fn body(page: u64) -> Vec<u8> {
    content(page, 0, 1000 + 313 * page as usize)
}

fn start(origin: &ScriptedOrigin, store: &Path) -> Server {
    let mut config = Config::new(Origin::at(origin.address()));
    config.listen.set_port(0);
    let cores = tests::cores(2).or_else(|| tests::cores(1)).expect("a machine has a processor");
    config.cores = engine::cores::parse_list(&cores).expect("a list");
    config.memory_bytes = 64 << 20;
    config.store = Some(store.into());
    config.store_bytes = 64 << 20;
    config.flush = Duration::from_millis(10);
    config.admission = Admission::Always;
    let server = Server::start(config).expect("it starts");
    eventually("it is ready, and knows its file", || server.is_ready() && server.recovered().is_some());
    server
}

fn stop(server: Server) {
    server.drain(Duration::from_secs(20)).expect("no loop has failed");
}

fn ask(server: &Server, path: &str, page: u64, age_s_max: u64) {
    let answer = fetch(server.addresses()[0], &Request::get(path)).expect_status(200);
    assert!(answer.body == body(page), "{path} has other bytes");
    if let Some(age) = answer.header("age") {
        let age_s: u64 = age.parse().expect("an age is a number");
        assert!(age_s <= age_s_max, "{path} has an age of {age_s} s");
    }
}

/// Requests all pages, and returns the number of requests that reached the origin for them.
fn ask_all(server: &Server, origin: &ScriptedOrigin) -> usize {
    ask(server, "/dated", 0, 40 * HOUR_S.unsigned_abs());
    let before = origin.all_seen().len();
    (0..PAGES).for_each(|page| ask(server, &path(page), page, LIFETIME_S));
    origin.all_seen().len() - before
}

/// A hit-for-miss note says that a page is private; when it has expired, clients still do not wait for each
/// other.
fn a_note_that_has_run_out_makes_nobody_wait(server: &Server, origin: &ScriptedOrigin) {
    let there = Arc::new(AtomicUsize::new(CLIENTS));
    let in_script = Arc::clone(&there);
    origin.on("/mine", move |_, reply| {
        // No request is answered before all clients are here; the first one comes alone.
        in_script.fetch_add(1, Ordering::SeqCst);
        while in_script.load(Ordering::SeqCst) < CLIENTS && !reply.stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
        reply.answer(&Answer::new(200, "mine").header("Cache-Control", "private"))
    });
    fetch(server.addresses()[0], &Request::get("/mine")).expect_status(200);
    clock::step_unix_time(NOTE_OVER_S);
    there.store(0, Ordering::SeqCst);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(server.addresses()[0])).collect();
    for client in &mut clients {
        client.send(&Request::get("/mine").bytes());
    }
    for client in &mut clients {
        assert_eq!(client.response("GET").expect_status(200).text(), "mine");
    }
}

#[test]
fn a_clock_step_extends_no_lifetime() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let origin = origin();
    let all = PAGES as usize;

    let mut server = start(&origin, &store);
    a_note_that_has_run_out_makes_nobody_wait(&server, &origin);
    assert_eq!((ask_all(&server, &origin), ask_all(&server, &origin)), (all, 0));
    // A step within a run, beyond the lifetime: as if the time had passed.
    clock::step_unix_time(2 * HOUR_S);
    assert_eq!((ask_all(&server, &origin), ask_all(&server, &origin)), (all, 0));
    // A step back: an object stored two hours ahead would be fresh for two hours and ten minutes.
    clock::step_unix_time(-2 * HOUR_S);
    assert_eq!(ask_all(&server, &origin), all, "stored in the future");
    assert_eq!(ask_all(&server, &origin), 0);
    // Steps of less than a lifetime, forward and back.
    clock::step_unix_time(LIFETIME_S as i64 / 2);
    assert_eq!(ask_all(&server, &origin), 0);
    clock::step_unix_time(-(LIFETIME_S as i64) / 2);
    assert_eq!(ask_all(&server, &origin), 0);

    // Steps between runs, which end in order so that all objects are on the file.
    for (step_s, asked_anew) in [
        (0, 0),
        // Still fresh.
        (LIFETIME_S as i64 / 2, 0),
        // Expired by the clock of this run.
        (30 * HOUR_S, all),
        // Stored thirty hours in the future.
        (-30 * HOUR_S, all),
        (-5 * HOUR_S, all),
    ] {
        stop(server);
        clock::step_unix_time(step_s);
        server = start(&origin, &store);
        assert_eq!(ask_all(&server, &origin), asked_anew, "a life after a step of {step_s} s");
    }
    // Steps to the beginning of time, and beyond 32 bits of seconds.
    for step_s in [-60 * 365 * 24 * HOUR_S, 200 * 365 * 24 * HOUR_S] {
        clock::step_unix_time(step_s);
        for page in 0..PAGES {
            ask(&server, &path(page), page, u64::MAX);
        }
        stop(server);
        server = start(&origin, &store);
    }
    stop(server);
}
