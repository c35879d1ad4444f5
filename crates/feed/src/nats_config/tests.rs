//! Tests with files that were written for nats-server.

use std::{collections::HashMap, net::IpAddr, path::Path, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    accounts::identity::{ConnectionTypes, Entry, Identities, SubscribeVerdict},
    config::HandshakeFirst,
    leaf::{Login, UserSeed},
};

/// Simulated environment of a configuration file in `/etc/nats`.
#[derive(Default)]
struct Around {
    files: HashMap<&'static str, String>,
    variables: HashMap<&'static str, &'static str>,
}

impl Surroundings for Around {
    fn file(&self, path: &Path) -> Result<String, String> {
        let text = path.to_str().and_then(|path| self.files.get(path));
        text.cloned().ok_or_else(|| format!("{} is not there", path.display()))
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).map(|text| (*text).to_owned())
    }

    fn address_of(&self, name: &str) -> Result<IpAddr, String> {
        if name == "feed.example" { Ok([192, 0, 2, 7].into()) } else { Err("no such host".to_owned()) }
    }
}

impl Around {
    fn files(files: &[(&'static str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
        Self { files, ..Self::default() }
    }

    fn read(&self, text: &str) -> Result<(Options, Vec<IgnoredOption>), Vec<String>> {
        super::read(text, Path::new("/etc/nats/nats.conf"), self)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect())
    }
}

fn read(text: &str) -> Result<(Options, Vec<IgnoredOption>), Vec<String>> {
    Around::default().read(text)
}

fn faults(text: &str) -> Vec<String> {
    match read(text) {
        Ok(_) => Vec::new(),
        Err(faults) => faults,
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
lame_duck_grace_period: 3s
server_tags: ["eu", "cache:2"]
log_file: "/var/log/night.log"
pid_file: /run/night.pid
debug: true, trace: false
no_header_support: off
proxy_protocol: on
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
    assert_eq!(options.lame_duck_grace_period, Some(Duration::from_secs(3)));
    assert_eq!(options.server_tags, ["eu", "cache:2"]);
    assert_eq!(options.log_file.as_deref(), Some(Path::new("/var/log/night.log")));
    assert_eq!(options.pid_file.as_deref(), Some(Path::new("/run/night.pid")));
    assert_eq!((options.debug, options.trace), (Some(true), Some(false)));
    assert_eq!(options.no_header_support, Some(false));
    assert_eq!(options.proxy_protocol, Some(true));
    let tls = options.tls.unwrap();
    assert!(tls.verify && tls.handshake_first == HandshakeFirst::Yes && tls.ca_file.is_some());
    assert_eq!(tls.timeout, Some(Duration::from_secs(2)));
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
    assert_eq!(default.subscribe_verdict(b"jobs", Some(b"dev.1")), SubscribeVerdict::Whole);
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
    assert_eq!(faults(&format!("{text} port: 1")), ["line 1: unexpected text after the end"]);
    assert_eq!(options.port, Some(4222));
}

#[test]
fn ignored_settings_are_listed_with_their_line() {
    let text = "port: 1\njetstream { store_dir: /tmp }\ncluster { port: 6222\n routes: [] }\nsyslog: true\nwebsocket { port: 1, no_tls: true, compression: true }\n";
    let (_, unhonoured) = read(text).unwrap();
    let lines: Vec<String> = unhonoured.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "`jetstream` (line 2)",
            "`cluster` (line 3)",
            "`syslog` (line 5)",
            "`websocket.compression` (line 6)"
        ]
    );
}

#[test]
fn what_guards_is_never_passed_over() {
    for (text, expected) in [
        ("operator: /op.jwt", "JWT accounts are not supported"),
        ("resolver: MEMORY", "JWT accounts are not supported"),
        ("authorization { auth_callout { } }", "`auth_callout` is not supported in authorization"),
        ("authorization { users [ {user: a, password: b, allowed_sources: [a]} ] }", "in a user"),
        (
            "authorization { users [ {user: a, password: b, allowed_connection_types: [WEBSOCKETS]} ] }",
            "invalid connection type",
        ),
        ("accounts { A { limits { max_streams: 1 } } }", "in limits"),
        ("https: \"0.0.0.0:8443\"", "not served under TLS"),
        ("https_port: 8443", "not served under TLS"),
        ("resolver_tls { }", "JWT accounts are not supported"),
        ("websocket { port: 1, no_tls: true, no_auth_user: a }", "in websocket"),
        (
            "websocket { port: 1, no_tls: true, user_cookie: a }",
            "`user_cookie` is not supported in websocket",
        ),
        ("tls { cert_file: a, key_file: b, verify_and_map: true }", "needs `ca_file`"),
        ("tls { cert_file: a, key_file: b, pinned_certs: [a] }", "in tls"),
        ("tls { cert_file: a, key_file: b, handshake_first: soon }", "auto or a time"),
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
    let faults = self::faults("port: x\nmax_payload: 1QB\n\nhost: nowhere.example\nping_interval: soon");
    assert_eq!(
        faults,
        [
            "line 1: invalid port `x`",
            "line 2: invalid whole number `1QB`; expected 65536 or 64KB",
            "line 4: invalid address `nowhere.example`: no such host",
            "line 5: invalid time `soon`; expected 10s, 2m or 250ms",
        ]
    );
    for (text, expected) in [
        ("a {", "line 1: unclosed block that begins here"),
        ("\n}", "line 2: unmatched closing bracket"),
        ("a: [1\n", "line 1: unclosed list that begins here"),
        ("a: \"b", "line 1: a quote is not closed on its line"),
        ("a:\nb", "line 1: `a` has no value"),
        ("\ninclude ./b.conf", "line 2: `./b.conf`: /etc/nats/b.conf is not there"),
        ("port: $PORT", "line 1: `$PORT` is defined neither before in this file nor in the environment"),
    ] {
        assert_eq!(self::faults(text), [expected], "{text}");
    }
    let deep = format!("a: {}", "[".repeat(100_000));
    assert!(self::faults(&deep)[0].contains("nested brackets"));
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

#[test]
fn a_file_includes_others() {
    let around = Around::files(&[
        ("/etc/nats/users/all.conf", "users = [ {user: a, password: b} ]\ninclude 'more.conf'\n"),
        ("/etc/nats/users/more.conf", "timeout: 3"),
        ("/etc/nats/limits.conf", "{\"max_payload\": 1000, \"max_pending\": 2000}"),
    ]);
    // An included path with a leading / is also relative to the file's directory, as in nats-server. Later
    // lines of the including file override included ones.
    let text = "include /limits.conf\nmax_pending: 3000\nauthorization {\n include ./users/all.conf\n}\n";
    let (options, unhonoured) = around.read(text).unwrap();
    assert_eq!(unhonoured, []);
    assert_eq!((options.max_payload, options.max_pending), (Some(1000), Some(3000)));
    assert_eq!(options.authorization.users.len(), 1);
    assert_eq!(options.auth_timeout, Some(Duration::from_secs(3)));
}

#[test]
fn a_fault_in_an_included_file_names_it() {
    let around =
        Around::files(&[("/etc/nats/a.conf", "\nport: x\nsyslog: true"), ("/etc/nats/b.conf", "a {")]);
    assert_eq!(around.read("include a.conf").unwrap_err(), ["/etc/nats/a.conf, line 2: invalid port `x`"]);
    let (_, unhonoured) = around.read("include a.conf\nport: 1").unwrap();
    assert_eq!(unhonoured[0].to_string(), "`syslog` (/etc/nats/a.conf, line 3)");
    let torn = around.read("\ninclude b.conf").unwrap_err();
    assert_eq!(torn, ["/etc/nats/b.conf, line 1: unclosed block that begins here"]);
}

#[test]
fn includes_and_variables_end() {
    let mut around = Around::files(&[
        ("/etc/nats/self.conf", "include self.conf"),
        ("/etc/nats/a.conf", "include b.conf"),
        ("/etc/nats/b.conf", "include a.conf"),
        ("/etc/nats/one.conf", "x: 1"),
    ]);
    for text in ["include self.conf", "include a.conf"] {
        let faults = around.read(text).unwrap_err();
        assert!(faults[0].contains("more than 16 nested includes"), "{faults:?}");
    }
    let faults = around.read(&"include one.conf\n".repeat(300)).unwrap_err();
    assert_eq!(faults, ["line 256: more than 256 files"]);
    around.variables.insert("ROUND", "$ROUND");
    let faults = around.read("port: $ROUND").unwrap_err();
    assert!(faults[0].contains("refers to itself"), "{faults:?}");
    // Each line contains ten times as many values as the one before.
    let more = |n| format!("v{}: [{}]\n", n + 1, format!("$v{n} ").repeat(10));
    let text = "v0: 1\n".to_owned() + &(0..12).map(more).collect::<String>();
    let faults = around.read(&text).unwrap_err();
    assert!(faults[0].contains("too many values: more than 1048576"), "{faults:?}");
}

#[test]
fn variables_stand_for_values() {
    let mut around = Around::files(&[("/etc/nats/inner.conf", "max_payload: $SIZE")]);
    around.variables.insert("SIZE", "2k");
    around.variables.insert("NAMES", "[eu, us]");
    around.variables.insert("PASS", "outside");
    let text = r#"
PORT: 4555
PASS: "before"
server_tags: $NAMES
ME { user: c, password: $PASS }
authorization {
  PASS: 'inside'
  users = [ { user: a, password: $PASS }, { user: b, password: $2a$11$abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyza }
            $ME ]
}
port: $PORT
include inner.conf
max_pending: $SIZE
server_name: "$PORT"
"#;
    let (options, unhonoured) = around.read(text).unwrap();
    assert_eq!(unhonoured, [], "what a variable stands for needs no meaning of its own");
    assert_eq!(options.port, Some(4555));
    assert_eq!(options.server_tags, ["eu", "us"]);
    assert_eq!((options.max_payload, options.max_pending), (Some(2000), Some(2000)));
    assert_eq!(options.server_name.as_deref(), Some("$PORT"), "a quoted one is none");
    let secrets: Vec<_> = options.authorization.users.iter().map(|user| user.password.clone()).collect();
    let plain = |text: &str| Some(crate::accounts::identity::Secret::Plain(text.into()));
    assert_eq!((&secrets[0], &secrets[2]), (&plain("inside"), &plain("before")));
    assert_eq!(around.read("a: 1\ncluster { port: $a }").unwrap().1[0].to_string(), "`cluster` (line 2)");
    // A block's variables are not visible after it, and an included file does not see those around its
    // `include`.
    let unknown = "is defined neither before";
    assert!(around.read("b { PORT: 1 }\nport: $PORT").unwrap_err()[0].contains(unknown));
    let around = Around::files(&[("/etc/nats/inner.conf", "port: $PORT")]);
    assert!(around.read("PORT: 1\ninclude inner.conf").unwrap_err()[0].contains(unknown));
}

/// An option that nats-server does not know either is refused, because ignoring it could allow access that
/// the option was meant to restrict.
#[test]
fn a_misspelt_word_is_refused_with_the_nearest() {
    for (text, expected) in [
        (
            "authorizaton { user: a, password: b }",
            "line 1: `authorizaton` is no word at the top of a file; perhaps `authorization`",
        ),
        ("port: 1\nacounts { }", "line 2: `acounts` is no word at the top of a file; perhaps `accounts`"),
        (
            "\nWebsockets { port: 1 }",
            "line 2: `Websockets` is no word at the top of a file; perhaps `websocket`",
        ),
        ("no_auth_usr: a", "line 1: `no_auth_usr` is no word at the top of a file; perhaps `no_auth_user`"),
        ("users [ ]", "line 1: `users` is no word at the top of a file"),
        ("leafnodes { remotse [ ] }", "line 1: `remotse` is no word of leafnodes; perhaps `remotes`"),
        (
            "leafnodes { remotes [ { url: a, deny_exprots: b } ] }",
            "line 1: `deny_exprots` is no word of a remote; perhaps `deny_exports`",
        ),
    ] {
        assert_eq!(faults(text), [expected], "{text}");
    }
    // A key that is used as a variable need not be a known option.
    assert!(read("authorizaton: 4222\nport: $authorizaton").is_ok());
}

/// 0 means the default, and -1 turns a limit off (nats-server's `setBaselineOptions`).
#[test]
fn no_limit_and_the_default_have_numbers() {
    let text = "max_payload: 0\nmax_pending: 0\nmax_control_line: 0\nping_interval: 0\nping_max: 0\n\
                write_deadline: 0\nlame_duck_duration: \"0s\"\nauthorization { timeout: 0, token: t }";
    let (options, _) = read(text).unwrap();
    assert_eq!((options.max_payload, options.max_pending, options.max_control_line), (None, None, None));
    assert_eq!((options.ping_interval, options.ping_max, options.write_deadline), (None, None, None));
    assert_eq!((options.lame_duck_duration, options.auth_timeout), (None, None));
    let text = "max_payload: -1\nmax_pending: -1\nmax_control_line: -1\nmax_connections: -1\nmax_subs: 0";
    let (options, _) = read(text).unwrap();
    let none = Some(Options::NO_LIMIT);
    assert_eq!((options.max_payload, options.max_pending, options.max_control_line), (none, none, none));
    assert_eq!((options.max_connections, options.max_subscriptions), (none, none));
}

/// If a key occurs twice, the last entry counts, even if it is a block, as in nats-server's parser. The feed
/// reports the first one.
#[test]
fn the_last_duplicate_block_wins() {
    let text = "authorization { token: a }\nport: 1\nauthorization { token: b }\nport: 2\n\
                accounts { A { users: [ {user: x, password: y} ] }\nA { users: [ {user: z, password: y} ] }, a { } }";
    let (options, unhonoured) = read(text).unwrap();
    assert_eq!(options.authorization.token, Some(crate::accounts::identity::Secret::Plain("b".into())));
    assert_eq!(options.port, Some(2));
    let accounts: Vec<_> =
        options.authorization.accounts.iter().map(|one| (one.name.as_str(), one.users.len())).collect();
    assert_eq!(accounts, [("A", 1), ("a", 0)]);
    assert_eq!(options.authorization.accounts[0].users[0].user.as_deref(), Some("z"));
    let words: Vec<String> = unhonoured.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "`authorization, set again below` (line 1)",
            "`port, set again below` (line 2)",
            "`A, set again below` (line 5)"
        ]
    );
}

/// Options from public configuration files of nats-server are accepted.
#[test]
fn files_as_people_have_them_are_taken() {
    let text = r#"
PORT: 4333
TLS: { cert_file: c, key_file: k, cipher_suites: ["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"], curve_preferences: [X25519] }
MAX_PAYLOAD: 2MB
tls: $TLS
allow_non_tls: true
port: $PORT
max_payload: $MAX_PAYLOAD
mappings { "a.*": "b.{{partition(3)}}.{{random(5)}}" }
accounts {
  A { users: [ {user: a, password: b} ], limits { max_connections: 3, max_subs: -1, max_payload: 1KB, max_leafnodes: 0 }
      exports: [ {service: "q.>"}, {stream: s} ], imports: [ {service: {account: A, subject: "q.>"}} ] }
}
websocket { port: 8443, no_tls: true, headers { X: y }, ping_interval: 3 }
"#;
    let (options, unhonoured) = read(text).unwrap();
    let words: Vec<&str> = unhonoured.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(
        words,
        [
            "tls.cipher_suites",
            "tls.curve_preferences",
            "accounts.A.imports: its own q.>",
            "websocket.headers",
            "websocket.ping_interval"
        ]
    );
    assert!(options.tls.unwrap().optional);
    assert_eq!((options.port, options.max_payload), (Some(4333), Some(2 << 20)));
    let limits = options.authorization.accounts[0].limits;
    assert_eq!(
        (limits.max_connections, limits.max_subscriptions, limits.max_payload),
        (Some(3), None, Some(1 << 10))
    );
    Identities::build(&options.authorization, None).expect("it is sound");
}

#[test]
fn hosts_have_names_too() {
    let around = Around::default();
    let (options, _) = around.read("listen: \"feed.example:4333\"\nhttp: localhost:1").unwrap();
    assert_eq!(options.host, Some([192, 0, 2, 7].into()));
    assert_eq!(options.http_host, Some([127, 0, 0, 1].into()));
}

#[test]
fn who_connects_by_what() {
    let text = r#"
authorization { users = [ {user: a, password: b, allowed_connection_types: ["WEBSOCKET", mqtt]}, {user: c, password: d} ] }
tls { cert_file: a, key_file: b, ca_file: c, verify_and_map: true, handshake_first: auto }
websocket { port: 8443, same_origin: true, tls { cert_file: a, key_file: b, handshake_first: "300ms" } }
"#;
    let (options, _) = read(text).unwrap();
    let types = options.authorization.users.iter().map(|user| user.connection_types).collect::<Vec<_>>();
    assert_eq!(types, [Some(ConnectionTypes { standard: false, websocket: true }), None]);
    let tls = options.tls.unwrap();
    assert!(tls.map && tls.verify);
    assert_eq!(tls.handshake_first, HandshakeFirst::After(Duration::from_millis(50)));
    let websocket = options.websocket.unwrap();
    assert!(websocket.same_origin);
    assert_eq!(websocket.tls.unwrap().handshake_first, HandshakeFirst::After(Duration::from_millis(300)));
}

#[test]
fn hubs_to_join() {
    let seed = nkeys::KeyPair::new_user().seed().expect("it is ours");
    let text = format!(
        r#"
leafnodes {{
  port: 7422
  reconnect: 2
  remotes = [
    {{ urls: ["nats-leaf://u:p@one.example:7422", "tls://two.example"], account: SHOP, credentials: "/c.creds",
       no_randomize: true, deny_imports: "a.>", deny_exports: ["b", "c.*"], compression: off,
       tls {{ ca_file: /ca.pem, cert_file: /c.pem, key_file: /k.pem, handshake_first: true, timeout: 3 }} }}
    {{ url: "ws://three.example", nkey: {seed} }}
    {{ url: "four.example", disabled: true }}
  ]
}}
"#
    );
    let (options, unhonoured) = read(&text).expect("it is right");
    let hubs = &options.hubs;
    let places: Vec<Vec<String>> =
        hubs.iter().map(|hub| hub.addresses.iter().map(ToString::to_string).collect()).collect();
    assert_eq!(
        places,
        [vec!["nats-leaf://one.example:7422", "tls://two.example:7422"], vec!["ws://three.example:80"]]
    );
    assert_eq!(hubs[0].account.as_deref(), Some("SHOP"));
    assert_eq!(hubs[0].login, Login::Credentials("/c.creds".into()));
    assert_eq!(hubs[0].tls_ca.as_deref(), Some(Path::new("/ca.pem")));
    assert_eq!(hubs[0].tls_pair, Some(("/c.pem".into(), "/k.pem".into())));
    assert!(hubs[0].tls_handshake_first && !hubs[1].tls_handshake_first);
    assert_eq!((&hubs[0].deny_imports[..], hubs[0].deny_exports.len()), (&["a.>".to_owned()][..], 2));
    assert_eq!(hubs[1].login, Login::Seed(UserSeed::new(&seed).expect("a seed")));
    let words: Vec<&str> = unhonoured.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(
        words,
        [
            "leafnodes.port",
            "leafnodes.reconnect",
            "leafnodes.remotes.compression",
            "leafnodes.remotes.tls.timeout"
        ]
    );
}

#[test]
fn hub_faults_name_their_line_without_secrets() {
    let of = |remote: &str| faults(&format!("leafnodes {{ remotes = [\n{{ {remote} }}\n] }}"));
    for (remote, fault) in [
        (
            "account: A",
            "line 2: a remote needs `url`, the hub's address, for instance nats-leaf://hub.example:7422",
        ),
        (
            "url: \"http://a\"",
            "line 2: unsupported scheme http:// for a hub; expected nats-leaf://, tls://, ws:// or wss://",
        ),
        (
            "url: a, nkey: SUNOSEED, creds: \"/c\"",
            "line 2: invalid `nkey`: expected the seed of a user (SU…)",
        ),
        (
            "url: a, deny_imports: [\"a..b\"]",
            "line 2: invalid subject pattern `a..b`; expected a pattern such as orders.>",
        ),
        ("url: a, tls { cert_file: c }", "line 2: `cert_file` and `key_file` must be set together"),
        (
            "url: a, tls { pinned_certs: [] }",
            "line 2: `pinned_certs` is not supported in a remote's tls, and ignoring it could allow what it forbids",
        ),
    ] {
        assert_eq!(of(remote), [fault], "{remote}");
    }
    let seed = nkeys::KeyPair::new_user().seed().expect("it is ours");
    assert_eq!(
        of(&format!("url: a, creds: \"/c\", nkey: {seed}")),
        ["line 2: a remote may have `credentials` or `nkey`, not both: credentials contain a key"]
    );
}
