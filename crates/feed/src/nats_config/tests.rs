//! Files as they are written for nats-server.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::identity::{Entry, Identities, Subscribing};

fn faults(text: &str) -> Vec<String> {
    match read(text) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_file_with_everything_that_is_honoured() {
    let text = r#"
# comment
server_name: "night"          // another
listen: 127.0.0.1:4333
http: localhost:8333
max_connections = 100; max_subs 50
max_payload: 2MB, max_pending: 32mib
max_control_line: 2k
write_deadline: "1m30s"
ping_interval: 20
ping_max: 3
lame_duck_duration: 45s
no_header_support: off
tls { cert_file: "./c.pem", key_file: './k.pem', ca_file: ca.pem, verify: true, timeout: 2, handshake_first: yes }
websocket { port: 8443, no_tls: true }
"#;
    let (options, unhonoured) = read(text).unwrap();
    assert_eq!(unhonoured, []);
    assert_eq!(options.server_name.as_deref(), Some("night"));
    assert_eq!((options.host, options.port), (Some([127, 0, 0, 1].into()), Some(4333)));
    assert_eq!((options.http_host, options.http_port), (Some([127, 0, 0, 1].into()), Some(8333)));
    assert_eq!((options.max_connections, options.max_subscriptions), (Some(100), Some(50)));
    assert_eq!(options.max_payload, Some(2 << 20));
    assert_eq!(options.max_pending, Some(32 << 20));
    assert_eq!(options.max_control_line, Some(2000));
    assert_eq!(options.write_deadline, Some(Duration::from_secs(90)));
    assert_eq!((options.ping_interval, options.ping_max), (Some(Duration::from_secs(20)), Some(3)));
    assert_eq!(options.lame_duck_duration, Some(Duration::from_secs(45)));
    assert_eq!(options.no_header_support, Some(false));
    let tls = options.tls.unwrap();
    assert!(tls.verify && tls.handshake_first && tls.ca_file.is_some());
    assert_eq!(tls.key_file.to_str(), Some("./k.pem"));
    assert_eq!(options.websocket, Some(WebSocket { port: 8443, ..WebSocket::default() }));
}

#[test]
fn users_permissions_and_accounts() {
    let text = r#"
authorization {
  timeout: 0.5
  default_permissions { publish: "open.>", subscribe: ["_INBOX.>", "jobs dev.*"] }
  users = [
    { user: ann, password: $2a$11$abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyza }
    { nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4,
      permissions: { publish { allow: [a, b.*], deny: b.x }, subscribe: { deny: ">" }
                     allow_responses: { max: 5, expires: "1m" } } }
  ]
}
accounts: {
  A: { users: [ {user: a, pass: "1"} ] }
  SYS: { users = [ {user: "admin", pass: 'p w'} ] }
}
system_account: SYS
no_auth_user: a
"#;
    let (options, unhonoured) = read(text).unwrap();
    assert_eq!(unhonoured, []);
    assert_eq!(options.auth_timeout, Some(Duration::from_millis(500)));
    let authorization = options.authorization;
    let default = authorization.default_permissions.as_ref().unwrap();
    let jobs = Entry { subject: "jobs".into(), queue: Some("dev.*".into()) };
    assert_eq!(default.subscribe.allow, Some(vec![Entry::of("_INBOX.>"), jobs]));
    assert_eq!(default.may_subscribe(b"jobs", Some(b"dev.1")), Subscribing::Whole);
    let signer = authorization.users[1].permissions.as_ref().unwrap();
    assert!(signer.may_publish(b"b.y") && !signer.may_publish(b"b.x"));
    assert_eq!(signer.responses.unwrap().messages_max, Some(5));
    assert_eq!(signer.responses.unwrap().expires, Some(Duration::from_secs(60)));
    let identities = Identities::build(&authorization, None).unwrap();
    let names: Vec<&str> = identities.accounts().iter().map(|name| &**name).collect();
    assert_eq!(names, ["$G", "SYS", "A"]);
}

#[test]
fn a_single_user_and_a_token() {
    let (options, _) = read("authorization { user: u, password: p }").unwrap();
    assert_eq!(options.authorization.users[0].user.as_deref(), Some("u"));
    let (options, _) = read("authorization: { token: \"s3cr3t\" }").unwrap();
    assert!(options.authorization.token.is_some());
}

#[test]
fn json_is_such_a_file_too() {
    let text = r#"{"port": 4222, "authorization": {"users": [{"user": "a", "password": "b"}]}}"#;
    let (options, _) = read(text).unwrap();
    assert_eq!(options.authorization.users.len(), 1);
    assert_eq!(faults(&format!("{text} port: 1")), ["line 1: something comes after the end"]);
    assert_eq!(options.port, Some(4222));
}

#[test]
fn what_is_not_honoured_is_named_with_its_line() {
    let text = "port: 1\njetstream { store_dir: /tmp }\ncluster { port: 6222\n routes: [] }\ndebug: true\n";
    let (_, unhonoured) = read(text).unwrap();
    let lines: Vec<String> = unhonoured.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "line 2: `jetstream` is not honoured",
            "line 3: `cluster` is not honoured",
            "line 5: `debug` is not honoured"
        ]
    );
}

#[test]
fn what_guards_is_never_passed_over() {
    for (text, expected) in [
        ("operator: /op.jwt", "JWT accounts are not supported"),
        ("resolver: MEMORY", "JWT accounts are not supported"),
        ("authorization { auth_callout { } }", "`auth_callout` is not supported in authorization"),
        (
            "authorization { users [ {user: a, password: b, allowed_connection_types: [WEBSOCKET]} ] }",
            "in a user",
        ),
        ("accounts { A { limits { max_conn: 1 } } }", "in an account"),
        ("tls { cert_file: a, key_file: b, verify_and_map: true }", "in tls"),
        ("tls { cert_file: a, key_file: b, verify: true }", "needs `ca_file`"),
        ("tls { cert_file: a }", "needs `cert_file` and `key_file`"),
        ("websocket { port: 1 }", "or `no_tls: true`"),
    ] {
        let faults = faults(text);
        assert!(faults.len() == 1 && faults[0].contains(expected), "{text}: {faults:?}");
    }
}

#[test]
fn faults_have_their_line_and_all_are_told() {
    let text = "port: x\nmax_payload: 1 0\nmax_payload: 1QB\nhost: nowhere.example\nwrite_deadline: soon\n";
    let faults = faults(text);
    assert_eq!(faults[0], "line 2: `0` has no value");
    let faults =
        self::faults("port: x\nmax_payload: 1QB\nmax_payload: 1\nhost: nowhere.example\nping_interval: soon");
    assert_eq!(
        faults,
        [
            "line 3: `max_payload` is there twice",
            "line 1: `x` is no port",
            "line 2: `1QB` is no whole number, such as 65536 or 64KB",
            "line 4: `nowhere.example` is no address, such as 127.0.0.1 or 0.0.0.0",
            "line 5: `soon` is no time, such as 10s, 2m or 250ms",
        ]
    );
    for (text, expected) in [
        ("a {", "line 1: a block that begins here does not end"),
        ("\n}", "line 2: a bracket that closes nothing"),
        ("a: [1\n", "line 1: a list that begins here does not end"),
        ("a: \"b", "line 1: a quote that does not end on its line"),
        ("a:\nb", "line 1: `a` has no value"),
        ("include ./b.conf", "line 1: `include` is not supported: put it all into one file"),
        ("port: $PORT", "line 1: $variables are not supported: write the value"),
    ] {
        assert_eq!(self::faults(text), [expected], "{text}");
    }
    let deep = format!("a: {}", "[".repeat(100_000));
    assert!(self::faults(&deep)[0].contains("brackets within each other"));
}

proptest! {
    #[test]
    fn no_file_panics(text in "[ -~\\n]{0,200}") {
        let _ = read(&text);
    }

    #[test]
    fn no_mangled_file_panics(cut in 0usize..400, byte in 0u8..128) {
        let text = "authorization { users [ {user: a, password: \"b\", permissions {publish: [a.>], subscribe {deny: x}}} ] }\n\
                    tls {cert_file: a, key_file: b}\nwebsocket {port: 1, no_tls: true}\nmax_payload: 10MB\n";
        let mut bytes = text.as_bytes().to_vec();
        let at = cut % bytes.len();
        bytes[at] = byte;
        let _ = read(&String::from_utf8_lossy(&bytes));
        let _ = read(&String::from_utf8_lossy(&bytes[..at]));
    }
}

#[test]
fn pages_that_may_connect_are_listed() {
    for (said, origins) in [
        ("", &[][..]),
        (
            "allowed_origins: [\"https://a.example\", \"http://b.example:81\"]",
            &["https://a.example", "http://b.example:81"],
        ),
        ("allowed_origins: \"https://a.example\"", &["https://a.example"]),
    ] {
        let (options, _) =
            read(&format!("websocket {{ port: 8443, no_tls: true, {said} }}")).expect("it is sound");
        assert_eq!(options.websocket.expect("a listener").allowed_origins, origins, "{said}");
    }
}
