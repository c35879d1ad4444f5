//! Converts text to HTML: characters with a meaning in HTML are escaped.

/// Our own head content, which precedes the mail's head content. With `prefers-reduced-motion` nothing moves.
pub(super) const HEAD: &str = "<meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\"><base target=\"_blank\"><style>\
    html{color-scheme:light}\
    @media (prefers-reduced-motion:reduce){*{animation:none!important;transition:none!important}}</style>";

/// Returns a document that shows a plain text.
#[must_use]
pub(crate) fn of_text(text: &str) -> String {
    let mut html = String::with_capacity(HEAD.len() + text.len() + text.len() / 8 + 64);
    html.push_str("<!doctype html><html><head>");
    html.push_str(HEAD);
    html.push_str("</head><body><pre style=\"white-space:pre-wrap\">");
    escape(text, &mut html);
    html.push_str("</pre></body></html>");
    html
}

/// Escapes a text for HTML, so that nothing in it is a tag, an entity or the end of a quoted value.
pub(crate) fn escape(text: &str, html: &mut String) {
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            '\0' => html.push('\u{fffd}'),
            c => html.push(c),
        }
    }
}

/// Escapes a text between tags.
pub(super) fn escape_text(text: &str, html: &mut String) {
    let mut rest = text;
    while let Some(at) = memchr::memchr3(b'&', b'<', b'>', rest.as_bytes()) {
        html.push_str(&rest[..at]);
        html.push_str(entity(rest.as_bytes()[at]));
        rest = &rest[at + 1..];
    }
    html.push_str(rest);
}

/// Escapes a value in double quotes. Angle brackets are harmless there, but are escaped for less careful
/// parsers.
pub(super) fn escape_value(value: &str, html: &mut String) {
    let special = |byte: &u8| matches!(byte, b'&' | b'<' | b'>' | b'"');
    // Most values need no escapes. A fold without an early exit is vectorized.
    if !value.as_bytes().iter().fold(false, |any, byte| any | special(byte)) {
        html.push_str(value);
        return;
    }
    let mut rest = value;
    while let Some(at) = rest.as_bytes().iter().position(special) {
        html.push_str(&rest[..at]);
        html.push_str(entity(rest.as_bytes()[at]));
        rest = &rest[at + 1..];
    }
    html.push_str(rest);
}

pub(super) fn entity(byte: u8) -> &'static str {
    match byte {
        b'&' => "&amp;",
        b'<' => "&lt;",
        b'>' => "&gt;",
        _ => "&quot;",
    }
}
