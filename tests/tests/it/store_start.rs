//! A store whose file takes long to read at the start: meanwhile the accelerator answers as if the file were
//! empty, and everything stored or purged meanwhile holds.

use std::{
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use engine::log::{Header, format::BLOCK_BYTES};
use rustix::process::Signal;
use tests::{
    Accelerator, Answer, Request, ScriptedOrigin, SlowDisk, accelerator::Setup, content::content, eventually,
    on_one_core, on_one_core_and_on_two,
};

on_one_core! {
    a_server_stops_while_its_file_is_read,
}

on_one_core_and_on_two! {
    requests_and_purges_work_while_the_file_loads,
}

const PAGES: u64 = 40;

/// A site whose pages show the edition in which they were fetched.
struct Site {
    origin: ScriptedOrigin,
    edition: Arc<AtomicU64>,
}

impl Site {
    fn new() -> Self {
        let (origin, edition) = (ScriptedOrigin::start(), Arc::new(AtomicU64::new(0)));
        for page in 0..PAGES {
            let edition = Arc::clone(&edition);
            origin.on(&path(page), move |_, reply| {
                let body = content(page, edition.load(SeqCst), 2000 + 97 * page as usize);
                reply.answer(&Answer::new(200, body).header("Cache-Control", "max-age=6000"))
            });
        }
        Self { origin, edition }
    }

    fn asked(&self) -> usize {
        self.origin.all_seen().len()
    }

    fn before(&self, store: &Path, cores: &str) -> Setup {
        Accelerator::before(&self.origin.url())
            .flag("--cores", cores)
            .store_in(store, "64MiB")
            .flag("--purge-from", "127.0.0.1")
    }

    /// Fills the store and ends the accelerator by `signal`: the file then holds all pages, in edition 0.
    fn stored(&self, store: &Path, cores: &str, signal: Signal) {
        let mut running = self.before(store, cores).start();
        (0..PAGES).for_each(|page| assert_eq!(edition_of(&running, page), 0));
        all_is_written(&running, PAGES as f64);
        running.signal(signal);
        running.wait();
    }
}

fn path(page: u64) -> String {
    format!("/page/{page}")
}

/// Requests a page and returns its edition.
fn edition_of(running: &Accelerator, page: u64) -> u64 {
    let answer = running.get(&path(page)).expect_status(200);
    let found = (0..9).find(|edition| answer.body == content(page, *edition, 2000 + 97 * page as usize));
    found.unwrap_or_else(|| panic!("page {page} has other bytes"))
}

fn all_is_written(running: &Accelerator, objects: f64) {
    eventually("all that was stored is on the file", || {
        let stat = running.stat();
        stat.number("store.file_warming") == 0.0
            && stat.number("store.file_objects") >= objects
            && stat.number("store.log_records_waiting") == 0.0
    });
}

fn requests_and_purges_work_while_the_file_loads(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let site = Site::new();
    site.stored(&store, cores, Signal::KILL);

    // After the restart the disk does not answer; the accelerator serves anyway.
    let disk = SlowDisk::shut(directory.path());
    let mut running = disk.below(site.before(&store, cores)).start();
    let warming = cores.split(',').count() as f64;
    assert_eq!(running.stat().number("store.file_warming"), warming);
    site.edition.store(1, SeqCst);
    let asked = site.asked();
    // Pages 0 to 9 are fetched meanwhile, in a new edition; the second time they come from memory.
    (0..10).chain(0..10).for_each(|page| assert_eq!(edition_of(&running, page), 1));
    assert_eq!(site.asked(), asked + 10);
    // Pages 8 to 13 are purged meanwhile. A purge is acknowledged once it is certain.
    let address = running.address();
    let purges: Vec<_> = (8..14)
        .map(|page| {
            let request = Request::new("PURGE", &path(page));
            std::thread::spawn(move || tests::client::fetch(address, &request).status())
        })
        .collect();
    eventually("the purges are under way", || running.stat().number("requests.purges") == 6.0);
    site.edition.store(2, SeqCst);
    // Page 12 is stored again after its purge, before the file has been read.
    eventually("page 12 is asked for after its purge", || edition_of(&running, 12) == 2);
    assert!(
        purges.iter().all(|purge| !purge.is_finished()),
        "a purge was said to hold, and nothing is written"
    );
    assert_eq!(running.stat().number("store.file_warming"), warming);

    disk.open();
    for purge in purges {
        assert_eq!(purge.join().expect("an answer"), 200);
    }
    all_is_written(&running, 1.0);
    for life in 0..3 {
        for page in 0..PAGES {
            let asked = site.origin.count(&path(page));
            let wanted = match page {
                0..8 => 1,
                8..14 => 2,
                _ => 0,
            };
            assert_eq!(edition_of(&running, page), wanted, "page {page} in life {life}");
            // Pages that were purged and not requested again are fetched; on a busy machine page 12 may have
            // been fetched before its purge.
            let anew = usize::from(life == 0 && (8..14).contains(&page));
            let found = site.origin.count(&path(page)) - asked;
            assert!(
                found == anew || (page, life, found) == (12, 0, 0),
                "page {page} in life {life}: {found}"
            );
        }
        all_is_written(&running, PAGES as f64);
        running.signal(Signal::KILL);
        running.wait();
        running = site.before(&store, cores).start().warm();
    }
}

fn a_server_stops_while_its_file_is_read(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let site = Site::new();
    site.stored(&store, cores, Signal::TERM);
    for signal in [Signal::KILL, Signal::TERM] {
        let disk = SlowDisk::shut(directory.path());
        let mut running = disk.below(site.before(&store, cores)).start();
        assert_eq!(edition_of(&running, 3), 0);
        running.signal(signal);
        // The read under way is waited for; no other is begun.
        disk.open();
        running.wait();
    }
    let running = site.before(&store, cores).start().warm();
    for page in 0..PAGES {
        let asked = site.origin.count(&path(page));
        assert_eq!(edition_of(&running, page), 0);
        // An answer fetched while the file was read replaces the one on the file, if there was time before
        // the end, and is flushed later: a kill in between loses it.
        assert!(
            page == 3 || site.origin.count(&path(page)) == asked,
            "what the file held of page {page} is not there any more"
        );
    }
}

/// A file of an older version is refused with advice and left unchanged: a cache can fetch its content again,
/// so it need not read old formats.
#[test]
fn a_file_of_version_1_is_refused_unchanged() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    let site = Site::new();
    let cores = tests::cores(1).expect("a processor");
    let mut running = site.before(&path, &cores).start().warm();
    running.signal(Signal::TERM);
    running.wait();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("a file");
    let mut bytes = [0; 128];
    file.read_exact_at(&mut bytes, 0).expect("a header");
    let header = Header { version: 1, hash_seed: 0, ..Header::decode(&bytes).expect("sound") };
    for block in 0..2 {
        file.write_all_at(&header.encode(), block * BLOCK_BYTES as u64).expect("room");
    }
    let whole = std::fs::read(&path).expect("a file");
    let ended = site.before(&path, &cores).run_to_its_end();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{said}");
    for word in ["version 1", "remove the file", path.to_str().expect("a path in UTF-8")] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(std::fs::read(&path).expect("a file") == whole, "what was refused was changed");
}
