//! Each command of docs/guide/mail.md, run as it is written there.
//!
//! In a network of its own (`unshare`), so that the guide's ports are free and nobody else's service is met.

use std::{fmt::Write as _, fs, process::Command};

use tests::{
    node::{source_tree, succeeds},
    program,
};

/// A fenced block: what is said behind the fence, and its content.
fn blocks(markdown: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in markdown.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(said)) => open = Some((said.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some((_, content)), None) => content.push_str(&format!("{line}\n")),
            (None, None) => {}
        }
    }
    blocks
}

#[test]
fn every_command_of_the_guide_works_as_written() {
    let guide = fs::read_to_string(source_tree().join("docs/guide/mail.md")).expect("the guide");
    let directory = tempfile::tempdir().expect("a directory");
    let mut script = "set -eu\nip link set lo up\n".to_owned();
    let mut ran = 0;
    for (said, content) in blocks(&guide) {
        if let Some((_, file)) = said.split_once(" file=") {
            fs::write(directory.path().join(file), content).expect("written");
        } else if said == "sh service" {
            let started =
                "for try in $(seq 300); do curl -sf http://127.0.0.1:8025/healthz && break; sleep 0.1; done";
            writeln!(script, "{} >service.log 2>&1 &\nservice=$!\n{started}", content.trim()).expect("text");
        } else if said == "sh run" {
            writeln!(script, "echo '$ {}'\n{content}", content.trim().replace('\'', "'\\''")).expect("text");
            ran += 1;
        }
    }
    script.push_str("kill $service\nwait $service || true\necho every command worked\n");
    let program = program::program().parent().expect("a directory");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let said = succeeds(
        Command::new("unshare")
            .args(["--map-root-user", "--net", "sh", "-c", &script])
            .current_dir(directory.path())
            .env("PATH", path)
            .env("XDG_STATE_HOME", directory.path()),
    );
    assert!(ran >= 6 && said.contains("every command worked"), "{said}");
    assert!(said.contains("signed up from Go") && said.contains("493021"), "{said}");
    // Of the shell, of Python and of Go.
    assert_eq!(said.lines().filter(|line| line.starts_with("signed up")).count(), 3, "{said}");
}
