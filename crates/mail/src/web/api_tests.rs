//! Tests of the APIs over real sockets, with the twin: error messages, mails to several recipients, lists.

use axum::http::header;
use base64::{Engine as _, prelude::BASE64_STANDARD as STANDARD};
use engine::{cores::clock, network::Network};
use futures_util::StreamExt;
use serde_json::{Value, json};
use sha2::Digest as _;

use crate::mailbox::mailboxes::{Mailboxes, Scope};
use crate::web::{Config, Token, tests::Site};

const INBOX: &str = "/api/v2/domains/public/inboxes/ann";

/// Returns the error message, which must be JSON even for a browser.
#[track_caller]
fn fault(site: &Site, method: &str, path: &str, body: &str, status: u16) -> String {
    let answer = site.ask(method, path, &[("accept", "text/html,*/*")], body);
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (status, "application/json"),
        "{path}: {}",
        answer.body
    );
    answer.json()["error"].as_str().expect("a fault has words").to_owned()
}

#[test]
fn api_errors_are_json_with_a_hint() {
    let site = Site::new();
    let id = site.deliver("ann", "Subject: x\r\n\r\n");
    for (path, words) in [
        (format!("{INBOX}/wait?timeout=10m"), "duration `10m` is too long; at most 5m"),
        (format!("{INBOX}/wait?since=yesterday"), "2026-11-21T22:00:00Z"),
        (format!("{INBOX}/wait?delete=maybe"), "invalid duration `maybe`"),
        (format!("{INBOX}?wait=1h"), "at most 5m"),
        (format!("{INBOX}?delete=10m"), "at most 5m"),
        (format!("{INBOX}?skip=-1"), "skip"),
        (format!("{INBOX}/messages/{id}?delete=1d"), "invalid duration `1d`"),
        ("/api/v1/messages?limit=many".to_owned(), "limit"),
        ("/api/v1/search?start=x&query=y".to_owned(), "start"),
        ("/api/events".to_owned(), "Upgrade: websocket"),
        ("/api/v2/websocket".to_owned(), "Upgrade: websocket"),
        ("/api/v2/search?kind=subject&query=x".to_owned(), "from, to or containing"),
    ] {
        let said = fault(&site, "GET", &path, "", 400);
        assert!(said.contains(words), "{path}: {said}");
    }
    fault(&site, "GET", "/api/v1/nothing", "", 404);
    fault(&site, "PATCH", "/api/v1/messages", "", 405);
    fault(&site, "POST", INBOX, "{", 400);
    assert_eq!(site.get(&format!("{INBOX}/messages/{id}")).status, 200, "nothing was deleted by a fault");
}

#[test]
fn a_wait_honours_since_and_delete() {
    let site = Site::new();
    for since in
        ["2001-01-01", "2001-01-01T00:00:00Z", "2001-01-01T00:00:00%2B01:00", "1000000000", "1000000000000"]
    {
        site.deliver("ann", "Subject: x\r\n\r\n");
        let answer = site.get(&format!("{INBOX}/wait?timeout=1s&since={since}&delete=1"));
        assert_eq!(answer.status, 200, "{since}: {}", answer.body);
        assert_eq!(site.get(&format!("{INBOX}/wait?timeout=0")).status, 404, "{since}: it was deleted");
    }
    site.deliver("ann", "Subject: x\r\n\r\n");
    assert_eq!(site.get(&format!("{INBOX}/wait?timeout=0&since=2100-01-01")).status, 404);
    assert_eq!(site.get(&format!("{INBOX}/wait?timeout=0&delete=4m")).status, 200);
    assert_eq!(site.get(&format!("{INBOX}/wait?timeout=0&delete=0")).status, 200, "not yet, and not by that");
}

#[test]
fn api_values_with_line_breaks_are_refused() {
    let site = Site::new();
    let two = "x\r\nBcc: z@z.test";
    for (path, body, name) in [
        (format!("{INBOX}/messages"), json!({ "subject": two, "from": "a@b" }), "subject"),
        (format!("{INBOX}/messages"), json!({ "subject": "x", "from": two }), "from"),
        (
            "/api/v2/domains/public/webhook".to_owned(),
            json!({ "to": two, "subject": "x", "from": "a" }),
            "to",
        ),
    ] {
        let said = fault(&site, "POST", &path, &body.to_string(), 400);
        assert!(said.contains(&format!("line break in `{name}`")), "{said}");
    }
    let sound = json!({
        "From": { "Email": "a@b.test", "Name": "A" }, "To": [{ "Email": "ann@night.test", "Name": "Ann" }],
        "Cc": [{ "Email": "c@d.test" }], "ReplyTo": [{ "Email": "r@d.test" }], "Bcc": ["h@night.test"], "Subject": "s",
        "Attachments": [{ "Content": "aGk=", "Filename": "f", "ContentType": "text/plain", "ContentID": "i" }],
    });
    for (pointer, name) in [
        ("/From/Email", "From"),
        ("/From/Name", "From"),
        ("/To/0/Email", "To"),
        ("/To/0/Name", "To"),
        ("/Cc/0/Email", "Cc"),
        ("/ReplyTo/0/Email", "ReplyTo"),
        ("/Bcc/0", "Bcc"),
        ("/Subject", "Subject"),
        ("/Attachments/0/Filename", "Filename"),
        ("/Attachments/0/ContentType", "ContentType"),
        ("/Attachments/0/ContentID", "ContentID"),
    ] {
        for broken in ["x\r\ny", "x\ny", "x\ry"] {
            let mut body = sound.clone();
            *body.pointer_mut(pointer).unwrap() = json!(broken);
            let said = fault(&site, "POST", "/api/v1/send", &body.to_string(), 400);
            assert!(said.contains(&format!("line break in `{name}`")), "{pointer}: {said}");
        }
    }
    assert_eq!(site.twin.totals().stored, 0);
    assert_eq!(site.ask("POST", "/api/v1/send", &[], &sound.to_string()).status, 200);
}

#[test]
fn attachments_by_name_and_raw_source_are_served() {
    let site = Site::new();
    let raw = "Subject: x\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nsee\r\n--b\r\n\
               Content-Type: text/csv\r\nContent-Disposition: attachment; filename=\"order 7.csv\"\r\n\r\none,two\r\n--b--\r\n";
    let id = site.deliver("ann", raw);
    let of = |what: &str| format!("{INBOX}/messages/{id}/{what}");
    let listed = site.get(&of("attachments")).json();
    let number = listed["attachments"][0]["attachment-id"].clone();
    for part in ["order%207.csv".to_owned(), number.to_string()] {
        let answer = site.get(&of(&format!("attachments/{part}")));
        assert_eq!((answer.status, &*answer.body), (200, "one,two"), "{part}");
    }
    assert_eq!(site.get(&of("attachments/other.csv")).status, 404);
    let text = site.get(&of("raw"));
    assert_eq!((text.header("content-type"), &*text.body), ("text/plain; charset=utf-8", raw));
    let asked = site.ask("GET", &of("raw"), &[("accept", "application/json")], "").json();
    assert_eq!((&asked["rawData"], &asked["raw_data"]), (&json!(raw), &json!(raw)));
}

/// Delivers a mail to three recipients and a Bcc; returns its IDs.
fn to_many(site: &Site) -> Vec<String> {
    let raw = "From: shop@x.test\r\nTo: Ann <ann@night.test>, ben@night.test\r\nCc: cid@night.test\r\nSubject: order\r\n\r\nTwo pencils.";
    let to = ["ann", "ben", "cid", "dan"].map(|name| format!("{name}@night.test"));
    let ids = site.twin.deliver_at(clock::unix_ms(), "shop@x.test", &to, raw.as_bytes()).unwrap();
    ids.iter().map(ToString::to_string).collect()
}

#[test]
fn m15_a_mail_to_many_inboxes_is_listed_once() {
    let site = Site::new();
    let ids = to_many(&site);
    let bcc = json!([{ "Name": "", "Address": "dan@night.test" }]);
    let list = site.get("/api/v1/messages").json();
    assert_eq!((&list["total"], &list["messages_count"], &list["unread"]), (&json!(1), &json!(1), &json!(1)));
    let item = &list["messages"][0];
    assert_eq!((&item["ID"], item["To"].as_array().unwrap().len(), &item["Bcc"]), (&json!(ids[0]), 2, &bcc));
    assert_eq!(item["Cc"][0]["Address"], "cid@night.test");
    assert_eq!((&item["Snippet"], &item["Attachments"]), (&json!("Two pencils."), &json!(0)));
    let message = site.get("/api/v1/message/latest").json();
    assert_eq!((&message["ID"], &message["Bcc"]), (&json!(ids[0]), &bcc));
    assert_eq!(site.get("/api/v1/search?query=to:dan").json()["messages_count"], 1);
    assert_eq!(site.get("/api/v1/info").json()["Unread"], 0, "who reads it marks it");
    assert_eq!(
        site.page("/inbox/*@*").matches("order").count(),
        site.page("/inbox/ann@night.test").matches("order").count()
    );
    // An inbox shows its own recipient, and other recipients only if the mail names them.
    for (name, hidden) in [("ben", json!([])), ("dan", bcc.clone())] {
        let base = format!("/inbox/{name}@night.test/api/v1");
        let item = &site.get(&format!("{base}/messages")).json()["messages"][0];
        assert_eq!((&item["Bcc"], &item["Read"]), (&hidden, &json!(false)), "{name}");
        assert_eq!(site.get(&format!("{base}/message/latest")).json()["Bcc"], hidden, "{name}");
    }
    let log = site.get(&format!("/api/v2/domains/public/inboxes/ben/messages/{}/smtplog", ids[1])).body;
    assert!(log.contains("ben@night.test") && !log.contains("dan@night.test"), "{log}");
    // A mail deleted from one inbox stays in the others, and in the list of all mails.
    site.ask("DELETE", "/inbox/ann@night.test/api/v1/messages", &[], &json!({ "IDs": [ids[0]] }).to_string());
    assert_eq!(site.get("/inbox/ann@night.test/api/v1/messages").json()["total"], 0);
    assert_eq!(site.get(&format!("/inbox/ann@night.test/{}", ids[0])).status, 404);
    let list = site.get("/api/v1/messages").json();
    assert_eq!((&list["total"], &list["messages"][0]["ID"]), (&json!(1), &json!(ids[0])));
    let whole = format!("/inbox/*@*/{}", ids[0]);
    assert!(site.page("/inbox/*@*").contains(&whole), "the list leads where it still is");
    assert!(site.page(&whole).contains(&format!("{whole}/raw")));
    assert_eq!(site.get("/inbox/ben@night.test/api/v1/messages").json()["total"], 1);
    // A mail that is deleted from the list of all mails is gone from each inbox.
    site.ask("DELETE", "/api/v1/messages", &[], &json!({ "IDs": [ids[0]] }).to_string());
    assert_eq!(site.get("/api/v1/messages").json()["total"], 0);
    for name in ["ben", "cid", "dan"] {
        assert_eq!(
            site.get(&format!("/inbox/{name}@night.test/api/v1/messages")).json()["total"],
            0,
            "{name}"
        );
    }
}

#[tokio::test]
async fn m15_a_mail_to_many_sends_each_event_once() {
    let site = Site::new();
    let stream = tokio::net::TcpStream::connect(site.web.address()).await.unwrap();
    let url = format!("ws://{}/api/events", site.web.address());
    let (mut socket, _) = tokio_tungstenite::client_async(&url, stream).await.unwrap();
    let ids = to_many(&site);
    let mut told = async || -> Value {
        let message = socket.next().await.unwrap().unwrap();
        serde_json::from_str(message.to_text().unwrap()).unwrap()
    };
    let new = told().await;
    assert_eq!((&new["Type"], &new["Data"]["ID"]), (&json!("new"), &json!(ids[0])));
    for (name, id) in ["ann", "cid", "dan", "ben"].into_iter().zip([&ids[0], &ids[2], &ids[3], &ids[1]]) {
        let inbox = Scope::of(&format!("{name}@night.test"), "").unwrap();
        assert_eq!(site.twin.delete(&inbox, id.parse().unwrap()).await, Ok(true));
    }
    assert_eq!(told().await, json!({ "Type": "delete", "Data": { "ID": ids[0] } }), "with the last of them");
}

/// The preview of a mail is computed once, however often and in whichever lists it is shown.
#[test]
fn a_preview_is_computed_once_for_all_lists() {
    let site = Site::new();
    let ids = to_many(&site);
    for number in 0..120 {
        site.deliver("ann", &format!("Subject: {number}\r\n\r\nmail {number}"));
    }
    let first = site.get("/api/v1/messages?limit=200").body;
    let second = site.get("/api/v1/messages?limit=200");
    assert_eq!(first, second.body);
    assert_eq!(second.json()["messages"].as_array().unwrap().len(), 121);
    assert_eq!(second.json()["messages"][0]["Snippet"], "mail 119");
    site.get("/inbox/ann@night.test/api/v1/messages?limit=200");
    site.get("/inbox/ben@night.test/api/v1/messages");
    assert!(site.counts("mail_web_gists_made_total 121"));
    // Read state and tags are always current.
    site.get(&format!("/api/v1/message/{}", ids[0]));
    let list = site.get("/api/v1/messages?limit=200").json();
    assert_eq!((&list["messages"][120]["Read"], &list["unread"]), (&json!(true), &json!(120)));
    site.ask("DELETE", "/api/v1/messages", &[], "");
    site.until("mail_web_gist_bytes 0.0");
}

#[test]
fn m21_mailhogs_clients_are_answered() {
    let site = Site::new();
    let ids = to_many(&site);
    let raw = "From: x@y\r\nSubject: other\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nhi\r\n--b\r\n\
               Content-Type: text/csv\r\nContent-Transfer-Encoding: base64\r\n\r\nb25lLHR3bw==\r\n--b--\r\n";
    let other = site.deliver("eve", raw);
    for base in ["", "/mailhog"] {
        let list = site.get(&format!("{base}/api/v2/messages?limit=1&start=1")).json();
        assert_eq!((&list["total"], &list["count"], &list["start"]), (&json!(2), &json!(1), &json!(1)));
        let item = &list["items"][0];
        assert_eq!((&item["ID"], item["To"].as_array().unwrap().len()), (&json!(ids[0]), 4));
        assert_eq!(item["Content"]["Headers"]["Subject"], json!(["order"]));
        assert_eq!((&item["Content"]["Body"], &item["MIME"]), (&json!("Two pencils."), &Value::Null));
        for (kind, query, count) in
            [("from", "shop@x", 1), ("to", "dan@", 1), ("containing", "pencils", 1), ("to", "nobody", 0)]
        {
            let found = site.get(&format!("{base}/api/v2/search?kind={kind}&query={query}")).json();
            assert_eq!(found["total"], count, "{kind} {query}");
        }
        let message = site.get(&format!("{base}/api/v1/messages/{other}")).json();
        assert_eq!(message["MIME"]["Parts"][1]["Body"], "b25lLHR3bw==");
        let part = site.get(&format!("{base}/api/v1/messages/{other}/mime/part/1/download"));
        assert_eq!((&*part.body, part.header("content-type")), ("one,two", "text/csv"));
        assert_eq!(site.get(&format!("{base}/api/v1/messages/{other}/download")).body, raw);
        assert_eq!(site.get(&format!("{base}/api/v2/jim")).status, 404);
        assert_eq!(
            site.ask("POST", &format!("{base}/api/v1/messages/{other}/release"), &[], "{}").status,
            501
        );
    }
    assert_eq!(site.get("/mailhog/api/v1/messages").json().as_array().unwrap().len(), 2);
    assert!(site.get("/api/v1/messages").json()["messages"].is_array(), "at the root it is Mailpit's");
    assert_eq!(site.ask("DELETE", &format!("/api/v1/messages/{other}"), &[], "").status, 200);
    assert_eq!(site.ask("DELETE", &format!("/api/v1/messages/{other}"), &[], "").status, 404);
    assert_eq!(site.ask("DELETE", "/mailhog/api/v1/messages", &[], "").status, 200);
    assert_eq!(site.get("/api/v2/messages").json()["total"], 0);
}

#[test]
fn only_reader_networks_see_all_without_a_token() {
    let network = |text: &str| -> Network { text.parse().unwrap() };
    // The request counts as remote, so a token is required.
    let token = || Some(Token::new("0123456789abcdef").unwrap());
    let others =
        Site::with(Config { token: token(), readers: vec![network("192.0.2.0/24")], ..Config::default() });
    assert_eq!(others.get("/api/v1/messages").status, 401);
    let readers = vec![network("127.0.0.0/8")];
    let site = Site::with(Config { token: token(), readers: readers.clone(), ..Config::default() });
    assert_eq!(site.get("/api/v1/messages").status, 200);
    assert_eq!(site.ask("GET", "/api/v1/messages", &[("x-forwarded-for", "192.0.2.7")], "").status, 401);
    assert_eq!(
        site.ask("GET", "/api/v1/messages", &[(header::HOST.as_str(), "mailpit:8025")], "").status,
        421
    );
    let named =
        Config { http_hosts: vec!["mailpit".to_owned()], readers, token: token(), ..Config::default() };
    let site = Site::with(named);
    assert_eq!(
        site.ask("GET", "/api/v1/messages", &[(header::HOST.as_str(), "mailpit:8025")], "").status,
        200
    );
    // A trusted proxy names the client.
    let behind = Site::with(Config {
        token: token(),
        readers: vec![network("192.0.2.0/24")],
        proxies: vec![network("127.0.0.1")],
        ..Config::default()
    });
    for (who, status) in [("192.0.2.7", 200), ("198.51.100.7", 401)] {
        assert_eq!(
            behind.ask("GET", "/api/v1/messages", &[("x-forwarded-for", who)], "").status,
            status,
            "{who}"
        );
    }
}

/// RFC 2045, 6: an attachment is decoded from its transfer encoding only. Each of these parts was once
/// converted to UTF-8.
#[test]
fn attachments_are_the_bytes_that_were_sent() {
    const TABLE: &[u8] = b"\x47\x72\xf6\xdf\x65\x3b\x31\x0d\x0a";
    let utf16 = b"\xff\xfea\0;\0\r\0\n\0";
    let russian = b"<p>\xcf\xf0\xe8\xe2\xe5\xf2</p>";
    let parts: [(&str, &str, &[u8]); 6] = [
        ("text/csv; charset=iso-8859-1; name=\"g.csv\"", "base64", TABLE),
        ("text/csv", "base64", TABLE),
        ("text/plain; charset=utf-16le", "base64", utf16),
        ("text/html; charset=windows-1251", "base64", russian),
        ("text/x-log", "base64", b"a\0b \xff\n"),
        ("text/x-log", "quoted-printable", b"a = \xe9 =5\r\nb"),
    ];
    for (at, (kind, coding, bytes)) in parts.into_iter().enumerate() {
        let site = Site::new();
        let encoded = match coding {
            "base64" => STANDARD.encode(bytes),
            _ => "a = =E9 =5\r\nb".to_owned(),
        };
        let id = site.deliver(
            "ann",
            &format!(
                "Subject: x\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\ntext\r\n--b\r\nContent-Type: {kind}\r\n\
                 Content-Disposition: attachment; filename=\"g.csv\"\r\nContent-Transfer-Encoding: {coding}\r\n\r\n{encoded}\r\n--b--\r\n"
            ),
        );
        let listed = site.get(&format!("/api/v1/message/{id}")).json();
        let attached = &listed["Attachments"][0];
        assert_eq!(attached["Size"], bytes.len(), "{kind}");
        let digest = sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(attached["Checksums"]["SHA256"], digest, "{kind}");
        for path in [
            format!("/inbox/ann@night.test/{id}/attachments/2/g.csv"),
            format!("{INBOX}/messages/{id}/attachments/g.csv"),
            format!("/api/v1/message/{id}/part/2"),
            format!("/mailhog/api/v1/messages/{id}/mime/part/1/download"),
        ] {
            assert_eq!(site.bytes(&path), bytes, "{at}: {kind} at {path}");
        }
    }
}
