//! Attacks by HTTP/2 clients: each is a script of frames. The attacker's connection is closed and a counter
//! with the attack's name moves, while an honest client is answered.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
};

use tests::{Accelerator, Answer, Gate, PATIENCE, ScriptedOrigin, content::content, eventually, on_one_core};

on_one_core! {
    a13_each_flood_ends_its_connection_by_its_name,
    a13_windows_of_a_byte_end_their_connection,
    a13_streams_whose_window_stays_shut_are_reaped,
    a13_streams_beyond_those_announced_are_refused,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ENHANCE_YOUR_CALM: u32 = 0xb;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).expect("short").to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Encodes a field with a new name, without indexing.
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).expect("below 127");
    [&[0, length(name)][..], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

/// Encodes the pseudo-headers of a request.
fn ask(method: &str, path: &str) -> Vec<u8> {
    let scheme = [0x86];
    [&field(":method", method)[..], &scheme, &field(":path", path), &field(":authority", "site")].concat()
}

fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &ask("GET", path))
}

struct Attacker(TcpStream);

impl Attacker {
    fn connect(accelerator: &Accelerator, settings: &[u8]) -> Self {
        let stream = TcpStream::connect(accelerator.address()).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let mut attacker = Self(stream);
        attacker.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        attacker.send(&frame(SETTINGS, 0, 0, settings));
        attacker
    }

    /// Sends bytes, and returns false if the server has closed already.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// Reads up to the next DATA frame; returns false if the connection has ended.
    fn has_data(&mut self) -> bool {
        loop {
            let mut header = [0; 9];
            if self.0.read_exact(&mut header).is_err() {
                return false;
            }
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            if self.0.read_exact(&mut vec![0; length]).is_err() {
                return false;
            }
            if header[3] == DATA {
                return true;
            }
        }
    }

    /// Reads to the end of the connection. Returns the error codes of GOAWAY frames and of RST_STREAM frames.
    fn until_closed(mut self) -> (Vec<u32>, Vec<u32>) {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the connection stays: {error}"),
        }
        codes(&bytes)
    }
}

fn codes(mut bytes: &[u8]) -> (Vec<u32>, Vec<u32>) {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
    let (mut goaways, mut resets) = (Vec::new(), Vec::new());
    while bytes.len() >= 9 {
        let length = number(&[&[0], &bytes[..3]].concat()) as usize;
        if bytes.len() < 9 + length {
            break;
        }
        let payload = &bytes[9..9 + length];
        match bytes[3] {
            GOAWAY => goaways.push(number(&payload[4..8])),
            RST_STREAM => resets.push(number(payload)),
            _ => {}
        }
        bytes = &bytes[9 + length..];
    }
    (goaways, resets)
}

/// An attack: the name of its limit, and the frames to send.
type Attack = (&'static str, Vec<u8>);

fn floods() -> Vec<Attack> {
    let odd = |number: u32| 2 * number + 1;
    let repeated = |times: u32, make: &dyn Fn(u32) -> Vec<u8>| (0..times).flat_map(make).collect::<Vec<u8>>();
    let post = frame(HEADERS, END_HEADERS, 1, &ask("POST", "/slow"));
    // HPACK entry of 4,000 bytes, and references to it.
    let entry = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4000]].concat();
    let bomb = [ask("GET", "/"), entry, vec![0xbe; 200]].concat();
    // Cookie fields with one byte each; each field counts as 39 bytes.
    let crumb = [&[0x40, 6][..], b"cookie", &[1, b'a']].concat();
    let crumbs = [ask("GET", "/"), crumb, vec![0xbe; 8000]].concat();
    vec![
        (
            "rapid_reset",
            repeated(1000, &|n| {
                [get(odd(n), "/slow"), frame(RST_STREAM, 0, odd(n), &8_u32.to_be_bytes())].concat()
            }),
        ),
        (
            "made_us_reset",
            repeated(1000, &|n| [get(odd(n), "/slow"), frame(WINDOW_UPDATE, 0, odd(n), &[0; 4])].concat()),
        ),
        (
            "continuations",
            [
                frame(HEADERS, END_STREAM, 1, &ask("GET", "/")),
                repeated(1000, &|_| frame(CONTINUATION, 0, 1, b"")),
            ]
            .concat(),
        ),
        (
            "header_block",
            [
                frame(HEADERS, END_STREAM, 1, &ask("GET", "/")),
                repeated(6, &|_| frame(CONTINUATION, 0, 1, &[0x82; 16_000])),
            ]
            .concat(),
        ),
        ("header_list", frame(HEADERS, END_STREAM | END_HEADERS, 1, &bomb)),
        ("header_list", frame(HEADERS, END_STREAM | END_HEADERS, 1, &crumbs)),
        ("settings", repeated(1000, &|_| frame(SETTINGS, 0, 0, &[]))),
        ("settings", frame(SETTINGS, 0, 0, &[0, 9, 0, 0, 0, 1].repeat(1000))),
        ("pings", repeated(5000, &|_| frame(PING, 0, 0, &[0; 8]))),
        ("priorities", repeated(5000, &|n| frame(PRIORITY, 0, odd(n % 50), &[0, 0, 0, 0, 16]))),
        ("small_frames", [post.clone(), repeated(20_000, &|_| frame(DATA, 0, 1, b""))].concat()),
        ("small_frames", [post, repeated(20_000, &|_| frame(DATA, 0, 1, b"x"))].concat()),
        ("useless_frames", repeated(5000, &|_| frame(0xee, 0, 0, b"nothing"))),
        ("useless_frames", repeated(5000, &|_| frame(PING, 1, 0, &[0; 8]))),
        ("window_updates", repeated(5000, &|_| frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()))),
    ]
}

fn site(origin: &ScriptedOrigin, gate: &Gate) {
    let gate = gate.clone();
    origin.on("/slow", move |_, reply| {
        gate.pass();
        reply.answer(&Answer::new(200, "slow").header("Cache-Control", "no-store"))
    });
    origin.answers("/", Answer::new(200, "here").header("Cache-Control", "max-age=600"));
    origin
        .answers("/large", Answer::new(200, content(1, 0, 2_000_000)).header("Cache-Control", "max-age=600"));
}

fn a13_each_flood_ends_its_connection_by_its_name(cores: &str) {
    let (origin, gate) = (ScriptedOrigin::start(), Gate::new());
    site(&origin, &gate);
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    accelerator.get("/large").expect_status(200);
    let mut honest = accelerator.connect();
    for (name, frames) in floods() {
        let counter = format!("limits.http2_{name}");
        let before = accelerator.stat().count(&counter);
        let mut attacker = Attacker::connect(&accelerator, &[]);
        for piece in frames.chunks(16 << 10) {
            if !attacker.send(piece) {
                break;
            }
        }
        assert_eq!(honest.get("/").text(), "here", "{name}: an honest client is answered");
        let (goaways, _) = attacker.until_closed();
        // The connection may have ended with a reset that overtook the GOAWAY.
        assert!(goaways.iter().all(|code| *code == ENHANCE_YOUR_CALM), "{name}: {goaways:?}");
        eventually(&format!("{name} is counted"), || accelerator.stat().count(&counter) == before + 1);
    }
    gate.open();
    assert_eq!(accelerator.get("/slow").text(), "slow", "nothing of the origin's was lost for good");
}

fn a13_windows_of_a_byte_end_their_connection(cores: &str) {
    let (origin, gate) = (ScriptedOrigin::start(), Gate::new());
    site(&origin, &gate);
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    accelerator.get("/large").expect_status(200);
    let mut attacker = Attacker::connect(&accelerator, &[0, 4, 0, 0, 0, 1]);
    attacker.0.set_nodelay(true).expect("set");
    attacker.send(&get(1, "/large"));
    // The client opens the window for each byte with a frame of its own.
    for _ in 0..1000 {
        if !attacker.has_data() || !attacker.send(&frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes())) {
            break;
        }
    }
    eventually("it is counted", || accelerator.stat().count("limits.http2_tiny_windows") == 1);
    assert_eq!(accelerator.get("/").text(), "here");
}

fn a13_streams_whose_window_stays_shut_are_reaped(cores: &str) {
    let (origin, gate) = (ScriptedOrigin::start(), Gate::new());
    site(&origin, &gate);
    let setup = Accelerator::before(&origin.url()).flag("--cores", cores).limit("send_stall_max", "300ms");
    let accelerator = setup.start();
    accelerator.get("/large").expect_status(200);
    // With windows of 0, each stream would hold its answer for ever.
    let mut attacker = Attacker::connect(&accelerator, &[0, 4, 0, 0, 0, 0]);
    for number in 0..100 {
        attacker.send(&get(2 * number + 1, "/large"));
    }
    eventually("each is reaped", || accelerator.stat().count("limits.send_stall") >= 100);
    // The connection's window is shut, and the streams' windows are open.
    let mut other = Attacker::connect(&accelerator, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    other.send(&[get(1, "/large"), get(3, "/large")].concat());
    other.until_closed();
    assert_eq!(accelerator.get("/").text(), "here");
}

fn a13_streams_beyond_those_announced_are_refused(cores: &str) {
    let (origin, gate) = (ScriptedOrigin::start(), Gate::new());
    site(&origin, &gate);
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let mut attacker = Attacker::connect(&accelerator, &[]);
    for number in 0..150 {
        attacker.send(&get(2 * number + 1, "/slow"));
    }
    eventually("50 are refused", || accelerator.stat().count("limits.http2_streams") == 50);
    for number in 150..1000 {
        attacker.send(&get(2 * number + 1, "/slow"));
    }
    let (goaways, resets) = attacker.until_closed();
    assert!(goaways.iter().all(|code| *code == ENHANCE_YOUR_CALM), "{goaways:?}");
    assert!(resets.iter().all(|code| *code == 7), "REFUSED_STREAM: {resets:?}");
    assert_eq!(accelerator.stat().count("limits.http2_refusals"), 1);
    gate.open();
    assert_eq!(accelerator.get("/slow").text(), "slow");
}
