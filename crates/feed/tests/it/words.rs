//! Answers of the server, byte for byte, and whether it then closes: as nats-server 2.15.2 does on the wire.

use std::{io::Write, time::Duration};

use crate::common::{Client, HELLO, start};

const PEDANTIC: &[u8] =
    b"CONNECT {\"verbose\":false,\"pedantic\":true,\"headers\":true,\"no_responders\":true}\r\n";
const VERBOSE: &[u8] = b"CONNECT {\"verbose\":true,\"pedantic\":false,\"headers\":true}\r\n";
const OPEN: bool = false;
const CLOSED: bool = true;

/// Name, opening bytes, bytes sent next, expected answer, and whether the server closes. `<INFO>` stands for
/// an INFO line.
type Row = (&'static str, &'static [u8], &'static [u8], &'static [u8], bool);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("lowercase", HELLO, b"sub foo 1\r\npub foo 2\r\nhi\r\nPING\r\n", b"MSG foo 1 2\r\nhi\r\nPONG\r\n<INFO>", OPEN),
    ("tabs", HELLO, b"SUB\tfoo\t 1\r\nPUB \t foo  2\r\nhi\r\nPING\r\n", b"MSG foo 1 2\r\nhi\r\nPONG\r\n<INFO>", OPEN),
    ("leading space op", HELLO, b" PING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", CLOSED),
    ("PING with args", HELLO, b"PING abc\r\nPING\r\n", b"PONG\r\n<INFO>PONG\r\n", OPEN),
    ("PING lf only", HELLO, b"PING\n", b"PONG\r\n<INFO>", OPEN),
    ("PUB lf only", HELLO, b"SUB foo 1\nPUB foo 2\nhi\r\nPING\r\n", b"MSG foo 1 2\r\nhi\r\nPONG\r\n<INFO>", OPEN),
    ("PUB payload wrong end", HELLO, b"SUB foo 1\r\nPUB foo 2\r\nhixxPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", CLOSED),
    ("PUB payload end LF", HELLO, b"SUB foo 1\r\nPUB foo 2\r\nhi\nPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", CLOSED),
    ("PUB payload end CR x", HELLO, b"SUB foo 1\r\nPUB foo 2\r\nhi\rx\nPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", CLOSED),
    ("PUB no args", HELLO, b"PUB\r\nPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", CLOSED),
    ("PUB space only", HELLO, b"PUB \r\nPING\r\n", b"", CLOSED),
    ("PUB 1 arg", HELLO, b"PUB foo\r\nPING\r\n", b"", CLOSED),
    ("PUB 4 args", HELLO, b"PUB foo a b 2\r\nhi\r\nPING\r\n", b"", CLOSED),
    ("PUB neg", HELLO, b"PUB foo -2\r\nhi\r\nPING\r\n", b"", CLOSED),
    ("PUB nan", HELLO, b"PUB foo abc\r\nhi\r\nPING\r\n", b"", CLOSED),
    ("PUB huge digits", HELLO, b"PUB foo 99999999999999999999\r\nhi\r\nPING\r\n", b"", CLOSED),
    ("PUB over max", HELLO, b"PUB foo 1048577\r\nPING\r\n", b"-ERR 'Maximum Payload Violation'\r\n", CLOSED),
    ("PUB empty token", HELLO, b"SUB > 1\r\nPUB foo..bar 2\r\nhi\r\nPING\r\n", b"PONG\r\n<INFO>", OPEN),
    ("PUB empty token pedantic", PEDANTIC, b"SUB > 1\r\nPUB foo..bar 2\r\nhi\r\nPING\r\n", b"-ERR 'Invalid Publish Subject'\r\nPONG\r\n", OPEN),
    ("PUB wild", HELLO, b"SUB > 1\r\nSUB foo.> 2\r\nSUB foo.* 3\r\nPUB foo.* 2\r\nhi\r\nPING\r\n", b"MSG foo.* 1 2\r\nhi\r\nMSG foo.* 2 2\r\nhi\r\nMSG foo.* 3 2\r\nhi\r\nPONG\r\n<INFO>", OPEN),
    ("PUB wild pedantic", PEDANTIC, b"SUB > 1\r\nPUB foo.* 2\r\nhi\r\nPING\r\n", b"-ERR 'Invalid Publish Subject'\r\nMSG foo.* 1 2\r\nhi\r\nPONG\r\n", OPEN),
    ("PUB .foo", HELLO, b"SUB > 1\r\nPUB .foo 2\r\nhi\r\nPING\r\n", b"PONG\r\n<INFO>", OPEN),
    ("PUB foo.", HELLO, b"SUB > 1\r\nPUB foo. 2\r\nhi\r\nPING\r\n", b"PONG\r\n<INFO>", OPEN),
    ("PUB foo.>", HELLO, b"SUB > 1\r\nPUB foo.> 2\r\nhi\r\nPING\r\n", b"MSG foo.> 1 2\r\nhi\r\nPONG\r\n<INFO>", OPEN),
    ("PUB foo.>.bar", HELLO, b"SUB > 1\r\nPUB foo.>.bar 2\r\nhi\r\nPING\r\n", b"MSG foo.>.bar 1 2\r\nhi\r\nPONG\r\n<INFO>", OPEN),
    ("PUB foo*bar", HELLO, b"SUB > 1\r\nPUB foo*bar 2\r\nhi\r\nPING\r\n", b"MSG foo*bar 1 2\r\nhi\r\nPONG\r\n<INFO>", OPEN),
    ("PUB reply wild", HELLO, b"SUB > 1\r\nPUB foo bar.* 2\r\nhi\r\nPING\r\n", b"MSG foo 1 bar.* 2\r\nhi\r\nPONG\r\n<INFO>", OPEN),
    ("PUB reply wild pedantic", PEDANTIC, b"SUB > 1\r\nPUB foo bar.* 2\r\nhi\r\nPING\r\n", b"MSG foo 1 bar.* 2\r\nhi\r\nPONG\r\n", OPEN),
    ("SUB no args", HELLO, b"SUB\r\nPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", CLOSED),
    ("SUB 1 arg", HELLO, b"SUB foo\r\nPING\r\n", b"", CLOSED),
    ("SUB 4 arg", HELLO, b"SUB foo a b c\r\nPING\r\n", b"", CLOSED),
    ("SUB bad foo..bar", HELLO, b"SUB foo..bar 1\r\nPING\r\n", b"-ERR 'Invalid Subject'\r\nPONG\r\n<INFO>", OPEN),
    ("SUB foo.", HELLO, b"SUB foo. 1\r\nPING\r\n", b"-ERR 'Invalid Subject'\r\nPONG\r\n<INFO>", OPEN),
    ("SUB >.foo", HELLO, b"SUB >.foo 1\r\nPING\r\n", b"-ERR 'Invalid Subject'\r\nPONG\r\n<INFO>", OPEN),
    ("SUB foo*", HELLO, b"SUB foo* 1\r\nPUB foo* 1\r\nx\r\nPUB fooa 1\r\ny\r\nPING\r\n", b"MSG foo* 1 1\r\nx\r\nPONG\r\n<INFO>", OPEN),
    ("SUB bad verbose", VERBOSE, b"SUB foo..bar 1\r\nPING\r\n", b"+OK\r\n-ERR 'Invalid Subject'\r\nPONG\r\n", OPEN),
    ("SUB bad queue", HELLO, b"SUB foo a.* 1\r\nPING\r\n", b"PONG\r\n<INFO>", OPEN),
    ("SUB dup sid", HELLO, b"SUB foo 1\r\nSUB bar 1\r\nPUB foo 1\r\na\r\nPUB bar 1\r\nb\r\nPING\r\n", b"MSG foo 1 1\r\na\r\nPONG\r\n<INFO>", OPEN),
    ("UNSUB unknown", HELLO, b"UNSUB 9\r\nPING\r\n", b"PONG\r\n<INFO>", OPEN),
    ("UNSUB unknown verbose", VERBOSE, b"UNSUB 9\r\nPING\r\n", b"+OK\r\n+OK\r\nPONG\r\n", OPEN),
    ("UNSUB none", HELLO, b"UNSUB\r\nPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", CLOSED),
    ("UNSUB 3 args", HELLO, b"UNSUB 1 2 3\r\nPING\r\n", b"", CLOSED),
    ("UNSUB nan", HELLO, b"SUB foo 1\r\nUNSUB 1 abc\r\nPUB foo 1\r\na\r\nPING\r\n", b"PONG\r\n<INFO>", OPEN),
    ("UNSUB neg", HELLO, b"SUB foo 1\r\nUNSUB 1 -1\r\nPUB foo 1\r\na\r\nPING\r\n", b"PONG\r\n<INFO>", OPEN),
    ("UNSUB 0", HELLO, b"SUB foo 1\r\nUNSUB 1 0\r\nPUB foo 1\r\na\r\nPING\r\n", b"PONG\r\n<INFO>", OPEN),
    ("UNSUB max 2", HELLO, b"SUB foo 1\r\nUNSUB 1 2\r\nPUB foo 1\r\na\r\nPUB foo 1\r\nb\r\nPUB foo 1\r\nc\r\nPING\r\n", b"MSG foo 1 1\r\na\r\nMSG foo 1 1\r\nb\r\nPONG\r\n<INFO>", OPEN),
    ("UNSUB max passed", HELLO, b"SUB foo 1\r\nPUB foo 1\r\na\r\nPUB foo 1\r\nb\r\nUNSUB 1 1\r\nPUB foo 1\r\nc\r\nPING\r\n", b"MSG foo 1 1\r\na\r\nMSG foo 1 1\r\nb\r\nPONG\r\n<INFO>", OPEN),
    ("unknown op", HELLO, b"HELLO\r\nPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", CLOSED),
    ("INFO from client", HELLO, b"INFO {}\r\nPING\r\n", b"PONG\r\n<INFO>", OPEN),
    ("+OK from client", HELLO, b"+OK\r\nPING\r\n", b"PONG\r\n<INFO>", OPEN),
    ("-ERR from client", HELLO, b"-ERR 'x'\r\nPING\r\n", b"", CLOSED),
    ("MSG from client", HELLO, b"MSG foo 1 2\r\nhi\r\nPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", CLOSED),
    ("HMSG from client", HELLO, b"HMSG foo 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", CLOSED),
    ("RS+", HELLO, b"RS+ a b\r\nPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", CLOSED),
    ("A+", HELLO, b"A+ a\r\nPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", CLOSED),
    ("empty line", HELLO, b"\r\nPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", CLOSED),
    ("CONNECT bad json", b"", b"CONNECT {bad\r\nPING\r\n", b"", CLOSED),
    ("CONNECT empty", b"", b"CONNECT\r\nPING\r\n", b"", CLOSED),
    ("CONNECT {}", b"", b"CONNECT {}\r\nPING\r\n", b"+OK\r\nPONG\r\n", OPEN),
    ("CONNECT array", b"", b"CONNECT []\r\nPING\r\n", b"", CLOSED),
    ("CONNECT null", b"", b"CONNECT null\r\nPING\r\n", b"+OK\r\nPONG\r\n", OPEN),
    ("CONNECT type", b"", b"CONNECT {\"verbose\":\"x\"}\r\nPING\r\n", b"", CLOSED),
    ("CONNECT protocol 9", b"", b"CONNECT {\"protocol\":9,\"verbose\":false}\r\nPING\r\n", b"-ERR 'invalid client protocol'\r\n", CLOSED),
    ("CONNECT protocol -1", b"", b"CONNECT {\"protocol\":-1,\"verbose\":false}\r\nPING\r\n", b"-ERR 'invalid client protocol'\r\n", CLOSED),
    ("CONNECT protocol 2", b"", b"CONNECT {\"protocol\":2,\"verbose\":false}\r\nPING\r\n", b"-ERR 'invalid client protocol'\r\n", CLOSED),
    ("CONNECT noresp no headers", b"", b"CONNECT {\"no_responders\":true,\"verbose\":false}\r\nPING\r\n", b"-ERR 'no responders requires headers support'\r\n", CLOSED),
    ("CONNECT twice", HELLO, b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1}\r\nPING\r\n", b"PONG\r\n<INFO>", OPEN),
    ("CONNECT tls_required", b"", b"CONNECT {\"tls_required\":true,\"verbose\":false}\r\nPING\r\n", b"PONG\r\n", OPEN),
    ("no CONNECT, PING", b"", b"PING\r\n", b"PONG\r\n", OPEN),
    ("no CONNECT, SUB PUB", b"", b"SUB foo 1\r\nPUB foo 1\r\na\r\nPING\r\n", b"+OK\r\n+OK\r\nMSG foo 1 1\r\na\r\nPONG\r\n", OPEN),
    ("no CONNECT, HPUB", b"", b"SUB foo 1\r\nHPUB foo 12 13\r\nNATS/1.0\r\n\r\na\r\nPING\r\n", b"+OK\r\n", CLOSED),
    ("HPUB", HELLO, b"SUB foo 1\r\nHPUB foo 12 13\r\nNATS/1.0\r\n\r\na\r\nPING\r\n", b"HMSG foo 1 12 13\r\nNATS/1.0\r\n\r\na\r\nPONG\r\n<INFO>", OPEN),
    ("HPUB reply", HELLO, b"SUB foo 1\r\nHPUB foo r.e 12 13\r\nNATS/1.0\r\n\r\na\r\nPING\r\n", b"HMSG foo 1 r.e 12 13\r\nNATS/1.0\r\n\r\na\r\nPONG\r\n<INFO>", OPEN),
    ("HPUB to no headers sub", b"", b"CONNECT {\"verbose\":false}\r\nSUB foo 1\r\nHPUB foo 12 13\r\nNATS/1.0\r\n\r\na\r\nPING\r\n", b"", CLOSED),
    ("HPUB hdr>total", HELLO, b"HPUB foo 14 13\r\nNATS/1.0\r\n\r\na\r\nPING\r\n", b"", CLOSED),
    ("HPUB 1 num", HELLO, b"HPUB foo 13\r\nPING\r\n", b"", CLOSED),
    ("HPUB bad hdr content", HELLO, b"SUB foo 1\r\nHPUB foo 2 3\r\nxxa\r\nPING\r\n", b"HMSG foo 1 2 3\r\nxxa\r\nPONG\r\n<INFO>", OPEN),
    ("HPUB hdr 0", HELLO, b"SUB foo 1\r\nHPUB foo 0 1\r\na\r\nPING\r\n", b"MSG foo 1 1\r\na\r\nPONG\r\n<INFO>", OPEN),
    ("HPUB neg", HELLO, b"HPUB foo -1 1\r\na\r\nPING\r\n", b"", CLOSED),
    ("HPUB over max", HELLO, b"HPUB foo 12 1048577\r\nPING\r\n", b"-ERR 'Maximum Payload Violation'\r\n", CLOSED),
    ("norespond", HELLO, b"SUB r 5\r\nPUB foo r 1\r\na\r\nPING\r\n", b"HMSG r 5 35 35\r\nNATS/1.0 503\r\nNats-Subject: foo\r\n\r\n\r\nPONG\r\n<INFO>", OPEN),
    ("norespond wild", HELLO, b"SUB r.* 5\r\nPUB foo r.a 1\r\na\r\nPING\r\n", b"HMSG r.a 5 35 35\r\nNATS/1.0 503\r\nNats-Subject: foo\r\n\r\n\r\nPONG\r\n<INFO>", OPEN),
    ("norespond no sub", HELLO, b"PUB foo r 1\r\na\r\nPING\r\n", b"PONG\r\n<INFO>", OPEN),
    ("norespond max", HELLO, b"SUB r 5\r\nUNSUB 5 1\r\nPUB foo r 1\r\na\r\nPUB r 1\r\nz\r\nPING\r\n", b"HMSG r 5 35 35\r\nNATS/1.0 503\r\nNats-Subject: foo\r\n\r\n\r\nMSG r 5 1\r\nz\r\nPONG\r\n<INFO>", OPEN),
    ("verbose pub", VERBOSE, b"SUB foo 1\r\nPUB foo 1\r\na\r\nUNSUB 1\r\nPING\r\nPONG\r\n", b"+OK\r\n+OK\r\n+OK\r\nMSG foo 1 1\r\na\r\n+OK\r\nPONG\r\n", OPEN),
    ("pong unsolicited", HELLO, b"PONG\r\nPING\r\n", b"PONG\r\n<INFO>", OPEN),
    ("binary subject", HELLO, b"SUB > 1\r\nPUB f\x01\xff\x00o 1\r\na\r\nPING\r\n", b"MSG f\x01\xff\x00o 1 1\r\na\r\nPONG\r\n<INFO>", OPEN),
    ("payload zero", HELLO, b"SUB foo 1\r\nPUB foo 0\r\n\r\nPING\r\n", b"MSG foo 1 0\r\n\r\nPONG\r\n<INFO>", OPEN),
    ("PUB leading zeros", HELLO, b"SUB foo 1\r\nPUB foo 0002\r\nhi\r\nPING\r\n", b"MSG foo 1 0002\r\nhi\r\nPONG\r\n<INFO>", OPEN),
    ("PUB +2", HELLO, b"SUB foo 1\r\nPUB foo +2\r\nhi\r\nPING\r\n", b"", CLOSED),
    ("double spaces reply", HELLO, b"SUB foo 1\r\nPUB foo   rep   2  \r\nhi\r\nPING\r\n", b"MSG foo 1 rep 2\r\nhi\r\nPONG\r\n<INFO>", OPEN),
    ("echo false", b"", b"CONNECT {\"verbose\":false,\"echo\":false}\r\nSUB foo 1\r\nPUB foo 1\r\na\r\nPING\r\n", b"PONG\r\n", OPEN),
    ("connect no trailing", b"", b"CONNECT {\"verbose\":false} \r\nPING\r\n", b"PONG\r\n", OPEN),
    ("CR in middle", HELLO, b"PI\rNG\r\nPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n", CLOSED),
    ("PUB CR in args", HELLO, b"SUB > 1\r\nPUB fo\ro 1\r\na\r\nPING\r\n", b"MSG fo\ro 1 1\r\na\r\nPONG\r\n<INFO>", OPEN),
    ("SUB queue same sid two", HELLO, b"SUB foo q 1\r\nSUB foo q 2\r\nPUB foo 1\r\na\r\nPUB foo 1\r\nb\r\nPING\r\n", b"MSG foo 1 1\r\na\r\nMSG foo 2 1\r\nb\r\nPONG\r\n<INFO>", OPEN),
    ("SUB $SYS", HELLO, b"SUB $SYS.> 1\r\nPING\r\n", b"PONG\r\n<INFO>", OPEN),
    ("PUB no CR LF: pingpong glue", HELLO, b"PING\r\nPING\r\n", b"PONG\r\n<INFO>PONG\r\n", OPEN),
];

/// Replaces INFO lines by `<INFO>`, since their content differs from run to run.
fn without_infos(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        if line.starts_with(b"INFO {") {
            out.extend_from_slice(b"<INFO>")
        } else {
            out.extend_from_slice(line)
        }
    }
    out
}

/// Sends `opening` and `bytes` in pieces; returns the answer, and whether the server closed.
fn say(
    client: &mut Client,
    opening: &[u8],
    bytes: &[u8],
    expected: &[u8],
    closes: bool,
    pieces: usize,
) -> (Vec<u8>, bool) {
    let all = [opening, bytes].concat();
    for piece in all.chunks(pieces) {
        // A server that has closed does not take the rest.
        if client.socket.write_all(piece).is_err() {
            break;
        }
    }
    if closes {
        let (got, closed) = client.rest();
        return (without_infos(&got), closed);
    }
    // The connection stays open: read until as many bytes as expected have arrived.
    let mut got = Vec::new();
    client.socket.set_read_timeout(Some(Duration::from_secs(20))).expect("an option");
    while without_infos(&got).len() < expected.len() || !got.ends_with(b"\n") {
        let mut buffer = [0; 4096];
        match std::io::Read::read(&mut client.socket, &mut buffer) {
            Ok(0) | Err(_) => return (without_infos(&got), true),
            Ok(bytes) => got.extend_from_slice(&buffer[..bytes]),
        }
    }
    (without_infos(&got), false)
}

fn converse(loops: usize, pieces: usize) {
    let server = start(loops, |_| {});
    for &(name, opening, bytes, expected, closes) in ROWS {
        // For a moment after a client has left, another loop may still know its subscriptions, and there is a
        // responder.
        let fresh = name.starts_with("norespond").then(|| start(loops, |_| {}));
        let mut client = Client::silent(fresh.as_ref().unwrap_or(&server));
        let (got, closed) = say(&mut client, opening, bytes, expected, closes, pieces);
        assert_eq!(
            (String::from_utf8_lossy(&got), closed),
            (String::from_utf8_lossy(expected), closes),
            "{name}, with {loops} loops, in pieces of {pieces}"
        );
    }
    drop(server);
}

#[test]
fn on_one_loop() {
    converse(1, usize::MAX);
}

#[test]
fn on_three_loops() {
    converse(3, usize::MAX);
}

#[test]
fn byte_by_byte() {
    converse(1, 1);
}

#[test]
fn long_lines() {
    let server = start(1, |_| {});
    let too_long = "-ERR 'maximum control line exceeded'\r\n";
    let name = "a".repeat(5000);
    for line in [
        format!("SUB {name} 1\r\n"),
        format!("SUB {name}"),
        format!("PUB {name} 1\r\nx\r\n"),
        format!("CONNECT {{\"name\":\"{name}\"}}\r\n"),
        "x".repeat(0) + "PING " + &"x".repeat(1 << 20),
    ] {
        let mut client = Client::silent(&server);
        if !line.starts_with("CONNECT") {
            client.send(HELLO);
        }
        // The server may close before it has read everything.
        let _ = client.socket.write_all(line.as_bytes());
        let (got, closed) = client.rest();
        assert!(
            closed && String::from_utf8_lossy(&got).starts_with(too_long),
            "{:?}",
            String::from_utf8_lossy(&got)
        );
    }
    let mut client = Client::new(&server);
    client.send(format!("SUB {} 1\r\n", "a".repeat(4094)).as_bytes());
    client.ping();
}

#[test]
fn limits_are_told() {
    let server = start(1, |config| {
        config.limits.max_connections = 2;
        config.limits.max_subscriptions = 2;
        config.limits.max_payload = 10;
    });
    let mut one = Client::new(&server);
    one.send(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nPUB a 10\r\n0123456789\r\n");
    let got = one.until_pong();
    assert_eq!(got.len(), 2, "{got:?}");
    assert_eq!(got[0], crate::common::Got::Error("maximum subscriptions exceeded".to_owned()));
    let _two = Client::new(&server);
    let mut socket = std::net::TcpStream::connect(server.addresses()[0]).expect("a connection");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut socket, &mut text).expect("its words");
    assert_eq!(text, "-ERR 'maximum connections exceeded'\r\n");
    one.send(b"PUB a 11\r\n");
    assert_eq!(one.next(), crate::common::Got::Error("Maximum Payload Violation".to_owned()));
    assert_eq!(one.next(), crate::common::Got::Closed);
    for (counter, count) in [
        (feed::Counter::ConnectionsRefused, 1),
        (feed::Counter::SubscriptionsRefused, 1),
        (feed::Counter::PayloadsTooLarge, 1),
    ] {
        crate::common::wait_until("counted", || server.counted(counter) == count);
    }
}
