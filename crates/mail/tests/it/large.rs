//! Large mails: stored in parts, and either whole or absent, however the connection or the process ends.

use std::{os::unix::fs::FileExt, sync::Arc, thread, time::Duration};

use crate::common::{Client, HERE, ask, config, drain, first_processor, greeted, inbox, list, subjects};
use engine::log::{
    format::SEGMENTS_AT,
    simulated::{Faults, SimulatedDisk},
};
use mail::{
    Config, Mailstore, Server,
    config::{Limits, Store},
    mailboxes::{MailId, Mailboxes, Scope},
};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

const MIB: usize = 1 << 20;
/// Size from which a mail is stored in parts, and size of a part (`smtp::tail`).
const FRONT_BYTES: usize = 256 << 10;
const PART_BYTES: usize = 256 << 10;
const STORE_BYTES: u64 = 512 << 20;

fn roomy() -> Config {
    let limits = Limits { mail_bytes_max: 64 << 20, ..config().limits };
    Config { limits, store_bytes: STORE_BYTES, ..config() }
}

/// A mail of about `bytes` bytes, with a different text in each line.
fn text(number: usize, bytes: usize) -> String {
    let mut text = format!("From: a@b.test\r\nSubject: {number}\r\n\r\n");
    let mut line = 0usize;
    while text.len() < bytes {
        let left = bytes - text.len();
        let said = format!("{number} {line} {:x} ", line.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let said = said.repeat(4);
        text.push_str(&said[..said.len().min(left)]);
        if left >= said.len() + 2 {
            text.push_str("\r\n");
        }
        line += 1;
    }
    text
}

/// Reads all bytes of a mail, piece by piece; `None` if it is not whole.
fn whole(store: &Mailstore, id: MailId) -> Option<Vec<u8>> {
    ask(async {
        let (source, ()) = store.source_into(&Scope::All, id, ()).await.unwrap()?;
        let mut bytes = source.front;
        for at in source.pieces {
            bytes.extend(store.piece(at).await.unwrap()?);
        }
        assert_eq!(bytes.len() as u64, source.summary.size_bytes);
        Some(bytes)
    })
}

/// The mail after our own Received field.
fn without_trace(raw: &[u8]) -> &[u8] {
    let at = raw.windows(8).position(|window| window == b"\r\nFrom: ").unwrap();
    &raw[at + 2..]
}

#[track_caller]
fn is_there(store: &Mailstore, address: &str, expected: &[(usize, usize)]) {
    let listed = list(store, &inbox(address));
    assert_eq!(listed.len(), expected.len());
    for (summary, (number, bytes)) in listed.iter().rev().zip(expected) {
        let raw = whole(store, summary.id).expect("it is whole");
        let sent = format!("{}\r\n", text(*number, *bytes));
        assert_eq!(summary.size_bytes, raw.len() as u64);
        assert!(without_trace(&raw) == sent.as_bytes(), "mail {number} of {bytes} bytes");
        // Pages read the same bytes.
        let read = ask(store.mail(summary.id)).unwrap().unwrap();
        assert!(read.is_whole() && *read.raw == *raw);
    }
}

/// Sends a mail in BDAT chunks (RFC 3030).
fn by_chunks<S: std::io::Read + std::io::Write>(
    client: &mut Client<S>,
    to: &str,
    text: &[u8],
    chunk: usize,
) -> String {
    client.expect("MAIL FROM:<sender@client.test>", "250 2.1.0");
    client.expect(&format!("RCPT TO:<{to}>"), "250 2.1.5");
    let chunks = text.chunks(chunk);
    let last = chunks.len() - 1;
    for (number, bytes) in chunks.enumerate() {
        client.send(
            format!("BDAT {}{}\r\n", bytes.len(), if number == last { " LAST" } else { "" }).as_bytes(),
        );
        client.send(bytes);
        let reply = client.reply();
        if number == last || !reply.starts_with("250") {
            return reply;
        }
    }
    unreachable!("there is a last chunk")
}

#[test]
fn mails_at_part_borders_are_whole() {
    let server = Server::start(roomy()).unwrap();
    let store = server.mailstore();
    let mut client = greeted(server.addresses().smtp);
    assert!(client.say("EHLO client.test").contains("SIZE 67108864"));
    // Length of our Received field, so that each border is met to the byte.
    assert!(client.mail("trace@inbox.test", &text(0, 100)).starts_with("250"));
    let trace = list(&store, &inbox("trace"))[0].size_bytes as usize - 102;
    let mut sent = Vec::new();
    for border in [FRONT_BYTES, FRONT_BYTES + PART_BYTES, FRONT_BYTES + 2 * PART_BYTES, 17 * MIB] {
        for around in [border - 1, border, border + 1] {
            let (number, bytes) = (sent.len(), around - trace - 2);
            let reply = client.mail("ann@inbox.test", &text(number, bytes));
            assert!(reply.starts_with("250"), "{bytes}: {reply}");
            sent.push((number, bytes));
        }
    }
    is_there(&store, "ann", &sent);
    let sizes: Vec<usize> = list(&store, &inbox("ann")).iter().map(|mail| mail.size_bytes as usize).collect();
    assert!(sizes.contains(&FRONT_BYTES) && sizes.contains(&(FRONT_BYTES + PART_BYTES + 1)));
    // Mails by chunks and by the API are stored the same way.
    for chunk in [PART_BYTES - 1, PART_BYTES, 3 * MIB] {
        let sent = format!("{}\r\n", text(7, 5 * MIB));
        let reply = by_chunks(&mut client, "ben@inbox.test", sent.as_bytes(), chunk);
        assert!(reply.starts_with("250"), "{chunk}: {reply}");
    }
    let raw = format!("{}\r\n", text(7, 5 * MIB));
    ask(store.deliver(HERE, "s@client.test", &["ben@inbox.test".to_owned()], raw.as_bytes())).unwrap();
    is_there(&store, "ben", &[(7, 5 * MIB); 4]);
    drain(server);
}

#[test]
fn an_oversized_mail_gets_552_and_leaves_nothing() {
    let limits = Limits { mail_bytes_max: 2 << 20, ..config().limits };
    let server = Server::start(Config { limits, ..roomy() }).unwrap();
    let before = server.log_usage().live_bytes;
    for how in ["said", "data", "chunks"] {
        let mut client = greeted(server.addresses().smtp);
        let reply = match how {
            "said" => client.say("MAIL FROM:<a@client.test> SIZE=2097153"),
            "data" => {
                client.expect("MAIL FROM:<a@client.test>", "250");
                client.expect("RCPT TO:<ann@inbox.test>", "250");
                client.expect("DATA", "354");
                let text = text(0, 3 * MIB);
                let mut stream = client.stream.get_ref().try_clone().unwrap();
                // The server may stop reading; the rest does not matter.
                let sending = thread::spawn(move || std::io::Write::write_all(&mut stream, text.as_bytes()));
                let reply = client.reply();
                let _ = sending.join().unwrap();
                reply
            }
            _ => by_chunks(&mut client, "ann@inbox.test", &vec![b'x'; 3 * MIB], MIB),
        };
        assert!(reply.starts_with("552 5.3.4"), "{how}: {reply}");
    }
    until("nothing stays", || server.log_usage().live_bytes == before);
    drain(server);
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{what}: not in time");
}

/// Begins a mail and sends `bytes` bytes of it.
fn half(server: &Server, bytes: usize) -> Client<std::net::TcpStream> {
    let mut client = greeted(server.addresses().smtp);
    client.expect("MAIL FROM:<a@client.test>", "250");
    client.expect("RCPT TO:<half@inbox.test>", "250");
    client.expect("DATA", "354");
    client.send(text(99, bytes).as_bytes());
    client
}

#[test]
fn what_is_not_whole_leaves_nothing_behind() {
    let disk = SimulatedDisk::new(SEGMENTS_AT + STORE_BYTES);
    let config = Config { cores: vec![first_processor()], ..roomy() };
    let server = Server::start_on(config.clone(), Arc::new(disk.clone()), None).unwrap();
    let header = server.store_header();
    let empty = server.log_usage().live_bytes;
    // The sender disconnects.
    let client = half(&server, 9 * MIB);
    until("parts are there", || server.log_usage().live_bytes > empty + 8 * MIB as u64);
    drop(client);
    until("parts are gone", || server.log_usage().live_bytes == empty);
    // The sender gives the mail up by RSET.
    let mut client = greeted(server.addresses().smtp);
    let reply = client.mail("ann@inbox.test", &text(1, 3 * MIB));
    assert!(reply.starts_with("250"), "{reply}");
    let with_one = server.log_usage().live_bytes;
    client.expect("MAIL FROM:<a@client.test>", "250");
    client.expect("RCPT TO:<ann@inbox.test>", "250");
    let chunk = vec![b'x'; MIB];
    client.send(format!("BDAT {}\r\n", chunk.len()).as_bytes());
    client.send(&chunk);
    assert!(client.reply().starts_with("250"));
    assert!(server.log_usage().live_bytes > with_one);
    client.expect("RSET", "250");
    assert_eq!(server.log_usage().live_bytes, with_one);
    // The process is killed.
    let _client = half(&server, 20 * MIB);
    until("parts are there", || server.log_usage().live_bytes > with_one + 18 * MIB as u64);
    let killed = disk.after_kill();
    let after = Server::start_on(config, Arc::new(killed), Some(header)).unwrap();
    let store = after.mailstore();
    assert_eq!((list(&store, &inbox("half")).len(), list(&store, &Scope::All).len()), (0, 1));
    is_there(&store, "ann", &[(1, 3 * MIB)]);
    assert_eq!(after.log_usage().live_bytes, with_one);
    drain(after);
    drop(server);
}

#[test]
fn a_large_shared_mail_survives_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let store_at = Store::File(directory.path().join("mail.store"));
    for cores in [1, 2] {
        let config = Config { store: store_at.clone(), cores: vec![first_processor(); cores], ..roomy() };
        let server = Server::start(config.clone()).unwrap();
        let store = server.mailstore();
        let empty = server.log_usage().live_bytes;
        let to = ["ann@inbox.test", "ben@inbox.test", "cid@inbox.test"].map(str::to_owned);
        let raw = format!("{}\r\n", text(3, 20 * MIB));
        ask(store.deliver(HERE, "s@client.test", &to, raw.as_bytes())).unwrap();
        drain(server);

        let server = Server::start(config.clone()).unwrap();
        let store = server.mailstore();
        for address in ["ann", "ben", "cid"] {
            is_there(&store, address, &[(3, 20 * MIB)]);
        }
        assert_eq!(list(&store, &Scope::All).len(), 1);
        ask(store.delete_all(&inbox("ann"))).unwrap();
        drain(server);

        let server = Server::start(config.clone()).unwrap();
        let store = server.mailstore();
        is_there(&store, "cid", &[(3, 20 * MIB)]);
        assert_eq!(list(&store, &inbox("ann")).len(), 0);
        assert!(server.log_usage().live_bytes > empty + 19 * MIB as u64);
        ask(store.delete_all(&Scope::All)).unwrap();
        until("its parts go with it", || server.log_usage().live_bytes < empty + MIB as u64);
        drain(server);
        let server = Server::start(config).unwrap();
        assert_eq!(list(&server.mailstore(), &Scope::All).len(), 0);
        assert!(server.log_usage().live_bytes < empty + MIB as u64, "{cores} cores");
        drain(server);
    }
}

#[test]
fn a_full_store_drops_whole_oldest_mails() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { mail_bytes_max: 32 << 20, ..config().limits };
    let config = Config {
        store: Store::File(directory.path().join("mail.store")),
        store_bytes: 128 << 20,
        limits,
        ..config()
    };
    let server = Server::start(config.clone()).unwrap();
    let store = server.mailstore();
    let mut client = greeted(server.addresses().smtp);
    let mut sizes = Vec::new();
    for number in 0..24 {
        // Mails of all sizes, so that one mail's parts are in many segments and a segment has parts of many
        // mails.
        let bytes = [300 << 10, 20 * MIB, 5 * MIB, 1000][number % 4];
        let reply = client.mail("ann@inbox.test", &text(number, bytes));
        assert!(reply.starts_with("250"), "{number}: {reply}");
        sizes.push((number, bytes));
        // A listed mail is whole until it is gone.
        let there = list(&store, &inbox("ann"));
        assert!(there.len() >= 2 || number < 2, "{} after {number}", there.len());
        for (back, summary) in there.iter().enumerate().skip(1) {
            let (number, bytes) = sizes[number - back];
            let Some(raw) = whole(&store, summary.id) else {
                assert!(list(&store, &inbox("ann")).iter().all(|left| left.id != summary.id), "{number}");
                continue;
            };
            assert!(without_trace(&raw) == format!("{}\r\n", text(number, bytes)).as_bytes(), "{number}");
        }
    }
    let there = list(&store, &inbox("ann")).len();
    assert!(there < 24, "the store has not room for all of them");
    drain(server);
    let server = Server::start(config).unwrap();
    let again = list(&server.mailstore(), &inbox("ann")).len();
    is_there(&server.mailstore(), "ann", &sizes[sizes.len() - again..]);
    drain(server);
}

#[test]
fn a_damaged_part_is_said_and_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mail.store");
    let config = Config { store: Store::File(path.clone()), ..roomy() };
    let server = Server::start(config.clone()).unwrap();
    let mut client = greeted(server.addresses().smtp);
    for (number, bytes) in [(1, 3 * MIB), (2, 2 * MIB)] {
        assert!(client.mail("ann@inbox.test", &text(number, bytes)).starts_with("250"));
    }
    drain(server);
    // One byte in the middle of the first mail is damaged.
    let needle = &text(1, 3 * MIB).into_bytes()[2 * MIB..2 * MIB + 64];
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut bytes = vec![0; 16 * MIB];
    file.read_exact_at(&mut bytes, SEGMENTS_AT).unwrap();
    let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    file.write_all_at(b"?", SEGMENTS_AT + at as u64).unwrap();

    let server = Server::start(config).unwrap();
    let store = server.mailstore();
    let listed = list(&store, &inbox("ann"));
    assert_eq!(listed.len(), 2);
    assert!(whole(&store, listed[1].id).is_none(), "not a part of it passes for all");
    assert!(ask(store.mail(listed[1].id)).unwrap().is_none());
    assert!(whole(&store, listed[0].id).is_some(), "the other is as it was");
    drain(server);
}

#[test]
fn a_full_disk_mid_mail_leaves_nothing() {
    let disk = SimulatedDisk::new(SEGMENTS_AT + STORE_BYTES);
    let limits = Limits { room_time_max: Duration::from_millis(100), ..roomy().limits };
    let config = Config { cores: vec![first_processor()], limits, ..roomy() };
    let server = Server::start_on(config, Arc::new(disk.clone()), None).unwrap();
    let store = server.mailstore();
    let empty = server.log_usage().live_bytes;
    let mut client = half(&server, 2 * MIB);
    until("it has begun", || server.log_usage().live_bytes > empty + MIB as u64);
    disk.set_faults(Faults { write: Some(Errno::NOSPC.raw_os_error()), ..Faults::default() });
    let text_left = text(98, 62 * MIB - 2 * MIB);
    let mut stream = client.stream.get_ref().try_clone().unwrap();
    let sending = thread::spawn(move || {
        let _ = std::io::Write::write_all(&mut stream, text_left.as_bytes());
        let _ = std::io::Write::write_all(&mut stream, b"\r\n.\r\n");
    });
    let reply = client.reply();
    assert!(reply.starts_with("452 4.3.1") || reply.starts_with("451 4.3.0"), "{reply}");
    sending.join().unwrap();
    until("nothing stays", || server.log_usage().live_bytes == empty);
    assert_eq!(subjects(&store, &inbox("half")), [""; 0]);
    disk.set_faults(Faults::default());
    let taken = (0..400).any(|_| {
        thread::sleep(Duration::from_millis(50));
        greeted(server.addresses().smtp).mail("ann@inbox.test", &text(5, 2 * MIB)).starts_with("250")
    });
    assert!(taken, "mail is taken again");
    drain(server);
}

#[test]
fn unfinished_mails_take_at_most_half_the_store() {
    let limits = Limits { mail_bytes_max: 32 << 20, ..config().limits };
    let server = Server::start(Config { limits, store_bytes: 128 << 20, ..config() }).unwrap();
    // Unfinished mails of one address may take a quarter of the store.
    let first = half(&server, 30 * MIB);
    until("it is there", || server.log_usage().live_bytes > 28 * MIB as u64);
    let mut second = greeted(server.addresses().smtp);
    second.expect("MAIL FROM:<a@client.test>", "250");
    second.expect("RCPT TO:<half@inbox.test>", "250");
    second.expect("DATA", "354");
    let mut stream = second.stream.get_ref().try_clone().unwrap();
    let sending = thread::spawn(move || {
        let _ = std::io::Write::write_all(&mut stream, text(97, 8 * MIB).as_bytes());
    });
    let reply = second.reply();
    assert!(reply.starts_with("452 4.3.1 Too many mails of your network"), "{reply}");
    sending.join().unwrap();
    // Small mails are accepted meanwhile.
    let mut small = greeted(server.addresses().smtp);
    assert!(small.mail("ann@inbox.test", "Subject: small\r\n\r\nx").starts_with("250"));
    drop(first);
    until("there is room again", || {
        greeted(server.addresses().smtp).mail("ann@inbox.test", &text(5, 8 * MIB)).starts_with("250")
    });
    drain(server);
}

/// A mail of 64 MiB comes back unchanged; its digest is compared.
#[test]
fn the_largest_comes_back_as_it_went() {
    let server = Server::start(roomy()).unwrap();
    let store = server.mailstore();
    let mut client = greeted(server.addresses().smtp);
    let sent = text(4, 64 * MIB - 1024);
    assert!(client.mail("ann@inbox.test", &sent).starts_with("250"));
    let id = list(&store, &inbox("ann"))[0].id;
    let raw = whole(&store, id).unwrap();
    let digest = |bytes: &[u8]| Sha256::digest(bytes);
    assert_eq!(digest(without_trace(&raw)), digest(format!("{sent}\r\n").as_bytes()));
    // Pages get the beginning, marked as not whole.
    let read = ask(store.mail(id)).unwrap().unwrap();
    assert!(!read.is_whole() && raw.starts_with(&read.raw));
    drain(server);
}
