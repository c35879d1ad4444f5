//! A mail file of format version 1, written before version 2 existed (`tests/fixtures/version-1`): its mails
//! are still needed, so every later program opens the file and continues it.

use std::{fs::File, os::unix::fs::FileExt, path::Path, time::Duration};

use crate::common::{HERE, ask, config, drain, inbox, list, subjects};
use engine::log::{
    Header,
    format::{self, SegmentHeader, SegmentStart},
};
use mail::{
    Config, Mailstore, Server,
    config::{Retention, Store},
    mailboxes::{Mailboxes, Scope},
};

/// Retention age; the fixture's mails are from 2026.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
const BLOCK_BYTES: usize = 4096;

fn text(number: usize) -> String {
    let lines = [1, 3, 40, 900][number % 4];
    let body: String = (0..lines).map(|line| format!("mail {number}, line {line}\r\n")).collect();
    format!("From: sender{number}@client.test\r\nSubject: number {number}\r\n\r\n{body}")
}

/// A mail whose body several mails share.
fn shared(number: usize) -> String {
    let body = "All aboard the night train, dear customer.\r\n".repeat(100);
    format!("From: shop@client.test\r\nSubject: offer {number}\r\n\r\n{body}")
}

/// Unpacks the file from its blocks.
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

/// Checks that all mails of the fixture that nobody deleted are there, byte for byte.
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
fn a_mail_store_of_version_1_still_opens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mail.store");
    unpack(&path);
    let config = Config {
        store: Store::File(path.clone()),
        retention: Retention { age: CENTURY, ..Retention::default() },
        ..config()
    };
    assert!(versions_in_use(&path).iter().all(|version| *version == 1));
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
    // A start gathers the records of nearly empty segments, and a segment is free with its last mail: it is
    // version 2 when it is used again.
    let mut lives = 0;
    while versions_in_use(&path).contains(&1) {
        assert!(lives < 20, "segments of version 1 are never used again");
        lives += 1;
        let server = Server::start(config.clone()).unwrap();
        let store = server.mailstore();
        for name in ["ann", "bob", "cid", "eve"] {
            ask(store.delete_all(&inbox(name))).unwrap();
        }
        deliver(&store, "fay", &text(200 + lives));
        assert_eq!(list(&store, &inbox("fay")).len(), 3 + lives);
        drain(server);
    }
    let server = Server::start(config).unwrap();
    assert_eq!(list(&server.mailstore(), &inbox("fay")).len(), 3 + lives);
    drain(server);
}

/// Format version of each segment in use.
fn versions_in_use(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    let mut header = [0; format::HEADER_BYTES];
    file.read_exact_at(&mut header, 0).unwrap();
    let header = Header::decode(&header).unwrap();
    assert_eq!(header.version, 1, "the file is what it was made as: an older program can go on with it, too");
    let of = |segment| {
        let mut start = [0; format::SEGMENT_HEADER_BYTES];
        let at = format::SEGMENTS_AT + u64::from(segment) * u64::from(header.segment_bytes);
        file.read_exact_at(&mut start, at).unwrap();
        match SegmentHeader::decode(&start, header.seed(), segment) {
            SegmentStart::Used(used) if !used.is_over => Some(used.version),
            SegmentStart::Damaged => panic!("segment {segment} is damaged"),
            _ => None,
        }
    };
    (0..header.segments).filter_map(of).collect()
}
