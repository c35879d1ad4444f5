//! nats.go's own tests of JetStream, run through the feed: each server of the suite has a feed in front of it
//! that has joined it as a leaf node, and the suite's clients connect to the feed.
//!
//! `tests/clients/natsgo/reasons.txt` lists the tests that are not run, and why. By default only the short
//! tests run, in `make soak` all of them.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use tests::{clients::installed, conformance::reasons::Reasons, node::source_tree, program::program};

/// Pattern of the short tests' names.
const SHORT: &str = "^Test(Key|Publish|Object|Update|Get|Delete|Purge|Account|Create|SubjectsFilter)";
/// Fewest tests that must pass: of all 181, without those that reasons.txt excludes as a whole; and of the
/// short ones.
const PASS_MIN: [usize; 2] = [174, 80];

#[test]
fn f9_nats_go_tests_pass_through_the_feed() {
    let parts = ["natsgo/tester", "natsgo/jetstream.test", "natsgo/suite/jetstream/test"];
    let [Some(tester), Some(suite), Some(directory)] = parts.map(installed) else { return };
    let is_long = std::env::var_os("NIGHTTRAIN_SOAK_SECONDS").is_some();
    let text =
        fs::read_to_string(source_tree().join("tests/clients/natsgo/reasons.txt")).expect("it is there");
    let reasons = Reasons::parse(&text).expect("reasons");
    // A pattern for each test, or for a subtest.
    let whole = |name: &str| name.split('/').map(|part| format!("^{part}$")).collect::<Vec<_>>().join("/");
    let skipped: Vec<String> = reasons.tests().map(whole).collect();
    let mut tester = Command::new(tester)
        .arg("-program")
        .arg(program())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it can be started");
    let mut said = BufReader::new(tester.stdout.take().expect("a pipe")).lines();
    let url = said.next().expect("it says where it is").expect("text");
    let output = Command::new(suite)
        .args(["-test.v", "-test.timeout", "9m", "-test.skip", &skipped.join("|")])
        .args(["-test.run", if is_long { "." } else { SHORT }])
        .env("TESTER_NATS_URL", url)
        .current_dir(directory)
        .output()
        .expect("it can be started");
    // The tester ends when its input is closed.
    drop(tester.stdin.take());
    let last = said.map_while(Result::ok).last().expect("it says how many servers there were");
    tester.wait().expect("it ends");
    let printed = String::from_utf8_lossy(&output.stdout);
    let passed = printed.lines().filter(|line| line.starts_with("--- PASS")).count();
    println!("{passed} passed; {last}");
    let failed: Vec<&str> = printed
        .lines()
        .filter(|line| line.contains("--- FAIL") || line.contains("_test.go:") || line.starts_with("panic"))
        .collect();
    assert!(output.status.success(), "{}\n{last}", failed.join("\n"));
    assert!(passed >= PASS_MIN[usize::from(!is_long)], "{passed} passed");
    // A line such as "servers behind a feed: 393, alone: 13".
    let numbers: Vec<usize> =
        last.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
    assert!(numbers[0] >= passed / 2 && numbers[0] > 10 * numbers[1], "{last}");
}
