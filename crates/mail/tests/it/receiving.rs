//! Receiving over real sockets: replies, stored mails, and mails restored by a restart.

use std::{io::Write, net::SocketAddr, sync::Arc, time::Duration};

use crate::common::{
    Client, HERE, ask, config, connect, drain, first_processor, greeted, inbox, list, subjects,
};
use mail::{
    CertificateSource, Config, Lists, Pair, Rates, Server,
    config::{Durability, Limits, Retention, Store},
    mailboxes::{Event, Mailboxes, Scope},
};

#[test]
fn an_accepted_mail_can_be_read() {
    let server = Server::start(config()).unwrap();
    let store = server.mailstore();
    let mut client = greeted(server.addresses().smtp);
    let reply =
        client.mail("Ann+shop@Example.org", "From: A <a@b>\r\nSubject: first\r\n\r\n..dots\r\n...\r\n");
    assert!(reply.starts_with("250 2.0.0 "), "{reply}");
    let listed = list(&store, &inbox("ann@example.org"));
    assert_eq!(listed.len(), 1);
    assert_eq!((&*listed[0].subject, &*listed[0].from), (&b"first"[..], &b"A <a@b>"[..]));
    assert_eq!(&*listed[0].envelope_from, "sender@client.test");
    assert!(reply.contains(&listed[0].id.to_string()), "the reply names the mail");
    let mail = ask(store.mail(listed[0].id)).unwrap().expect("it is there");
    assert_eq!(mail.summary, *listed[0]);
    assert_eq!(&*mail.recipients[0], "Ann+shop@Example.org");
    let raw = String::from_utf8(mail.raw.to_vec()).unwrap();
    assert!(
        raw.starts_with("Received: from client.test ([127.0.0.1])\r\n\tby mx.test with ESMTP id "),
        "{raw}"
    );
    assert!(raw.ends_with("Subject: first\r\n\r\n.dots\r\n..\r\n\r\n"), "{raw}");
    assert_eq!(mail.summary.size_bytes, raw.len() as u64);
    assert_eq!(ask(store.count(&Scope::All)).unwrap(), 1);
    assert_eq!(ask(store.delete(&Scope::All, listed[0].id)), Ok(true));
    assert_eq!(ask(store.delete(&Scope::All, listed[0].id)), Ok(false));
    assert!(ask(store.mail(listed[0].id)).unwrap().is_none());
    assert_eq!(ask(store.count(&Scope::All)).unwrap(), 0);
    client.expect("QUIT", "221 2.0.0");
    drain(server);
}

#[test]
fn ehlo_offers_what_is_there() {
    let server = Server::start(config()).unwrap();
    let mut client = connect(server.addresses().smtp);
    client.reply();
    assert_eq!(
        client.say("EHLO client.test"),
        "250-mx.test\r\n250-PIPELINING\r\n250-SIZE 1048576\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-CHUNKING\r\n\
         250-ENHANCEDSTATUSCODES\r\n250 AUTH PLAIN LOGIN\r\n"
    );
    client.expect("AUTH PLAIN AGEAYg==", "235 2.7.0");
    client.expect("HELO client.test", "250 mx.test");
}

/// Any web page can make a visitor's browser send a POST to this port, with a mail as its body: it is
/// refused.
#[test]
fn a_browsers_request_brings_no_mail() {
    let server = Server::start(config()).unwrap();
    let body = "EHLO evil.test\r\nMAIL FROM:<a@evil.test>\r\nRCPT TO:<ann@inbox.test>\r\nDATA\r\n\
                Subject: forged\r\n\r\n.\r\n";
    let requests = [
        format!("POST / HTTP/1.1\r\nHost: localhost:1025\r\nContent-Type: text/plain\r\n\r\n{body}"),
        format!("Host: localhost:1025\r\n\r\n{body}"),
    ];
    for (address, greeting) in [
        (server.addresses().smtp, "220 mx.test ESMTP"),
        (server.addresses().lmtp.unwrap(), "220 mx.test LMTP"),
    ] {
        for request in &requests {
            let mut browser = connect(address);
            browser.send(request.as_bytes());
            assert!(browser.reply().starts_with(greeting));
            let reply = browser.reply();
            assert!(reply.starts_with("421 4.7.0"), "{reply}");
            assert_eq!(browser.reply(), "", "nothing more is answered");
        }
    }
    assert!(list(&server.mailstore(), &Scope::All).is_empty());
    let metrics = engine::meter::prometheus::encode(&server.registry());
    assert!(metrics.contains("mail_http_requests_total 4"), "{metrics}");
    drain(server);
}

#[test]
fn pipelined_mails_are_answered_in_order() {
    let server = Server::start(config()).unwrap();
    let mut client = greeted(server.addresses().smtp);
    let mut text = Vec::new();
    for number in 0..50 {
        let body = format!("Subject: {number}\r\n\r\n.\r\n..x\r\n");
        write!(
            text,
            "MAIL FROM:<>\r\nRCPT TO:<a{}@inbox.test>\r\nBDAT {} LAST\r\n{body}",
            number % 3,
            body.len()
        )
        .unwrap();
    }
    text.extend_from_slice(b"NOOP\r\n");
    // Sent in pieces, as a network would deliver it.
    for part in text.chunks(777) {
        client.send(part);
    }
    let replies: Vec<String> = (0..151).map(|_| client.reply()).collect();
    for (number, reply) in replies.iter().enumerate() {
        let code = ["250 2.1.0", "250 2.1.5", "250 2.0.0"][number % 3];
        assert!(reply.starts_with(if number == 150 { "250 2.0.0 OK" } else { code }), "{number}: {reply}");
    }
    let expected: Vec<String> = (0..50).rev().filter(|n| n % 3 == 1).map(|n| n.to_string()).collect();
    assert_eq!(subjects(&server.mailstore(), &inbox("a1")), expected);
    assert_eq!(ask(server.mailstore().count(&Scope::All)).unwrap(), 50);
}

#[test]
fn recipients_share_a_mail_until_each_deletes_it() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        store: Store::File(directory.path().join("mail.store")),
        cores: vec![first_processor(); 2],
        ..config()
    };
    let server = Server::start(config.clone()).unwrap();
    let mut client = greeted(server.addresses().smtp);
    client.expect("MAIL FROM:<s@t.test>", "250");
    for name in ["a", "b", "c", "d", "e", "a+again", "A"] {
        client.expect(&format!("RCPT TO:<{name}@x.test>"), "250");
    }
    client.expect("DATA", "354");
    client.expect("Subject: to all\r\n\r\nx\r\n.", "250");
    let store = server.mailstore();
    let all = Scope::Prefix { local: "".into(), domain: "x.test".into() };
    // Another core may be a moment later.
    while list(&store, &all).len() < 5 {
        std::thread::yield_now();
    }
    let a = &list(&store, &inbox("a@x.test"))[0];
    let mail = ask(store.mail(a.id)).unwrap().unwrap();
    assert_eq!(mail.recipients.len(), 7, "all that were said");
    let (mail, ()) = ask(store.mail_into(&inbox("a@x.test"), a.id, ())).unwrap().unwrap();
    assert_eq!(
        mail.recipients.iter().map(|said| &**said).collect::<Vec<_>>(),
        ["a@x.test", "a+again@x.test", "A@x.test"]
    );
    assert_eq!(ask(store.delete(&inbox("a@x.test"), a.id)), Ok(true));
    assert_eq!(list(&store, &all).len(), 4);
    assert!(ask(store.mail_into(&inbox("a@x.test"), a.id, ())).unwrap().is_none());
    // Over all inboxes it is one mail, which keeps its id as long as one inbox has it.
    assert_eq!(
        list(&store, &Scope::All).iter().map(|mail| (mail.id, mail.inboxes)).collect::<Vec<_>>(),
        [(a.id, 5)]
    );
    assert_eq!(ask(store.count(&Scope::All)), Ok(1));
    drain(server);
    // Deleted mails stay deleted, and the other inboxes' mails stay.
    let server = Server::start(config.clone()).unwrap();
    let store = server.mailstore();
    let names: Vec<String> = list(&store, &all).iter().map(|mail| mail.inbox.local.to_string()).collect();
    assert_eq!(names.len(), 4);
    assert!(!names.contains(&"a".to_owned()));
    assert_eq!(list(&store, &Scope::All).iter().map(|mail| mail.id).collect::<Vec<_>>(), [a.id]);
    assert_eq!(ask(store.delete_all(&all)), Ok(4));
    drain(server);
    let server = Server::start(config).unwrap();
    assert_eq!(list(&server.mailstore(), &Scope::All), []);
    drain(server);
}

#[test]
fn a_restart_brings_back_only_live_mails() {
    for durability in [Durability::Process, Durability::Power] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mail.store");
        let config = Config { store: Store::File(path.clone()), durability, ..config() };
        let server = Server::start(config.clone()).unwrap();
        let mut client = greeted(server.addresses().smtp);
        for number in 0..20 {
            let reply =
                client.mail(&format!("r{}@inbox.test", number % 4), &format!("Subject: {number}\r\n\r\nx"));
            assert!(reply.starts_with("250"), "{reply}");
        }
        let store = server.mailstore();
        let before = list(&store, &Scope::All);
        assert_eq!(before.len(), 20);
        for mail in &before[..5] {
            assert_eq!(ask(store.delete(&Scope::All, mail.id)), Ok(true));
        }
        drain(server);
        let server = Server::start(config.clone()).unwrap();
        assert_eq!(server.recovered_mails(), 15);
        let store = server.mailstore();
        assert_eq!(list(&store, &Scope::All), before[5..]);
        let mail = ask(store.mail(before[19].id)).unwrap().unwrap();
        assert!(mail.raw.ends_with(b"Subject: 0\r\n\r\nx\r\n"));
        // A second process on the same file is refused, with the file's name.
        let error = Server::start(config.clone()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("mail.store"), "{error}");
        drain(server);
        // Mails past their age do not come back.
        let aged = Config {
            retention: Retention { age: Duration::from_millis(1), ..Retention::default() },
            ..config
        };
        let server = Server::start(aged).unwrap();
        assert_eq!(list(&server.mailstore(), &Scope::All), []);
        drain(server);
    }
}

#[test]
fn names_are_not_given_twice_over_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config { store: Store::File(directory.path().join("mail.store")), ..config() };
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        let server = Server::start(config.clone()).unwrap();
        for _ in 0..10 {
            let ids =
                ask(server.mailstore().deliver(HERE, "", &["x".to_owned()], b"Subject: x\r\n\r\n")).unwrap();
            assert!(seen.insert(ids[0]));
        }
        drain(server);
    }
}

#[test]
fn mails_go_by_age_and_by_count() {
    let age = Duration::from_millis(1500);
    let config = Config { retention: Retention { age, per_inbox_max: 3 }, ..config() };
    let server = Server::start(config).unwrap();
    let store = server.mailstore();
    let mut events = store.events();
    let mut client = greeted(server.addresses().smtp);
    for number in 0..5 {
        client.mail("a@inbox.test", &format!("Subject: {number}\r\n\r\nx"));
    }
    assert_eq!(subjects(&store, &inbox("a")), ["4", "3", "2"]);
    // Expired mails vanish from lists at once, and from the index soon after.
    while ask(store.count(&Scope::All)).unwrap() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(list(&store, &Scope::All), []);
    let (mut arrived, mut deleted) = (0, 0);
    while arrived < 5 || deleted < 5 {
        match events.blocking_recv().unwrap() {
            Event::Arrived(_) => arrived += 1,
            Event::Deleted { inbox, .. } => {
                assert_eq!(&*inbox.local, "a");
                deleted += 1;
            }
            Event::Over { .. } => panic!("each came into one inbox"),
            Event::Missed => panic!("nobody is behind"),
        }
    }
    drain(server);
}

#[test]
fn a_full_store_drops_its_oldest_mails() {
    // Each mail is stored whole, though their bodies are equal (`share_bodies` is off).
    let config = Config { store_bytes: 128 << 20, share_bodies: false, ..config() };
    let server = Server::start(config).unwrap();
    let store = server.mailstore();
    let body = format!("{}\r\n", "x".repeat(998)).repeat(900);
    let mut client = greeted(server.addresses().smtp);
    for number in 0..200 {
        let reply =
            client.mail(&format!("n{number}@inbox.test"), &format!("Subject: {number}\r\n\r\n{body}"));
        assert!(reply.starts_with("250"), "{number}: {reply}");
    }
    let left = subjects(&store, &Scope::All);
    assert!(left.len() > 50 && left.len() < 150, "{} are left", left.len());
    let newest: Vec<String> = (200 - left.len()..200).rev().map(|number| number.to_string()).collect();
    assert_eq!(left, newest, "the oldest went, in order");
    for mail in list(&store, &Scope::All).iter().rev().take(3) {
        // Space is freed ahead of need, so a mail may go meanwhile.
        let is_there = ask(store.mail(mail.id)).unwrap().is_some();
        let is_listed = || list(&store, &Scope::All).iter().any(|listed| listed.id == mail.id);
        assert!(is_there || !is_listed(), "what is listed can be read");
    }
    drain(server);
}

#[test]
fn lmtp_answers_for_each_recipient() {
    let server = Server::start(config()).unwrap();
    let mut client = connect(server.addresses().lmtp.unwrap());
    assert!(client.reply().starts_with("220 mx.test LMTP"));
    client.expect("EHLO x", "500 5.5.1");
    client.expect("LHLO x", "250-mx.test");
    client.expect("MAIL FROM:<>", "250");
    client.expect("RCPT TO:<a@inbox.test>", "250");
    client.expect("RCPT TO:<a b@inbox.test>", "501");
    client.expect("RCPT TO:<b@inbox.test>", "250");
    client.expect("DATA", "354");
    client.expect("Subject: x\r\n\r\nx\r\n.", "250 2.0.0");
    assert!(client.reply().starts_with("250 2.0.0"), "one for each accepted recipient");
    client.expect("QUIT", "221");
    let store = server.mailstore();
    for name in ["a", "b"] {
        assert_eq!(ask(store.count(&inbox(name))).unwrap(), 1, "{name}");
    }
    assert_eq!(ask(store.count(&Scope::All)).unwrap(), 1);
}

#[test]
fn addresses_beyond_ascii_need_smtputf8() {
    let server = Server::start(config()).unwrap();
    let mut client = greeted(server.addresses().smtp);
    client.expect("MAIL FROM:<ü@x.test>", "553 5.6.7");
    client.expect("MAIL FROM:<ü@x.test> SMTPUTF8", "250");
    client.expect("RCPT TO:<Ünal@bücher.example>", "250");
    client.expect("DATA", "354");
    client.expect("Subject: Grüße\r\n\r\nx\r\n.", "250");
    assert_eq!(subjects(&server.mailstore(), &inbox("ünal@xn--bcher-kva.example")), ["Grüße"]);
}

#[test]
fn what_is_too_large_is_refused_early() {
    let server = Server::start(config()).unwrap();
    let mut client = greeted(server.addresses().smtp);
    client.expect("MAIL FROM:<a@b.test> SIZE=1048577", "552 5.3.4");
    client.expect("MAIL FROM:<a@b.test> SIZE=1048576", "250");
    client.expect("RCPT TO:<a@inbox.test>", "250");
    client.expect("DATA", "354");
    // Half a gigabyte, if it were read to its end; the server closes long before.
    let line = [b'x'; 64 << 10];
    let mut sent = 0;
    while sent < 512 << 20 && client.stream.get_mut().write_all(&line).is_ok() {
        sent += line.len();
    }
    assert!(sent < 64 << 20, "{sent} bytes were taken");
    let mut client = greeted(server.addresses().smtp);
    client.expect("MAIL FROM:<a@b.test>", "250");
    client.expect("RCPT TO:<a@inbox.test>", "250");
    client.expect("BDAT 1048577", "552 5.3.4");
    assert_eq!(client.reply(), "", "closed: its bytes would have come");
    assert_eq!(ask(server.mailstore().count(&Scope::All)).unwrap(), 0);
}

#[test]
fn too_many_bad_lines_end_the_session() {
    let server = Server::start(config()).unwrap();
    let mut client = greeted(server.addresses().smtp);
    client.send(b"NOOP\nNO\rOP\r\nNO\0OP\r\nNO\xffOP\r\n");
    for code in ["500 5.5.2"; 4] {
        assert!(client.reply().starts_with(code));
    }
    // A line of ten megabytes is one error, and takes no memory.
    for _ in 0..160 {
        client.send(&[b'x'; 64 << 10]);
    }
    client.expect("", "500 5.5.6");
    client.expect("NOOP", "250");
    for _ in 0..44 {
        client.expect("FOO", "500");
    }
    client.expect("FOO", "421 4.7.0");
    assert_eq!(client.reply(), "");
}

#[test]
fn a_mail_that_breaks_off_leaves_nothing() {
    let server = Server::start(config()).unwrap();
    let mut client = greeted(server.addresses().smtp);
    client.expect("MAIL FROM:<a@b.test>", "250");
    client.expect("RCPT TO:<a@inbox.test>", "250");
    client.expect("DATA", "354");
    client.send(b"Subject: half\r\n\r\nhalf a mail\r\n.\r");
    drop(client);
    let mut client = greeted(server.addresses().smtp);
    client.expect("NOOP", "250");
    drain(server);
}

#[test]
fn only_listed_domains_are_accepted() {
    let config = Config { domains: vec!["here.test".to_owned()], ..config() };
    let server = Server::start(config).unwrap();
    let mut client = greeted(server.addresses().smtp);
    client.expect("MAIL FROM:<a@b.test>", "250");
    client.expect("RCPT TO:<a@elsewhere.test>", "550 5.7.1");
    client.expect("RCPT TO:<a@Here.test>", "250");
}

#[test]
fn silent_and_drained_sessions_get_421() {
    let limits = Limits { command_time_max: Duration::from_millis(100), ..config().limits };
    let server = Server::start(Config { limits, ..config() }).unwrap();
    let mut client = connect(server.addresses().smtp);
    client.reply();
    assert!(client.reply().starts_with("421 4.4.2"));
    assert_eq!(client.reply(), "");
    drain(server);

    let server = Server::start(config()).unwrap();
    let mut idle = greeted(server.addresses().smtp);
    let mut busy = greeted(server.addresses().smtp);
    busy.expect("MAIL FROM:<a@b.test>", "250");
    busy.expect("RCPT TO:<a@inbox.test>", "250");
    busy.expect("DATA", "354");
    let draining = std::thread::spawn(move || drain(server));
    assert!(idle.reply().starts_with("421 4.3.2"), "nothing had begun");
    assert!(!draining.is_finished());
    busy.send(b"Subject: x\r\n\r\nx\r\n.\r\n");
    assert!(busy.reply().starts_with("250"), "what had begun is finished");
    assert!(busy.reply().starts_with("421 4.3.2"));
    drop((idle, busy));
    draining.join().unwrap();
}

#[test]
fn the_proxy_says_who_the_peer_is() {
    let server = Server::start(Config { proxy_protocol: true, ..config() }).unwrap();
    let mut client = connect(server.addresses().smtp);
    client.send(b"PROXY TCP4 192.0.2.7 127.0.0.1 4000 25\r\n");
    assert!(client.reply().starts_with("220"));
    client.expect("EHLO x", "250");
    client.mail("a@inbox.test", "Subject: x\r\n\r\n");
    let store = server.mailstore();
    let mail = ask(store.mail(list(&store, &inbox("a"))[0].id)).unwrap().unwrap();
    assert!(String::from_utf8_lossy(&mail.raw).starts_with("Received: from x ([192.0.2.7])"));
    let mut client = connect(server.addresses().smtp);
    client.send(b"EHLO there is no proxy\r\n");
    assert_eq!(client.reply(), "", "closed");
}

/// A certificate for mx.test, and a client that trusts it.
fn tls(directory: &std::path::Path) -> (Pair, Arc<rustls::ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["mx.test".to_owned()]).unwrap();
    let tls = Pair { certificates: directory.join("cert.pem"), key: directory.join("key.pem"), ocsp: None };
    std::fs::write(&tls.certificates, made.cert.pem()).unwrap();
    std::fs::write(&tls.key, made.signing_key.serialize_pem()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(engine::tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (tls, Arc::new(client))
}

type TlsClient = Client<rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream>>;

fn over_tls(stream: std::net::TcpStream, client: &Arc<rustls::ClientConfig>) -> TlsClient {
    let connection =
        rustls::ClientConnection::new(Arc::clone(client), "mx.test".try_into().unwrap()).unwrap();
    Client { stream: std::io::BufReader::new(rustls::StreamOwned::new(connection, stream)) }
}

#[test]
fn tls_begins_by_starttls_or_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (tls, trusting) = tls(directory.path());
    let free = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server =
        Server::start(Config { tls: Some(CertificateSource::Pair(tls)), smtps: free, ..config() }).unwrap();
    let mut client = connect(server.addresses().smtp);
    client.reply();
    assert!(client.say("EHLO x").contains("250-STARTTLS\r\n"));
    // A command sent in the clear behind STARTTLS must not count inside TLS.
    client.send(b"STARTTLS\r\nMAIL FROM:<injected@b.test>\r\n");
    assert!(client.reply().starts_with("220 2.0.0"));
    let mut client = over_tls(client.stream.into_inner(), &trusting);
    client.expect("MAIL FROM:<a@b.test>", "503");
    let ehlo = client.say("EHLO x");
    assert!(ehlo.starts_with("250-mx.test") && !ehlo.contains("STARTTLS"), "{ehlo}");
    assert!(client.mail("t@inbox.test", "Subject: by starttls\r\n\r\nx").starts_with("250"));
    let stream = std::net::TcpStream::connect(server.addresses().smtps.unwrap()).unwrap();
    let mut client = over_tls(stream, &trusting);
    assert!(client.reply().starts_with("220 mx.test"));
    client.expect("EHLO x", "250");
    let body = "y".repeat(500_000);
    assert!(client.mail("t@inbox.test", &format!("Subject: at once\r\n\r\n{body}")).starts_with("250"));
    let store = server.mailstore();
    assert_eq!(subjects(&store, &inbox("t")), ["at once", "by starttls"]);
    let mail = ask(store.mail(list(&store, &inbox("t"))[0].id)).unwrap().unwrap();
    assert!(String::from_utf8_lossy(&mail.raw[..200]).contains("with ESMTPS id"));
    // A missing certificate file gives one clear error.
    let broken = Pair {
        certificates: directory.path().join("none.pem"),
        key: directory.path().join("key.pem"),
        ocsp: None,
    };
    let error = Server::start(Config { tls: Some(CertificateSource::Pair(broken)), ..config() })
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(error.contains("none.pem"), "{error}");
}

#[test]
fn rates_and_lists_keep_the_service_usable() {
    let rates = Rates { inbox_mails_per_minute: 4, subject_mails_per_minute: 6, ..Rates::default() };
    let lists = Lists::parse("sender @spam.test\nword casino\n").unwrap();
    let server = Server::start(Config { rates, lists, ..config() }).unwrap();
    let mut client = greeted(server.addresses().smtp);
    client.expect("MAIL FROM:<x@spam.test>", "550 5.7.1");
    let reply = client.mail("a@inbox.test", "Subject: the Casino!\r\n\r\n");
    assert!(reply.starts_with("554 5.7.1"), "{reply}");
    // Half a minute's worth may come at once: two mails to an inbox (one was counted), three mails of a
    // subject.
    assert!(client.mail("a@inbox.test", "Subject: s\r\n\r\n").starts_with("250"));
    client.expect("MAIL FROM:<a@b.test>", "250");
    client.expect("RCPT TO:<a@inbox.test>", "450 4.2.1");
    client.expect("RSET", "250");
    assert!(client.mail("b@inbox.test", "Subject: s\r\n\r\n").starts_with("250"));
    assert!(client.mail("c@inbox.test", "Subject: s\r\n\r\n").starts_with("250"));
    assert!(client.mail("d@inbox.test", "Subject: s\r\n\r\n").starts_with("450 4.7.1"));
    assert!(server.set_lists(Lists::parse("address 127.0.0.0/8\n").unwrap()));
    // The core gets the new lists with its next messages.
    let banned = loop {
        let mut client = connect(server.addresses().smtp);
        let reply = client.reply();
        if !reply.starts_with("220") {
            break reply;
        }
    };
    assert!(banned.starts_with("554 5.7.1"), "{banned}");
}

#[test]
fn a_campaign_is_known_by_its_text() {
    let rates = Rates { campaign_mails_per_minute: 10, ..Rates::default() };
    let server = Server::start(Config { rates, ..config() }).unwrap();
    let mut client = greeted(server.addresses().smtp);
    let text = |code: u32| {
        format!(
            "Subject: your code {code}\r\n\r\nYour one-time code for the night train is {code}. It is valid for ten minutes. \
             Do not give it to anybody, not even to the conductor of the train."
        )
    };
    let replies: Vec<String> =
        (0..8).map(|number| client.mail(&format!("i{number}@inbox.test"), &text(1000 + number))).collect();
    let accepted = replies.iter().filter(|reply| reply.starts_with("250")).count();
    assert_eq!(accepted, 5, "{replies:?}");
    assert!(replies[5].starts_with("450 4.7.1"), "{}", replies[5]);
    let other = "Subject: x\r\n\r\nThe quick brown fox jumps over the lazy dog while five boxing wizards jump quickly again";
    assert!(client.mail("other@inbox.test", other).starts_with("250"));
    // Each mail of the campaign keeps the text in which it differs.
    assert_eq!(subjects(&server.mailstore(), &inbox("i3")), ["your code 1003"]);
}

/// Connects from an address of the loopback network; returns the greeting and the client.
fn greeting_of(from: [u8; 4], to: SocketAddr) -> (String, Client<std::net::TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = std::net::TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut client = Client { stream: std::io::BufReader::new(stream) };
    (client.reply(), client)
}

fn counted(server: &Server, name: &str) -> String {
    let text = engine::meter::prometheus::encode(&server.registry());
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(str::to_owned).unwrap_or_default()
}

#[test]
fn frequent_connections_are_delayed_then_refused() {
    let tarpit = Duration::from_millis(300);
    // Half a minute's worth may come at once: four connections; the third and fourth are near the rate.
    let rates = Rates { connections_per_minute: 8, tarpit, ..Rates::default() };
    let server = Server::start(Config { rates, ..config() }).unwrap();
    let smtp = server.addresses().smtp;
    let mut late = 0;
    for number in 0..6 {
        let begun_ms = engine::cores::clock::monotonic_ms();
        let (greeting, _client) = greeting_of([127, 0, 0, 1], smtp);
        // The clock advances in steps of up to 10 ms.
        let is_late = engine::cores::clock::monotonic_ms() - begun_ms >= 280;
        match number {
            0 | 1 => assert!(greeting.starts_with("220 "), "{number}: {greeting}"),
            2 | 3 => {
                assert!(greeting.starts_with("220 ") && is_late, "{number}: {greeting}");
                late += 1;
            }
            _ => assert!(greeting.starts_with("421 4.7.0 Too many connections"), "{number}: {greeting}"),
        }
        // Another address has its own rate.
        if number == 0 || number == 5 {
            assert!(greeting_of([127, 0, 0, 2], smtp).0.starts_with("220 "));
        }
    }
    assert_eq!(counted(&server, "mail_tarpitted_total"), late.to_string());
    assert_eq!(counted(&server, "mail_rate_connections_total"), "2");
}

#[test]
fn the_tarpit_delays_sessions_near_their_rate() {
    let tarpit = Duration::from_millis(100);
    let rates = Rates { mails_per_minute: 8, tarpit, ..Rates::default() };
    let server = Server::start(Config { rates, ..config() }).unwrap();
    let mut client = greeted(server.addresses().smtp);
    for number in 0..4 {
        let begun_ms = engine::cores::clock::monotonic_ms();
        let reply = client.mail("a@inbox.test", &format!("Subject: {number}\r\n\r\n"));
        assert!(reply.starts_with("250"), "{number}: {reply}");
        assert!(
            number < 2 || engine::cores::clock::monotonic_ms() - begun_ms >= 100,
            "{number} came at once"
        );
    }
    client.expect("MAIL FROM:<sender@client.test>", "450 4.7.1");
    // The session goes on, and another address has its own rate.
    client.expect("NOOP", "250");
    let (_, mut other) = greeting_of([127, 0, 0, 2], server.addresses().smtp);
    other.expect("EHLO other.test", "250");
    assert!(other.mail("a@inbox.test", "Subject: other\r\n\r\n").starts_with("250"));
    assert_eq!(subjects(&server.mailstore(), &inbox("a")), ["other", "3", "2", "1", "0"]);
    assert_eq!(counted(&server, "mail_tarpitted_total"), "2");
    assert_eq!(counted(&server, "mail_rate_mails_total"), "1");
}

#[test]
fn too_many_connections_are_told_so() {
    let limits = Limits { connections_per_address_max: Some(2), ..config().limits };
    let server = Server::start(Config { limits, ..config() }).unwrap();
    let _first = greeted(server.addresses().smtp);
    let second = greeted(server.addresses().smtp);
    assert!(connect(server.addresses().smtp).reply().starts_with("421 4.7.0"));
    drop(second);
    while !connect(server.addresses().smtp).reply().starts_with("220") {}
}
