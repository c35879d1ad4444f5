use proptest::prelude::*;

use super::*;
use crate::mailbox::{
    mailboxes::Inbox,
    twin::{Retention, Twin},
};

struct NoFlags;

impl FlagLookup for NoFlags {
    fn is_read(&self, id: MailId) -> bool {
        id.0.is_multiple_of(2)
    }
    fn has_tag(&self, id: MailId, tag: &str) -> bool {
        id.0 == 1 && tag == "blue"
    }
    fn is_tagged(&self, id: MailId) -> bool {
        id.0 == 1
    }
}

/// Backend that opens mails one after the other, in the same task.
struct LocalBackend<'a>(&'a Twin);

impl SearchBackend for LocalBackend<'_> {
    type Fault = Unavailable;

    async fn judge(
        &self,
        scope: &Scope,
        query: &Query,
        mails: Vec<MailId>,
    ) -> Result<MatchReport, Unavailable> {
        let mut matches = Vec::new();
        for id in mails {
            let mail = self.0.mail_into(scope, id, ()).await?;
            matches.push(mail.is_some_and(|(mail, ())| query.matches_mail(&mail, &StepLimit::default())));
        }
        Ok(MatchReport { matches, took: Duration::ZERO, is_cut: false })
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Time far enough in the future that the twin drops nothing while a test runs.
const BASE_MS: u64 = 4_000_000_000_000;

fn twin() -> Twin {
    let twin = Twin::new(Retention { age_ms: 30 * 86_400_000, ..Retention::default() }, "night.test");
    let mails = [
        "From: Ann <ann@shop.test>\r\nTo: bob@night.test\r\nSubject: Your order\r\n\r\nTwo pencils, one eraser.",
        "From: =?utf-8?q?J=C3=BCrgen?= <j@bank.test>\r\nTo: Robert <bob@night.test>\r\nCc: eve@x.test\r\nSubject: Statement\r\n\r\nIBAN follows.",
        "From: ann@shop.test\r\nSubject: Invoice\r\nMessage-ID: <inv-7@shop.test>\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n\
         --b\r\n\r\nsee below\r\n--b\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename=inv7.pdf\r\n\r\n%PDF\r\n--b--\r\n",
    ];
    for (at, mail) in mails.iter().enumerate() {
        twin.deliver_at(
            BASE_MS + at as u64 * 86_400_000,
            "bounce@shop.test",
            &["bob".to_owned()],
            mail.as_bytes(),
        )
        .unwrap();
    }
    twin
}

fn find(twin: &Twin, query: &str) -> Vec<u64> {
    let query = Query::parse(query).unwrap();
    let found = block_on(search(twin, &LocalBackend(twin), &Scope::All, &query, &NoFlags, None, 50)).unwrap();
    found.mails.iter().map(|summary| summary.id.0).collect()
}

#[test]
fn each_term_finds_what_it_says() {
    let twin = twin();
    for (query, ids) in [
        ("", &[3, 2, 1][..]),
        ("pencils", &[1]),
        ("PENCILS order", &[1]),
        ("\"two pencils\"", &[1]),
        ("\"pencils two\"", &[]),
        ("from:ann", &[3, 1]),
        ("from:jürgen", &[2]),
        ("from:bounce@", &[3, 2, 1]),
        ("to:robert", &[2]),
        ("to:bob", &[3, 2, 1]),
        ("cc:eve", &[2]),
        ("subject:invoice", &[3]),
        ("has:attachment", &[3]),
        ("-has:attachment", &[2, 1]),
        ("inv7.pdf", &[3]),
        ("message-id:inv-7", &[3]),
        ("!ann", &[2]),
        ("before:2096-10-03", &[1]),
        ("after:2096-10-03 -after:2096-10-04", &[2]),
        ("larger:200", &[3]),
        ("is:unread", &[3, 1]),
        ("is:tagged", &[1]),
        ("tag:Blue", &[1]),
        ("10:30", &[]),
    ] {
        assert_eq!(find(&twin, query), ids, "{query}");
    }
}

#[test]
fn a_fault_says_what_would_be_right() {
    for (query, fault) in [
        ("before:yesterday", "invalid date `yesterday`; expected 2026-11-21 or 2026-11-21T22:00"),
        ("after:2026-13-41", "invalid date `2026-13-41`; expected 2026-11-21 or 2026-11-21T22:00"),
        ("larger:big", "invalid size `big`; expected 500, 100K or 2M"),
        (
            "has:wings",
            "unknown filter `has:wings`; expected has:attachment, has:inline, is:read, is:unread or is:tagged",
        ),
    ] {
        assert_eq!(Query::parse(query).unwrap_err().to_string(), fault);
    }
    assert_eq!(Query::parse(&"x".repeat(2000)), Err(QueryFault::TooLong));
    assert_eq!(Query::parse(&"x ".repeat(40)), Err(QueryFault::TooMany));
}

#[test]
fn a_cursor_continues_despite_new_and_deleted_mail() {
    let twin = Twin::new(Retention { per_inbox_max: 10_000, ..Retention::default() }, "night.test");
    let deliver = |n: usize| {
        twin.deliver_at(BASE_MS, "", &["bob".to_owned()], format!("Subject: {n}\r\n\r\n").as_bytes())
            .unwrap();
    };
    (0..450).for_each(deliver);
    let query = Query::parse("subject:1").unwrap();
    let mut cursor = None;
    let mut seen = Vec::new();
    for page in 0.. {
        let found =
            block_on(search(&twin, &LocalBackend(&twin), &Scope::All, &query, &NoFlags, cursor, 20)).unwrap();
        seen.extend(found.mails.iter().map(|summary| summary.id.0));
        cursor = found.next.map(|next| next.to_string().parse().unwrap());
        if cursor.is_none() {
            break;
        }
        // Newer mails shift all others down; the running search need not find them.
        (1000..1007).for_each(deliver);
        if page == 2 {
            block_on(twin.delete(&Scope::All, MailId(*seen.last().unwrap()))).unwrap();
        }
    }
    let expected: Vec<u64> =
        (0..450u64).rev().filter(|n| n.to_string().contains('1')).map(|n| n + 1).collect();
    // After the deletion of the cursor's mail at most the seven new mails are seen again.
    seen.dedup();
    let missing: Vec<&u64> = expected.iter().filter(|id| !seen.contains(id)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(seen.len() <= expected.len() + 14, "{} for {}", seen.len(), expected.len());
    assert!("x".parse::<Cursor>().is_err());
}

#[test]
fn a_search_stops_at_its_bounds() {
    let twin = Twin::new(Retention { per_inbox_max: 10_000, ..Retention::default() }, "night.test");
    for _ in 0..OPENED_MAX + 10 {
        twin.deliver_at(BASE_MS, "", &["bob".to_owned()], b"Subject: x\r\n\r\n").unwrap();
    }
    let query = Query::parse("nowhere").unwrap();
    let found =
        block_on(search(&twin, &LocalBackend(&twin), &Scope::All, &query, &NoFlags, None, 50)).unwrap();
    assert!(found.bounded && found.next.is_some());
    assert_eq!(found.looked_at, OPENED_MAX);
    let rest =
        block_on(search(&twin, &LocalBackend(&twin), &Scope::All, &query, &NoFlags, found.next, 50)).unwrap();
    assert_eq!((rest.looked_at, rest.next), (10, None));
}

proptest! {
    #[test]
    fn any_text_is_a_query_or_a_fault(text in "\\PC{0,60}") {
        if let Ok(query) = Query::parse(&text) {
            let summary = Summary {
                id: MailId(1),
                letter: MailId(1),
                inboxes: 1,
                inbox: Inbox::of("bob", "night.test").unwrap(),
                envelope_from: "a@b".into(),
                from: text.as_bytes().into(),
                subject: text.as_bytes().into(),
                arrived_ms: 0,
                expires_ms: 0,
                size_bytes: 0,
            };
            let _ = query.judge(&summary, &NoFlags);
        }
    }
}

#[test]
fn accents_headers_and_link_targets_are_found() {
    let twin = Twin::new(Retention { age_ms: 30 * 86_400_000, ..Retention::default() }, "night.test");
    let mail = "From: =?utf-8?q?J=C3=BCrgen_Stra=C3=9Fe?= <j@x.test>\r\nSubject: =?utf-8?q?R=C3=A9sum=C3=A9?=\r\n\
                X-Campaign: spring-7\r\nContent-Type: text/html; charset=utf-8\r\n\r\n\
                <p>caf\u{e9} <a HREF = 'https://track.test/?to=shop&amp;id=42'>here</a><img src=cid:logo7></p>";
    twin.deliver_at(BASE_MS, "b@x.test", &["bob".to_owned()], mail.as_bytes()).unwrap();
    for query in [
        "from:strasse",
        "from:JURGEN",
        "resume",
        "subject:R\u{e9}sum\u{e9}",
        "cafe",
        "CAF\u{c9}",
        "x-campaign spring-7",
        "\"x-campaign: spring-7\"",
        "track.test/?to=shop&id=42",
        "cid:logo7",
        "to:bob",
    ] {
        assert_eq!(find(&twin, query), [1], "{query}");
    }
    assert_eq!(find(&twin, "spring-8"), [0; 0]);
}

#[test]
fn what_was_not_understood_is_said() {
    let remarks = |query: &str| Query::parse(query).unwrap().remarks().to_vec();
    assert!(
        remarks("form:ann")[0].starts_with("unknown field `form:` (known: from, to, "),
        "{:?}",
        remarks("form:ann")
    );
    assert_eq!(remarks("\"not closed")[0], "unclosed quotation mark; the phrase extends to the end");
    for understood in ["from:ann", "https://x.test/y", "10:30", "cid:logo", "a b", "", "x:"] {
        assert_eq!(remarks(understood), [""; 0], "{understood}");
    }
}
