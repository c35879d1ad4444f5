//! A disk that other files fill: a store that has reserved its space goes on; a store that cannot reserve it
//! is refused, with the numbers.
//!
//! The file system has a few MiB and is in a mount namespace of its own: the test runs itself again inside
//! it.

use std::{io::Write, path::Path, process::Command};

use rustix::process::Signal;
use tests::{Accelerator, Answer, Request, ScriptedOrigin, content::content, eventually};

const INSIDE: &str = "STORE_DISK_FULL_INSIDE";
const PAGES: u64 = 60;

#[test]
fn a_full_disk_only_prevents_new_stores() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = r#"mount -t tmpfs -o size=40m none "$0" || exit 77
        exec "$@""#;
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(directory.path())
        .arg(std::env::current_exe().expect("a process knows its own file"))
        .args(["--exact", "store_disk_full::inside", "--nocapture"])
        .env(INSIDE, directory.path())
        // The program is found and built out here, where there is space.
        .env("NIGHTTRAIN_BIN", tests::program::program())
        .output();
    let said = |output: &std::process::Output| {
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    match output {
        Ok(output) if output.status.success() => assert!(said(&output).contains("1 passed"), "{output:?}"),
        Ok(output) if output.status.code() == Some(77) || said(&output).contains("unshare: ") => {
            eprintln!("no file system can be mounted here, so none can be filled: {}", said(&output));
        }
        Ok(output) => panic!("{}", said(&output)),
        Err(error) => eprintln!("there is no unshare(1), so no disk can be filled: {error}"),
    }
}

fn path(page: u64) -> String {
    format!("/page/{page}")
}

fn body(page: u64) -> Vec<u8> {
    content(page, 0, 20_000 + 777 * page as usize)
}

fn before(origin: &ScriptedOrigin, store: &Path) -> tests::accelerator::Setup {
    Accelerator::before(&origin.url()).store_in(store, "16MiB").flag("--purge-from", "127.0.0.1")
}

fn all_are_right(running: &Accelerator) {
    for page in 0..PAGES {
        let answer = running.get(&path(page)).expect_status(200);
        assert!(answer.body == body(page), "page {page} has other bytes");
    }
}

/// The actual test, run inside the namespace; elsewhere it does nothing.
#[test]
fn inside() {
    let Some(disk) = std::env::var_os(INSIDE) else { return };
    let disk = Path::new(&disk);
    let origin = ScriptedOrigin::start();
    for page in 0..PAGES {
        origin.answers(&path(page), Answer::new(200, body(page)).header("Cache-Control", "max-age=6000"));
    }
    let mut running = before(&origin, &disk.join("store")).start();
    // Another file takes the rest of the disk.
    let mut others = std::fs::File::create(disk.join("others")).expect("a file");
    let mebibyte = vec![7; 1 << 20];
    let full = (0..64).find_map(|_| others.write_all(&mebibyte).err()).expect("the disk is full");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    all_are_right(&running);
    running.fetch(&Request::new("PURGE", &path(7))).expect_status(200);
    eventually("all of it is written", || {
        let stat = running.stat();
        stat.count("store.log_records_waiting") == 0 && stat.count("store.file_objects") == PAGES - 1
    });
    assert_eq!(running.stat().count("store.log_write_errors"), 0);
    running.signal(Signal::KILL);
    running.wait();
    let running = before(&origin, &disk.join("store")).start().warm();
    all_are_right(&running);
    assert_eq!(origin.all_seen().len() as u64, PAGES + 1, "more than the purged page was asked for again");

    let output = before(&origin, &disk.join("another")).run_to_its_end();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("not enough disk space for the store") && said.contains("are free"), "{said}");
    let mut left: Vec<_> = std::fs::read_dir(disk)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["others", "store", "store.purges"], "something was left behind");
}
