//! Measures the cost of parsing a request's head and finding its framing, in instructions:
//!
//! ```text
//! cargo build --release -p wire --example parse_cost
//! for n in 1000 2000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/parse_cost short $n
//! done
//! ```
//! The difference of the two counts, divided by 1,000, is the cost of one head. The kinds are `short` (wrk's
//! request), `browser` (about 600 bytes, 14 headers), `zeroing` (only the zeroing of the header slots),
//! `httparse-short` and `httparse-browser` (the httparse library alone, for comparison), `chunked` (a body of
//! 16 chunks of 64 bytes).
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an instrument that prints its result")]

use std::hint::black_box;

use wire::http1::{
    framing::{BodyDecoder, Framing, StepState, request_framing},
    head::{HeadLimits, HeaderSlots, Progress, parse_request},
    known::KnownHeader,
};

const SHORT: &[u8] = b"GET /abc HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n";

const BROWSER: &[u8] = b"GET /articles/2024/the-night-train.html?page=2 HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    Connection: keep-alive\r\n\
    sec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Dest: document\r\n\
    Referer: https://www.example.com/articles/\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9\r\n\r\n";

fn parse(request: &[u8], slots: &mut HeaderSlots, limits: &HeadLimits) -> usize {
    let Ok(Progress::Complete((head, bytes))) = parse_request(black_box(request), slots, limits) else {
        unreachable!("the request is sound")
    };
    black_box(request_framing(&head).is_ok());
    black_box((head.target, head.known(KnownHeader::Host), head.known(KnownHeader::IfNoneMatch)));
    bytes
}

fn httparse_alone(request: &[u8]) {
    let mut room = [httparse::EMPTY_HEADER; 32];
    let mut parsed = httparse::Request::new(&mut room);
    black_box(parsed.parse(black_box(request)).is_ok());
    black_box(parsed.path);
}

fn chunked() -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..16 {
        body.extend_from_slice(b"40\r\n");
        body.extend_from_slice(&[b'x'; 64]);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    body
}

fn decode(mut input: &[u8]) {
    let mut decoder = BodyDecoder::new(Framing::Chunked);
    loop {
        let Ok(step) = decoder.decode(black_box(input)) else { unreachable!("the body is sound") };
        black_box(&input[step.data.clone()]);
        input = &input[step.consumed..];
        if step.state != StepState::More {
            return;
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_default();
    let times: u32 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1);
    let (mut slots, limits) = (HeaderSlots::new(), HeadLimits::default());
    let body = chunked();
    for _ in 0..times {
        match kind.as_str() {
            "short" => drop(black_box(parse(SHORT, &mut slots, &limits))),
            "browser" => drop(black_box(parse(BROWSER, &mut slots, &limits))),
            "zeroing" => drop(black_box([httparse::EMPTY_HEADER; 24])),
            "httparse-short" => httparse_alone(SHORT),
            "httparse-browser" => httparse_alone(BROWSER),
            "chunked" => decode(&body),
            _ => {
                eprintln!("short, browser, zeroing, httparse-short, httparse-browser or chunked");
                std::process::exit(2);
            }
        }
    }
    println!("{kind} {times} times; short is {} bytes, browser {}", SHORT.len(), BROWSER.len());
}
