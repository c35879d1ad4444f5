//! A mail as Mailpit's clients see it.

use mail_parser::HeaderName;
use md5::Md5;
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::{
    mailboxes::{Mail, Summary},
    render::{
        Attachment, Prepared, Reading,
        fields::{self, Address},
    },
    web::when,
};

/// As Mailpit has it.
const SNIPPET_CHARACTERS: usize = 250;

/// A mail in a list or an event.
pub(super) fn item(mail: &Mail, read: bool, tags: &[String]) -> Value {
    let prepared = Prepared::new(&mail.raw);
    let reading = prepared.read();
    let text = reading.text().0;
    let words: Vec<&str> = text.split_whitespace().take(SNIPPET_CHARACTERS).collect();
    let snippet: String = words.join(" ").chars().take(SNIPPET_CHARACTERS).collect();
    let mut item = common(mail, &reading, tags);
    item["Read"] = json!(read);
    item["Created"] = json!(when::iso(mail.summary.arrived_ms));
    item["Attachments"] = json!(reading.attachments().iter().filter(|a| !a.inline).count());
    item["Snippet"] = json!(snippet);
    item
}

/// A mail with its content.
pub(super) fn message(mail: &Mail, tags: &[String]) -> Value {
    let prepared = Prepared::new(&mail.raw);
    let reading = prepared.read();
    let (inline, attached): (Vec<&Attachment>, Vec<&Attachment>) =
        reading.attachments().iter().partition(|attachment| attachment.inline);
    let list = |attachments: &[&Attachment]| -> Vec<Value> {
        attachments.iter().map(|attachment| attachment_json(&reading, attachment)).collect()
    };
    let date_ms = reading.date_ms().and_then(|ms| u64::try_from(ms).ok()).unwrap_or(mail.summary.arrived_ms);
    let mut message = common(mail, &reading, tags);
    message["Date"] = json!(when::iso(date_ms));
    message["HTML"] = json!(reading.html_source().unwrap_or_default());
    message["Text"] = json!(reading.text().0);
    message["Inline"] = json!(list(&inline));
    message["Attachments"] = json!(list(&attached));
    message["ReturnPath"] = json!(mail.summary.envelope_from);
    message["ListUnsubscribe"] = unsubscribe(&reading);
    message
}

fn common(mail: &Mail, reading: &Reading<'_>, tags: &[String]) -> Value {
    let list = |field| -> Vec<Value> { reading.addresses(field).iter().map(address).collect() };
    json!({
        "ID": mail.summary.id.to_string(),
        "MessageID": reading.message_id(),
        "From": sender(&mail.summary),
        "To": list(HeaderName::To),
        "Cc": list(HeaderName::Cc),
        "Bcc": bcc(mail, reading),
        "ReplyTo": list(HeaderName::ReplyTo),
        "Subject": reading.subject(),
        "Size": mail.summary.size_bytes,
        "Tags": tags,
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

/// Whom the transaction named and the head does not.
fn bcc(mail: &Mail, reading: &Reading<'_>) -> Vec<Value> {
    let mut written = reading.addresses(HeaderName::To);
    written.extend(reading.addresses(HeaderName::Cc));
    let is_written = |recipient: &str| written.iter().any(|a| a.address.eq_ignore_ascii_case(recipient));
    let hidden = mail.recipients.iter().filter(|recipient| !is_written(recipient));
    hidden.map(|recipient| json!({ "Name": "", "Address": recipient })).collect()
}

fn attachment_json(reading: &Reading<'_>, attachment: &Attachment) -> Value {
    let bytes = reading.attachment_bytes(attachment);
    json!({
        "PartID": attachment.part.to_string(),
        "FileName": attachment.filename,
        "ContentType": attachment.content_type,
        "ContentID": attachment.content_id.clone().unwrap_or_default(),
        "Size": attachment.size_bytes,
        "Checksums": {
            "MD5": hex(&Md5::digest(&bytes)), "SHA1": hex(&Sha1::digest(&bytes)), "SHA256": hex(&Sha256::digest(&bytes)),
        },
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// RFC 2369 and RFC 8058, as far as a list of links goes.
fn unsubscribe(reading: &Reading<'_>) -> Value {
    let headers = reading.headers();
    let value = |name: &str| {
        headers
            .iter()
            .find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.clone())
            .unwrap_or_default()
    };
    let header = value("List-Unsubscribe");
    let links: Vec<&str> = header
        .split(',')
        .filter_map(|link| link.trim().strip_prefix('<').and_then(|link| link.strip_suffix('>')))
        .collect();
    let fault = if header.is_empty() || !links.is_empty() { "" } else { "no link in angle brackets" };
    json!({ "Header": header, "Links": links, "Errors": fault, "HeaderPost": value("List-Unsubscribe-Post") })
}
