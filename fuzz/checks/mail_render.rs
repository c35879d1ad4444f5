//! Any bytes are a readable mail: each of its displayed fields is one line, and its cleaned HTML runs nothing
//! and fetches nothing without consent.

use mail::render::{
    ParsedMail, StepLimit,
    cost::HtmlLimit,
    fields::{decode, decode_address},
    findings::{CODES_MAX, LINKS_MAX, codes, links},
    html::{DisplayOptions, RemoteContent, SanitizedHtml},
};
use mail_parser::HeaderName;

/// Most bytes of a field that lists decode (`head::FIELD_BYTES_MAX`).
const FIELD_BYTES_MAX: usize = 998;

/// HTML longer than this is cleaned only once.
const HTML_BYTES_AGAIN_MAX: usize = 16 << 10;

pub(crate) fn check(raw: &[u8]) {
    let prepared = ParsedMail::new(raw);
    let reading = prepared.read();
    let (text, _) = reading.text();
    let mut lines = vec![reading.subject(), reading.message_id()];
    lines.extend(reading.headers().into_iter().flat_map(|(name, value)| [name, value]));
    for field in [HeaderName::From, HeaderName::To, HeaderName::Cc] {
        for address in reading.addresses(field) {
            assert!(address.to_string().contains(address.label()));
            lines.extend([address.name.to_string(), address.address.to_string()]);
        }
    }
    let field = &raw[..raw.len().min(FIELD_BYTES_MAX)];
    lines.extend([decode(field).into_owned(), decode_address(field).to_string()]);
    for line in &lines {
        assert!(!line.contains(char::is_control), "{line:?} is no line");
        assert!(!line.contains(['\u{202e}', '\u{2066}', '\u{200f}']), "{line:?} turns what follows");
    }
    let _ = (reading.date_ms(), reading.notices(), reading.has_own_text());
    assert!(codes(&reading.subject(), &text, &StepLimit::default()).len() <= CODES_MAX);
    for attachment in reading.attachments() {
        assert_eq!(reading.attachment_bytes(attachment).len(), attachment.size_bytes);
        assert!(!attachment.filename.contains(['/', '\\', '"', '\n']) && !attachment.filename.is_empty());
        assert!(attachment.content_type.is_ascii() && attachment.content_type.contains('/'));
    }
    // A walk with no time left ends.
    let late = StepLimit::new(|| true);
    let hurried = ParsedMail::within(raw, &late);
    let hurried = hurried.read();
    let _ = hurried.attachments().len();
    let _ = (hurried.text(), hurried.headers(), hurried.html(&DisplayOptions::default(), &late));
    let links = links(&reading, &StepLimit::default());
    assert!(links.len() <= LINKS_MAX);
    let targets: std::collections::HashSet<_> = links.iter().map(|link| &link.link).collect();
    assert_eq!(targets.len(), links.len(), "each once");

    let blocked = reading.html(&DisplayOptions::default(), &StepLimit::default());
    assert_eq!(blocked.is_some(), reading.has_html());
    let Some(blocked) = blocked else { return };
    check_clean(&blocked);
    for fetching in
        ["src=\"http", "src=\"//", "background=\"http", "url(\"http", "url(\"//", "url(h", "url(/"]
    {
        assert!(!is_within(&blocked.html, fetching), "{fetching} in {}", blocked.html);
    }
    // Large HTML takes long to be cleaned twice more, and shows nothing new.
    if blocked.html.len() > HTML_BYTES_AGAIN_MAX {
        return;
    }
    let loaded = reading
        .html(
            &DisplayOptions { remote: RemoteContent::Loaded, dark: true, pictures: "x" },
            &StepLimit::default(),
        )
        .expect("it was there");
    check_clean(&loaded);
    assert_eq!((loaded.remote_items, &loaded.remote_hosts), (blocked.remote_items, &blocked.remote_hosts));
    let late = reading.html(&DisplayOptions::default(), &StepLimit::new(|| true)).expect("it was there");
    assert!(late.over.is_some() && (blocked.over.is_some() || late.over == Some(HtmlLimit::Time)));
}

fn check_clean(clean: &SanitizedHtml) {
    for forbidden in [
        "<script",
        "<iframe",
        "<object",
        "<svg",
        "<form",
        "<meta http-equiv",
        "<base href",
        "<link",
        "<input",
        "<embed",
    ] {
        assert!(!is_within(&clean.html, forbidden), "{forbidden} in {}", clean.html);
    }
    for running in [" onload=", " onerror=", "href=\"javascript:", "href=\"data:", "src=\"javascript:"] {
        assert!(!is_attribute(&clean.html, running), "{running} in {}", clean.html);
    }
    assert!(clean.remote_hosts.len() <= clean.remote_items);
}

/// Returns whether `sign` occurs as more than text or a part of an attribute's value.
fn is_within(html: &str, sign: &str) -> bool {
    let lower = html.to_ascii_lowercase();
    let is_quoted = |at: usize| {
        let tag = lower[..at].rfind('<').unwrap_or(0);
        !lower[tag..at].matches('"').count().is_multiple_of(2)
    };
    if sign.starts_with('<') {
        lower.match_indices(sign).any(|(at, _)| !is_quoted(at))
    } else if sign.starts_with("url(") {
        // `url(` has a meaning in styles only, and no style in the output has it unquoted.
        let sign = sign.replace('"', "&quot;");
        styles(&lower).any(|style| style.contains(&sign))
    } else {
        is_attribute(html, sign)
    }
}

/// Returns whether `sign` occurs between the brackets of a tag, outside of attribute values.
fn is_attribute(html: &str, sign: &str) -> bool {
    let lower = html.to_ascii_lowercase();
    lower.match_indices(sign).any(|(at, _)| {
        let open = lower[..at].rfind('<');
        open.is_some_and(|open| {
            !lower[open..at].contains('>') && lower[open..at].matches('"').count().is_multiple_of(2)
        })
    })
}

/// Values of all `style` attributes.
fn styles(lower: &str) -> impl Iterator<Item = &str> {
    lower.match_indices(" style=\"").filter_map(|(at, sign)| lower[at + sign.len()..].split('"').next())
}
