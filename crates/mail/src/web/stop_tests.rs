//! Tests that a stop ends within its own time limit, no matter what the server's threads do.

use std::{sync::mpsc::channel, thread};

use super::*;

#[test]
fn a_thread_that_hangs_is_not_waited_for() {
    let (let_go, hangs) = channel::<()>();
    let hanging = thread::spawn(move || assert!(hangs.recv().is_err(), "the test lets it go"));
    let panicking = thread::spawn(|| panic!("a panic of the test"));
    assert!(join_within(Duration::from_secs(60), vec![panicking, thread::spawn(|| ())]).is_empty());
    let left = join_within(Duration::from_millis(20), vec![hanging]);
    assert_eq!(left.len(), 1);
    drop(let_go);
    assert!(join_within(Duration::from_secs(60), left).is_empty(), "it ends when it can");
}
