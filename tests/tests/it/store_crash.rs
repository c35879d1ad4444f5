//! kill -9 at random points under load: after each, no byte is wrong, no purged page is back, and pages on
//! the file are served without a request to the origin.
//!
//! `STORE_KILLS=100` is the full run (`make soak`); the suite does a few kills.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use rustix::process::Signal;
use tests::{Accelerator, Answer, Client, End, Request, ScriptedOrigin, content::content, eventually};

const PAGES: u64 = 150;
const READERS: u64 = 3;

/// The site under load, and the bounds on what it may serve.
struct Site {
    origin: ScriptedOrigin,
    /// The origin's current edition of all pages.
    edition: Arc<AtomicU64>,
    /// For each page, the oldest edition that may still be served, and the number of purges begun.
    pages: Mutex<Vec<(u64, u64)>>,
}

impl Site {
    fn new() -> Self {
        let (origin, edition) = (ScriptedOrigin::start(), Arc::new(AtomicU64::new(0)));
        for page in 0..PAGES {
            let edition = Arc::clone(&edition);
            origin.on(&path(page), move |_, reply| {
                let answer = Answer::new(200, body(page, edition.load(SeqCst)));
                // Two lifetime classes, so that the record which ends an object is in another segment than
                // the object.
                let lifetime = if page % 2 == 0 { "max-age=3000" } else { "max-age=60000" };
                reply.answer(&answer.header("Cache-Control", lifetime))
            });
        }
        Self { origin, edition, pages: Mutex::new(vec![(0, 0); PAGES as usize]) }
    }

    fn page(&self, page: u64) -> (u64, u64) {
        self.pages.lock().expect("nobody panics with it")[page as usize]
    }

    /// Checks that a page is one of the origin's editions, whole, and not older than the last purge before
    /// the request.
    fn check(&self, page: u64, floor: u64, found: &[u8]) {
        // The edition's number precedes the content, which follows from it.
        let edition = found.first_chunk().map_or(u64::MAX, |edition| u64::from_le_bytes(*edition));
        assert!(edition <= self.edition.load(SeqCst), "page {page} is of no edition");
        assert!(found == body(page, edition), "page {page} of edition {edition} has other bytes");
        assert!(edition >= floor, "page {page} of edition {edition} was purged in {floor} and is back");
    }

    /// Runs one client until the server is gone.
    fn read(&self, running: &Accelerator, seed: u64, asked: &AtomicU64) {
        let mut random = Random(seed);
        let Ok(mut client) = Client::try_connect(running.address()) else { return };
        loop {
            let page = random.below(PAGES);
            let (floor, _) = self.page(page);
            if client.try_send(&Request::get(&path(page)).bytes()).is_err() {
                return;
            }
            let Some(answer) = client.try_response("GET") else { return };
            if answer.end != End::Complete {
                return;
            }
            self.check(page, floor, &answer.expect_status(200).body);
            asked.fetch_add(1, SeqCst);
        }
    }

    /// Purges page after page, each with a new edition, until the server is gone.
    fn purge(&self, running: &Accelerator, seed: u64) {
        let mut random = Random(seed);
        let Ok(mut client) = Client::try_connect(running.address()) else { return };
        loop {
            let page = random.below(PAGES);
            let edition = self.edition.fetch_add(1, SeqCst) + 1;
            self.pages.lock().expect("nobody panics with it")[page as usize].1 += 1;
            if client.try_send(&Request::new("PURGE", &path(page)).bytes()).is_err() {
                return;
            }
            let Some(answer) = client.try_response("PURGE") else { return };
            if answer.end != End::Complete {
                return;
            }
            // 503: the purge has not been written, so the page may come back.
            assert!([200, 404, 503].contains(&answer.status()), "{}", answer.text());
            if answer.status() == 503 {
                continue;
            }
            self.pages.lock().expect("nobody panics with it")[page as usize].0 = edition;
        }
    }
}

fn path(page: u64) -> String {
    format!("/page/{page}")
}

fn body(page: u64, edition: u64) -> Vec<u8> {
    let length = match page % 25 {
        7 => 400_000,
        n => 300 + n * 700,
    };
    let mut body = edition.to_le_bytes().to_vec();
    body.extend(content(page.wrapping_mul(1_000_003) ^ edition, 0, length as usize));
    body
}

/// Pseudo-random numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn flushed_objects_survive_kill_9_unless_purged() {
    let kills: u64 = std::env::var("STORE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let cores = tests::cores(2).or_else(|| tests::cores(1)).expect("a machine has a processor");
    let site = Site::new();
    // State that is surely on the file: the number of purges of each page that had begun when the file was
    // complete.
    let mut flushed: Option<Vec<u64>> = None;
    let mut random = Random(20_061_011);
    for kill in 0..=kills {
        let mut running = Accelerator::before(&site.origin.url())
            .flag("--cores", &cores)
            // Less than the pages' size, so that some pages are only on the file.
            .flag("--memory", "12MiB")
            .store_in(&store, "1GiB")
            .flag("--purge-from", "127.0.0.1")
            .start()
            .warm();
        for page in 0..PAGES {
            let (floor, purges) = site.page(page);
            let asked = site.origin.count(&path(page));
            site.check(page, floor, &running.get(&path(page)).expect_status(200).body);
            let is_there = flushed.as_ref().is_some_and(|flushed| flushed[page as usize] == purges);
            let asked = site.origin.count(&path(page)) - asked;
            assert!(!is_there || asked == 0, "page {page} was on the file and is gone after kill {kill}");
        }
        eventually("all that is stored is on the file", || {
            let stat = running.stat();
            stat.number("store.file_warming") == 0.0
                && stat.number("store.file_copying") == 0.0
                && stat.number("store.log_records_waiting") == 0.0
        });
        // A full file drops its oldest objects.
        let is_whole = running.stat().number("store.log_given_up") == 0.0;
        flushed = is_whole.then(|| (0..PAGES).map(|page| site.page(page).1).collect());
        if kill == kills {
            break;
        }
        let until = 50 + random.below(1500);
        let asked = AtomicU64::new(0);
        thread::scope(|scope| {
            for reader in 0..READERS {
                let (site, running, asked, seed) = (&site, &running, &asked, random.below(1 << 30) + reader);
                scope.spawn(move || site.read(running, seed, asked));
            }
            let (site, running, seed) = (&site, &running, random.below(1 << 30));
            scope.spawn(move || site.purge(running, seed));
            eventually("so much has been asked for", || asked.load(SeqCst) >= until);
            running.signal(Signal::KILL);
        });
        running.wait();
    }
}
