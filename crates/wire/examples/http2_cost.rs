//! Measures the cost of a request over HTTP/2, in instructions:
//!
//! ```text
//! cargo build --release -p wire --example http2_cost
//! for n in 1000 2000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/http2_cost browser $n
//! done
//! ```
//! The difference of the two counts, divided by 1,000, is the cost of one request. These kinds decode a field
//! block alone: `first` (a browser's first field block: 13 Huffman-coded fields, with a new table each time),
//! `browser` (its later blocks: twelve fields from the table, and a Huffman-coded path), `load` (h2load's
//! block: six fields, all from the tables). With `-request` appended, the block is also read as a request and
//! rendered as an HTTP/1 head. `frames` runs `browser` through a connection: HEADERS, the request, a response
//! of HEADERS and one DATA frame, two WINDOW_UPDATE frames. `loona-first` and so on measure the crate
//! loona-hpack alone, for comparison. `table` only creates a table.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an instrument that prints its result")]

use std::hint::black_box;

use wire::http2::{
    Progress,
    connection::{Connection, Event, Limits},
    frame::{self, PREFACE},
    hpack::{Decoder, FieldSection, Strings},
    request::{Terms, read_request},
};

const BROWSER: [(&str, &str); 17] = [
    (":method", "GET"),
    (":authority", "www.example.com"),
    (":scheme", "https"),
    (":path", "/articles/2024/the-night-train.html?page=2"),
    ("sec-ch-ua", "\"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\""),
    ("sec-ch-ua-mobile", "?0"),
    ("sec-ch-ua-platform", "\"Linux\""),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130.0.0.0 Safari/537.36"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"),
    ("sec-fetch-site", "same-origin"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-dest", "document"),
    ("referer", "https://www.example.com/articles/"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-GB,en;q=0.9"),
    ("priority", "u=0, i"),
];

const TERMS: Terms = Terms { end_stream: true, extended_connect: false };

/// Returns a field block whose fields are Huffman-coded and all enter the dynamic table.
fn first() -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in BROWSER {
        let mut literal = Vec::new();
        wire::http2::hpack::field(&mut literal, name.as_bytes(), value.as_bytes(), Strings::Shorter);
        // Turns the field into a "literal with incremental indexing": its prefix is two bits longer, so the
        // index of a static table name takes one byte.
        match literal[0] {
            0x0f => literal.splice(0..2, [0x40 | (literal[1] + 15)]).for_each(drop),
            small => literal[0] = 0x40 | small,
        }
        block.extend_from_slice(&literal);
    }
    block
}

/// Returns the block that follows [`first`]: every field but the path comes from the table.
fn later() -> Vec<u8> {
    let mut block = Vec::new();
    for (number, (name, _)) in BROWSER.into_iter().enumerate() {
        if name == ":path" {
            let path = b"/articles/2024/another-train.html?page=3";
            wire::http2::hpack::field(&mut block, name.as_bytes(), path, Strings::Shorter);
        } else {
            block.push(0x80 | (62 + BROWSER.len() - 1 - number) as u8);
        }
    }
    block
}

/// Returns h2load's second block: every field comes from the tables.
fn load() -> Vec<u8> {
    vec![0x82, 0x84, 0x87, 0x80 | (62 + 15), 0x80 | (62 + 8)]
}

struct Instrument {
    decoder: Decoder,
    section: FieldSection,
    head: Vec<u8>,
}

impl Instrument {
    fn decode(&mut self, block: &[u8], to_request: bool) {
        assert!(self.decoder.decode(black_box(block), &mut self.section).is_ok());
        if to_request {
            let Ok(request) = read_request(&self.section, TERMS) else {
                unreachable!("the request is sound")
            };
            self.head.clear();
            request.render_head(&mut self.head);
            black_box(&self.head);
        }
    }
}

/// Runs requests through a connection; each is answered with 1 KiB.
fn frames(times: u32) {
    let mut section = FieldSection::new(32 << 10, 128);
    let mut connection = Connection::new(Limits::default(), 0);
    let (mut out, mut input, mut head) =
        (Vec::with_capacity(4096), PREFACE.to_vec(), Vec::with_capacity(4096));
    let response = [0x88; 200];
    connection.greet(&section, 0, &mut out);
    frame::settings(&mut input, &[]);
    for number in 0..times {
        let stream = 2 * number + 1;
        let block = if number == 0 { first() } else { later() };
        frame::headers(&mut input, stream, &block, true, 16_384);
        if number > 0 {
            frame::window_update(&mut input, 0, 1024);
            frame::window_update(&mut input, stream, 1024);
        }
        let mut at = 0;
        while at < input.len() {
            let Ok(Progress::Complete(event, total)) =
                connection.receive(black_box(&input[at..]), &mut section, number.into())
            else {
                unreachable!("whole frames")
            };
            at += total;
            connection.reply(&event, &mut out);
            if let Event::Request { request, .. } = event {
                head.clear();
                request.render_head(&mut head);
            }
        }
        input.clear();
        connection.send_headers(stream, &response, false, &mut out);
        let Ok(1024) = connection.sendable(stream, 1024, number.into()) else {
            unreachable!("windows are open")
        };
        out.extend_from_slice(&connection.data_header(stream, 1024, true));
        black_box(&out);
        out.clear();
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_default();
    let times: u32 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1);
    let (first, later, load) = (first(), later(), load());
    let mut instrument = Instrument {
        decoder: Decoder::new(),
        section: FieldSection::new(32 << 10, 128),
        head: Vec::with_capacity(4096),
    };
    let mut loona = loona_hpack::Decoder::new();
    instrument.decode(&first, true);
    assert!(loona.decode(&first).is_ok());
    let head_bytes = instrument.head.len();
    if kind == "frames" {
        frames(times);
    }
    for _ in 0..times {
        match kind.as_str() {
            "frames" => break,
            "table" => drop(black_box(Decoder::new())),
            "first" | "first-request" => {
                instrument.decoder = Decoder::new();
                instrument.decode(&first, kind == "first-request");
            }
            "browser" | "browser-request" => instrument.decode(&later, kind == "browser-request"),
            "load" | "load-request" => instrument.decode(&load, kind == "load-request"),
            "loona-first" => {
                loona = loona_hpack::Decoder::new();
                black_box(loona.decode_with_cb(black_box(&first), |n, v| drop(black_box((n, v)))).is_ok());
            }
            "loona-browser" => {
                black_box(loona.decode_with_cb(black_box(&later), |n, v| drop(black_box((n, v)))).is_ok());
            }
            "loona-load" => {
                black_box(loona.decode_with_cb(black_box(&load), |n, v| drop(black_box((n, v)))).is_ok());
            }
            _ => {
                eprintln!("first, browser, load; each with -request, or with loona- before; frames or table");
                std::process::exit(2);
            }
        }
    }
    let bytes = [first.len(), later.len(), load.len(), head_bytes];
    println!("{kind} {times} times; blocks (first, later, load) and the head of HTTP/1: {bytes:?} bytes");
}
