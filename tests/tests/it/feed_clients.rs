//! The NATS project's own clients, unmodified, against our feed: Python, JavaScript (also by WebSocket) and
//! Go, as programs (`tests/clients/`), and Rust's in `feed_async_nats.rs`.
//!
//! A client that `tests/install-clients.sh` did not install is skipped, and the test says so; with
//! `NIGHTTRAIN_CLIENTS=all` in the environment, that is a failure.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tests::{
    clients::{self, installed},
    eventually,
    feed::Feed,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Python,
    Node,
    Go,
}

const ALL: [Language; 3] = [Language::Python, Language::Node, Language::Go];

/// Seed of the nkey in [`USERS`], made for this test.
const SEED: &str = "SUAJEQKFEKKVEWUNR3MLHZ3PGSPRIWYSOU4B5XVUP5H3GTMIJTBNUUU6NQ";

/// Users in the format of nats.conf. The password of `hashed` is `s3cret`, hashed with bcrypt.
const USERS: &str = r#"
authorization {
  users: [
    { user: plain, password: "s3cret" }
    { user: hashed, password: "$2b$04$abcdefghijklmnopqrstuuLZYjhNQAOdpbzt4WxWlUHjv1wsyH5DG" }
    { user: limited, password: "s3cret", permissions: { publish: ["open.>", "_INBOX.>"] } }
    { nkey: "UCM73LDJJPJAPQ5K2L7FMB5HLVGYFAXZ57LZEUSRJKSRGDVUCIF3YONQ" }
  ]
}
"#;

impl Language {
    /// Returns the command up to the URL; `None` if the client is not installed and may be skipped.
    fn command(self) -> Option<Command> {
        match self {
            Self::Python => clients::python("client.py"),
            Self::Node => clients::node("client.mjs"),
            Self::Go => installed("go/client").map(Command::new),
        }
    }
}

fn start(language: Language, url: &str, scenario: &str, environment: &[(&str, &str)]) -> Option<Child> {
    let mut command = language.command()?;
    command.args([url, scenario]);
    command.envs(environment.iter().copied());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    Some(child.expect("the client can be started"))
}

/// Runs a scenario to its end.
fn run(language: Language, url: &str, scenario: &str, environment: &[(&str, &str)]) {
    let Some(child) = start(language, url, scenario, environment) else { return };
    let output = child.wait_with_output().expect("it ends");
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{language:?} {scenario} {environment:?}:\n{said}");
    assert!(String::from_utf8_lossy(&output.stdout).trim_end().ends_with("ok"), "{said}");
}

fn nats(feed: &Feed) -> String {
    format!("nats://{}", feed.address())
}

#[test]
fn publish_subscribe_groups_requests_headers_and_drain() {
    let feed = Feed::start("");
    for language in ALL {
        run(language, &nats(&feed), "basics", &[]);
    }
}

#[test]
fn a_browsers_client_by_websocket() {
    let feed = Feed::start("websocket { port: {WEB}, no_tls: true }");
    run(Language::Node, &format!("ws://127.0.0.1:{}", feed.web_port()), "basics", &[]);
}

#[test]
fn a_client_that_asks_for_compression_does_without() {
    let feed = Feed::start("websocket { port: {WEB}, no_tls: true }");
    run(Language::Go, &format!("ws://127.0.0.1:{}", feed.web_port()), "compressed", &[]);
}

#[test]
fn every_way_to_say_who_one_is() {
    let feed = Feed::start(USERS);
    for language in ALL {
        let user = |user, password| [("FEED_USER", user), ("FEED_PASSWORD", password)];
        run(language, &nats(&feed), "let-in", &user("plain", "s3cret"));
        run(language, &nats(&feed), "let-in", &user("hashed", "s3cret"));
        run(language, &nats(&feed), "let-in", &[("FEED_SEED", SEED)]);
        run(language, &nats(&feed), "turned-away", &user("plain", "secret"));
        run(language, &nats(&feed), "turned-away", &user("hashed", "secret"));
        run(language, &nats(&feed), "turned-away", &[]);
        run(language, &nats(&feed), "denied", &user("limited", "s3cret"));
    }
    let feed = Feed::start("authorization { token: \"t0ken\" }");
    for language in ALL {
        run(language, &nats(&feed), "let-in", &[("FEED_TOKEN", "t0ken")]);
        run(language, &nats(&feed), "turned-away", &[("FEED_TOKEN", "token")]);
    }
}

/// Writes a self-signed certificate for localhost and 127.0.0.1.
fn certificate(directory: &Path) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
        .expect("a certificate");
    fs::write(directory.join("cert.pem"), made.cert.pem()).expect("a file");
    fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).expect("a file");
}

#[test]
fn tls_by_tcp_and_by_websocket() {
    let directory = tempfile::tempdir().expect("a directory");
    certificate(directory.path());
    let tls = "tls { cert_file: \"{DIR}/cert.pem\", key_file: \"{DIR}/key.pem\" }";
    let feed = Feed::start_with(directory.path(), &format!("{tls}\nwebsocket {{ port: {{WEB}}, {tls} }}"));
    let ca = directory.path().join("cert.pem");
    let trusting = [("FEED_CA", ca.to_str().expect("text"))];
    for language in ALL {
        run(language, &nats(&feed), "let-in", &trusting);
    }
    run(Language::Node, &format!("wss://127.0.0.1:{}", feed.web_port()), "let-in", &trusting);
}

#[test]
fn a_client_finds_the_server_again() {
    for language in ALL {
        let first = Feed::start("");
        let port = first.address().port();
        let Some(mut child) = start(language, &nats(&first), "reconnect", &[]) else { continue };
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("it says that it is ready");
        assert_eq!(line.trim(), "ready", "{language:?}");
        // Dropping the feed kills it at once, as a power cut would.
        drop(first);
        let _second = Feed::start_on(port, "");
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).expect("text");
        let mut status = None;
        eventually("the client ends", || {
            status = child.try_wait().expect("waitpid works");
            std::thread::sleep(Duration::from_millis(10));
            status.is_some()
        });
        let mut said = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert!(status.is_some_and(|status| status.success()), "{language:?}: {rest}{said}");
        assert!(rest.trim_end().ends_with("ok"), "{language:?}: {rest}");
    }
}
