//! A mail file of format version 1, as it was written before there was version 2 (`tests/fixtures/version-1`): mails are
//! in it that somebody waits for, so every later program opens it and goes on with it.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

use std::{fs::File, os::unix::fs::FileExt, path::Path, time::Duration};

use crate::common::{HERE, ask, config, drain, inbox, list, subjects};
use mail::{
    Config, Mailstore, Server,
    config::{Retention, Store},
    mailboxes::{Mailboxes, Scope},
};

/// The fixture's mails are from 2026.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
const BLOCK_BYTES: usize = 4096;

fn text(number: usize) -> String {
    let lines = [1, 3, 40, 900][number % 4];
    let body: String = (0..lines).map(|line| format!("mail {number}, line {line}\r\n")).collect();
    format!("From: sender{number}@client.test\r\nSubject: number {number}\r\n\r\n{body}")
}

/// A body that several mails have in common.
fn shared(number: usize) -> String {
    let body = "All aboard the night train, dear customer.\r\n".repeat(100);
    format!("From: shop@client.test\r\nSubject: offer {number}\r\n\r\n{body}")
}

/// Makes the file of its blocks.
fn unpack(to: &Path) {
    let packed =
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-1/mail.blocks"))
            .unwrap();
    let (bytes, blocks) = packed.split_first_chunk().unwrap();
    let file = File::create_new(to).unwrap();
    file.set_len(u64::from_le_bytes(*bytes)).unwrap();
    for block in blocks.chunks(4 + BLOCK_BYTES) {
        let (number, bytes) = block.split_first_chunk().unwrap();
        file.write_all_at(bytes, u64::from(u32::from_le_bytes(*number)) * BLOCK_BYTES as u64).unwrap();
    }
}

fn deliver(store: &Mailstore, to: &str, raw: &str) {
    ask(store.deliver(HERE, "sender@client.test", &[to.to_owned()], raw.as_bytes())).unwrap();
}

/// All mails that the file was made with and that nobody deleted, each with its bytes.
#[track_caller]
fn has_all_of_version_1(store: &Mailstore) {
    let expected: Vec<(&str, Vec<String>)> = vec![
        ("ann", (0..9).map(text).collect()),
        ("bob", vec![shared(0), shared(2)]),
        ("cid", vec![shared(1), shared(3)]),
        ("dan", Vec::new()),
        ("eve", (10..14).map(text).collect()),
    ];
    for (name, texts) in expected {
        let listed = list(store, &inbox(name));
        assert_eq!(listed.len(), texts.len(), "{name}");
        for text in texts {
            let is_it = |raw: &[u8]| raw.ends_with(text.as_bytes());
            let found = listed.iter().any(|mail| is_it(&ask(store.mail(mail.id)).unwrap().unwrap().raw));
            assert!(found, "{name} has lost {:?}", &text[..60]);
        }
    }
    let hurried = list(store, &inbox("cid"));
    let ends: Vec<bool> = hurried.iter().map(|mail| mail.expires_ms == 4_000_000_000_000).collect();
    assert_eq!(ends.iter().filter(|is_hurried| **is_hurried).count(), 1, "an earlier end was asked for");
}

#[test]
fn a_mail_file_of_version_1_is_opened_and_goes_on_and_no_later_change_may_refuse_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mail.store");
    unpack(&path);
    let config = Config {
        store: Store::File(path),
        retention: Retention { age: CENTURY, ..Retention::default() },
        ..config()
    };
    for life in 0..3 {
        let server = Server::start(config.clone()).unwrap();
        let store = server.mailstore();
        has_all_of_version_1(&store);
        let all = 17 + life;
        assert_eq!(ask(store.count(&Scope::All)), Ok(all as u64));
        deliver(&store, "fay", &text(100 + life));
        let mut found = subjects(&store, &inbox("fay"));
        found.sort();
        assert_eq!(found, (0..=life).map(|life| format!("number {}", 100 + life)).collect::<Vec<_>>());
        drain(server);
    }
}
