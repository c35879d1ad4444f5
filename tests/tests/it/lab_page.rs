//! The lab's page in a real browser, from a run of the program.

use std::{fs, process::Command};

use tests::{
    node::{artifacts, node_modules, source_tree, succeeds},
    program,
};

/// Experiments with interactive figures, and two with plots and tables.
const EXPERIMENTS: [&str; 4] = ["bheap-layout", "bheap-sim", "memory-ladder", "allocations"];

/// On desktop and phone, in light and dark mode, printed and without scripts, nothing overflows and there is
/// no accessibility violation. Both heaps of figures 5 and 6 touch, operation by operation, the memory that
/// `bheap`'s heaps touched. Screenshots are in target/lab-page.
#[test]
fn a_browser_shows_the_page_and_both_heaps() {
    let directory = tempfile::tempdir().expect("a directory");
    let (page, json) = (directory.path().join("lab.html"), directory.path().join("lab.json"));
    let ran = program::command()
        .args(["lab", "--quick", "--json", "--items", "20000", "--html"])
        .arg(&page)
        .args(EXPERIMENTS)
        .output()
        .expect("the program starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    fs::write(&json, &ran.stdout).expect("written");
    let said = succeeds(
        Command::new("node")
            .arg(source_tree().join("tests/browser/lab.cjs"))
            .env("NODE_PATH", node_modules())
            .env("PAGE", &page)
            .env("JSON", &json)
            .env("CHROMIUM", "/usr/bin/chromium")
            .env("SHOTS", artifacts("lab-page")),
    );
    for step in [
        "ok desktop-dark",
        "ok desktop-light",
        "ok phone-dark",
        "ok phone-light",
        "operations touch what the heaps touch",
        "ok by keyboard",
        "ok full and empty heaps say so",
        "ok the ladder",
        "ok on paper",
        "ok without scripts",
    ] {
        assert!(said.contains(step), "{step}: {said}");
    }
}
