//! Tests of events and of Mailpit's API, with requests as other programs' clients send them.

use std::{
    io::{BufRead, BufReader, Read, Write},
    time::Duration,
};

use engine::cores::clock;
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::super::{serve::config::BODY_BYTES_MAX, *};
use super::{PATIENCE, Site, next_event};

#[test]
fn arrivals_and_deletions_are_told_live() {
    let site = Site::new();
    let first = site.deliver("ann", "Subject: first\r\n\r\n");
    let between = site.deliver("ann", "Subject: between\r\n\r\n");
    let answer =
        site.agent.get(site.url(&format!("/inbox/ann@night.test/events?after={first}"))).call().unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut events = BufReader::new(answer.into_body().into_reader());
    // This mail arrived after the page was built and before the stream began.
    let (row, id) = next_event(&mut events, "arrived");
    assert!(id == between && row.contains("between"));
    site.deliver("bob", "Subject: not for ann\r\n\r\n");
    let live = site.deliver("ann", "From: <i>x</i>\r\nSubject: live\r\n\r\nFirst words.\r\n");
    let (row, id) = next_event(&mut events, "arrived");
    assert!(id == live && row.contains("live") && !row.contains("<i>"), "{row}");
    assert!(row.contains("<span class=\"snippet\">First words.</span>"), "{row}");
    site.ask("POST", &format!("/inbox/ann@night.test/{live}/delete"), &[], "");
    assert_eq!(next_event(&mut events, "deleted").0, live);
    // A stop ends the stream.
    site.web.stop();
    let mut rest = String::new();
    while events.read_line(&mut rest).is_ok_and(|read| read > 0) {}
}

#[test]
fn a_listener_over_the_limit_gets_503() {
    let site = Site::with(Config { listeners_max: 1, ..Config::default() });
    let held = site.agent.get(site.url("/inbox/ann@night.test/events")).call().unwrap();
    let refused = site.get("/inbox/ann@night.test/events");
    assert_eq!((refused.status, refused.header("retry-after")), (503, "2"));
    drop(held);
}

#[test]
fn a_wait_finds_present_and_future_mail() {
    let site = Site::new();
    let wait = |query: &str| site.get(&format!("/api/v2/domains/public/inboxes/ann/wait?{query}"));
    let none = wait("timeout=10ms");
    assert_eq!(none.status, 404);
    assert!(none.json()["error"].as_str().unwrap().contains("within 10 ms"));
    site.deliver("ann", "From: shop@x.test\r\nSubject: Receipt\r\n\r\n");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait("subject=code&from=accounts&timeout=30s"));
        // The mail is found whether it arrives before or after the wait begins.
        site.deliver("ann", "From: no-reply@accounts.test\r\nSubject: Your code\r\n\r\nIt is 493021. https://x.test/c?a=1\r\n");
        let found = waiting.join().unwrap();
        assert_eq!(found.status, 200, "{}", found.body);
        let mail = found.json();
        assert_eq!((&mail["subject"], &mail["codes"]), (&json!("Your code"), &json!(["493021"])));
        assert_eq!(mail["links"], json!(["https://x.test/c?a=1"]));
        assert_eq!((&mail["to"], &mail["domain"]), (&json!("ann"), &json!("night.test")));
    });
    assert_eq!(wait("subject=receipt&delete=true").status, 200);
    assert_eq!(wait("subject=receipt&timeout=10ms").status, 404, "it was deleted");
    assert_eq!(wait("timeout=soon").status, 400);
    assert_eq!(wait(&format!("since={}&timeout=10ms", clock::unix_ms() + 60_000)).status, 404);
}

#[test]
fn mailpits_api_lists_finds_marks_and_deletes() {
    let site = Site::new();
    let ids = site.samples();
    let list = site.get("/api/v1/messages?limit=3").json();
    assert_eq!((&list["total"], &list["unread"], &list["messages_count"]), (&json!(7), &json!(7), &json!(7)));
    assert_eq!(list["messages"].as_array().unwrap().len(), 3);
    assert_eq!(list["messages"][0]["Subject"], "493021 is your sign-in code");
    let invoice = site.get("/api/v1/search?query=has:attachment%20from:billing").json();
    assert_eq!((&invoice["messages_count"], &invoice["messages"][0]["Attachments"]), (&json!(1), &json!(2)));
    let mail = site.get(&format!("/api/v1/message/{}", ids[1])).json();
    assert_eq!(mail["Attachments"][1]["FileName"], "Fahrten Zürich.csv");
    assert_eq!(mail["Attachments"][0]["Checksums"]["MD5"].as_str().unwrap().len(), 32);
    assert_eq!(site.get("/api/v1/messages").json()["unread"], 6, "who reads it marks it");
    let body = json!({ "IDs": [ids[0]], "Tags": ["Blue"] }).to_string();
    assert_eq!(site.ask("PUT", "/api/v1/tags", &[], &body).body, "ok");
    assert_eq!(site.get("/api/v1/search?query=tag:blue").json()["messages_count"], 1);
    assert_eq!(site.get("/api/v1/tags").json(), json!(["Blue"]));
    assert_eq!(site.ask("DELETE", "/api/v1/search?query=subject:invoice", &[], "").body, "ok");
    assert_eq!(
        site.ask("DELETE", "/api/v1/messages", &[], &json!({ "IDs": [ids[0]] }).to_string()).body,
        "ok"
    );
    assert_eq!(site.get("/api/v1/info").json()["Messages"], 5);
    let sent = site.ask(
        "POST",
        "/inbox/bob@night.test/api/v1/send",
        &[],
        &json!({
            "From": { "Email": "a@b.test", "Name": "A" }, "To": [{ "Email": "bob@night.test" }], "Subject": "Grüße",
            "HTML": "<b>x</b>", "Attachments": [{ "Content": "aGk=", "Filename": "hi.txt" }], "Headers": { "X-Y": "z" },
        })
        .to_string(),
    );
    let id = sent.json()["ID"].as_str().unwrap().to_owned();
    let mail = site.get("/inbox/bob@night.test/api/v1/message/latest").json();
    assert_eq!(
        (&mail["ID"], &mail["Subject"], &mail["HTML"]),
        (&json!(id), &json!("Grüße"), &json!("<b>x</b>"))
    );
    assert_eq!(site.get("/inbox/bob@night.test/api/v1/message/latest/headers").json()["X-Y"], json!(["z"]));
    let bad = json!({ "From": { "Email": "a@b" }, "To": [{ "Email": "c@d" }], "Headers": { "X": "y\r\nBcc: z@z" } });
    assert_eq!(site.ask("POST", "/api/v1/send", &[], &bad.to_string()).status, 400);
    assert_eq!(site.ask("POST", "/api/v1/send", &[], "{").status, 400);
}

#[test]
fn mailpits_events_come_by_websocket() {
    let site = Site::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(site.web.address()).await.unwrap();
        let url = format!("ws://{}/inbox/ann@night.test/api/events", site.web.address());
        let (mut socket, _) = tokio_tungstenite::client_async(&url, stream).await.unwrap();
        site.deliver("ann", "Subject: by socket\r\n\r\n");
        let message = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
        let event: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
        assert_eq!((&event["Type"], &event["Data"]["Subject"]), (&json!("new"), &json!("by socket")));
        let stream = tokio::net::TcpStream::connect(site.web.address()).await.unwrap();
        let mut foreign =
            tokio_tungstenite::tungstenite::client::IntoClientRequest::into_client_request(url.as_str())
                .unwrap();
        foreign.headers_mut().insert("origin", "https://evil.test".parse().unwrap());
        assert!(
            tokio_tungstenite::client_async(foreign, stream).await.is_err(),
            "another site's page may not listen"
        );
    });
}

/// Sends a request whose handler does not read the body, in two parts. After the response the connection is
/// still usable, or the response has announced that it closes.
#[test]
fn a_closing_connection_is_announced_in_the_response() {
    let site = Site::new();
    let after_the_answer = Duration::from_millis(300);
    for (head, bytes, status) in [
        ("POST /nowhere HTTP/1.1", 10, "404"),
        ("PUT /about HTTP/1.1", 10, "405"),
        ("GET /healthz HTTP/1.1", 10, "200"),
        ("PUT /api/v1/chaos HTTP/1.1", 10, "501"),
        ("DELETE /api/v2/domains/public/inboxes/ann HTTP/1.1", 10, "200"),
        ("POST /inbox/ann@night.test/delete HTTP/1.1\r\nOrigin: https://evil.test", 10, "403"),
        ("POST /nowhere HTTP/1.1\r\nExpect: 100-continue", 10, "404"),
        ("POST /nowhere HTTP/1.1", 1 << 20, "404"),
        ("POST /api/v2/domains/public/inboxes/ann/messages HTTP/1.1", 1 << 20, "413"),
    ] {
        let mut stream = std::net::TcpStream::connect(site.web.address()).unwrap();
        write!(stream, "{head}\r\nHost: {}\r\nContent-Length: {bytes}\r\n\r\n", site.web.address()).unwrap();
        stream.set_read_timeout(Some(after_the_answer)).unwrap();
        // The server may respond before the body has arrived, or wait for it.
        let _ = stream.peek(&mut [0]);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let next =
            format!("GET /robots.txt HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", site.web.address());
        // The server need not accept bytes that it no longer reads.
        let _ = stream.write_all(&vec![b'x'; bytes]).and_then(|()| stream.write_all(next.as_bytes()));
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said).to_ascii_lowercase();
        assert!(said.starts_with(&format!("http/1.1 {status}")), "{head}: {said}");
        let first = said.split("\r\n\r\n").next().unwrap_or_default();
        let closes = first.contains("\r\nconnection: close");
        assert!(closes || said.contains("user-agent: *"), "{head}: {said}");
        assert_eq!(closes, bytes > BODY_BYTES_MAX || head.contains("Expect"), "{head}: {said}");
    }
    // An invalid request gets a response with `Connection: close`.
    let mut stream = std::net::TcpStream::connect(site.web.address()).unwrap();
    stream.write_all(b"NONSENSE\r\n\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    let said = said.to_ascii_lowercase();
    assert!(said.starts_with("http/1.1 400") && said.contains("\r\nconnection: close"), "{said}");
}

/// No operation of the OpenAPI document lets a page of another site change anything, not even a GET with
/// `delete=`.
#[test]
fn cross_site_api_operations_are_refused() {
    let site = Site::new();
    let id = site.deliver("ann", "Subject: x\r\n\r\n");
    let document = site.get("/api/openapi.json").json();
    let mut refused = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let filled = filled(path, &id);
        for method in methods.as_object().unwrap().keys() {
            let query = if method == "get" { "?delete=1ms" } else { "" };
            for base in ["", "/inbox/ann@night.test"] {
                let asked = format!("{base}{filled}{query}");
                let foreign = [("origin", "https://evil.test")];
                let answer = site.ask(&method.to_uppercase(), &asked, &foreign, "{}");
                assert_eq!(answer.status, 403, "{method} {asked}");
                refused += 1;
            }
        }
    }
    assert!(refused > 80, "{refused}");
    assert_eq!(site.get("/api/v1/messages").json()["total"], 1);
}

/// Fills in the parameters of a path from the document.
fn filled(path: &str, id: &str) -> String {
    path.replace("{domain}", "public")
        .replace("{inbox}", "ann")
        .replace("{id}", id)
        .replace("{what}", "text")
        .replace("{part}", "0")
        .replace("{tag}", "x")
        .replace("{file}", &format!("{id}.txt"))
}

/// The OpenAPI document, its page and the routes come from one list: every operation of the document is
/// served.
#[test]
fn every_operation_of_the_document_is_answered() {
    let site = Site::new();
    let id = site.deliver("ann", "Subject: x\r\n\r\n");
    let document = site.get("/api/openapi.json").json();
    let page = site.page("/api");
    let mut operations = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        assert!(page.contains(path.as_str()), "{path} is not on the page");
        let filled = filled(path, &id);
        for method in methods.as_object().unwrap().keys() {
            // Streams do not end, and deletions would leave nothing to request.
            let is_stream = filled.contains("stream") || filled == "/api/v1/events";
            if is_stream || method == "delete" {
                continue;
            }
            let answer = site.ask(&method.to_uppercase(), &filled, &[], "{}");
            let error = serde_json::from_str::<Value>(&answer.body).unwrap_or_default()["error"].clone();
            assert_ne!(error, "no such page", "{method} {path}");
            assert_ne!(error, "this page does not support the request's method", "{method} {path}");
            operations += 1;
        }
    }
    assert!(operations > 30, "{operations}");
}
