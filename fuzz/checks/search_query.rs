//! A search query: a mail matches if each of its words matches; order is kept, case and blanks make no
//! difference, and `-` negates a word. A cursor reads back as it is written.

use mail::{
    mailboxes::{Inbox, MailId, Summary},
    search::{Cursor, FlagLookup, Query, QueryFault, Verdict},
};

/// Limits of `Query::parse`.
const QUERY_BYTES_MAX: usize = 1_000;
const TERMS_MAX: usize = 20;

struct Blue;

impl FlagLookup for Blue {
    fn is_read(&self, _: MailId) -> bool {
        true
    }
    fn has_tag(&self, _: MailId, tag: &str) -> bool {
        tag == "blue"
    }
    fn is_tagged(&self, _: MailId) -> bool {
        true
    }
}

fn summary() -> Summary {
    Summary {
        id: MailId(7),
        letter: MailId(7),
        inboxes: 1,
        inbox: Inbox { local: "bob".into(), domain: "night.test".into() },
        envelope_from: "bounce@shop.test".into(),
        from: (*b"Ann <ann@shop.test>").into(),
        subject: (*b"=?utf-8?q?Your_=C3=B6rder?=").into(),
        // 2026-11-21.
        arrived_ms: 1_795_219_200_000,
        expires_ms: 1_795_305_600_000,
        size_bytes: 1_000,
    }
}

/// Words with their quotes, split as a human reader would.
fn words(text: &str) -> Vec<&str> {
    let (mut words, mut from, mut quoted) = (Vec::new(), None, false);
    for (at, letter) in text.char_indices() {
        if letter.is_whitespace() && !quoted {
            words.extend(from.take().map(|from| &text[from..at]));
            continue;
        }
        from = from.or(Some(at));
        quoted ^= letter == '"';
    }
    words.extend(from.map(|from| &text[from..]));
    words
}

/// Verdict of all words together: the first fault, or each word must match.
fn twin(text: &str, summary: &Summary) -> Result<Verdict, QueryFault> {
    if text.len() > QUERY_BYTES_MAX {
        return Err(QueryFault::TooLong);
    }
    let (mut terms, mut verdicts) = (0, Vec::new());
    for word in words(text) {
        let query = Query::parse(word)?;
        if !query.is_empty() {
            terms += 1;
            verdicts.push(query.judge(summary, &Blue));
        }
        if terms > TERMS_MAX {
            return Err(QueryFault::TooMany);
        }
    }
    let any = |wanted| verdicts.contains(&wanted);
    Ok(if any(Verdict::No) {
        Verdict::No
    } else if any(Verdict::Open) {
        Verdict::Open
    } else {
        Verdict::Yes
    })
}

pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let summary = summary();
    let query = Query::parse(text);
    assert_eq!(query.clone().map(|query| query.judge(&summary, &Blue)), twin(text, &summary), "{text:?}");
    assert_eq!(Query::parse(&text.to_ascii_uppercase()), query);
    assert_eq!(Query::parse(&text.to_ascii_lowercase()), query);
    if text.len() + 2 <= QUERY_BYTES_MAX {
        assert_eq!(Query::parse(&format!("\t {text}")), query);
    }
    for word in words(text) {
        if word.starts_with(['-', '!', '"']) || word.len() >= QUERY_BYTES_MAX {
            continue;
        }
        let (said, turned) = (Query::parse(word), Query::parse(&format!("-{word}")));
        match (&said, &turned) {
            (Ok(said), Ok(turned)) if !said.is_empty() => {
                let verdicts = (said.judge(&summary, &Blue), turned.judge(&summary, &Blue));
                let opposite = [
                    (Verdict::Yes, Verdict::No),
                    (Verdict::No, Verdict::Yes),
                    (Verdict::Open, Verdict::Open),
                ];
                assert!(opposite.contains(&verdicts), "{word:?}: {verdicts:?}");
            }
            _ => assert_eq!(said, turned),
        }
    }
    let place = format!("{}-{}", text.len(), MailId(text.len() as u64));
    for text in [text, &place] {
        if let Ok(cursor) = text.parse::<Cursor>() {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
    }
    assert!(place.parse::<Cursor>().is_ok_and(|cursor| cursor.to_string() == place));
}
