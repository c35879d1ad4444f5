//! Decodes header fields to text: unfolds, decodes encoded words (RFC 2047), and removes characters that
//! control a terminal or a page.

use std::borrow::Cow;

use mail_parser::MessageParser;

/// A mailbox in an address field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Address<'x> {
    /// Display name; empty if there is none.
    pub name: Cow<'x, str>,
    /// `local@domain`; empty if the field has only a name.
    pub address: Cow<'x, str>,
}

impl Address<'_> {
    /// Returns the name, or the address if there is no name.
    #[must_use]
    pub fn label(&self) -> &str {
        if self.name.is_empty() { &self.address } else { &self.name }
    }

    fn into_owned(self) -> Address<'static> {
        Address { name: self.name.into_owned().into(), address: self.address.into_owned().into() }
    }

    fn write_to(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        out.write_str(&self.name)?;
        match (self.name.is_empty(), self.address.is_empty()) {
            (true, _) => out.write_str(&self.address),
            (false, true) => Ok(()),
            (false, false) => {
                out.write_str(" <")?;
                out.write_str(&self.address)?;
                out.write_char('>')
            }
        }
    }
}

/// Writes `Name <address>`.
impl std::fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.write_to(f)
    }
}

/// Writes into a page without a formatter; the template escapes the text.
impl askama::FastWritable for Address<'_> {
    fn write_into(&self, out: &mut dyn std::fmt::Write, _: &dyn askama::Values) -> askama::Result<()> {
        Ok(self.write_to(out)?)
    }
}

pub(super) fn address<'x>(parsed: &'x mail_parser::Addr<'_>) -> Address<'x> {
    Address {
        name: printable(parsed.name().unwrap_or_default()),
        address: printable(parsed.address().unwrap_or_default()),
    }
}

/// Decodes the value of an unstructured field.
#[must_use]
pub fn decode(value: &[u8]) -> Cow<'_, str> {
    // Most values are plain, and a mail list decodes two per line.
    if value.is_ascii() && memchr::memmem::find(value, b"=?").is_none() {
        return printable_lossy(value);
    }
    Cow::Owned(printable(&decode_words(value)).into_owned())
}

/// Decodes a value and keeps control characters.
pub(super) fn decode_words(value: &[u8]) -> String {
    super::words::decoded(value)
}

/// Decodes a Date field to seconds since 1970.
pub(super) fn decode_date(value: &[u8]) -> Option<i64> {
    let field = field(b"Date: ", value);
    let parsed = MessageParser::default().parse_headers(&field)?;
    let date = parsed.date()?;
    date.is_valid().then(|| date.to_timestamp())
}

/// Returns all mailboxes of a field, including those in groups; at most [`ADDRESSES_MAX`].
pub(super) fn decode_addresses(value: &[u8]) -> Vec<Address<'static>> {
    let field = field(b"To: ", &value[..value.len().min(ADDRESSES_BYTES_MAX)]);
    let parsed = MessageParser::default().parse_headers(&field);
    let Some(addresses) = parsed.as_ref().and_then(|message| message.to()) else { return Vec::new() };
    addresses.iter().take(ADDRESSES_MAX).map(|parsed| address(parsed).into_owned()).collect()
}

/// Maximum number of mailboxes in one field.
const ADDRESSES_MAX: usize = super::HEADERS_MAX;
/// Maximum number of bytes of an address field that are read.
const ADDRESSES_BYTES_MAX: usize = 1 << 20;

/// Builds a field for mail-parser, joining encoded words that split a character.
fn field(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut field = Vec::with_capacity(name.len() + value.len() + 16);
    field.extend_from_slice(name);
    field.extend_from_slice(&super::words::joined(value.trim_ascii()));
    field.extend_from_slice(b"\r\n\r\n");
    field
}

/// Returns the first mailbox of a From field.
#[must_use]
pub fn decode_address(value: &[u8]) -> Address<'_> {
    plain_address(value).unwrap_or_else(|| parsed_address(value))
}

/// Fast path for `local@domain`, `Name <local@domain>` or `"Name" <local@domain>`, the forms in most mails,
/// if they have only letters, digits and a few characters without special meaning in the grammar. Without it
/// a list of a hundred mails would run the full parser a hundred times.
fn plain_address(value: &[u8]) -> Option<Address<'_>> {
    let value = std::str::from_utf8(value).ok()?.trim_ascii();
    let Some(begun) = value.strip_suffix('>') else {
        return is_plain_mailbox(value).then_some(Address { name: "".into(), address: value.into() });
    };
    let (name, mailbox) = begun.split_once('<')?;
    let name = name.trim_ascii_end();
    let unquoted = match name.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?,
        None => name,
    };
    let is_plain_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'-' | b'_' | b'+');
    let in_quotes = |byte: u8| name.len() > unquoted.len() && matches!(byte, b',' | b'.' | b'\'');
    let plain = unquoted.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !unquoted.ends_with(' ')
        && unquoted.bytes().all(|byte| is_plain_name(byte) || in_quotes(byte))
        && is_plain_mailbox(mailbox);
    plain.then_some(Address { name: unquoted.into(), address: mailbox.into() })
}

fn is_plain_mailbox(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+');
    text.split_once('@').is_some_and(|(local, domain)| {
        !local.is_empty() && !domain.is_empty() && local.bytes().chain(domain.bytes()).all(plain)
    })
}

/// Parses an address with the full grammar (RFC 5322, 3.4).
fn parsed_address(value: &[u8]) -> Address<'static> {
    let field = field(b"From: ", value);
    let parsed = MessageParser::default().parse_headers(&field);
    parsed
        .as_ref()
        .and_then(|message| message.from())
        .and_then(|addresses| addresses.first().map(|parsed| address(parsed).into_owned()))
        .unwrap_or_else(|| Address {
            name: printable_lossy(value).into_owned().into(),
            address: Cow::Borrowed(""),
        })
}

/// Converts an undecoded field to text with [`printable`].
#[must_use]
pub fn printable_lossy(value: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(value) {
        Cow::Borrowed(text) => printable(text),
        Cow::Owned(text) => Cow::Owned(printable(&text).into_owned()),
    }
}

/// Returns the text as one line without control characters and without characters that change the direction
/// of the text (Unicode TR9, 2.1 and 2.2); with the latter a sender could make `exe.jpg` look like `gpj.exe`.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\r' | '\n' | '\t' => {
                if !line.ends_with(' ') {
                    line.push(' ');
                }
            }
            // The blank after a fold is already written.
            ' ' if line.ends_with(' ') => {}
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{061c}' => {}
            c if c.is_control() => {}
            c => line.push(c),
        }
    }
    Cow::Owned(line)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(unify::cases(256, 8_192)))]

        /// The fast path agrees with the full parser, its slow twin.
        #[test]
        fn a_plain_address_is_what_the_grammar_says(
            value in "( ?\"?[Ab.,'=?@ +_-]{0,6}\"? ?<?[Ab.,'=?@+_-]{0,6}>? ?)|([Ab]{1,3}( [Ab.]{1,3})? ?<[A.]{1,2}@[A.]{1,2}>)",
        ) {
            if let Some(plain) = plain_address(value.as_bytes()) {
                prop_assert_eq!(plain, parsed_address(value.as_bytes()));
            }
        }
    }

    #[test]
    fn what_most_mails_have_is_plain() {
        for (value, name, address) in [
            ("ann@example.org", "", "ann@example.org"),
            ("Ann Lee <ann+x@example.org>", "Ann Lee", "ann+x@example.org"),
            ("\"Lee, Ann J.\" <a.l@example.org>", "Lee, Ann J.", "a.l@example.org"),
        ] {
            let expected = Address { name: name.into(), address: address.into() };
            assert_eq!(plain_address(value.as_bytes()), Some(expected));
        }
        for value in [
            "",
            "Ann",
            "<a@b>",
            "a@b, c@d",
            "=?utf-8?q?x?= <a@b>",
            "a (b) <c@d>",
            "\"a\\\"b\" <c@d>",
            "g: a@b;",
        ] {
            assert_eq!(plain_address(value.as_bytes()), None, "{value}");
        }
    }
}
