//! Public reports about NATS, and security advisories, each with its smallest input.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use feed::{
    Server,
    identity::{Authorization, User},
};

use crate::common::{Client, Got, HELLO, start, web_handshake, with_web};

/// Opens a WebSocket; returns it with the head of the server's answer. The client offers compression, like
/// Safari and nats.go with `nats.Compression(true)`.
fn upgraded(server: &Server) -> (TcpStream, String) {
    let fields = "Host: localhost\r\n\
        Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover; server_no_context_takeover\r\n";
    let (socket, head) = web_handshake(server, "/", fields).expect("an answer");
    (socket, head.to_ascii_lowercase())
}

/// RFC 9112 §3.2, §3.2.2: the `Origin` is compared with `Host`, so a handshake must name exactly one host.
#[test]
fn a_handshake_that_names_two_hosts_is_refused() {
    let server = start(1, with_web);
    for (target, hosts, status) in [
        ("/", "Host: localhost\r\n", "101"),
        ("http://LOCALHOST:80/", "Host: localhost\r\n", "101"),
        ("/", "Host: localhost\r\nHost: other\r\n", "400"),
        ("/", "Host: localhost\r\nHost: localhost\r\n", "400"),
        ("http://other/", "Host: localhost\r\n", "400"),
        ("http://localhost:81/", "Host: localhost\r\nOrigin: http://localhost\r\n", "400"),
    ] {
        let (_, head) = web_handshake(&server, target, hosts).expect("an answer");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{target} {hosts}{head}");
    }
}

/// A client's frame, with a mask of zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match u8::try_from(payload.len()) {
        Ok(length) if length < 126 => frame.push(0x80 | length),
        _ => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&u16::try_from(payload.len()).expect("short").to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

/// Reads the server's next frame: its first byte and its payload. Returns `None` if the server has closed.
fn read_frame(socket: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    socket.read_exact(&mut head).ok()?;
    let length = match head[1] {
        126 => {
            let mut length = [0; 2];
            socket.read_exact(&mut length).ok()?;
            usize::from(u16::from_be_bytes(length))
        }
        length => usize::from(length),
    };
    let mut payload = vec![0; length];
    socket.read_exact(&mut payload).ok()?;
    Some((head[0], payload))
}

const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

/// nats.go#1783: the server does not accept compression, so a frame marked as compressed is a protocol error.
#[test]
fn websocket_compression_is_not_agreed_to() {
    let server = start(1, with_web);
    let (mut socket, head) = upgraded(&server);
    assert!(head.starts_with("http/1.1 101") && !head.contains("extensions"), "{head}");
    socket.write_all(&frame(BINARY, HELLO)).expect("sent");
    socket.write_all(&frame(BINARY | 0x40, b"PING\r\n")).expect("sent");
    let mut last = None;
    while let Some((first, payload)) = read_frame(&mut socket) {
        last = Some((first, payload));
    }
    assert_eq!(last, Some((CLOSE, vec![3, 234])), "1002, a protocol error");
}

/// Advisory of 2026-03: a 64-bit length with its top bit set (RFC 6455 §5.2) is an error, and no buffer is
/// allocated for it.
#[test]
fn a_websocket_length_has_63_bits() {
    let server = start(1, with_web);
    let (mut socket, _) = upgraded(&server);
    let mut wrong = vec![BINARY, 0x80 | 127];
    wrong.extend_from_slice(&(1_u64 << 63 | 1).to_be_bytes());
    wrong.extend_from_slice(&[0; 4]);
    socket.write_all(&wrong).expect("sent");
    while read_frame(&mut socket).is_some_and(|(first, _)| first != CLOSE) {}
    let mut honest = Client::new(&server);
    honest.ping();
}

/// nats.go#1783: control frames are allowed between the fragments of a message (RFC 6455 §5.4).
#[test]
fn a_websocket_message_comes_in_a_thousand_fragments() {
    let server = start(1, with_web);
    let (mut socket, _) = upgraded(&server);
    let mut text = HELLO.to_vec();
    text.extend_from_slice(b"SUB a 1\r\nPUB a 2000\r\n");
    text.extend_from_slice(&[b'x'; 2000]);
    text.extend_from_slice(b"\r\nPING\r\n");
    let pieces: Vec<&[u8]> = text.chunks(text.len().div_ceil(1000)).collect();
    let mut out = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let opcode = if at == 0 { 2 } else { 0 };
        let fin = if at + 1 == pieces.len() { 0x80 } else { 0 };
        out.extend_from_slice(&frame(fin | opcode, piece));
        out.extend_from_slice(&frame(PING, &[at as u8]));
    }
    let mut writing = socket.try_clone().expect("a second handle");
    let sending = std::thread::spawn(move || writing.write_all(&out).expect("sent"));
    let (mut got, mut pongs) = (Vec::new(), 0);
    while !got.ends_with(b"PONG\r\n") && !String::from_utf8_lossy(&got).contains("\r\nPONG\r\n") {
        match read_frame(&mut socket).expect("it stays open") {
            (BINARY, payload) => got.extend_from_slice(&payload),
            (PONG, _) => pongs += 1,
            other => panic!("{other:?}"),
        }
    }
    sending.join().expect("no panic");
    let text = String::from_utf8_lossy(&got).into_owned();
    assert!(text.contains(&format!("MSG a 1 2000\r\n{}\r\nPONG\r\n", "x".repeat(2000))));
    // RFC 6455 §5.5.3: at least the newest ping is answered.
    assert!(pongs >= 1);
}

/// nats-server ccd898ea8: a user who is identified by a certificate cannot log in by name without the
/// certificate.
#[test]
fn a_certificates_user_has_no_empty_password() {
    let name = "CN=example.test,OU=NATS.io";
    let server = start(1, |config| {
        with_web(config);
        let user = User { user: Some(name.to_owned()), ..User::default() };
        config.authorization =
            Authorization { users: vec![user], by_certificate: true, ..Authorization::default() };
    });
    for pass in ["", ",\"pass\":\"\"", ",\"pass\":null"] {
        let connect = format!("CONNECT {{\"verbose\":false,\"user\":\"{name}\"{pass}}}\r\nPING\r\n");
        let mut plain = Client::silent(&server);
        plain.send(connect.as_bytes());
        assert_eq!(plain.next(), Got::Error("Authorization Violation".to_owned()), "{pass}");
        let (mut web, _) = upgraded(&server);
        web.write_all(&frame(BINARY, connect.as_bytes())).expect("sent");
        let mut got = Vec::new();
        while let Some((first, payload)) = read_frame(&mut web) {
            got.extend_from_slice(if first == BINARY { &payload } else { b"" });
        }
        let text = String::from_utf8_lossy(&got).into_owned();
        assert!(text.contains("-ERR 'Authorization Violation'") && !text.contains("PONG"), "{text}");
    }
}

/// nats.py#795, nats-server#2421: a subscription with a maximum is removed when it is reached, also from the
/// counters.
#[test]
fn a_bound_subscription_is_gone_at_its_end() {
    let server = start(2, |_| {});
    let counted = || server.counted(feed::Counter::Subscriptions);
    let mut one = Client::new(&server);
    one.send(b"SUB a 1\r\n");
    for _ in 0..5 {
        one.publish("a", b"x");
    }
    assert_eq!(one.until_pong().len(), 5);
    one.send(b"UNSUB 1 3\r\n");
    one.publish("a", b"x");
    assert_eq!((one.until_pong().len(), counted()), (0, 0));
    for _ in 0..1000 {
        one.send(b"SUB a 1\r\nUNSUB 1 1\r\nPUB a 1\r\nx\r\n");
    }
    assert_eq!((one.until_pong().len(), counted()), (1000, 0));
    // In a queue group the maxima of all members add up.
    let mut two = Client::new(&server);
    for member in [&mut one, &mut two] {
        member.send(b"SUB a q 1\r\nUNSUB 1 2\r\n");
        member.ping();
    }
    let mut asker = Client::new(&server);
    asker.subscribe("inbox", "9");
    for _ in 0..10 {
        asker.publish("a", b"x");
        asker.ping();
        // A message to another core has arrived once that core's clients have got a PONG.
        let got = [one.until_pong().len(), two.until_pong().len()];
        assert!(got[0] + got[1] <= 1, "{got:?}");
    }
    asker.send(b"PUB a inbox 0\r\n\r\n");
    let Got::Message { header, .. } = asker.next() else { panic!("nobody is there") };
    assert!(header.starts_with(b"NATS/1.0 503"));
    assert_eq!((server.counted(feed::Counter::MessagesOut), counted()), (5 + 1000 + 4, 1));
    // A maximum of 0 is no maximum; an unknown sid is no error.
    one.send(b"SUB a 1\r\nUNSUB 1 0\r\nUNSUB 99\r\nPUB a 1\r\nx\r\n");
    assert_eq!((one.until_pong().len(), counted()), (0, 1));
}

/// nats.net#376, nats.py#888: `max_payload` counts the header, too.
#[test]
fn a_header_counts_as_payload() {
    let server = start(1, |config| config.limits.max_payload = 20);
    let mut one = Client::new(&server);
    one.send(b"HPUB a 12 20\r\nNATS/1.0\r\n\r\n01234567\r\n");
    one.ping();
    one.send(b"HPUB a 12 21\r\nNATS/1.0\r\n\r\n012345678\r\n");
    assert_eq!(one.next(), Got::Error("Maximum Payload Violation".to_owned()));
}
