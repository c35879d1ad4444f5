//! A body that many mails share is stored once, and each mail is still whole: while it arrives, after the
//! mail with the stored body is deleted, after a restart, and after segments were gathered.

use crate::common::{HERE, ask, config, drain, first_processor, inbox, list};
use mail::{
    Config, Mailstore, Server,
    config::Store,
    mailboxes::{Mailboxes, Scope},
};

const BODY_BYTES: usize = 8000;

/// A mail of a campaign: its own head, and either a code near the end of an otherwise equal body, or the
/// shared body.
fn text(number: usize, code: Option<usize>) -> String {
    let body = "All aboard the night train, dear customer. ".repeat(BODY_BYTES / 43);
    let code = code.map_or(String::new(), |code| format!("{code:06}"));
    format!("From: shop@x.test\r\nSubject: offer {number}\r\n\r\n{body}{code}\r\nbye\r\n")
}

fn deliver(store: &Mailstore, number: usize, code: Option<usize>) {
    let to = vec![format!("c{number}@x.test")];
    ask(store.deliver(HERE, "shop@x.test", &to, text(number, code).as_bytes())).unwrap();
}

#[track_caller]
fn is_whole(store: &Mailstore, number: usize, code: Option<usize>) {
    let listed = list(store, &inbox(&format!("c{number}@x.test")));
    assert_eq!(listed.len(), 1, "mail {number}");
    let mail = ask(store.mail(listed[0].id)).unwrap().expect("it is there");
    assert!(mail.raw.ends_with(text(number, code).as_bytes()), "mail {number}");
    assert_eq!(mail.summary, *listed[0]);
    assert_eq!(mail.summary.size_bytes, mail.raw.len() as u64);
}

fn on_file(directory: &tempfile::TempDir) -> Config {
    Config { store: Store::File(directory.path().join("mail.store")), ..config() }
}

#[test]
fn a_shared_body_outlives_its_first_mail() {
    const MAILS: usize = 500;
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(on_file(&directory)).unwrap();
    let store = server.mailstore();
    (0..MAILS).for_each(|number| deliver(&store, number, None));
    let live = server.log_usage().live_bytes as usize;
    assert!(live < BODY_BYTES + MAILS * 1000, "{live} bytes of {MAILS} mails");
    let first = list(&store, &inbox("c0@x.test"))[0].id;
    assert_eq!(ask(store.delete(&Scope::All, first)), Ok(true));
    (1..MAILS).for_each(|number| is_whole(&store, number, None));
    drain(server);
    // A body is shared within a segment only, so mails after the restart share a new copy.
    let server = Server::start(on_file(&directory)).unwrap();
    let store = server.mailstore();
    (MAILS..MAILS + 3).for_each(|number| deliver(&store, number, None));
    assert!(list(&store, &inbox("c0@x.test")).is_empty());
    (1..MAILS + 3).for_each(|number| is_whole(&store, number, None));
    drain(server);
}

#[test]
fn body_sharing_is_exact_and_optional() {
    for share_bodies in [true, false] {
        let server = Server::start(Config { share_bodies, ..config() }).unwrap();
        let store = server.mailstore();
        // Every code is sent twice.
        (0..100).for_each(|number| deliver(&store, number, Some(number / 2)));
        (0..100).for_each(|number| is_whole(&store, number, Some(number / 2)));
        let live = server.log_usage().live_bytes as usize;
        assert_eq!(live < 60 * (BODY_BYTES + 1000), share_bodies, "{live} bytes");
    }
}

#[test]
fn bodies_are_shared_within_a_segment_only() {
    // Some 1.6 MiB between two equal bodies, so that the segment of 16 MiB often changes between them.
    let server = Server::start(Config { cores: vec![first_processor()], ..config() }).unwrap();
    let store = server.mailstore();
    let filler = "x".repeat(800_000);
    for number in 0..60 {
        deliver(&store, number, None);
        let filler = format!("Subject: {number}\r\n\r\n{number}{filler}");
        ask(store.deliver(HERE, "", &["filler@x.test".to_owned()], filler.as_bytes())).unwrap();
    }
    (0..60).for_each(|number| is_whole(&store, number, None));
    assert_eq!(ask(store.delete_all(&inbox("filler@x.test"))), Ok(60));
    (0..60).for_each(|number| is_whole(&store, number, None));
}

#[test]
fn mails_gathered_at_start_keep_their_body() {
    let directory = tempfile::tempdir().unwrap();
    // Each run leaves a nearly empty segment; the next start gathers their records.
    for life in 0..12 {
        let server = Server::start(on_file(&directory)).unwrap();
        let store = server.mailstore();
        (0..3).for_each(|number| deliver(&store, 3 * life + number, None));
        let brought = list(&store, &inbox(&format!("c{}@x.test", 3 * life)))[0].id;
        assert_eq!(ask(store.delete(&Scope::All, brought)), Ok(true), "the mail that brought the body goes");
        for number in (0..=3 * life + 2).filter(|number| number % 3 > 0) {
            is_whole(&store, number, None);
        }
        assert_eq!(ask(store.count(&Scope::All)).unwrap(), 2 * (life as u64 + 1));
        drain(server);
    }
}
