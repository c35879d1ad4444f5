//! What one may type into the search field.
//!
//! Words and `"phrases"` are looked for everywhere; `from:`, `to:`, `cc:`, `bcc:`, `subject:`, `message-id:` in their field.
//! `has:attachment`, `has:inline`, `is:read`, `is:unread`, `is:tagged`, `tag:NAME`; `before:` and `after:` with a date (2026-11-21,
//! or with a time: 2026-11-21T22:00); `larger:` and `smaller:` with a size (100K, 2M). A `-` or `!` in front turns a
//! term round. All terms must hold. Case and accents do not matter ([`super::fold`]).
//!
//! What looks like a field and is none (`form:ann`) is looked for as a word, and [`Query::remarks`] says so.

use mail_parser::DateTime;

use super::fold;

/// Terms in one query.
const TERMS_MAX: usize = 20;
/// Bytes of one query.
const QUERY_BYTES_MAX: usize = 1_000;

/// A search that can be run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    terms: Vec<(Term, bool)>,
    remarks: Vec<String>,
}

/// One condition. Words are folded, as [`super::fold`] does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Term {
    /// Anywhere.
    Word(String),
    /// In the From field or MAIL FROM.
    From(String),
    /// Among the recipients, said or written.
    To(String),
    /// In the Cc field.
    Cc(String),
    /// In the Bcc field, or got by somebody whom the head does not name.
    Bcc(String),
    /// In the subject.
    Subject(String),
    /// In the Message-ID.
    MessageId(String),
    /// Arrived before, milliseconds since 1970.
    Before(u64),
    /// Arrived then or later, milliseconds since 1970.
    After(u64),
    /// More bytes than.
    Larger(u64),
    /// Fewer bytes than.
    Smaller(u64),
    /// Something is attached.
    HasAttachment,
    /// Something is meant to be shown in place.
    HasInline,
    /// Opened by somebody.
    Read,
    /// With any tag.
    Tagged,
    /// With this tag.
    Tag(String),
}

/// What is wrong with a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryFault {
    /// Longer than is looked at.
    #[error("the query is longer than {QUERY_BYTES_MAX} bytes")]
    TooLong,
    /// More terms than are looked for.
    #[error("the query has more than {TERMS_MAX} terms")]
    TooMany,
    /// No such date.
    #[error("`{0}` is no date; 2026-11-21 or 2026-11-21T22:00 would be")]
    Date(String),
    /// No such size.
    #[error("`{0}` is no size; 500, 100K or 2M would be")]
    Size(String),
    /// Something else than one of the words after `has:` or `is:`.
    #[error("`{0}` is not known; has:attachment, has:inline, is:read, is:unread and is:tagged are")]
    Unknown(String),
    /// A place to go on from that we did not hand out.
    #[error("invalid cursor `{0}`; use the one of the previous page")]
    Cursor(String),
}

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, QueryFault> {
        if text.len() > QUERY_BYTES_MAX {
            return Err(QueryFault::TooLong);
        }
        let mut query = Self::default();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (word, after) = next_word(rest);
            rest = after.trim_start();
            if let Some(term) = term(&word, &mut query.remarks)? {
                query.terms.push(term);
            }
            if query.terms.len() > TERMS_MAX {
                return Err(QueryFault::TooMany);
            }
        }
        if memchr::memchr_iter(b'"', text.as_bytes()).count() % 2 == 1 {
            query.remarks.push("a quotation mark is not closed; the phrase goes to the end".to_owned());
        }
        Ok(query)
    }

    /// What was not understood as it may have been meant, and what was done instead.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// With one more condition.
    #[must_use]
    pub fn and(mut self, term: Term) -> Self {
        self.terms.push((term, false));
        self
    }

    /// No condition at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub(super) fn terms(&self) -> impl Iterator<Item = (&Term, bool)> {
        self.terms.iter().map(|(term, negated)| (term, *negated))
    }
}

/// Up to a blank outside of quotes; the quotes are taken off. An unclosed quote goes to the end.
fn next_word(text: &str) -> (String, &str) {
    let mut word = String::new();
    let mut quoted = false;
    for (at, character) in text.char_indices() {
        match character {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => return (word, &text[at..]),
            c => word.push(c),
        }
    }
    (word, "")
}

fn term(word: &str, remarks: &mut Vec<String>) -> Result<Option<(Term, bool)>, QueryFault> {
    let (negated, word) = match word.strip_prefix(['-', '!']) {
        Some(rest) if !rest.is_empty() => (true, rest),
        _ => (false, word),
    };
    let lower = fold(word);
    let Some((name, value)) = lower.split_once(':') else {
        return Ok((!lower.is_empty()).then_some((Term::Word(lower), negated)));
    };
    let text = |make: fn(String) -> Term| (!value.is_empty()).then(|| (make(value.to_owned()), negated));
    Ok(match name {
        "from" => text(Term::From),
        "to" | "addressed" => text(Term::To),
        "cc" => text(Term::Cc),
        "bcc" => text(Term::Bcc),
        "subject" => text(Term::Subject),
        "message-id" => text(Term::MessageId),
        "tag" => text(Term::Tag),
        "before" => Some((Term::Before(date_ms(value)?), negated)),
        "after" => Some((Term::After(date_ms(value)?), negated)),
        "larger" => Some((Term::Larger(size(value)?), negated)),
        "smaller" => Some((Term::Smaller(size(value)?), negated)),
        "has" | "is" => match value {
            "attachment" | "attachments" => Some((Term::HasAttachment, negated)),
            "inline" => Some((Term::HasInline, negated)),
            "read" => Some((Term::Read, negated)),
            "unread" => Some((Term::Read, !negated)),
            "tagged" => Some((Term::Tagged, negated)),
            _ => return Err(QueryFault::Unknown(lower)),
        },
        // A time or a URL is a word with a colon in it.
        _ => {
            if looks_like_a_field(name, value) {
                remarks.push(format!(
                    "`{name}:` is no field ({FIELDS} are); `{}` was looked for as a word",
                    crate::render::cut(&lower, 80)
                ));
            }
            Some((Term::Word(lower), negated))
        }
    })
}

/// The fields that can be named.
const FIELDS: &str = "from, to, cc, bcc, subject, message-id, tag, before, after, larger, smaller, has, is";

/// A word and something behind its colon, which is neither a URL nor a time.
fn looks_like_a_field(name: &str, value: &str) -> bool {
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
    is_name
        && !value.is_empty()
        && !value.starts_with("//")
        && !matches!(name, "mailto" | "cid" | "data" | "tel")
}

/// A day begins at midnight UTC.
pub(crate) fn date_ms(text: &str) -> Result<u64, QueryFault> {
    let fault = || QueryFault::Date(text.to_owned());
    let mut dashed = text.trim().replace('/', "-");
    // A time behind a blank is one behind a T (RFC 3339, 5.6).
    if dashed.as_bytes().get(10) == Some(&b' ') {
        dashed.replace_range(10..11, "T");
    }
    let full = match dashed.len() {
        10 => format!("{dashed}T00:00:00Z"),
        16 => format!("{dashed}:00Z"),
        19 => format!("{dashed}Z"),
        _ => dashed,
    };
    let date = DateTime::parse_rfc3339(&full.to_uppercase()).filter(DateTime::is_valid).ok_or_else(fault)?;
    u64::try_from(date.to_timestamp()).ok().and_then(|s| s.checked_mul(1000)).ok_or_else(fault)
}

fn size(text: &str) -> Result<u64, QueryFault> {
    let fault = || QueryFault::Size(text.to_owned());
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1024,
        "m" | "mb" | "mib" => 1024 * 1024,
        _ => return Err(fault()),
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(fault)
}
