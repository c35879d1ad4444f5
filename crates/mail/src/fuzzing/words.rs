//! Fuzz checks of text that people and programs write in paths, files and heads: scopes (`web::scope`),
//! durations (`api::duration`), ban lists (`abuse::lists`), and the first lines of a mail (`head`, `bodies`,
//! `sendmail`).

use std::time::Duration;

use crate::{
    abuse::Lists,
    api::duration,
    mailbox::mailboxes::{Inbox, Scope},
    smtp::sendmail::{Call, dot_stuff},
    store::{list_head, shared_bodies},
};

const DOMAIN: &str = "night.test";

/// Fuzzes scopes, durations and ban lists. A scope's name parses to the same scope, and a single inbox never
/// becomes several; a duration has the value of its unit, up to the maximum; an error in a ban list has its
/// line number, and additional lines do not change the other entries.
pub fn mail_words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(scope) = Scope::of(text, DOMAIN) {
        assert_eq!(Scope::of(&scope.name(), "other.test").as_ref(), Ok(&scope), "{}", scope.name());
        let bare = text.rsplit_once('@').map_or(text, |(local, _)| local);
        assert_eq!(scope.is_wide(), bare.ends_with('*') && !text.ends_with('"'), "{text}");
        if !scope.is_wide() {
            assert_eq!(Inbox::of(text, DOMAIN).map(Scope::Inbox), Ok(scope));
        }
    }
    check_duration(text);
    check_lists(text);
}

fn check_duration(text: &str) {
    const MOST: Duration = Duration::from_hours(24);
    let read = duration::parse(text, MOST).ok();
    let letters = text.len() - text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
    let (digits, unit) = text.split_at(text.len() - letters);
    let unit_ms = [("ms", 1), ("", 1000), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    let unit_ms = unit_ms.iter().find(|(known, _)| *known == unit).map(|(_, ms)| *ms);
    let ms =
        digits.parse::<u64>().ok().zip(unit_ms).and_then(|(count, ms): (u64, u64)| count.checked_mul(ms));
    let within = ms.map(Duration::from_millis).filter(|duration| *duration <= MOST);
    assert_eq!(read, within, "{text}");
}

fn check_lists(text: &str) {
    let lines = text.lines().count();
    match Lists::parse(text) {
        Err(fault) => {
            assert!((1..=lines).contains(&fault.line), "{fault}");
            let before: String = text.split_inclusive('\n').take(fault.line - 1).collect();
            assert!(Lists::parse(&before).is_ok(), "it is the first that is wrong");
        }
        Ok(lists) => {
            assert!(lists.len() <= lines);
            let more = format!("{text}\naddress 192.0.2.0/24\nsender @evil.test # of late\nword casino");
            let more = Lists::parse(&more).expect("as right as before");
            assert_eq!(more.len(), lists.len() + 3);
            assert!(more.bans_address([192, 0, 2, 7].into()) && more.bans_sender("A@EVIL.test"));
            assert!(more.bans_subject(b"The CASINO, again"));
            for (line, words) in text.lines().zip(text.lines().map(str::split_whitespace)) {
                let words: Vec<&str> = words.collect();
                if let (["sender", address], false) = (&words[..], line.contains('#')) {
                    assert!(lists.bans_sender(&address.to_uppercase().to_lowercase()) || !address.is_ascii());
                }
            }
        }
    }
}

/// Fuzzes the head of a mail. Its fields agree with the slow twin; the head and the shareable body together
/// are the mail; and a mail that is passed to sendmail gets a head, and cannot contain a false end of data.
pub fn mail_head(bytes: &[u8]) {
    let fields = list_head::fields(bytes);
    assert_eq!((fields.from, fields.subject), (twin(bytes, b"from"), twin(bytes, b"subject")));
    if let Some((head, body)) = shared_bodies::split(bytes) {
        assert_eq!([head, body].concat(), bytes);
        assert!(head.ends_with(b"\r\n\r\n"));
        assert_eq!(head.windows(4).filter(|four| four == b"\r\n\r\n").count(), 1);
        assert_eq!(list_head::fields(head), fields, "they are in the head");
    }
    let stuffed = dot_stuff(bytes);
    let ends = stuffed.windows(5).filter(|five| five == b"\r\n.\r\n").count();
    assert!(stuffed.ends_with(b".\r\n") && ends <= 1, "{}", stuffed.escape_ascii());
    for flags in ["-i", "-ti"] {
        let arguments = ["-F", "A \"B\"", flags, "Bob <bob@night.test>"].map(str::to_owned);
        let call = Call::parse(&arguments).expect("flags that are known");
        let Ok(mail) = call.prepare(bytes) else { continue };
        assert!(mail.recipients.contains(&"bob@night.test".to_owned()));
        let is_field =
            |line: &&[u8]| line.starts_with(b" ") || line.starts_with(b"\t") || line.contains(&b':');
        let head: Vec<&[u8]> =
            mail.raw.split(|byte| *byte == b'\n').take_while(|line| *line != b"\r").collect();
        assert!(head.iter().all(is_field), "{}", mail.raw.escape_ascii());
        assert!(head.iter().any(|line| line.to_ascii_lowercase().starts_with(b"from")));
        if flags == "-ti" {
            assert!(!head.iter().any(|line| line.to_ascii_lowercase().starts_with(b"bcc:")));
        }
    }
}

/// Slow twin: returns the value of the first field with this name, found line by line.
fn twin<'a>(mail: &'a [u8], name: &[u8]) -> &'a [u8] {
    let mut at = 0;
    for line in mail.split_inclusive(|byte| *byte == b'\n') {
        let begin = at;
        at += line.len();
        if matches!(line, b"\n" | b"\r\n") {
            break;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        if matches!(line.first(), Some(b' ' | b'\t')) && begin > 0 && is_field_before(mail, begin) {
            continue;
        }
        if !line[..colon].trim_ascii_end().eq_ignore_ascii_case(name) {
            continue;
        }
        let rest = &mail[begin..];
        let end = (1..rest.len()).find(|&end| rest[end - 1] == b'\n' && !matches!(rest[end], b' ' | b'\t'));
        let body = rest[colon + 1..end.unwrap_or(rest.len())].trim_ascii();
        return &body[..body.len().min(list_head::FIELD_BYTES_MAX)];
    }
    b""
}

/// Returns whether the lines before `begin`, back to the first that has no leading blank, are a field that
/// continues here.
fn is_field_before(mail: &[u8], begin: usize) -> bool {
    let mut lines: Vec<&[u8]> = mail[..begin].split_inclusive(|byte| *byte == b'\n').collect();
    while let Some(line) = lines.pop() {
        if line.contains(&b':') && (lines.is_empty() || !matches!(line.first(), Some(b' ' | b'\t'))) {
            return true;
        }
        if !matches!(line.first(), Some(b' ' | b'\t')) {
            return false;
        }
    }
    false
}
