//! Any bytes are a mail that can be read, and its cleaned HTML has nothing in it that runs or fetches.

use mail::render::{
    Prepared, Until,
    findings::{codes, links},
    html::Remote,
};

pub(crate) fn check(raw: &[u8]) {
    let prepared = Prepared::new(raw);
    let reading = prepared.read();
    let (text, _) = reading.text();
    let _ = (
        reading.headers(),
        reading.date_ms(),
        reading.message_id(),
        codes(&reading.subject(), &text),
        links(&reading, &Until::default()),
    );
    for attachment in reading.attachments() {
        assert_eq!(reading.attachment_bytes(attachment).len(), attachment.size_bytes);
        assert!(!attachment.filename.contains(['/', '\\', '"', '\n']));
    }
    if let Some(clean) = reading.html(Remote::Blocked, &Until::default()) {
        let lower = clean.html.to_ascii_lowercase();
        for forbidden in
            ["<script", "<style", "<iframe", "<object", "<svg", "<form", "<meta", "<base", "<link"]
        {
            assert!(!lower.contains(forbidden) || quoted(&lower, forbidden), "{forbidden} in {}", clean.html);
        }
    }
}

/// Within an attribute's value it is text.
fn quoted(html: &str, sign: &str) -> bool {
    html.match_indices(sign).all(|(at, _)| {
        let tag = html[..at].rfind('<').unwrap_or(0);
        html[tag..at].matches('"').count() % 2 == 1
    })
}
