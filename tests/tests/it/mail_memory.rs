//! Memory that mails needed at a peak is returned to the kernel within a minute.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use tests::{
    connections::connect_from,
    mail::{MailService, Smtp},
};

const MIB: u64 = 1 << 20;
/// Most unused memory that may still be resident after [`GIVEN_BACK`].
const STAYS_MAX: u64 = 64 * MIB;
const GIVEN_BACK: Duration = Duration::from_secs(60);
/// Least peak of memory; a lower one would prove nothing.
const NEEDED_MIN: u64 = 100 * MIB;
/// Time in which the server must have read enough to reach [`NEEDED_MIN`].
const NEEDED_WITHIN: Duration = Duration::from_secs(30);

/// Anonymous memory: resident pages that belong to no file.
fn anonymous_bytes(mail: &MailService) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", mail.id())).expect("it runs");
    let field = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("of Linux");
    field.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Address of one of eight clients, enough that their shares of memory together reach `NEEDED_MIN`.
fn client(number: u8) -> [u8; 4] {
    [127, 0, 0, 10 + number % 8]
}

/// Starts a mail, sends `bytes` bytes of it, and leaves it unfinished.
fn half_a_mail(mail: &MailService, from: [u8; 4], bytes: usize) -> Smtp {
    let stream = connect_from(from, mail.smtp).expect("it listens");
    let mut client = Smtp::over(stream).expect("it greets");
    client.say("MAIL FROM:<a@b.example>\r\n").expect("it answers");
    client.say("RCPT TO:<large@b.example>\r\n").expect("it answers");
    client.say("DATA\r\n").expect("it answers");
    let line = [&[b'x'; 998][..], b"\r\n"].concat();
    client.send(&line.repeat(bytes / line.len())).expect("it reads");
    client
}

/// Requests a page and does not read it.
fn unread(mail: &MailService, from: [u8; 4], path: &str) -> TcpStream {
    let mut stream = connect_from(from, mail.http).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    // The answer has begun.
    stream.read_exact(&mut [0; 12]).expect("it answers");
    stream
}

#[test]
fn the_memory_of_closed_connections_is_given_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let mail = MailService::with_store(&directory.path().join("mail.store"), &[]);
    // One sizeable mail per core, and one page: memory that a service in use needs anyway.
    let mut sender = Smtp::greeted(mail.smtp).expect("it greets");
    let large = "x".repeat(4 << 20);
    for inbox in 0..8 {
        let text = format!("Subject: {inbox}\r\n\r\n{large}");
        assert!(sender.mail(&format!("a{inbox}@b.example"), &text).expect("it answers"));
    }
    let id = {
        let list = mail.get("/api/v2/domains/b.example/inboxes/a0");
        let json: serde_json::Value = serde_json::from_str(&list).expect("JSON");
        json["msgs"][0]["id"].as_str().expect("a name").to_owned()
    };
    // MailHog's answer is built whole in memory, twice the mail's size, unlike the raw source.
    let path = format!("/mailhog/api/v1/messages/{id}");
    mail.get(&path);
    let before = anonymous_bytes(&mail);
    let mut most = before;
    for _ in 0..2 {
        let senders: Vec<_> = (0..400_u16).map(|n| half_a_mail(&mail, client(n as u8), 240 << 10)).collect();
        let readers: Vec<_> = (0..48).map(|n| unread(&mail, client(n), &path)).collect();
        // The senders' bytes are in the socket buffers at first.
        let begun = Instant::now();
        while most < before + NEEDED_MIN && begun.elapsed() < NEEDED_WITHIN {
            most = most.max(anonymous_bytes(&mail));
            thread::sleep(Duration::from_millis(20));
        }
        drop((senders, readers));
    }
    assert!(most >= before + NEEDED_MIN, "it needed {} MiB, which proves nothing", (most - before) / MIB);
    let begun = Instant::now();
    loop {
        let now = anonymous_bytes(&mail);
        if now <= before + STAYS_MAX {
            break;
        }
        let waited = begun.elapsed();
        assert!(
            waited < GIVEN_BACK,
            "{} MiB before, {} at most, {} after {waited:?}",
            before / MIB,
            most / MIB,
            now / MIB
        );
        thread::sleep(Duration::from_millis(100));
    }
    mail.stop();
}
