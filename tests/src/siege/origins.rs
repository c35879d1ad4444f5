//! Attacks by clients of an accelerator on its origin, and on the other clients that need it. The site is
//! that of [`super::origin`].

use std::io;

use super::{
    Target, Until,
    crowd::{Tally, hold},
    origin::HOST,
};

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n")
}

/// Slow pages: five hundred of them once made all misses wait 14 s, nine hundred passed ones 20 s.
pub(super) fn slow(target: &Target, until: &Until) -> Option<Tally> {
    let asked = |number: usize| match number % 2 {
        0 => get(&format!("/slow?{number}"), ""),
        _ => get("/slow", &format!("Cookie: session={number}\r\n")),
    };
    let asked: Vec<String> = (0..900).map(asked).collect();
    Some(hold(target.cache?, asked.len(), until, |member| {
        member.pump_once_each(asked[member.number].as_bytes(), 600)?;
        member.sip(4096)
    }))
}

pub(super) fn uploads(target: &Target, until: &Until) -> Option<Tally> {
    let begun = format!("POST /upload HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 1000000\r\n\r\nx");
    Some(hold(target.cache?, 1000, until, |member| {
        member.finish(begun.as_bytes())?;
        member.sip(4096)
    }))
}

/// Small ranges of large bodies: thirty-two single bytes once fetched 14 MB, the first byte of a body that
/// may not be stored 1 GiB.
pub(super) fn ranges(target: &Target, until: &Until) -> Option<Tally> {
    let apart: Vec<String> = (0..32).map(|n| format!("{0}-{0}", n * 500_000)).collect();
    let apart = format!("Range: bytes={}\r\n", apart.join(","));
    let asked: String = (0..200)
        .map(|n| get(&format!("/large?{n}"), &apart) + &get(&format!("/endless?{n}"), "Range: bytes=0-0\r\n"))
        .collect();
    Some(hold(target.cache?, 16, until, |member| {
        member.pump(asked.as_bytes())?;
        member.sip(1 << 14)
    }))
}

pub(super) fn keys(target: &Target, until: &Until) -> Option<Tally> {
    let asked: String = (0..40_000).map(|n| get(&format!("/about?x={n}"), "")).collect();
    Some(hold(target.cache?, 16, until, |member| {
        member.pump(asked.as_bytes())?;
        member.sip(1 << 18)
    }))
}

/// Event streams that are opened and left; two hundred once held two hundred connections to the origin for
/// half a minute.
pub(super) fn leavers(target: &Target, until: &Until) -> Option<Tally> {
    let asked = get("/events", "");
    Some(hold(target.cache?, 50, until, |member| {
        member.finish(asked.as_bytes())?;
        member.sip(4096)?;
        if member.age > 20 { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }))
}
