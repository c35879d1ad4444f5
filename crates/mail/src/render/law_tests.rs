//! Tests that `StepLimit` is observed: all work on a mail is charged in steps, and no work is done after the
//! limit ends.

use std::sync::atomic::{AtomicU64, Ordering};

use mail_parser::HeaderName;
use proptest::prelude::*;

use super::{html::DisplayOptions, until::STEPS_A_LOOK, *};
use crate::{
    mailbox::mailboxes::{Inbox, Mail, MailId, Summary},
    search::Query,
    web::message::linked,
};

/// Maximum number of refused calls to `pay` for one mail: one for each loop and each enclosing loop.
const REFUSALS_MAX: u64 = 200;
/// Bytes of output allowed per step, and bytes that any mail may produce without being charged.
const BYTES_A_STEP: u64 = 12;
const BYTES_OF_NOTHING: u64 = 64 * 1024;

fn mail(raw: &[u8]) -> Mail {
    let inbox = Inbox { local: "ann".into(), domain: "night.test".into() };
    let summary = Summary {
        id: MailId(1),
        letter: MailId(1),
        inboxes: 1,
        inbox,
        arrived_ms: 0,
        expires_ms: u64::MAX,
        envelope_from: "a@b".into(),
        from: b"a@b"[..].into(),
        subject: b"x"[..].into(),
        size_bytes: raw.len() as u64,
    };
    Mail { summary, recipients: vec![Box::from("ann@night.test")].into(), raw: raw.to_vec().into() }
}

/// Runs everything that pages, APIs and searches do with a mail, and returns the size of the output.
fn all_of(mail: &Mail, until: &StepLimit) -> u64 {
    let prepared = ParsedMail::within(&mail.raw, until);
    let reading = prepared.read();
    let mut out = 0;
    if let Some(clean) = reading.html(&DisplayOptions::default(), until) {
        let mut links = Vec::new();
        findings::in_html(&clean.html, &mut links, until);
        out += clean.html.len() + links.iter().map(|link| link.link.len() + link.text.len()).sum::<usize>();
    }
    let (text, _) = reading.text();
    out += text.len() + linked(&text, until).len();
    out += reading.html_source().map_or(0, |html| html.len());
    out += reading.headers().iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    for field in [HeaderName::From, HeaderName::To] {
        out += reading.addresses(field).iter().map(|address| address.to_string().len()).sum::<usize>();
    }
    out += reading.link_targets().iter().map(String::len).sum::<usize>();
    // The word does not occur in the mail, so the search reads all of it.
    let query = Query::parse("neverthere").unwrap();
    assert!(!query.matches_mail(mail, until));
    out as u64
}

/// Returns a limit that ends after `looks` checks.
fn after(looks: u64) -> StepLimit {
    let seen = AtomicU64::new(0);
    StepLimit::new(move || seen.fetch_add(1, Ordering::Relaxed) >= looks)
}

fn hold(raw: &str, looks: u64) {
    let mail = mail(raw.as_bytes());
    let until = after(looks);
    let out = all_of(&mail, &until);
    assert!(until.refusals() <= REFUSALS_MAX, "{} refusals", until.refusals());
    assert!(
        out <= BYTES_A_STEP * until.steps() + BYTES_OF_NOTHING,
        "{out} bytes came out of {} steps",
        until.steps()
    );
    if until.has_ended() {
        // The call that detects the end is the last one that is charged, and no loop charges for more than
        // one mail at a time.
        let most = (looks + 1) * (STEPS_A_LOOK + 4 * raw.len() as u64) + 64 * raw.len() as u64;
        assert!(until.steps() <= most, "{} steps of {most}", until.steps());
    }
}

const PIECES: &[&str] = &[
    "<a href=\"https://x.test/?a=1&b=2\"><marquee>",
    "<a href='http://y.test/'>word ",
    "</a>",
    "<div style=\"color:red;background:url(x)\">",
    "<style>a{color:red}b>c{width:1px}</style>",
    "<table><tr><td>cell",
    "<p><b><i><u>",
    "text & <text> ",
    "http://z.test/'\"<>()[] ",
    "\u{fdfa}\u{fdfa}e\u{301}\u{323}",
    "=?utf-8?q?=EF=B7=BA?= ",
    "a@b, \"c\" <d@e>; ",
    "\r\n ",
    "\r\nX-Field: value, of it;\r\n",
    "\r\n\r\n",
    "\r\n--b\r\nContent-Type: text/html; charset=utf-8\r\n\r\n",
    "\r\n--b\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: 7bit\r\n\r\n",
    "Content-Type: multipart/mixed; boundary=b\r\n",
    "\r\n--b--\r\n",
];

fn hostile() -> impl Strategy<Value = String> {
    let head = prop_oneof![
        Just("Content-Type: text/html; charset=utf-8\r\n\r\n"),
        Just("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/html\r\n\r\n"),
        Just("Content-Type: text/plain; charset=utf-8\r\n\r\n"),
        Just("From: "),
        Just(""),
    ];
    let runs = proptest::collection::vec((0..PIECES.len(), 1usize..150), 1..8);
    (head, runs, 1usize..4).prop_map(|(head, runs, times)| {
        let body: String = runs.iter().map(|(piece, count)| PIECES[*piece].repeat(*count)).collect();
        format!("{head}{}", body.repeat(times))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(unify::cases(16, 2_000)))]

    /// The limit is observed for any structure of a mail, wherever in the work the limit ends.
    #[test]
    fn nothing_is_done_behind_the_end(raw in hostile(), looks in 0u64..40) {
        hold(&raw, looks);
        hold(&raw, u64::MAX);
    }
}

/// `<marquee>` allows nested links, each of which once repeated the text of all links within it.
#[test]
fn nested_links_do_not_copy_each_other() {
    let links = "<a href=\"https://x.test/?n=1\"><marquee>".repeat(200);
    let numbered: String = (0..200).map(|n| format!("<a href=\"https://x.test/?n={n}\"><marquee>")).collect();
    for links in [links, numbered] {
        let raw = format!("Content-Type: text/html\r\n\r\n{links}{}", "word ".repeat(380_000));
        hold(&raw, u64::MAX);
        let prepared = ParsedMail::new(raw.as_bytes());
        let found = findings::links(&prepared.read(), &StepLimit::default());
        let bytes: usize = found.iter().map(|link| link.text.len()).sum();
        assert!(!found.is_empty() && bytes <= found.len() * 1024, "{bytes} bytes of {} links", found.len());
    }
}

#[test]
fn huge_sender_fields_are_cut() {
    for sender in ["a@b, ".repeat(800_000), "a ".repeat(2_000_000), "x".repeat(4_000_000)] {
        let raw = format!("From: {sender}\r\nSubject: here\r\n\r\nbody");
        hold(&raw, u64::MAX);
        let prepared = ParsedMail::new(raw.as_bytes());
        let reading = prepared.read();
        assert_eq!(reading.notices(), [Notice::HeadCut]);
        assert_eq!((reading.subject(), reading.text().0), ("here".to_owned(), "body".to_owned()));
        let shown: usize = reading.addresses(HeaderName::From).iter().map(|of| of.to_string().len()).sum();
        assert!((1..=heads::FIELD_BYTES_MAX).contains(&shown), "{shown} bytes are shown");
    }
}

/// Folding has a bounded cost even for U+FDFA, which folds into eighteen letters, in a head of megabytes.
#[test]
fn folding_for_a_search_has_bounds() {
    let head = format!("X: {}\r\n", "\u{fdfa}".repeat(30_000)).repeat(40);
    let raw = format!("{head}\r\n{}", "\u{fdfa}".repeat(400_000));
    let mail = mail(raw.as_bytes());
    let until = StepLimit::default();
    assert!(!Query::parse("neverthere").unwrap().matches_mail(&mail, &until));
    let most = 40 * raw.len() as u64;
    assert!(until.steps() <= most, "{} steps of {most}", until.steps());
    let ended = after(1);
    assert!(!Query::parse("\u{fdfa}").unwrap().matches_mail(&mail, &ended), "it took too long");
    assert!(ended.has_ended() && ended.refusals() <= REFUSALS_MAX);
}
