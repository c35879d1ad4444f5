//! Syntax of the search field.
//!
//! Words and `"phrases"` are looked for everywhere; `from:`, `to:`, `cc:`, `bcc:`, `subject:`, `message-id:`
//! in their field. Further terms are `has:attachment`, `has:inline`, `is:read`, `is:unread`, `is:tagged`,
//! `tag:NAME`; `before:` and `after:` with a date (2026-11-21, or with a time: 2026-11-21T22:00); `larger:`
//! and `smaller:` with a size (100K, 2M). A `-` or `!` in front negates a term. All terms must match. Case
//! and accents are ignored ([`super::fold`]).
//!
//! An unknown field (`form:ann`) is looked for as a word, and [`Query::remarks`] says so.

use mail_parser::DateTime;

use super::fold;

/// Maximum number of terms in a query.
const TERMS_MAX: usize = 20;
/// Maximum length of a query in bytes.
const QUERY_BYTES_MAX: usize = 1_000;

/// A parsed search query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    terms: Vec<(Term, bool)>,
    remarks: Vec<String>,
}

/// A condition of a query. Words are folded by [`super::fold`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Term {
    /// Word anywhere in the mail.
    Word(String),
    /// Word in the From field or MAIL FROM.
    From(String),
    /// Word in the RCPT TO recipients or the To field.
    To(String),
    /// Word in the Cc field.
    Cc(String),
    /// Word in the Bcc field, or in a recipient that the head does not name.
    Bcc(String),
    /// Word in the subject.
    Subject(String),
    /// Word in the Message-ID.
    MessageId(String),
    /// Arrival before this time, in milliseconds since 1970.
    Before(u64),
    /// Arrival at or after this time, in milliseconds since 1970.
    After(u64),
    /// Size above this many bytes.
    Larger(u64),
    /// Size below this many bytes.
    Smaller(u64),
    /// Mail with an attachment.
    HasAttachment,
    /// Mail with an inline part.
    HasInline,
    /// Mail that a reader has opened.
    Read,
    /// Mail with any tag.
    Tagged,
    /// Mail with this tag.
    Tag(String),
}

/// Syntax error in a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryFault {
    /// The query has too many bytes.
    #[error("the query is longer than {QUERY_BYTES_MAX} bytes")]
    TooLong,
    /// The query has too many terms.
    #[error("the query has more than {TERMS_MAX} terms")]
    TooMany,
    /// Invalid date.
    #[error("invalid date `{0}`; expected 2026-11-21 or 2026-11-21T22:00")]
    Date(String),
    /// Invalid size.
    #[error("invalid size `{0}`; expected 500, 100K or 2M")]
    Size(String),
    /// Unknown word after `has:` or `is:`.
    #[error("unknown filter `{0}`; expected has:attachment, has:inline, is:read, is:unread or is:tagged")]
    Unknown(String),
    /// Invalid cursor.
    #[error("invalid cursor `{0}`; use the one of the previous page")]
    Cursor(String),
}

impl Query {
    /// Parses a query.
    ///
    /// # Errors
    /// Returns a [`QueryFault`] for the first term that is invalid, or if the query is too long.
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
            query.remarks.push("unclosed quotation mark; the phrase extends to the end".to_owned());
        }
        Ok(query)
    }

    /// Hints for the user about terms that may have been meant differently, and how they were interpreted.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Adds a condition.
    #[must_use]
    pub fn and(mut self, term: Term) -> Self {
        self.terms.push((term, false));
        self
    }

    /// Returns whether the query has no conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub(super) fn terms(&self) -> impl Iterator<Item = (&Term, bool)> {
        self.terms.iter().map(|(term, negated)| (term, *negated))
    }
}

/// Splits off the text up to a blank outside of quotes, without the quotes. An unclosed quote extends to the
/// end.
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
        // Times and URLs are words with a colon in them.
        _ => {
            if looks_like_a_field(name, value) {
                remarks.push(format!(
                    "unknown field `{name}:` (known: {FIELDS}); `{}` was searched as a word",
                    crate::render::cut(&lower, 80)
                ));
            }
            Some((Term::Word(lower), negated))
        }
    })
}

/// Known fields, as shown in a remark.
const FIELDS: &str = "from, to, cc, bcc, subject, message-id, tag, before, after, larger, smaller, has, is";

/// Returns whether a word with a colon looks like a field, and neither like a URL nor a time.
fn looks_like_a_field(name: &str, value: &str) -> bool {
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
    is_name
        && !value.is_empty()
        && !value.starts_with("//")
        && !matches!(name, "mailto" | "cid" | "data" | "tel")
}

/// Parses a date; a day begins at midnight UTC.
pub(crate) fn date_ms(text: &str) -> Result<u64, QueryFault> {
    let fault = || QueryFault::Date(text.to_owned());
    let mut dashed = text.trim().replace('/', "-");
    // A blank before the time is read as a T (RFC 3339, 5.6).
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
