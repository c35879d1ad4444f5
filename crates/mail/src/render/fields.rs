//! Fields of a head as text: unfolded, encoded words decoded (RFC 2047), nothing in it that steers a terminal or a page.

use mail_parser::MessageParser;

/// A mailbox of a field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Address {
    /// The name beside the address; empty if there is none.
    pub name: String,
    /// `local@domain`; empty if the field has only a name.
    pub address: String,
}

impl Address {
    /// What a list shows: the name, else the address.
    #[must_use]
    pub fn label(&self) -> &str {
        if self.name.is_empty() { &self.address } else { &self.name }
    }
}

/// `Name <address>`.
impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.name.is_empty(), self.address.is_empty()) {
            (true, _) => f.write_str(&self.address),
            (false, true) => f.write_str(&self.name),
            (false, false) => write!(f, "{} <{}>", self.name, self.address),
        }
    }
}

pub(super) fn address(parsed: &mail_parser::Addr<'_>) -> Address {
    Address {
        name: printable(parsed.name().unwrap_or_default()),
        address: printable(parsed.address().unwrap_or_default()),
    }
}

/// The value of an unstructured field.
#[must_use]
pub fn decode(value: &[u8]) -> String {
    // Most values are plain, and a list decodes two for each of its lines.
    if value.is_ascii() && memchr::memmem::find(value, b"=?").is_none() {
        return printable(&String::from_utf8_lossy(value));
    }
    let mut field = Vec::with_capacity(value.len() + 16);
    field.extend_from_slice(b"Subject: ");
    field.extend_from_slice(value.trim_ascii());
    field.extend_from_slice(b"\r\n\r\n");
    let parsed = MessageParser::default().parse_headers(&field);
    match parsed.as_ref().and_then(|message| message.subject()) {
        Some(subject) => printable(subject),
        None => printable(&String::from_utf8_lossy(value)),
    }
}

/// The first mailbox of a From field.
#[must_use]
pub fn decode_address(value: &[u8]) -> Address {
    let mut field = Vec::with_capacity(value.len() + 16);
    field.extend_from_slice(b"From: ");
    field.extend_from_slice(value.trim_ascii());
    field.extend_from_slice(b"\r\n\r\n");
    let parsed = MessageParser::default().parse_headers(&field);
    parsed
        .as_ref()
        .and_then(|message| message.from())
        .and_then(|addresses| addresses.first().map(address))
        .unwrap_or_else(|| Address {
            name: printable(&String::from_utf8_lossy(value)),
            address: String::new(),
        })
}

/// One line: no control characters, and none that turn the direction of what follows (Unicode TR9, 2.1 and 2.2), with
/// which a sender could make `gpj.exe` of `exe.jpg`.
#[must_use]
pub fn printable(text: &str) -> String {
    let text = text.trim();
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return text.to_owned();
    }
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\r' | '\n' | '\t' => {
                if !line.ends_with(' ') {
                    line.push(' ');
                }
            }
            // After a fold the blank that begins the line is the one that counts.
            ' ' if line.ends_with(' ') => {}
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{061c}' => {}
            c if c.is_control() => {}
            c => line.push(c),
        }
    }
    line
}
