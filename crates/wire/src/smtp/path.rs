//! Parser for the path in MAIL and RCPT: given the text after `<`, it returns the mailbox and the text after
//! `>`.
//!
//! ```text
//!   <@relay.example,@other.example:ann@example.org> SIZE=7
//!    └───── source route ─────────┘└─── mailbox ──┘└ rest ┘
//! ```
//! RFC 5321, 4.1.2. The mailbox is returned unchanged, including quotes: without them it could name another
//! mailbox. A source route is skipped (RFC 5321, 4.1.1.3 and appendix C). The parser accepts two things that
//! the standard does not: a dot before the `@`, and any `atext` in a domain.

/// Length of the longest path (RFC 5321, 4.5.3.1.3).
const PATH_BYTES_MAX: usize = 256;

/// Reads a path after its `<`. Returns the mailbox, "" for `<>`, and the text after its `>`.
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
    // Postmaster is the only name that needs no domain (RFC 5321, 4.1.1.3).
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

/// Parses a decimal number that consists of digits only, saturating at 64 bits.
pub(super) fn number(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.bytes().try_fold(0_u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(sum.saturating_mul(10).saturating_add(digit))
    })
}

/// Returns whether a character is `atext` according to RFC 5322, 3.2.3, or RFC 6531, 3.3.
fn is_atext(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(letter) || !letter.is_ascii()
}

/// Returns the length of the dot-separated words at the start of a text; `None` if there are none, if it
/// begins with a dot, or if two dots are adjacent.
fn dotted_bytes(text: &str) -> Option<usize> {
    let end = text.find(|letter| !is_atext(letter) && letter != '.').unwrap_or(text.len());
    let words = &text[..end];
    (!words.is_empty() && !words.starts_with('.') && !words.contains("..")).then_some(end)
}

/// Returns the length of a quoted string after its opening quote, the closing quote included.
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

/// Returns the length of an address literal after its opening bracket, the closing bracket included.
fn literal_bytes(text: &str) -> Option<usize> {
    let end = text.find(|letter: char| !letter.is_ascii_graphic() || "[]\\".contains(letter))?;
    (end > 0 && text[end..].starts_with(']')).then_some(end + 1)
}
