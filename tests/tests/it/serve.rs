//! `nighttrain serve` as one program: a mail arrives, is announced on the feed, and its page is fresh through
//! the accelerator at once.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
};

use tests::{
    PATIENCE,
    connections::connect_from,
    eventually,
    mail::Smtp,
    node::{artifacts, node_modules, source_tree, succeeds},
    program,
};

struct Everything {
    child: Child,
    cache: SocketAddr,
    feed: SocketAddr,
    websocket: SocketAddr,
    smtp: SocketAddr,
    admin: SocketAddr,
    _state: tempfile::TempDir,
}

const FILE: &str = "admin = \"127.0.0.1:0\"\n\
                    [cache]\nlisten = \"127.0.0.1:0\"\nmemory = \"64MiB\"\n\
                    [feed]\nlisten = \"127.0.0.1:0\"\nwebsocket = \"127.0.0.1:0\"\nmonitor = \"127.0.0.1:0\"\n\
                    [mail]\nsmtp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nstore-size = \"128MiB\"\n";

impl Everything {
    fn start(arguments: &[&str]) -> Self {
        Self::configured(FILE, arguments)
    }

    fn configured(text: &str, arguments: &[&str]) -> Self {
        let state = tempfile::tempdir().expect("a directory");
        let file = state.path().join("nighttrain.toml");
        std::fs::write(&file, text).expect("written");
        let mut child = program::command()
            .args(["serve", "--state"])
            .arg(state.path())
            .arg("--config")
            .arg(&file)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        let (mut cache, mut feed, mut websocket, mut smtp, mut admin) = (None, None, None, None, None);
        for line in said.lines().map(|line| line.expect("text")) {
            let address = || line.rsplit("//").next().and_then(|text| text.parse().ok());
            match line.split("//").next() {
                Some("cache: listening on http:") => cache = address(),
                Some("feed: listening on nats:") => feed = address(),
                Some("feed: listening on ws:") => websocket = address(),
                Some("mail: listening on smtp:") => smtp = address(),
                Some("admin: listening on http:") => {
                    admin = address();
                    break;
                }
                _ => {}
            }
        }
        Self {
            child,
            cache: cache.expect("the accelerator's address"),
            feed: feed.expect("the feed's address"),
            websocket: websocket.expect("the browsers' address"),
            smtp: smtp.expect("mail's address"),
            admin: admin.expect("the admin address"),
            _state: state,
        }
    }

    fn page(&self, path: &str) -> String {
        get(self.cache, path)
    }

    fn counted(&self, name: &str) -> f64 {
        let text = get(self.admin, "/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.parse().ok()).unwrap_or(-1.0)
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        // The program may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    get_from(address, &address.to_string(), path)
}

/// Requests a page under this name.
fn get_from(address: SocketAddr, host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

/// Subscribes to all mail events with a plain socket, which is then read line by line.
fn subscriber(address: SocketAddr) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream.write_all(b"CONNECT {\"verbose\":false}\r\nSUB mail.> 1\r\nPING\r\n").expect("it reads");
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    while line != "PONG\r\n" {
        line.clear();
        assert!(lines.read_line(&mut line).expect("it answers") > 0, "the feed closed");
    }
    lines
}

fn send(smtp: SocketAddr, subject: &str) {
    send_to(smtp, "alice@example.org", subject);
}

fn send_to(smtp: SocketAddr, to: &str, subject: &str) {
    let mut client = Smtp::greeted(smtp).expect("it greets");
    let mail = format!("From: a@b.example\r\nSubject: {subject}\r\n\r\nhello\r\n");
    assert!(client.mail(to, &mail).expect("it answers"), "it takes the mail");
}

#[test]
fn a_mail_arrival_is_announced_and_purges_pages() {
    let all = Everything::start(&[]);
    let mut feed = subscriber(all.feed);
    assert!(!all.page("/inbox/alice@example.org").contains("first mail"));

    for (number, subject) in ["first mail", "second mail"].into_iter().enumerate() {
        send(all.smtp, subject);
        let (mut line, mut message) = (String::new(), String::new());
        feed.read_line(&mut line).expect("a message");
        feed.read_line(&mut message).expect("its payload");
        assert!(line.starts_with("MSG mail.arrived.example.org.alice 1 "), "{line}");
        let message: serde_json::Value = serde_json::from_str(&message).expect("JSON");
        assert_eq!(message["inbox"], "alice@example.org");
        assert_eq!(message["subject"], subject);
        // The page is already stored; the arrival purges it. The page is requested until it shows the mail.
        eventually(&format!("mail {number} on its page"), || {
            all.page("/inbox/alice@example.org").contains(subject)
        });
    }
    eventually("the announcements are counted", || all.counted("announce_events_total") >= 2.0);
    // One admin port serves all three.
    let metrics = get(all.admin, "/metrics");
    for family in ["cache_requests", "feed_", "mail_"] {
        assert!(metrics.contains(family), "{family}");
    }
    assert!(get(all.admin, "/readyz").contains("200 OK"));
}

/// The accelerator hears only of inboxes that somebody reads, and renews their lists under each name by which
/// they are stored. Its table of purged tags, which other sites share, stays empty.
#[test]
fn lists_are_renewed_under_any_name() {
    let all = Everything::start(&[]);
    let names = [all.cache.to_string(), "localhost".to_owned(), "localhost:9999".to_owned()];
    let pages = || names.each_ref().map(|name| get_from(all.cache, name, "/inbox/alice@example.org"));
    assert!(pages().iter().all(|page| page.contains("200 OK") && !page.contains("for alice")));
    for n in 0..50 {
        send_to(all.smtp, &format!("nobody{n}@example.org"), "unread");
    }
    send(all.smtp, "for alice");
    eventually("the mail is on its page", || pages().iter().all(|page| page.contains("for alice")));
    eventually("the change is counted", || all.counted("announce_purges_total") >= 1.0);
    assert_eq!(all.counted("announce_purges_total"), 1.0, "nobody reads the others");
    assert_eq!(all.counted("announce_purges_dropped_total"), 0.0);
    assert_eq!(all.counted("cache_tags_purged"), 0.0);
}

/// A mail that a user deletes on a page is hidden at once, and deleted later; the accelerator does not show it
/// again either.
#[test]
fn a_mail_deleted_on_a_page_is_hidden() {
    let all = Everything::start(&[]);
    send(all.smtp, "to be deleted");
    let list = "/inbox/alice@example.org";
    eventually("the mail is on its page", || all.page(list).contains("to be deleted"));
    let form = "do=delete-all";
    let mut stream = TcpStream::connect(all.cache).expect("it listens");
    let (host, bytes) = (all.cache, form.len());
    write!(
        stream,
        "POST {list}/change HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {bytes}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n{form}"
    )
    .expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    assert!(text.starts_with("HTTP/1.1 303"), "{text}");
    eventually("it is hidden", || !all.page(list).contains("to be deleted"));
    eventually("the accelerator was told", || all.counted("announce_purges_total") >= 1.0);
}

/// The pages see one peer address, the accelerator's; the mail's `Received` names the visitor's address,
/// which the accelerator passes on.
#[test]
fn a_mail_by_the_api_names_the_visitor() {
    let all = Everything::start(&[]);
    let ask = |request: String| {
        let mut stream = connect_from([127, 0, 0, 2], all.cache).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    };
    let head = format!("Host: {}\r\nConnection: close\r\nX-Forwarded-For: 192.0.2.7\r\n", all.cache);
    let json = r#"{"from":"a@b.example","subject":"by the API","text":"x"}"#;
    let path = "/api/v2/domains/public/inboxes/ann/messages";
    let answer = ask(format!("POST {path} HTTP/1.1\r\n{head}Content-Length: {}\r\n\r\n{json}", json.len()));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let id = answer.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("its name");
    let raw = ask(format!("GET {path}/{id}/raw HTTP/1.1\r\n{head}\r\n"));
    assert!(raw.contains("Received: from unknown ([127.0.0.2])"), "{raw}");
}

#[test]
fn nobody_forges_a_mail_on_the_feed() {
    let all = Everything::start(&[]);
    let mut feed = subscriber(all.feed);
    let message = "{\"event\":\"arrived\",\"inbox\":\"alice@example.org\"}";
    for connect in ["", "CONNECT {\"verbose\":false}\r\n"] {
        let mut forger = TcpStream::connect(all.feed).expect("it listens");
        forger.set_read_timeout(Some(PATIENCE)).expect("a time");
        write!(
            forger,
            "{connect}PUB mail.arrived.example.org.alice {}\r\n{message}\r\nPUB news 5\r\nhello\r\nPING\r\n",
            message.len()
        )
        .expect("it reads");
        let told: Vec<String> = BufReader::new(forger)
            .lines()
            .map(|line| line.expect("text"))
            .take_while(|line| line != "PONG")
            .collect();
        let refused = "-ERR 'Permissions Violation for Publish to \"mail.arrived.example.org.alice\"'";
        assert!(told.iter().any(|line| line == refused), "{told:?}");
    }
    send(all.smtp, "a true one");
    let mut line = String::new();
    feed.read_line(&mut line).expect("a message");
    let mut true_one = String::new();
    feed.read_line(&mut true_one).expect("its payload");
    assert!(true_one.contains("a true one"), "{line}{true_one}");
    assert_eq!(all.counted("announce_events_total"), 1.0);
}

/// With a feed beyond loopback, or with a token on the pages, no client may subscribe to all mail; other
/// subjects stay allowed.
#[test]
fn subscriptions_to_all_mail_require_full_access() {
    let token = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(token.path(), "0123456789abcdef").expect("written");
    let with_token =
        FILE.replace("[mail]\n", &format!("[mail]\ntoken-file = \"{}\"\n", token.path().display()));
    let beyond = FILE.replace("[feed]\nlisten = \"127.0.0.1:0\"", "[feed]\nlisten = \"0.0.0.0:0\"");
    for (file, is_denied) in [(FILE, false), (&with_token, true), (&beyond, true)] {
        let all = Everything::configured(file, &[]);
        let port = all.feed.port();
        let mut client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        client.set_read_timeout(Some(PATIENCE)).expect("a time");
        client
            .write_all(b"CONNECT {\"verbose\":false}\r\nSUB mail.> 1\r\nSUB news 2\r\nPING\r\n")
            .expect("it reads");
        let told: Vec<String> = BufReader::new(client)
            .lines()
            .map(|line| line.expect("text"))
            .take_while(|line| line != "PONG")
            .filter(|line| line.starts_with("-ERR"))
            .collect();
        let denied = ["-ERR 'Permissions Violation for Subscription to \"mail.>\"'"];
        assert_eq!(told, &denied[..usize::from(is_denied)], "{file}");
    }
}

/// WebSocket handshakes: those of programs and of pages of this address are accepted, those of other origins
/// refused.
#[test]
fn websocket_handshakes_of_other_origins_are_refused() {
    let all = Everything::start(&[]);
    let own = format!("http://{}", all.websocket);
    for (origin, status) in [
        (None, "101"),
        (Some(own.as_str()), "101"),
        (Some("https://evil.example"), "403"),
        (Some("null"), "403"),
        (Some("http://127.0.0.1:1"), "403"),
    ] {
        let mut stream = TcpStream::connect(all.websocket).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let origin = origin.map_or(String::new(), |origin| format!("Origin: {origin}\r\n"));
        write!(
            stream,
            "GET / HTTP/1.1\r\nHost: {}\r\n{origin}Upgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
            all.websocket
        )
        .expect("it reads");
        let mut first = String::new();
        BufReader::new(stream).read_line(&mut first).expect("an answer");
        assert!(first.starts_with(&format!("HTTP/1.1 {status}")), "{origin}: {first}");
    }
}

#[test]
fn the_demo_sends_samples_and_stops_cleanly() {
    let mut all = Everything::start(&["--demo"]);
    eventually("a sample is there", || all.page("/inbox/demo@localhost").contains("/inbox/demo@localhost/"));
    let sent = Command::new("kill").args(["-s", "TERM", &all.child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
    let status = all.child.wait().expect("it ends");
    assert!(status.success(), "{status}");
}

/// A newcomer's first steps after `make run`: a page open in a browser, `feed sub` in a terminal, and both
/// show an arriving mail.
#[test]
fn browser_and_subscriber_see_a_mail_arrive() {
    let all = Everything::start(&["--demo"]);
    let mut subscriber = program::command()
        .args(["feed", "sub", "mail.>", "--url"])
        .arg(format!("nats://{}", all.feed))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut heard = BufReader::new(subscriber.stdout.take().expect("piped")).lines();
    // A sample event shows that the subscription is active.
    let sample = heard.next().expect("a line").expect("text");
    assert!(sample.contains("demo@localhost"), "{sample}");
    let said = succeeds(
        Command::new("node")
            .arg(source_tree().join("tests/browser/served.cjs"))
            .env("NODE_PATH", node_modules())
            .env("SERVE_URL", format!("http://{}", all.cache))
            .env("SMTP", all.smtp.to_string())
            .env("FEED_WS", format!("ws://{}", all.websocket))
            .env("CHROMIUM", "/usr/bin/chromium")
            .env("SHOTS", artifacts("served-pages")),
    );
    let steps = [
        "a sample arrived",
        "a mail arrived live",
        "it is there after a reload",
        "a page of another origin hears nothing",
    ];
    for step in steps {
        assert!(said.contains(&format!("ok {step}")), "{said}");
    }
    let bobs =
        heard.map(|line| line.expect("text")).find(|line| line.contains("\"inbox\":\"bob@night.test\""));
    let bobs = bobs.expect("it says until it is ended");
    assert!(bobs.contains("\"event\":\"arrived\"") && bobs.contains("Meet me at nine"), "{bobs}");
    subscriber.kill().expect("it runs");
    subscriber.wait().expect("it ends");
}

#[test]
fn a_port_in_use_is_named() {
    let all = Everything::start(&[]);
    let second =
        program::command().args(["serve", "--admin", &all.admin.to_string()]).output().expect("it runs");
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        said.contains(&all.admin.to_string()) && said.contains("another process listens there"),
        "{said}"
    );
}

/// Anonymous memory of the process: resident pages that belong to no file (Linux, `/proc/PID/status`).
fn anonymous_bytes(all: &Everything) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", all.child.id())).expect("it runs");
    let field = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("of Linux");
    field.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// A flood of connections to one server takes no memory from the others, and the process stays within its
/// total.
#[test]
fn a_flooded_server_leaves_memory_to_the_others() {
    const CLIENT_MEMORY: u64 = 16 << 20;
    const CONNECTIONS: usize = 3000;
    let all = Everything::start(&["--client-memory", "16MiB"]);
    // A file that is stored after its first answer.
    let page = all.page("/");
    let file = page.split('"').find(|path| path.starts_with("/static/"));
    let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", file.expect("an icon"));
    assert!(all.page(file.expect("an icon")).contains("200 OK"));
    let before = anonymous_bytes(&all);
    let mut idle = Vec::new();
    for number in 0..CONNECTIONS {
        let mut stream = connect_from([127, 0, 0, 2 + (number % 200) as u8], all.cache).expect("it listens");
        // A refused or evicted connection is noticed only by a read.
        _ = stream.write_all(request.as_bytes());
        idle.push(stream);
    }
    eventually("connections give way to others", || all.counted("cache_idle_evicted_total") >= 1.0);
    let mut consumers: Vec<_> = (0..200).map(|_| subscriber(all.feed)).collect();
    send(all.smtp, "while the accelerator is flooded");
    let mut line = String::new();
    for consumer in &mut consumers {
        line.clear();
        consumer.read_line(&mut line).expect("it is told");
        assert!(line.starts_with("MSG mail."), "{line}");
    }
    eventually("the inbox shows the mail", || {
        all.page("/inbox/alice@example.org").contains("while the accelerator is flooded")
    });
    let more = anonymous_bytes(&all).saturating_sub(before);
    // The program's own memory for the first requests of each kind is added.
    assert!(more <= CLIENT_MEMORY + (24 << 20), "{more} bytes more");
}
