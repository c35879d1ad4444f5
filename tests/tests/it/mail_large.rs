//! Mails of all sizes from a third-party client, the memory that they take while they are received, and a
//! kill in the middle of them.
//!
//! `MAIL_LARGE=1` also sends mails that take minutes and gigabytes.

use std::{
    fs,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use tests::{
    mail::{MailService, Smtp},
    node::{python, source_tree, succeeds},
};

const MIB: usize = 1 << 20;

fn is_thorough() -> bool {
    std::env::var_os("MAIL_LARGE").is_some()
}

fn smtplib(service: &MailService, sizes: &[usize], too_large: usize) -> String {
    let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    succeeds(
        Command::new(python())
            .arg(source_tree().join("tests/clients/large_mails.py"))
            .env("MAIL_SMTP", service.smtp.to_string())
            .env("MAIL_URL", format!("http://{}", service.http))
            .env("MAIL_SIZES", sizes.join(","))
            .env("MAIL_TOO_LARGE", too_large.to_string()),
    )
}

#[test]
fn mails_up_to_the_default_limit_return_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("mail.store");
    let service = MailService::with_store_of("256MiB", &store, &["--domain", "night.test"]);
    let sizes = [1 << 10, 15 * MIB - 1, 15 * MIB, 15 * MIB + 1, 25 * MIB];
    assert_eq!(smtplib(&service, &sizes, 25 * MIB + 2048).trim(), format!("ok {} 5", 25 * MIB));
    service.stop();
}

#[test]
fn a_larger_limit_permits_mails_of_200_mib() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("mail.store");
    let flags = ["--domain", "night.test", "--mail-bytes-max", "256MiB"];
    let service = MailService::with_store_of("1GiB", &store, &flags);
    let sizes =
        if is_thorough() { vec![28 * MIB, 200 * MIB, 256 * MIB - 4096] } else { vec![28 * MIB, 60 * MIB] };
    let too_large = if is_thorough() { 257 * MIB } else { 0 };
    if too_large > 0 {
        assert!(smtplib(&service, &sizes, too_large).starts_with("ok 268435456"));
    } else {
        // The mail is refused by its declared SIZE alone.
        let mut client = Smtp::greeted(service.smtp).unwrap();
        assert!(client.say("MAIL FROM:<a@b.test> SIZE=268435457\r\n").unwrap().starts_with("552"));
        for (number, size) in sizes.iter().enumerate() {
            let text = format!("Subject: {number}\r\n\r\n{}", "night train\r\n".repeat(size / 13));
            assert!(client.mail(&format!("a{number}@night.test"), &text).unwrap());
            let raw = raw_of(&service, &format!("a{number}"));
            assert!(raw.ends_with(&format!("{text}\r\n")), "{size}");
        }
    }
    service.stop();
}

fn raw_of(service: &MailService, inbox: &str) -> String {
    let list = service.get(&format!("/inbox/{inbox}@night.test/api/v1/messages"));
    let json: serde_json::Value = serde_json::from_str(&list).unwrap();
    let id = json["messages"][0]["ID"].as_str().unwrap();
    service.get(&format!("/inbox/{inbox}@night.test/{id}/raw"))
}

/// Anonymous memory: resident pages that belong to no file.
fn anonymous_bytes(service: &MailService) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.id())).unwrap();
    let field = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    field.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Twenty large mails at once take the log's buffers (five segments, which any mail needs) and, for each
/// mail, what a small mail may take.
#[test]
fn concurrent_large_mails_use_no_more_memory() {
    const CLIENTS: usize = 20;
    const EACH_MAX: u64 = 1 << 20;
    const BUFFERS: u64 = 5 * (16 << 20);
    let bytes = if is_thorough() { 100 * MIB } else { 12 * MIB };
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("mail.store");
    let size = if is_thorough() { "10GiB" } else { "1GiB" };
    let service =
        Arc::new(MailService::with_store_of(size, &store, &["--mail-bytes-max", "128MiB", "--cores", "0"]));
    let before = anonymous_bytes(&service);
    let (most, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let watching = {
        let (service, most, done) = (Arc::clone(&service), Arc::clone(&most), Arc::clone(&done));
        thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(anonymous_bytes(&service), Ordering::Relaxed);
                thread::yield_now();
            }
        })
    };
    let address = service.smtp;
    let senders: Vec<_> = (0..CLIENTS)
        .map(|number| {
            thread::spawn(move || {
                let mut client = Smtp::greeted(address).unwrap();
                let text = format!("Subject: {number}\r\n\r\n{}", "night train\r\n".repeat(bytes / 13));
                client.mail(&format!("c{number}@localhost"), &text).unwrap()
            })
        })
        .collect();
    let taken = senders.into_iter().map(|sender| sender.join().unwrap()).filter(|taken| *taken);
    assert_eq!(taken.count(), CLIENTS);
    done.store(true, Ordering::Relaxed);
    watching.join().unwrap();
    let needed = most.load(Ordering::Relaxed).saturating_sub(before);
    println!("{CLIENTS} mails of {} MiB: {} MiB", bytes / MIB, needed >> 20);
    assert!(needed <= BUFFERS + CLIENTS as u64 * EACH_MAX, "{} MiB", needed >> 20);
    assert!(service.counted("mail_parts_total") >= (CLIENTS * bytes / (512 << 10)) as f64);
}

/// kill -9 in the middle of large mails: each mail that was answered with 250 is there and whole, and no
/// other is.
#[test]
fn acknowledged_large_mails_survive_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("mail.store");
    let start = || MailService::with_store_of("1GiB", &store, &["--domain", "night.test"]);
    let text = |number: u64| {
        let line = format!("{number} night train\r\n");
        let lines = (300 << 10) / line.len() * (1 + number as usize % 9);
        format!("Subject: {number}\r\n\r\n{}the end", line.repeat(lines))
    };
    let mut acknowledged = Vec::new();
    let next = Arc::new(AtomicU64::new(0));
    let crashes = if is_thorough() { 20 } else { 3 };
    for crash in 0..crashes {
        let service = start();
        let address = service.smtp;
        let count = Arc::new(AtomicU64::new(0));
        let senders: Vec<_> = (0..3)
            .map(|_| {
                let (next, count) = (Arc::clone(&next), Arc::clone(&count));
                thread::spawn(move || {
                    let mut sent = Vec::new();
                    let Ok(mut client) = Smtp::greeted(address) else { return sent };
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        match client.mail(&format!("n{number}@night.test"), &text(number)) {
                            Ok(true) => sent.push(number),
                            Ok(false) => panic!("mail {number} was refused"),
                            Err(_) => return sent,
                        }
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        while count.load(Ordering::Relaxed) < 6 + crash {
            thread::yield_now();
        }
        service.kill();
        for sender in senders {
            acknowledged.extend(sender.join().unwrap());
        }
    }
    let service = start();
    for number in 0..next.load(Ordering::Relaxed) {
        let list = service.get(&format!("/inbox/n{number}@night.test/api/v1/messages"));
        let json: serde_json::Value = serde_json::from_str(&list).unwrap();
        let count = json["messages"].as_array().unwrap().len();
        if acknowledged.contains(&number) {
            assert_eq!(count, 1, "mail {number} got its 250");
        }
        if count == 1 {
            assert!(
                raw_of(&service, &format!("n{number}")).ends_with(&format!("{}\r\n", text(number))),
                "{number}"
            );
        }
    }
    service.stop();
}
