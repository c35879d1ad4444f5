//! kill -9 at random points under load: after the restart each mail that was answered with 250 is there and
//! whole, and no half mail is.
//!
//! `MAIL_CRASHES=50` is the full run; the suite does a few crashes.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use tests::mail::{MailService, Smtp};

const SENDERS: u64 = 4;
const INBOXES: u64 = 40;

/// Text of a mail; its body follows from its number, and is from a few bytes to more than one read long.
fn text(number: u64) -> String {
    let lines = (number * 7919) % 400;
    let mut text = format!("Subject: {number}\r\n\r\n");
    for line in 0..lines {
        text.push_str(&format!("{number} {line} ......................................................\r\n"));
    }
    text.push_str("the end");
    text
}

/// Sends mails until the server is gone; returns the numbers of those that were answered with 250.
fn send(address: SocketAddr, next: &AtomicU64, acknowledged: &AtomicU64) -> Vec<u64> {
    let mut sent = Vec::new();
    let Ok(mut client) = Smtp::greeted(address) else { return sent };
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        match client.mail(&format!("c{}@localhost", number % INBOXES), &text(number)) {
            Ok(true) => {
                sent.push(number);
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Ok(false) => panic!("mail {number} was refused"),
            Err(_) => return sent,
        }
    }
}

#[test]
fn what_got_its_250_survives_kill_9() {
    let crashes: u64 = std::env::var("MAIL_CRASHES").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("mail.store");
    // 50 crashes leave 45 MB in the store, more than eight segments hold beside those that are open or kept
    // free.
    let start = || MailService::with_store_of("512MiB", &store, &["--inbox-mails-max", "100000"]);
    let next = Arc::new(AtomicU64::new(0));
    let mut acknowledged: BTreeSet<u64> = BTreeSet::new();
    for crash in 0..crashes {
        let service = start();
        let count = Arc::new(AtomicU64::new(0));
        let address = service.smtp;
        let senders: Vec<_> = (0..SENDERS)
            .map(|_| {
                let (next, count) = (Arc::clone(&next), Arc::clone(&count));
                thread::spawn(move || send(address, &next, &count))
            })
            .collect();
        // Each kill happens at another point of the load.
        while count.load(Ordering::Relaxed) < 20 + (crash * 37) % 61 {
            thread::yield_now();
        }
        service.kill();
        for sender in senders {
            acknowledged.extend(sender.join().unwrap());
        }
    }
    let service = start();
    let mut client = Smtp::greeted(service.smtp).unwrap();
    assert!(client.mail("after@localhost", "Subject: x\r\n\r\nx").unwrap(), "it goes on");
    let mut found = BTreeSet::new();
    for inbox in 0..INBOXES {
        for (id, subject) in listed(&service, inbox) {
            let number: u64 = subject.parse().unwrap();
            assert!(number < next.load(Ordering::Relaxed) && number % INBOXES == inbox);
            assert!(found.insert(number), "{number} is there once");
            let raw = service.get(&format!("/inbox/c{inbox}@localhost/{id}/raw"));
            let expected = format!("{}\r\n", text(number));
            assert!(raw.ends_with(&expected), "mail {number} is whole");
        }
    }
    let lost: Vec<_> = acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), acknowledged.len());
    service.stop();
}

/// Id and subject of all mails of an inbox.
fn listed(service: &MailService, inbox: u64) -> Vec<(String, String)> {
    let mut all = Vec::new();
    loop {
        let path = format!("/api/v2/domains/public/inboxes/c{inbox}?limit=99&skip={}", all.len());
        let json: serde_json::Value = serde_json::from_str(&service.get(&path)).unwrap();
        let page = json["msgs"].as_array().unwrap();
        if page.is_empty() {
            return all;
        }
        let text = |mail: &serde_json::Value, key: &str| mail[key].as_str().unwrap().to_owned();
        all.extend(page.iter().map(|mail| (text(mail, "id"), text(mail, "subject"))));
    }
}
