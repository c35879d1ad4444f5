//! Row A15 of the features: the client's address behind proxies; the PROXY protocol; a Unix socket.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    process::Command,
    time::Duration,
};

use rustix::process::Signal;
use tests::{
    Accelerator, Answer, Client, PATIENCE, Request, ScriptedOrigin, certificate::Certificate, eventually,
    on_one_core, on_one_core_and_on_two, origin::Seen,
};

on_one_core! {
    a15_what_strangers_say_of_themselves_reaches_no_origin,
    a15_proxies_that_are_listed_are_believed,
    a15_the_proxy_header_is_parsed_at_any_split,
    a15_the_proxy_protocol_stands_before_tls,
    a15_a_connection_without_proxy_header_is_closed,
    a15_a_unix_socket_is_served_too,
}

on_one_core_and_on_two! {
    a15_proxied_clients_have_their_own_connection_limit,
    one_client_takes_no_connections_of_others,
    one_client_takes_no_connection_memory_of_others,
}

const CLAIMS: [(&str, &str); 8] = [
    ("X-Forwarded-For", "1.2.3.4"),
    ("X_Forwarded_For", "1.2.3.4"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "evil.test"),
    ("X-Forwarded-Port", "666"),
    ("X-Real-IP", "1.2.3.4"),
    ("Forwarded", "for=1.2.3.4;host=evil.test;proto=https"),
    ("X_REAL_IP", "1.2.3.4"),
];

fn origin() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.answers("/kept", Answer::new(200, "kept").header("Cache-Control", "max-age=600"));
    origin.answers("/passed", Answer::new(200, "passed").header("Cache-Control", "no-store"));
    origin
}

fn claiming(method: &str, target: &str) -> Request {
    let request = Request::new(method, target).header("Host", "site.test");
    CLAIMS.iter().fold(request, |request, (name, value)| request.header(name, value))
}

/// Forwarding fields that an origin was sent.
fn told(seen: &Seen) -> Vec<String> {
    let about = |name: &str| {
        let name = name.to_ascii_lowercase().replace('_', "-");
        name.starts_with("x-forwarded-") || name == "forwarded" || name == "x-real-ip"
    };
    let mut told: Vec<_> = seen
        .headers
        .0
        .iter()
        .filter(|(name, _)| about(name))
        .map(|(name, value)| format!("{}: {value}", name.to_ascii_lowercase()))
        .collect();
    told.sort();
    told
}

fn a15_what_strangers_say_of_themselves_reaches_no_origin(cores: &str) {
    let origin = origin();
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    for (method, path) in [("GET", "/kept"), ("GET", "/passed"), ("POST", "/passed")] {
        accelerator.fetch(&claiming(method, path)).expect_status(200);
        let seen = origin.all_seen().pop().expect("it was asked");
        assert_eq!(
            told(&seen),
            [
                "forwarded: for=127.0.0.1;host=\"site.test\";proto=http",
                "x-forwarded-for: 127.0.0.1",
                "x-forwarded-host: site.test",
                "x-forwarded-proto: http",
            ],
            "{method} {path}"
        );
    }
    // `purge-from` is checked against the real address, not the claimed one.
    let purge = claiming("PURGE", "/kept");
    accelerator.fetch(&purge).expect_status(403);
    // An `https://` target is accepted on a TLS connection only.
    let safe = Request::get("https://site.test/kept").header("Host", "site.test");
    accelerator.fetch(&safe).expect_status(421);
    assert_eq!(accelerator.stat().count("requests.misdirected"), 1);
}

fn a15_proxies_that_are_listed_are_believed(cores: &str) {
    let origin = origin();
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--trusted-proxies", "127.0.0.0/8,10.0.0.0/8")
        .flag("--purge-from", "192.0.2.7")
        .start();
    let asked = |method: &str, path: &str, who: &str| {
        let request = Request::new(method, path).header("Host", "site.test").header("X-Forwarded-For", who);
        accelerator.fetch(&request.header("X-Forwarded-Proto", "https").header("X-Forwarded-Port", "443"))
    };
    asked("POST", "/passed", "1.2.3.4, 192.0.2.9, 10.0.0.1").expect_status(200);
    let seen = origin.all_seen().pop().expect("it was asked");
    assert_eq!(
        told(&seen),
        [
            "forwarded: for=127.0.0.1;host=\"site.test\";proto=https",
            "x-forwarded-for: 1.2.3.4, 192.0.2.9, 10.0.0.1, 127.0.0.1",
            "x-forwarded-host: site.test",
            "x-forwarded-port: 443",
            "x-forwarded-proto: https",
        ]
    );
    asked("GET", "/kept", "192.0.2.7").expect_status(200);
    // The last address that is no trusted proxy counts, whatever precedes it.
    asked("PURGE", "/kept", "192.0.2.7, 192.0.2.9").expect_status(403);
    asked("PURGE", "/kept", "192.0.2.9, 192.0.2.7, 10.0.0.1").expect_status(200);
    let explained = accelerator.ask(&["explain", "https://site.test/kept"]);
    assert!(explained.status.success(), "{explained:?}");
}

const V1: &[u8] = b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\r\n";

/// PROXY protocol header of version 2, with these extensions.
fn v2(extensions: &[u8]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0".to_vec();
    header.push(12 + extensions.len() as u8);
    header.extend_from_slice(&[192, 0, 2, 7, 127, 0, 0, 1, 0x12, 0x67, 0, 80]);
    header.extend_from_slice(extensions);
    header
}

fn proxied(origin: &ScriptedOrigin, cores: &str) -> Accelerator {
    Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--proxy-protocol-from", "127.0.0.1")
        .start()
}

fn a15_the_proxy_header_is_parsed_at_any_split(cores: &str) {
    let origin = origin();
    let accelerator = proxied(&origin, cores);
    let request = Request::get("/passed").header("Host", "site.test").bytes();
    let secured = b"\x02\0\x09site.test\x20\0\x05\x01\0\0\0\0";
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0";
    for (header, who, scheme) in [
        (V1.to_vec(), "192.0.2.7", "http"),
        (v2(b""), "192.0.2.7", "http"),
        (v2(secured), "192.0.2.7", "https"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1", "http"),
        (local.to_vec(), "127.0.0.1", "http"),
    ] {
        let mut all = header.clone();
        all.extend_from_slice(&request);
        for split in [0, 1, 5, 11, 15, header.len() - 1, header.len(), header.len() + 1] {
            let mut client = accelerator.connect();
            for part in [&all[..split], &all[split..]] {
                client.send(part);
                std::thread::sleep(Duration::from_millis(2));
            }
            client.response("GET").expect_status(200);
            // The PROXY header is sent once per connection, and holds for all its requests.
            client.exchange(&Request::get("/passed").header("Host", "site.test")).expect_status(200);
            let seen = origin.all_seen();
            for seen in &seen[seen.len() - 2..] {
                assert_eq!(seen.header("x-forwarded-for"), Some(who), "split at {split}");
                assert_eq!(seen.header("x-forwarded-proto"), Some(scheme), "split at {split}");
            }
        }
    }
    assert_eq!(accelerator.stat().count("errors.bad_proxy_headers"), 0);
}

fn a15_the_proxy_protocol_stands_before_tls(cores: &str) {
    let (origin, certificate) = (origin(), Certificate::of(&["site.test"]));
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--proxy-protocol-from", "127.0.0.1")
        .flag("--tls-listen", "127.0.0.1:0")
        .flag("--tls-cert", &certificate.file().display().to_string())
        .flag("--tls-key", &certificate.key().display().to_string())
        .start();
    for http in ["--http1.1", "--http2"] {
        let output = Command::new("curl")
            .args(["--disable", "--noproxy", "*", "--silent", "--show-error", "--fail", "--max-time", "60"])
            .args(["--haproxy-protocol", http, "--cacert"])
            .arg(certificate.file())
            .args(["--connect-to", &format!("::127.0.0.1:{}", accelerator.secured().port())])
            .arg("https://site.test/passed")
            .output()
            .expect("curl is installed: run tests/install-packages.sh");
        assert!(output.status.success(), "{output:?}");
        let seen = origin.all_seen().pop().expect("it was asked");
        assert!(seen.header("x-forwarded-for").is_some(), "{seen:?}");
        assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    }
}

fn a15_a_connection_without_proxy_header_is_closed(cores: &str) {
    let origin = origin();
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--proxy-protocol-from", "127.0.0.1")
        .limit("request_head_time_max", "300ms")
        .start();
    let long = [&b"PROXY TCP4 "[..], &[b'1'; 4000]].concat();
    let forged = b"PROXY TCP4 192.0.2.7 127.0.0.1 4711\r\nGET /kept HTTP/1.1\r\nHost: a\r\n\r\n";
    // The last two are incomplete headers, followed by silence.
    for bytes in [
        &b"GET /kept HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        forged,
        &long,
        b"\r\n\r\n\0\r\nNO\n",
        b"PROXY TC",
        b"",
    ] {
        let mut client = accelerator.connect();
        let _ = client.try_send(bytes);
        let (_, said) = client.until_closed();
        assert!(said.is_empty(), "{}", said.escape_ascii());
    }
    eventually("each is counted", || accelerator.stat().count("errors.bad_proxy_headers") == 6);
    assert!(origin.all_seen().is_empty());
    // A client that is not listed speaks HTTP, and its PROXY header is a bad request.
    let open = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let mut client = open.connect();
    client.send(&[V1, b"GET /kept HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
    client.response("GET").expect_status(400);
}

fn a15_proxied_clients_have_their_own_connection_limit(cores: &str) {
    let origin = origin();
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--proxy-protocol-from", "127.0.0.1")
        .limit("connections_per_client_max", "2")
        .start();
    let connect = |who: u8| {
        let mut client = accelerator.connect();
        let header = format!("PROXY TCP4 192.0.2.{who} 127.0.0.1 4711 80\r\n");
        client.send(&[header.as_bytes(), &Request::get("/kept").header("Host", "a").bytes()].concat());
        let status = client.response("GET").status();
        (client, status)
    };
    let one: Vec<(Client, u16)> = (0..3).map(|_| connect(1)).collect();
    let others: Vec<(Client, u16)> = (2..20).map(connect).collect();
    assert_eq!(one.iter().map(|(_, status)| *status).collect::<Vec<_>>(), [200, 200, 503]);
    assert!(others.iter().all(|(_, status)| *status == 200));
    assert_eq!(accelerator.stat().count("limits.connections_per_client"), 1);
}

/// Connects as a client with this address, and sends a request or the beginning of one.
fn connect_as(accelerator: &Accelerator, address: &str, bytes: &[u8]) -> Client {
    let mut client = accelerator.connect();
    let header = format!("PROXY TCP4 {address} 127.0.0.1 4711 80\r\n");
    client.send(&[header.as_bytes(), bytes].concat());
    client
}

/// One client's unfinished requests, over as many connections as are allowed, or as their memory allows, keep
/// no other client out: another client's first request may be refused while one of the attacker's connections
/// ends.
fn others_come_in_beside_half_requests(cores: &str, limit: (&str, &str)) {
    let origin = origin();
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--proxy-protocol-from", "127.0.0.1")
        .limit(limit.0, limit.1)
        .start();
    let asked = Request::get("/kept").header("Host", "a").bytes();
    let mut of_attacker: Vec<Client> =
        (0..160).map(|_| connect_as(&accelerator, "192.0.2.1", &asked[..asked.len() - 2])).collect();
    for number in 0..24 {
        let address = format!("198.51.100.{number}");
        eventually("another client is answered", || {
            of_attacker.push(connect_as(&accelerator, "192.0.2.1", &asked[..asked.len() - 2]));
            let mut honest = connect_as(&accelerator, &address, &asked);
            honest.response("GET").status() == 200
        });
    }
    assert!(accelerator.stat().count("limits.connections_displaced") > 0);
}

fn one_client_takes_no_connections_of_others(cores: &str) {
    others_come_in_beside_half_requests(cores, ("connections_max", "64"));
}

fn one_client_takes_no_connection_memory_of_others(cores: &str) {
    others_come_in_beside_half_requests(cores, ("connection_bytes_max", "256KiB"));
}

fn a15_a_unix_socket_is_served_too(cores: &str) {
    let origin = origin();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("http.socket");
    let text = path.display().to_string();
    let setup = || Accelerator::before(&origin.url()).flag("--cores", cores).flag("--listen-unix", &text);
    let mut accelerator = setup().flag("--trusted-proxies", "127.0.0.1").start();
    for number in 0..4 {
        let mut stream = UnixStream::connect(&path).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let head = "Host: site.test\r\nX-Forwarded-For: 192.0.2.7\r\nConnection: close\r\n\r\n";
        stream.write_all(format!("GET /passed?{number} HTTP/1.1\r\n{head}").as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("passed"), "{answer}");
        let seen = origin.all_seen().pop().expect("it was asked");
        assert_eq!(seen.header("x-forwarded-for"), Some("192.0.2.7, 127.0.0.1"));
    }
    // A second instance is refused with the reason, and leaves the socket alone.
    let second = setup().run_to_its_end();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains(&text) && said.contains("listens there"), "{said}");
    UnixStream::connect(&path).expect("the first still listens");
    accelerator.signal(Signal::TERM);
    assert!(accelerator.wait().success());
    assert!(!path.exists());
}
