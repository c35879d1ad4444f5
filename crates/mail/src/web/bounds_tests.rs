//! Tests of the limits on what one client may use, and of which flags and events a client may see, over real
//! sockets.

use std::{
    io::{BufReader, Write},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{
    Config,
    tests::{PATIENCE, Site, next_event},
};
use crate::{
    mailbox::mailboxes::{Event, Inbox, Mailboxes, Scope, Summary},
    render::cut,
};

/// HTML over a limit is shown as text; one tag with 60,000 attributes once blocked the server for 11 s.
#[test]
fn oversized_html_is_shown_as_text() {
    let site = Site::new();
    let attributes: String = (0..60_000).map(|n| format!(" a{n}=1")).collect();
    let id = site.deliver(
        "ann",
        &format!("Content-Type: text/html\r\n\r\n<p{attributes}>Your <b>code</b> is 493021\r\n"),
    );
    let base = format!("/inbox/ann@night.test/{id}");
    for view in ["", "/html"] {
        let page = site.page(&format!("{base}{view}"));
        assert!(
            page.contains("The HTML of this mail is not shown: a tag has more than 256 attributes."),
            "{page}"
        );
        assert!(page.contains("Your code is 493021") && !page.contains("<iframe"), "{page}");
    }
    let frame = site.get(&format!("{base}/frame"));
    assert!(frame.body.contains("<pre style=\"white-space:pre-wrap\">") && frame.body.contains("493021"));
    assert!(site.get(&format!("/inbox/ann@night.test/view/{id}.html")).body.contains("493021"));
    let found = site.get("/api/v2/domains/public/inboxes/ann/wait").json();
    assert_eq!(found["codes"], json!(["493021"]));
    assert!(site.counts("mail_web_render_over_total 2"));
}

/// A forged event with the real ID of another inbox's mail does not disclose that mail.
#[test]
fn no_event_brings_another_inboxs_mail() {
    let site = Site::new();
    let secret = site.deliver("ben", "Subject: secret\r\n\r\nsecret\r\n");
    let false_event = |site: &Site| {
        let mails = site.twin.clone();
        let list = futures_util::FutureExt::now_or_never(mails.list(&Scope::All, 0, 10));
        let listed = list.unwrap().unwrap();
        let told = listed.iter().find(|summary| summary.id.to_string() == secret).unwrap();
        let inbox = Inbox::of("ann", "night.test").unwrap();
        site.twin.send_event(Event::Arrived(Arc::new(Summary { inbox, ..(**told).clone() })));
    };
    let inbox = "/api/v2/domains/public/inboxes/ann";
    for asked in ["wait?timeout=30s", "wait?timeout=30s&subject=secret", "wait?timeout=30s&text=secret"] {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| site.get(&format!("{inbox}/{asked}")));
            site.until("mail_web_listeners 1.0");
            false_event(&site);
            let own = site.deliver("ann", "Subject: own, not secret\r\n\r\nnot secret\r\n");
            let found = waiting.join().unwrap().json();
            assert_eq!((&found["id"], &found["to"]), (&json!(own), &json!("ann")), "{asked}");
            site.ask("DELETE", inbox, &[], "");
        });
        site.until("mail_web_listeners 0.0");
    }
    let answer = site.agent.get(site.url("/api/v2/domains/public/stream/ann?full=true")).call().unwrap();
    let mut stream = BufReader::new(answer.into_body().into_reader());
    false_event(&site);
    site.deliver("ann", "Subject: own\r\n\r\n");
    let (told, _) = next_event(&mut stream, "");
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["subject"], "own");
}

/// Tags, the list of tag names, and read flags are visible only to clients that may see the mail's inbox.
#[test]
fn tags_and_read_flags_respect_inbox_access() {
    let site = Site::new();
    let (ann, ben) = (site.deliver("ann", "Subject: a\r\n\r\n"), site.deliver("ben", "Subject: b\r\n\r\n"));
    let of = |local: &str, path: &str| format!("/inbox/{local}@night.test/api/v1/{path}");
    let tag = |local: &str, id: &str, name: &str| {
        site.ask("PUT", &of(local, "tags"), &[], &json!({ "IDs": [id], "Tags": [name] }).to_string())
    };
    assert_eq!(tag("ann", &ann, "plan").status, 200);
    assert_eq!(tag("ben", &ben, "Takeover of Example Inc.").status, 200);
    site.get(&of("ben", &format!("message/{ben}")));
    for path in ["tags", "messages", "info", "search?query=subject:a"] {
        let said = site.get(&of("ann", path)).body;
        assert!(said.contains("plan") && !said.contains("Takeover"), "{path}: {said}");
    }
    let counts = site.get(&of("ann", "messages")).json();
    assert_eq!((&counts["unread"], &counts["total"]), (&json!(1), &json!(1)), "what ben read counts for ben");
    // Other inboxes can neither rename nor remove the tag.
    let renamed = site.ask(
        "PUT",
        &of("ann", "tags/Takeover%20of%20Example%20Inc."),
        &[],
        &json!({ "Name": "x" }).to_string(),
    );
    assert_eq!(renamed.body, "ok");
    site.ask("DELETE", &of("ann", "tags/Takeover%20of%20Example%20Inc."), &[], "");
    assert_eq!(site.get(&of("ben", "tags")).json(), json!(["Takeover of Example Inc."]));
    assert_eq!(tag("ann", &ben, "mine").status, 200);
    assert_eq!(site.get(&of("ben", "tags")).json(), json!(["Takeover of Example Inc."]));
    // Clients that may see all mail see all tags.
    assert_eq!(site.get("/api/v1/tags").json(), json!(["Takeover of Example Inc.", "plan"]));
    assert_eq!(tag("ann", &ann, &"x".repeat(201)).status, 400);
    let renamed =
        site.ask("PUT", &of("ann", "tags/plan"), &[], &json!({ "Name": "x".repeat(201) }).to_string());
    assert_eq!(renamed.status, 400);
    assert!(site.counts("mail_web_tags_refused_total 2"));
}

/// Request bodies have a total limit. Without one, 4,096 connections could hold 32 MiB each.
#[test]
fn bodies_have_a_bound_in_sum() {
    const SENDERS: usize = 12;
    let site = Site::with(Config { http_bytes_max: 512 * 1024, ..Config::default() });
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(site.web.address()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            write!(
                stream,
                "POST /api/v1/send HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n"
            )
            .unwrap();
            stream.write_all(&vec![b' '; 100 * 1024]).unwrap();
            stream
        })
        .collect();
    // At most four requests fit into the budget with the bytes that they have sent, and none of these
    // releases memory.
    let refused = |stream: &std::net::TcpStream| {
        let mut said = [0; 1024];
        // The requests that fit are cut off at the end of the test.
        let read = std::io::Read::read(&mut { stream }, &mut said).unwrap_or_default();
        String::from_utf8_lossy(&said[..read]).to_ascii_lowercase()
    };
    let (sender, answers) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for stream in &senders {
            let sender = sender.clone();
            scope.spawn(move || sender.send(refused(stream)));
        }
        for _ in 0..SENDERS - 4 {
            let said = answers.recv_timeout(PATIENCE).unwrap();
            assert!(said.starts_with("http/1.1 503") && said.contains("\r\nretry-after: 2\r\n"), "{said}");
        }
        // Pages are still served.
        assert!(site.page("/inbox/ann@night.test").contains("Nothing has arrived yet"));
        for stream in &senders {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    });
    site.until("mail_web_held_bytes 0.0");
    assert!(!site.counts("mail_web_held_over_total 0"));
    let mail = json!({ "From": { "Email": "a@b.test" }, "To": [{ "Email": "ann@night.test" }], "Text": "x".repeat(90_000) });
    assert_eq!(site.ask("POST", "/api/v1/send", &[], &mail.to_string()).status, 200);
}

/// A list of whole mails is built mail by mail; built all at once, 99 mails took 400 MB for each client.
#[test]
fn a_full_list_is_built_mail_by_mail() {
    let site = Site::with(Config { http_bytes_max: 2 << 20, ..Config::default() });
    for n in 0..99 {
        site.deliver("ann", &format!("Subject: mail {n}\r\n\r\n{}", "text ".repeat(20_000)));
    }
    let answer = site.get("/api/v2/domains/public/inboxes/ann?full=true&limit=99");
    assert_eq!(answer.status, 200, "{}", cut(&answer.body, 200));
    assert!(answer.body.len() > 99 * 200_000, "{}", answer.body.len());
    let list = answer.json();
    assert_eq!((list["msgs"].as_array().unwrap().len(), &list["cursor"]), (99, &json!("99")));
    assert_eq!(list["msgs"][98]["subject"], "mail 0");
    assert_eq!(site.get("/api/v1/messages?limit=99").json()["messages"].as_array().unwrap().len(), 99);
    assert_eq!(
        site.get("/api/v2/domains/public/inboxes/ann/messages/*").json()["msgs"].as_array().unwrap().len(),
        5
    );
    let large = site.deliver("ben", &format!("Subject: large\r\n\r\n{}", "text ".repeat(500_000)));
    let refused = site.get(&format!("/inbox/ben@night.test/{large}/raw"));
    assert_eq!((refused.status, refused.header("retry-after")), (503, "2"));
    assert_eq!(site.get("/api/v2/domains/public/inboxes/ben?full=true").status, 503);
    site.until("mail_web_held_bytes 0.0");
    assert!(site.counts("mail_web_held_over_total 2"));
}

/// A wait ends when its client disconnects.
#[test]
fn who_hangs_up_does_not_go_on_waiting() {
    let site = Site::new();
    let mut stream = std::net::TcpStream::connect(site.web.address()).unwrap();
    write!(
        stream,
        "GET /api/v2/domains/public/inboxes/ann/wait?timeout=5m HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    .unwrap();
    site.until("mail_web_listeners 1.0");
    drop(stream);
    site.until("mail_web_listeners 0.0");
}
