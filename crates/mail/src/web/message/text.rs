//! A mail's addresses and text, as a page shows them.

use mail_parser::HeaderName as Field;

use crate::{
    mailbox::mailboxes::Mail,
    render::{
        DecodedMail, StepLimit, cut, fields,
        findings::{self},
        html::escape,
    },
};

/// Maximum number of addresses of a field that are shown.
const ADDRESSES_MAX: usize = 50;
/// Maximum number of bytes shown of an address group's name.
const GROUP_BYTES_MAX: usize = 320;
/// Steps charged for comparing a link with a text.
const LINK_STEPS: usize = 4;

pub(super) fn from(reading: &DecodedMail<'_>, mail: &Mail) -> String {
    let written = joined(reading, Field::From);
    match (written.is_empty(), mail.summary.envelope_from.is_empty()) {
        (false, _) => written,
        (true, false) => fields::printable(&mail.summary.envelope_from).into_owned(),
        (true, true) => "(no sender)".to_owned(),
    }
}

pub(super) fn to(reading: &DecodedMail<'_>, mail: &Mail) -> String {
    let written = joined(reading, Field::To);
    if written.is_empty() {
        // A group without members (RFC 5322, 3.4) has no addresses, so the field is shown as written.
        let headers = reading.headers();
        let group = headers.iter().find(|(name, value)| name.eq_ignore_ascii_case("to") && !value.is_empty());
        if let Some((_, group)) = group {
            return cut(group, GROUP_BYTES_MAX).to_owned();
        }
        let said: Vec<_> =
            mail.recipients.iter().take(ADDRESSES_MAX).map(|said| fields::printable(said)).collect();
        return said.join(", ");
    }
    written
}

pub(super) fn joined(reading: &DecodedMail<'_>, field: Field<'static>) -> String {
    let addresses = reading.addresses(field);
    let shown: Vec<String> = addresses.iter().take(ADDRESSES_MAX).map(ToString::to_string).collect();
    match addresses.len().checked_sub(ADDRESSES_MAX) {
        Some(more) if more > 0 => format!("{} and {more} more", shown.join(", ")),
        _ => shown.join(", "),
    }
}

/// Returns a text as HTML: escaped, with bare links made clickable. A link's text is its target, so links
/// cannot mislead.
pub(crate) fn linked(text: &str, until: &StepLimit) -> String {
    let mut links = Vec::new();
    findings::in_text(text, &mut links, until);
    // Longer links come first, because a shorter link that is a prefix of a longer one would match in its
    // place.
    links.sort_by_key(|link| std::cmp::Reverse(link.link.len()));
    let mut html = String::with_capacity(text.len() + text.len() / 8);
    let mut rest = text;
    while let Some(at) = rest.find("http") {
        // Each link is compared with the text that begins here. Once the step limit ends, the rest of the
        // text is shown without links.
        if until.pay(at + LINK_STEPS * links.len()).is_err() {
            break;
        }
        escape(&rest[..at], &mut html);
        rest = &rest[at..];
        match links.iter().find(|link| rest.starts_with(&link.link)) {
            Some(link) => {
                if until.pay(2 * link.link.len()).is_err() {
                    break;
                }
                let mut target = String::new();
                escape(&link.link, &mut target);
                html.push_str(&format!(
                    "<a href=\"{target}\" rel=\"noopener noreferrer nofollow\" target=\"_blank\">{target}</a>"
                ));
                rest = &rest[link.link.len()..];
            }
            None => {
                html.push_str("http");
                rest = &rest[4..];
            }
        }
    }
    escape(rest, &mut html);
    html
}
