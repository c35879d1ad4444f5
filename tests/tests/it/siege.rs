//! A minute of `make siege`: every attacker at once, and honest clients beside them.

#![allow(clippy::expect_used, reason = "a test may fail")]

use std::process::Command;

/// Memory, what was acknowledged, and that the limits that were hit are counted. How long honest clients wait is for
/// `make siege` on a quiet machine.
#[test]
fn a_minute_of_it_leaves_the_server_and_its_promises_whole() {
    let siege = Command::new(env!("CARGO_BIN_EXE_siege"))
        .args(["run", "--seconds", "40", "--pairs", "0"])
        .env("NIGHTTRAIN_BIN", tests::program::program())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&siege.stdout);
    assert!(siege.status.success(), "{said}\n{}", String::from_utf8_lossy(&siege.stderr));
    // It was a siege: each attacker had its connections, and the limits that it met are counted.
    for attack in tests::siege::attacks::ATTACKS {
        let row = said.lines().find(|line| line.starts_with(attack.name)).unwrap_or_else(|| panic!("{said}"));
        let opened: u64 =
            row.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a row");
        assert!(opened > 0, "{}: {said}", attack.name);
    }
}
