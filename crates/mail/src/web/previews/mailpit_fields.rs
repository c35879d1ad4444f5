//! Fields of a mail that Mailpit's lists and messages have in common, as JSON.

use std::collections::HashSet;

use mail_parser::HeaderName;
use serde_json::{Value, json};

use crate::{
    mailbox::mailboxes::{Mail, Summary},
    render::{
        DecodedMail,
        fields::{self, Address},
    },
    web::when,
};

/// Returns the fields of a mail in a list or an event that are the same for all clients, as JSON without the
/// braces.
pub(crate) fn list_fields(
    summary: &Summary,
    reading: &DecodedMail<'_>,
    snippet: &str,
    attachments: usize,
) -> String {
    let mut fields = common(summary, reading);
    fields["Created"] = json!(when::iso(summary.arrived_ms));
    fields["Attachments"] = json!(attachments);
    fields["Snippet"] = json!(snippet);
    let json = fields.to_string();
    json.trim_start_matches('{').strip_suffix('}').unwrap_or_default().to_owned()
}

/// Returns an address from RCPT TO, which has no display name.
pub(crate) fn said(address: &str) -> Value {
    json!({ "Name": "", "Address": address })
}

/// Returns an address from RCPT TO as JSON text.
pub(crate) fn said_address(address: &str) -> String {
    said(address).to_string()
}

pub(crate) fn common(summary: &Summary, reading: &DecodedMail<'_>) -> Value {
    let list = |field| -> Vec<Value> { reading.addresses(field).iter().map(address).collect() };
    json!({
        "MessageID": reading.message_id(),
        "From": sender(summary),
        "To": list(HeaderName::To),
        "Cc": list(HeaderName::Cc),
        "ReplyTo": list(HeaderName::ReplyTo),
        "Subject": reading.subject(),
        "Size": summary.size_bytes,
        "Username": "",
    })
}

fn sender(summary: &Summary) -> Value {
    let from = fields::decode_address(&summary.from);
    if from.address.is_empty() {
        return json!({ "Name": from.name, "Address": summary.envelope_from });
    }
    address(&from)
}

fn address(address: &Address<'_>) -> Value {
    json!({ "Name": address.name, "Address": address.address })
}

/// Returns the recipients from RCPT TO that the head does not name.
pub(crate) fn hidden<'a>(mail: &'a Mail, reading: &DecodedMail<'_>) -> impl Iterator<Item = &'a str> {
    let named = [HeaderName::To, HeaderName::Cc].into_iter().flat_map(|field| reading.addresses(field));
    let named: HashSet<String> = named.map(|named| named.address.to_ascii_lowercase()).collect();
    let said = mail.recipients.iter().map(|said| &**said);
    said.filter(move |said| !named.contains(&said.to_ascii_lowercase()))
}
