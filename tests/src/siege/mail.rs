//! Mails that are built to be expensive to view, store or search.

use std::{net::SocketAddr, thread, time::Duration};

use super::{
    Target, Until,
    attacks::{ask, send},
    crowd::{Tally, hold, hold_from_many},
};

/// Pause between two attempts to deliver a mail beside all other attacks.
const AGAIN: Duration = Duration::from_millis(200);

/// Delivers mails to an inbox until it lists at least one, and returns the ids that it lists. Some mails are
/// refused in a rush; the accepted ones are enough. `None` if the siege ends before that.
pub(super) fn stored(
    smtp: SocketAddr,
    pages: SocketAddr,
    inbox: &str,
    mails: &[String],
    until: &Until,
) -> Option<Vec<String>> {
    let ids = loop {
        for mail in mails {
            _ = send(smtp, &format!("{inbox}@night.test"), mail);
        }
        let list =
            ask(pages, &format!("/inbox/{inbox}@night.test/api/v1/messages?limit=99")).unwrap_or_default();
        let ids = list.split("\"ID\":\"").skip(1).filter_map(|rest| rest.split('"').next());
        let ids: Vec<String> = ids.map(str::to_owned).collect();
        if !ids.is_empty() {
            break Some(ids);
        }
        if until.is_over() {
            break None;
        }
        thread::sleep(AGAIN);
    };
    until.note_prepared();
    // An attack that began now would keep the others from preparing theirs.
    until.wait_for_prepared();
    ids
}

/// Delivers mails to an inbox, and requests `paths` of each over and over.
fn look_at(
    (smtp, pages): (SocketAddr, SocketAddr),
    inbox: &str,
    mails: &[String],
    paths: &[&str],
    until: &Until,
) -> Tally {
    let Some(ids) = stored(smtp, pages, inbox, mails, until) else { return Tally::default() };
    let mut asked = String::new();
    for id in ids {
        for path in paths {
            let path = path.replace("ID", &id);
            asked += &format!("GET /inbox/{inbox}@night.test/{path} HTTP/1.1\r\nHost: {pages}\r\n\r\n");
        }
    }
    hold(pages, 16, until, |member| {
        // Each connection sends all requests once a second.
        if member.age % 100 == 0 {
            member.finish(asked.as_bytes())?;
        }
        member.sip(1 << 20)
    })
}

/// Deeply nested HTML; each view of such a mail once took 57 s and 2.6 GiB.
pub(super) fn nested(target: &Target, until: &Until) -> Option<Tally> {
    let links: String = (0..200).map(|n| format!("<a href=\"http://x.test/{n}\"><marquee>\r\n")).collect();
    let mail = format!("Content-Type: text/html\r\n\r\n{links}{}", "word and word\r\n".repeat(120_000));
    Some(look_at((target.smtp?, target.pages?), "nested", &[mail], &["ID", "ID/text"], until))
}

/// Two mails: one whose body is a block of fields with `message/rfc822` fifty times and no empty line, and
/// one with a sender of megabytes.
pub(super) fn heads(target: &Target, until: &Until) -> Option<Tally> {
    let block = "Content-Type: message/rfc822\r\n".repeat(50) + &"X: a field\r\n".repeat(1_500_000);
    let sender = format!("From: {}\r\n\r\nbody\r\n", "a@b.test,\r\n ".repeat(1_500_000));
    let mails = [format!("A: b\r\n\r\n{block}"), sender];
    Some(look_at((target.smtp?, target.pages?), "heads", &mails, &["ID", "ID/headers"], until))
}

/// Text that grows when it is folded for a search; each search once took 15 s, and only two may run at a
/// time.
pub(super) fn folds(target: &Target, until: &Until) -> Option<Tally> {
    let line = "\u{fdfa}".repeat(300) + "\r\n ";
    let mail = format!("X: {}\r\n\r\n{}", line.repeat(8_000), line.repeat(8_000));
    Some(look_at((target.smtp?, target.pages?), "folds", &[mail], &["search?q=neverthere"], until))
}

/// An empty mail to a hundred recipients, which makes a hundred entries in the index of inboxes.
pub(super) fn strangers(target: &Target, until: &Until) -> Option<Tally> {
    const MEMBERS: usize = 32;
    let session = |number: usize| {
        let mut session = String::from("EHLO strangers.test\r\n");
        for mail in 0..40 {
            session += "MAIL FROM:<a@strangers.test>\r\n";
            for stranger in 0..100 {
                session += &format!("RCPT TO:<{number}-{mail}-{stranger}@strangers.test>\r\n");
            }
            session += "DATA\r\nSubject: x\r\n\r\nx\r\n.\r\n";
        }
        session
    };
    let sessions: Vec<String> = (0..MEMBERS).map(session).collect();
    Some(hold(target.smtp?, MEMBERS, until, |member| {
        member.pump(sessions[member.number % MEMBERS].as_bytes())?;
        member.sip(1 << 16)
    }))
}

/// Unfinished request heads of 400 KB each, which once counted in no budget.
pub(super) fn request_heads(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.pages?;
    let head = format!("GET / HTTP/1.1\r\nHost: {address}\r\nX: {}", "x".repeat(400_000));
    Some(hold(address, 200, until, |member| {
        member.finish(head.as_bytes())?;
        member.sip(64)
    }))
}

/// A visitor flags the mails that `smtp-flood` delivers as read and as unread, and deletes some of them.
pub(super) fn marks(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.pages?;
    let ask = |method: &str, inbox: usize, body: &str| {
        format!(
            "{method} /inbox/flood{inbox}@night.test/api/v1/messages HTTP/1.1\r\nHost: {address}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let asked: String = (0..16)
        .map(|inbox| {
            let last = if inbox == 0 { ask("DELETE", inbox, "{}") } else { String::new() };
            ask("PUT", inbox, "{\"Read\":true}") + &ask("PUT", inbox, "{\"Read\":false}") + &last
        })
        .collect();
    Some(hold(address, 16, until, |member| {
        member.pump(asked.as_bytes())?;
        member.sip(1 << 16)
    }))
}

/// Live pages and waits from eight addresses, which once took all of their slots.
pub(super) fn live_pages(target: &Target, until: &Until) -> Option<Tally> {
    let address = target.pages?;
    let paths =
        ["/inbox/live@night.test/events", "/api/v2/domains/night.test/inboxes/nobody?limit=1&wait=5m"];
    let asked = paths.map(|path| format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    Some(hold_from_many(address, 8, 2048, until, |member| {
        member.finish(asked[member.number % 2].as_bytes())?;
        member.sip(4096)
    }))
}
