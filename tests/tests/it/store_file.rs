//! The accelerator with a file: after an orderly stop and after kill -9, flushed pages are served without a
//! request to the origin, and purged pages do not come back.

use std::path::Path;

use rustix::process::Signal;
use tests::{
    Accelerator, Answer, Request, ScriptedOrigin, content::content, eventually, on_one_core_and_on_two,
};

on_one_core_and_on_two! {
    a_second_life_is_warm_after_either_end,
    a_store_larger_than_memory_is_served,
    second_request_admission_persists_only_repeated_objects,
}

const PAGES: usize = 60;

fn origin() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    for page in 0..PAGES {
        let length = if page % 20 == 3 { 900_000 } else { 500 + page * 331 };
        let answer =
            Answer::new(200, content(page as u64, 0, length)).header("Cache-Control", "max-age=6000");
        let answer = if page % 5 == 0 { answer.header("Vary", "Accept-Language") } else { answer };
        origin.answers(&path(page), answer);
    }
    origin
}

fn path(page: usize) -> String {
    format!("/page/{page}")
}

fn start(origin: &ScriptedOrigin, store: &Path, cores: &str, memory: &str) -> Accelerator {
    Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--memory", memory)
        .store_in(store, "128MiB")
        .flag("--purge-from", "127.0.0.1")
        .start()
        .warm()
}

fn asked(origin: &ScriptedOrigin) -> usize {
    origin.all_seen().len()
}

fn all_are_right(running: &Accelerator, skip: Option<usize>) {
    for page in (0..PAGES).filter(|page| Some(*page) != skip) {
        let length = if page % 20 == 3 { 900_000 } else { 500 + page * 331 };
        let answer = running.get(&path(page)).expect_status(200);
        assert!(answer.body == content(page as u64, 0, length), "page {page} has other bytes");
    }
}

fn a_second_life_is_warm_after_either_end(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let origin = origin();
    let mut running = start(&origin, &store, cores, "64MiB");
    all_are_right(&running, None);
    let first = asked(&origin);
    assert_eq!(first, PAGES);
    for signal in [Signal::TERM, Signal::KILL, Signal::TERM] {
        // A page with Vary is two objects.
        eventually("all that was stored is on the file", || {
            let stat = running.stat();
            let objects = stat.number("store.file_objects");
            objects >= (PAGES + PAGES / 5) as f64 && stat.number("store.log_records_waiting") == 0.0
        });
        running.signal(signal);
        running.wait();
        drop(running);
        running = start(&origin, &store, cores, "64MiB");
        all_are_right(&running, None);
        assert_eq!(asked(&origin), first, "the origin was asked again after {signal:?}");
    }
    // An acknowledged purge survives kill -9.
    running.fetch(&Request::new("PURGE", &path(1))).expect_status(200);
    running.signal(Signal::KILL);
    running.wait();
    drop(running);
    let running = start(&origin, &store, cores, "64MiB");
    all_are_right(&running, Some(1));
    assert_eq!(asked(&origin), first);
    running.get(&path(1)).expect_status(200);
    assert_eq!(asked(&origin), first + 1, "what was purged came back");
}

fn a_store_larger_than_memory_is_served(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let origin = ScriptedOrigin::start();
    let length = 60_000;
    for page in 0..600 {
        origin.answers(
            &path(page),
            Answer::new(200, content(page as u64, 0, length)).header("Cache-Control", "max-age=6000"),
        );
    }
    let running = start(&origin, &directory.path().join("store"), cores, "12MiB");
    for round in 0..2 {
        for page in 0..600 {
            let answer = running.get(&path(page)).expect_status(200);
            assert!(answer.body == content(page as u64, 0, length), "page {page} in round {round}");
            if page % 20 == 0 {
                // Objects that arrive faster than the disk writes are not stored.
                eventually("it is written", || running.stat().count("store.log_records_waiting") == 0);
            }
        }
    }
    let again = asked(&origin) - 600;
    // A read may be refused if many are under way; here only a few are.
    assert_eq!(again, 0, "the origin was asked again: {:?}", running.stat().document());
    assert!(running.stat().number("store.file_hits") > 300.0);
}

fn second_request_admission_persists_only_repeated_objects(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let origin = origin();
    let begin = || {
        Accelerator::before(&origin.url())
            .flag("--cores", cores)
            .store_in(&store, "128MiB")
            .flag("--store-admission", "second-request")
            .start()
            .warm()
    };
    let mut running = begin();
    all_are_right(&running, None);
    let stat = running.stat();
    // A page with Vary is two objects.
    assert_eq!(stat.count("store.file_not_admitted") as usize, PAGES + PAGES / 5);
    (0..10).for_each(|page| drop(running.get(&path(page)).expect_status(200)));
    assert_eq!(asked(&origin), PAGES);
    eventually("what was asked for again is on the file", || {
        let stat = running.stat();
        // A page's Vary object is looked up as soon as it is stored, so it is admitted to the file too; it is
        // small.
        stat.count("store.file_kept") as usize == 10 + PAGES / 5
            && stat.count("store.file_copying") == 0
            && stat.count("store.log_records_waiting") == 0
    });
    running.signal(Signal::KILL);
    running.wait();
    let running = begin();
    (0..10).for_each(|page| drop(running.get(&path(page)).expect_status(200)));
    assert_eq!(asked(&origin), PAGES, "what was asked for twice was not kept");
    all_are_right(&running, None);
    assert_eq!(asked(&origin), PAGES + PAGES - 10, "what was asked for once was kept");
}

#[test]
fn a_foreign_or_used_store_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let origin = origin();
    let _running = start(&origin, &store, &tests::cores(1).expect("a core"), "64MiB");
    let foreign = directory.path().join("foreign");
    std::fs::write(&foreign, vec![b'x'; 200_000]).expect("a file");
    for (path, words) in [(&store, "in use by another process"), (&foreign, "is not a Nighttrain store")] {
        let output = Accelerator::before(&origin.url()).store_in(path, "128MiB").run_to_its_end();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code().is_some_and(|code| code != 0), "{said}");
        assert!(said.contains(words) && said.contains(path.to_str().expect("UTF-8")), "{said}");
    }
    assert_eq!(std::fs::read(&foreign).expect("a file"), vec![b'x'; 200_000]);
}

#[test]
fn a_memory_limit_too_low_names_the_minimum() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let origin = origin();
    let before = |limit: &str| {
        Accelerator::before(&origin.url()).store_in(&store, "128MiB").flag("--memory-limit", limit)
    };
    let output = before("70MiB").run_to_its_end();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // MiB: 64 for objects, 20 for the program, 18 for pending writes (nine segments of 2), 8 for reads, 10.25
    // for each core's table of purges and bans, and as much for the thread that writes them, 52 for
    // compression; and 36 bytes for each of the 65,536 objects that any file may hold.
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("may use 70MiB") && said.contains("raise the limit to at least 185MiB"), "{said}");
    assert!(!store.exists(), "a file was made for a start that was refused");
    // With exactly this limit the accelerator starts.
    all_are_right(&before("185MiB").start(), None);
    assert_eq!(asked(&origin), PAGES);
}

#[test]
fn page_cache_residency_is_shown_for_open_stores() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let origin = origin();
    let running = start(&origin, &store, &tests::cores(1).expect("a core"), "64MiB");
    all_are_right(&running, None);
    let stat = running.stat();
    let states = ["free", "open", "sealed", "dying", "damaged"];
    let segments: u64 = states.iter().map(|state| stat.count(&format!("store.log_segments_{state}"))).sum();
    assert!((stat.count("store.log_capacity_bytes") / segments).is_power_of_two(), "{:#}", stat.document());
    eventually("nothing waits to be written", || running.stat().count("store.log_dirty_bytes") == 0);
    assert_eq!(stat.count("store.log_pinned_bytes"), 0);
    let mut command = tests::program::command();
    let output =
        command.args(["stat", "--json", "--residency"]).arg(&store).output().expect("the program runs");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cells = said["residency"]["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 64, "{said}");
    // The file's headers were just written through the page cache; its objects are written past it where
    // possible.
    assert!(
        cells.iter().all(|share| share.as_f64().is_some_and(|share| (0.0..=1.0).contains(&share))),
        "{said}"
    );
    let mut command = tests::program::command();
    let output = command.args(["stat", "--residency"]).arg(&store).output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.lines().last().map(|line| line.chars().filter(|c| *c == '|').count()), Some(2), "{said}");
}

#[test]
fn an_unused_store_file_is_checked_and_described() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let origin = origin();
    let mut running = start(&origin, &store, &tests::cores(1).expect("a core"), "64MiB");
    all_are_right(&running, None);
    let ask = |arguments: &[&str]| {
        let mut command = tests::program::command();
        command.args(arguments).arg("--store").arg(&store).output().expect("the program runs")
    };
    let busy = ask(&["check"]);
    assert_eq!(busy.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&busy.stderr).contains("in use"), "{busy:?}");
    assert!(running.ask(&["purge", "--tag", "of-no-page"]).status.success());
    running.signal(Signal::TERM);
    running.wait();
    let whole = ask(&["check"]);
    let said = String::from_utf8_lossy(&whole.stdout).into_owned();
    assert!(whole.status.success() && said.contains("checksums are valid"), "{whole:?}");
    assert!(said.contains("1 purged tags and addresses, 0 bans"), "{said}");
    // The purge file counts as well: without it purged pages would come back.
    let purges = directory.path().join("store.purges");
    let written = std::fs::read(&purges).expect("a file");
    std::fs::write(&purges, [b"?", &written[1..]].concat()).expect("a file");
    let refused = ask(&["check"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("store.purges is damaged at byte 0"), "{said}");
    std::fs::write(&purges, &written).expect("a file");
    let described: serde_json::Value =
        serde_json::from_slice(&ask(&["stat", "--json"]).stdout).expect("JSON");
    // A page with Vary is two objects.
    let records = described["store"]["records"].as_u64().expect("a number");
    assert_eq!(records as usize, PAGES + PAGES / 5, "{described}");
    // One byte of a payload is flipped.
    let mut bytes = std::fs::read(&store).expect("a file");
    let wanted = content(2, 0, 500 + 2 * 331);
    let at = bytes.windows(wanted.len()).position(|window| window == wanted).expect("page 2 is on the file");
    bytes[at + 100] ^= 4;
    std::fs::write(&store, &bytes).expect("a file");
    let damaged = ask(&["check"]);
    let said = String::from_utf8_lossy(&damaged.stderr).into_owned();
    assert_eq!(damaged.status.code(), Some(1));
    assert!(said.contains("1 places are damaged") && said.contains("payload damaged"), "{said}");
    // A damaged object is fetched again, and all others are served.
    let running = start(&origin, &store, &tests::cores(1).expect("a core"), "64MiB");
    all_are_right(&running, None);
    assert_eq!(asked(&origin), PAGES + 1);
    assert_eq!(running.stat().number("store.file_damaged"), 1.0);
}
