//! Mails by the HTTP API: bans and rates apply to the client, and `Received` names its address.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

use crate::common::{ask, config, inbox, list};
use mail::{
    CertificateSource, Config, Lists, Pair, Rates, Server,
    mailboxes::Mailboxes,
    web::{self, Web},
};

fn pages(server: &Server, proxies: &[&str]) -> Web {
    let config = web::Config {
        domain: "inbox.test".to_owned(),
        proxies: proxies.iter().map(|text| text.parse().unwrap()).collect(),
        ..web::Config::default()
    };
    web::serve(TcpListener::bind("127.0.0.1:0").unwrap(), server.mailstore(), config).unwrap()
}

/// Posts a mail; returns the whole answer. `who` is the client's address in `X-Forwarded-For`.
fn post(web: &Web, path: &str, who: &str, json: &str) -> String {
    let mut stream = TcpStream::connect(web.address()).unwrap();
    let length = json.len();
    let text = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Forwarded-For: 8.8.8.8, {who}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{json}"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

const INBOX: &str = "/api/v2/domains/public/inboxes/ann/messages";
const SEND: &str = "/api/v1/send";

fn both(from: &str, subject: &str) -> [(&'static str, String); 2] {
    let injected = format!(r#"{{"from":"{from}","subject":"{subject}","text":"x"}}"#);
    let sent = format!(
        r#"{{"From":{{"Email":"{from}"}},"To":[{{"Email":"ann@inbox.test"}}],"Subject":"{subject}","Text":"x"}}"#
    );
    [(INBOX, injected), (SEND, sent)]
}

fn received_from(server: &Server) -> Vec<String> {
    let store = server.mailstore();
    let mails = list(&store, &inbox("ann"));
    let first_line = |raw: &[u8]| String::from_utf8_lossy(raw).lines().next().unwrap_or_default().to_owned();
    mails.iter().map(|mail| first_line(&ask(store.mail(mail.id)).unwrap().unwrap().raw)).collect()
}

#[test]
fn an_api_mail_records_the_client_address() {
    for (proxies, who) in [(&["127.0.0.0/8"][..], "192.0.2.7"), (&[], "127.0.0.1")] {
        let server = Server::start(config()).unwrap();
        let web = pages(&server, proxies);
        // Mailpit's plain path covers all inboxes, and is not open to a client behind a proxy; the path of
        // one inbox is.
        let (_, json) = &both("eve@x.test", "one")[1];
        let answer = post(&web, "/inbox/ann@inbox.test/api/v1/send", "192.0.2.7", json);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let (path, json) = &both("eve@x.test", "two")[0];
        let answer = post(&web, path, "192.0.2.7", json);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(received_from(&server), vec![format!("Received: from unknown ([{who}])"); 2]);
    }
}

#[test]
fn bans_and_rates_hold_for_the_api() {
    let lists = "address 192.0.2.66\nsender @evil.test\nword casino\n";
    // Half a minute's worth may come at once: two mails.
    let rates = Rates { mails_per_minute: 4, ..Rates::default() };
    let server = Server::start(Config { lists: Lists::parse(lists).unwrap(), rates, ..config() }).unwrap();
    let web = pages(&server, &["127.0.0.1"]);
    for (who, from, subject, words) in [
        ("192.0.2.66", "a@x.test", "hello", "address is banned"),
        ("192.0.2.1", "a@evil.test", "hello", "sender is banned"),
        ("192.0.2.1", "a@x.test", "the Casino", "banned word"),
    ] {
        let (path, json) = &both(from, subject)[0];
        let answer = post(&web, path, who, json);
        assert!(answer.starts_with("HTTP/1.1 422 ") && answer.contains(words), "{answer}");
    }
    let (path, json) = &both("a@x.test", "hello")[0];
    let answers: Vec<String> = (0..3).map(|_| post(&web, path, "192.0.2.7", json)).collect();
    assert!(answers[..2].iter().all(|answer| answer.starts_with("HTTP/1.1 200 ")), "{answers:?}");
    let lower = answers[2].to_ascii_lowercase();
    assert!(lower.starts_with("http/1.1 429 ") && lower.contains("\r\nretry-after: 60\r\n"), "{lower}");
    assert!(post(&web, path, "192.0.2.8", json).starts_with("HTTP/1.1 200 "), "another's rate is its own");
    assert_eq!(list(&server.mailstore(), &inbox("ann")).len(), 3);
    let metrics = engine::meter::prometheus::encode(&server.registry());
    for counted in [
        "mail_banned_addresses_total 1",
        "mail_banned_senders_total 1",
        "mail_banned_words_total 1",
        "mail_rate_mails_total 1",
    ] {
        assert!(metrics.contains(counted), "{counted} of {metrics}");
    }
}

/// A banned address is closed before the TLS handshake, which would cost the server more than the client.
#[test]
fn a_banned_address_costs_no_handshake() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["mx.test".to_owned()]).unwrap();
    let tls = Pair {
        certificates: directory.path().join("cert.pem"),
        key: directory.path().join("key.pem"),
        ocsp: None,
    };
    std::fs::write(&tls.certificates, made.cert.pem()).unwrap();
    std::fs::write(&tls.key, made.signing_key.serialize_pem()).unwrap();
    let lists = Lists::parse("address 127.0.0.0/8").unwrap();
    let smtps = Some(([127, 0, 0, 1], 0).into());
    let server =
        Server::start(Config { tls: Some(CertificateSource::Pair(tls)), smtps, lists, ..config() }).unwrap();
    let mut stream = TcpStream::connect(server.addresses().smtps.unwrap()).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    assert_eq!(stream.read(&mut [0; 100]).unwrap(), 0, "closed at once");
    let metrics = engine::meter::prometheus::encode(&server.registry());
    for counted in ["mail_banned_addresses_total 1", "mail_tls_failures_total 0", "mail_tls_sessions_total 0"]
    {
        assert!(metrics.contains(counted), "{counted} of {metrics}");
    }
}

/// Any address that SMTP accepts can be opened: on its page, by the API, and by the name that each of them
/// shows.
#[test]
fn a_quoted_local_part_opens_its_inbox() {
    let server = Server::start(config()).unwrap();
    let web = pages(&server, &[]);
    let agent: ureq::Agent = ureq::Agent::config_builder().max_redirects(0).build().into();
    let get = |path: &str| {
        let mut answer = agent.get(format!("http://{}{path}", web.address())).call().unwrap();
        answer.body_mut().read_to_string().unwrap()
    };
    let mut client = crate::common::greeted(server.addresses().smtp);
    for (address, local, path) in [
        (r#""ann lee"@x.test"#, r#""ann lee""#, "%22ann%20lee%22@x.test"),
        (r#""A@b"@x.test"#, r#""a@b""#, "%22a@b%22@x.test"),
        (r#""a\"b\\c"@x.test"#, r#""a\"b\\c""#, "%22a%5C%22b%5C%5Cc%22@x.test"),
        ("star*@x.test", r#""star*""#, "%22star*%22@x.test"),
    ] {
        assert!(client.mail(address, "Subject: for you\r\n\r\n").starts_with("250"), "{address}");
        let id = list(&server.mailstore(), &inbox(address))[0].id.to_string();
        let page = get(&format!("/inbox/{path}"));
        assert!(page.contains("for you") && page.contains(&format!("/inbox/{path}/{id}")), "{page}");
        assert!(get(&format!("/inbox/{path}/{id}")).contains("for you"), "{address}");
        let listed: serde_json::Value =
            serde_json::from_str(&get(&format!("/api/v2/domains/x.test/inboxes/{path}"))).unwrap();
        assert_eq!(listed["msgs"][0]["to"], local);
        // The inbox opens by the name that the API shows.
        let name =
            listed["to"].as_str().unwrap().replace('\\', "%5C").replace('"', "%22").replace(' ', "%20");
        let again: serde_json::Value =
            serde_json::from_str(&get(&format!("/api/v2/domains/x.test/inboxes/{name}"))).unwrap();
        assert_eq!(again["msgs"][0]["id"], id.as_str(), "{name}");
    }
}
