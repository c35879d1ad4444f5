//! The path in MAIL and RCPT: `<` is taken off, the mailbox and what is behind `>` is told.
//!
//! ```text
//!   <@relay.example,@other.example:ann@example.org> SIZE=7
//!    └───── source route ─────────┘└─── mailbox ──┘└ rest ┘
//! ```
//! RFC 5321, 4.1.2. The mailbox is told as it was said, quotes and all: without them it could mean another one. A
//! source route is passed over (RFC 5321, 4.1.1.3 and appendix C). Taken although the standard does not: a dot before
//! the `@`, and any `atext` in a domain.

/// The longest path (RFC 5321, 4.5.3.1.3).
const PATH_BYTES_MAX: usize = 256;

/// The mailbox of a path whose `<` was read, and what stands behind its `>`. The mailbox is "" for `<>`.
pub(super) fn read(text: &str) -> Option<(&str, &str)> {
    let mailbox = match text.strip_prefix('@') {
        Some(route) => {
            let end = route.find(|letter| !is_atext(letter) && !matches!(letter, '.' | '@' | ','))?;
            route[end..].strip_prefix(':')?
        }
        None => text,
    };
    if let Some(rest) = mailbox.strip_prefix('>') {
        return Some(("", rest));
    }
    let local = match mailbox.strip_prefix('"') {
        Some(quoted) => quoted_bytes(quoted)? + 1,
        None => dotted_bytes(mailbox)?,
    };
    // The only name that needs no domain (RFC 5321, 4.1.1.3).
    if mailbox[local..].starts_with('>') && mailbox[..local].eq_ignore_ascii_case("postmaster") {
        return Some((&mailbox[..local], &mailbox[local + 1..]));
    }
    let domain = mailbox[local..].strip_prefix('@')?;
    let domain_bytes = match domain.strip_prefix('[') {
        Some(literal) => literal_bytes(literal)? + 1,
        None => dotted_bytes(domain)?,
    };
    let end = local + 1 + domain_bytes;
    let rest = mailbox[end..].strip_prefix('>')?;
    (end <= PATH_BYTES_MAX).then_some((&mailbox[..end], rest))
}

/// Digits, and nothing else; what no 64 bits can hold is the most that they can.
pub(super) fn number(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.bytes().try_fold(0_u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(sum.saturating_mul(10).saturating_add(digit))
    })
}

/// `atext` of RFC 5322, 3.2.3, and what RFC 6531, 3.3 adds to it.
fn is_atext(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(letter) || !letter.is_ascii()
}

/// How long the words with dots between them are that a text begins with; none if there are none, if one begins with a
/// dot, or if two dots stand together.
fn dotted_bytes(text: &str) -> Option<usize> {
    let end = text.find(|letter| !is_atext(letter) && letter != '.').unwrap_or(text.len());
    let words = &text[..end];
    (!words.is_empty() && !words.starts_with('.') && !words.contains("..")).then_some(end)
}

/// How long a quoted string is, its closing quote included; its opening one was read.
fn quoted_bytes(text: &str) -> Option<usize> {
    let mut escaped = false;
    let close = text.bytes().position(|byte| match (escaped, byte) {
        (true, _) => {
            escaped = false;
            false
        }
        (false, b'\\') => {
            escaped = true;
            false
        }
        (false, byte) => byte == b'"',
    })?;
    Some(close + 1)
}

/// How long an address literal is, its closing bracket included; its opening one was read.
fn literal_bytes(text: &str) -> Option<usize> {
    let end = text.find(|letter: char| !letter.is_ascii_graphic() || "[]\\".contains(letter))?;
    (end > 0 && text[end..].starts_with(']')).then_some(end + 1)
}
