//! Fuzzing of WebSocket input: the upgrade request, and the frames after it (`websocket`).

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::http1::fields::{is_field_value_byte, trim_ows};

use super::cut::Cut;
use crate::{
    client::websocket::accept,
    config::{Config, WebSocket},
};

/// Capacity of the in-memory pipe for the server's output while the test does not read it.
const PIPE_BYTES: usize = 1 << 20;

/// Parsed fuzzing input for one WebSocket connection.
struct Visit<'a> {
    web: WebSocket,
    upgrade: Vec<u8>,
    is_outside: bool,
    pieces: [&'a [u8]; 2],
}

/// Fuzzes a WebSocket connection. The input consists of flags (bit 0: not admitted yet; bit 1:
/// `same_origin`), the number of repetitions of the frames, the position of a cut, the page's origin, the
/// requested host, an allowed origin, and frames. The server must read the same bytes as the slow twin,
/// wherever the frames are cut; no more than the bound before the client is admitted; and a page may connect
/// only if its origin is listed or is the requested IP address.
pub fn websocket(bytes: &[u8]) {
    let mut cut = Cut(bytes);
    let (flags, times, at) = (cut.u8(), usize::from(cut.u8() % 16) + 1, usize::from(cut.u16()));
    let [origin, host, listed] = [(); 3].map(|()| cut.counted());
    let is_value = |value: &&[u8]| trim_ows(value) == *value && value.iter().all(|b| is_field_value_byte(*b));
    if ![origin, host, listed].iter().all(is_value) {
        return;
    }
    let frames = cut.0.repeat(times);
    let listed = std::str::from_utf8(listed).ok().filter(|listed| !listed.is_empty());
    let visit = |pieces| Visit {
        web: WebSocket {
            listen: ([127, 0, 0, 1], 0).into(),
            tls: None,
            allowed_origins: listed.iter().map(|&listed| listed.to_owned()).collect(),
            same_origin: flags & 2 == 2,
        },
        upgrade: upgrade(origin, host),
        is_outside: flags & 1 == 1,
        pieces,
    };
    let read = said(visit([&frames, b""]));
    assert_eq!(said(visit(frames.split_at(at % (frames.len() + 1)).into())), read, "cut at {at}");
    check_origin(read.is_some(), origin, host, listed, flags & 2 == 2);
    let Some(read) = read else { return };
    let whole = twin(&frames);
    if flags & 1 == 0 {
        assert_eq!(read, whole);
    } else {
        assert!(whole.starts_with(&read));
        let bound = Config::default().limits.max_control_line + 4096;
        assert!(read.len() <= bound && (read == whole || frames.len() > bound));
    }
}

fn upgrade(origin: &[u8], host: &[u8]) -> Vec<u8> {
    let begin =
        b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nHost: ";
    let origin = if origin.is_empty() { Vec::new() } else { [b"Origin: ", origin, b"\r\n"].concat() };
    [&begin[..], host, b"\r\n", &origin, b"\r\n"].concat()
}

/// Returns the bytes that the server reads from the client's messages; `None` if the upgrade is refused.
fn said(visit: Visit<'_>) -> Option<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (client, server) = tokio::io::duplex(PIPE_BYTES);
    let Visit { web, upgrade, is_outside, pieces } = visit;
    let serving = async {
        let mut stream = accept(server, &web, &Config::default().limits, is_outside).await.ok()?;
        let (mut read, mut part) = (Vec::new(), [0; 512]);
        while let Ok(bytes @ 1..) = stream.read(&mut part).await {
            read.extend_from_slice(&part[..bytes]);
        }
        Some(read)
    };
    let talking = async {
        let (mut reads, mut writes) = tokio::io::split(client);
        let _ = writes.write_all(&upgrade).await;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            match reads.read_u8().await {
                Ok(byte) => answer.push(byte),
                Err(_) => break,
            }
        }
        for piece in pieces {
            // The server may have closed the connection.
            let _ = writes.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        let _ = writes.shutdown().await;
        let _ = reads.read_to_end(&mut answer).await;
    };
    runtime.block_on(async { tokio::join!(serving, talking).0 })
}

/// Slow twin (RFC 6455 §5.2 to §5.6): the payload of all complete messages up to the first error or the end.
fn twin(mut bytes: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    let mut message: Option<(u8, Vec<u8>)> = None;
    while let Some(frame) = frame(bytes) {
        bytes = frame.rest;
        if frame.opcode >= 8 {
            if frame.opcode > 10 || !frame.is_last || frame.payload.len() > 125 || frame.opcode == 8 {
                break;
            }
            continue;
        }
        let (opcode, mut payload) = match (frame.opcode, message.take()) {
            (0, Some(begun)) => begun,
            (1 | 2, None) => (frame.opcode, Vec::new()),
            _ => break,
        };
        payload.extend_from_slice(&frame.payload);
        if !frame.is_last {
            message = Some((opcode, payload));
            continue;
        }
        if opcode == 1 && std::str::from_utf8(&payload).is_err() {
            break;
        }
        read.extend_from_slice(&payload);
    }
    read
}

struct Frame<'a> {
    is_last: bool,
    opcode: u8,
    payload: Vec<u8>,
    rest: &'a [u8],
}

/// Parses a client's frame; `None` if it is incomplete, not masked, or has reserved bits set.
fn frame(bytes: &[u8]) -> Option<Frame<'_>> {
    let ([first, second], rest) = bytes.split_first_chunk()?;
    if first & 0x70 != 0 || second & 0x80 == 0 {
        return None;
    }
    let (len, rest) = match second & 0x7f {
        126 => rest.split_first_chunk().map(|(len, rest)| (u64::from(u16::from_be_bytes(*len)), rest))?,
        127 => rest.split_first_chunk().map(|(len, rest)| (u64::from_be_bytes(*len), rest))?,
        len => (len.into(), rest),
    };
    let (mask, rest) = rest.split_first_chunk::<4>()?;
    let (payload, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    Some(Frame { is_last: first & 0x80 != 0, opcode: first & 15, payload, rest })
}

/// Checks that an upgrade was accepted only without an origin, from a listed origin, or from the requested
/// host itself.
fn check_origin(is_let_in: bool, origin: &[u8], host: &[u8], listed: Option<&str>, same_origin: bool) {
    let is_listed =
        listed.is_some_and(|listed| listed == "*" || listed.as_bytes().eq_ignore_ascii_case(origin));
    if origin.is_empty() || (is_listed && !same_origin) {
        assert!(is_let_in, "it needs no more");
        return;
    }
    if !is_let_in {
        return;
    }
    let [origin, host] =
        [origin, host].map(|text| std::str::from_utf8(text).expect("what is let in is a text"));
    let (scheme, name) = origin.split_once("://").expect("an origin");
    if same_origin {
        assert!(is_listed || listed.is_none());
        let port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
        let same = |name: &str, host: &str| name.eq_ignore_ascii_case(host);
        assert!(
            same(name, host) || same(&format!("{name}{port}"), host) || same(name, &format!("{host}:80"))
        );
    } else {
        assert!(name.eq_ignore_ascii_case(host), "{origin} at {host}");
        let of_address = |c: char| c.is_ascii_hexdigit() || ".:[]".contains(c);
        assert!(host.to_ascii_lowercase().starts_with("localhost") || host.chars().all(of_address), "{host}");
    }
}
