//! JSON of a mail in Mailpit's API.

use md5::Md5;
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::{
    mailbox::mailboxes::{Inbox, Mail, MailId, Mailboxes, Scope, Summary},
    render::{Attachment, DecodedMail, ParsedMail, StepLimit},
    web::{
        flags::RowFlags,
        previews::{
            mailpit_fields::{common, hidden, said},
            preview_cache::{HiddenRecipient, Preview},
        },
        serve::app::App,
        when,
    },
};

/// Writes a mail in the form of lists and events.
pub(super) fn item<M: Mailboxes>(
    app: &App<M>,
    scope: &Scope,
    summary: &Summary,
    gist: &Preview,
    out: &mut Vec<u8>,
) -> serde_json::Result<()> {
    let flags = app.marks.of(summary.id);
    // Within an inbox the other recipients stay hidden.
    let is_told = |hidden: &&HiddenRecipient| match scope {
        Scope::All => true,
        _ => Inbox::of(&hidden.said, &app.config.domain).is_ok_and(|inbox| scope.contains(&inbox)),
    };
    let hidden = gist.hidden.iter().filter(is_told);
    write_item(summary.id, &flags, hidden, gist, out)
}

/// Writes a mail as an item of a list or an event. `hidden` lists the recipients that are missing from the
/// head but that the client may see.
fn write_item<'a>(
    id: MailId,
    flags: &RowFlags,
    hidden: impl Iterator<Item = &'a HiddenRecipient>,
    gist: &Preview,
    out: &mut Vec<u8>,
) -> serde_json::Result<()> {
    out.extend_from_slice(b"{\"ID\":\"");
    out.extend_from_slice(&id.letters());
    let read: &[u8] =
        if flags.is_read { b"\",\"Read\":true,\"Tags\":" } else { b"\",\"Read\":false,\"Tags\":" };
    out.extend_from_slice(read);
    if flags.tags.is_empty() {
        out.extend_from_slice(b"[]");
    } else {
        serde_json::to_writer(&mut *out, &flags.tags)?;
    }
    out.extend_from_slice(b",\"Bcc\":[");
    for (at, hidden) in hidden.enumerate() {
        out.extend_from_slice(if at == 0 { b"" } else { b"," });
        out.extend_from_slice(hidden.mailpit.as_bytes());
    }
    out.extend_from_slice(b"],");
    out.extend_from_slice(gist.mailpit.as_bytes());
    out.push(b'}');
    Ok(())
}

/// Returns a mail with its content.
pub(super) fn message(mail: &Mail, tags: &[String], until: &StepLimit) -> Value {
    let prepared = ParsedMail::within(&mail.raw, until);
    let reading = prepared.read();
    let (inline, attached): (Vec<&Attachment>, Vec<&Attachment>) =
        reading.attachments().iter().partition(|attachment| attachment.inline);
    let list = |attachments: &[&Attachment]| -> Vec<Value> {
        attachments.iter().map(|attachment| attachment_json(&reading, attachment)).collect()
    };
    let date_ms = reading.date_ms().and_then(|ms| u64::try_from(ms).ok()).unwrap_or(mail.summary.arrived_ms);
    let mut message = common(&mail.summary, &reading);
    message["ID"] = json!(mail.summary.id.to_string());
    message["Tags"] = json!(tags);
    let hidden = hidden(mail, &reading);
    message["Bcc"] = hidden.map(said).collect();
    message["Date"] = json!(when::iso(date_ms));
    message["HTML"] = json!(reading.html_source().unwrap_or_default());
    message["Text"] = json!(reading.text().0);
    message["Inline"] = json!(list(&inline));
    message["Attachments"] = json!(list(&attached));
    message["ReturnPath"] = json!(mail.summary.envelope_from);
    message["ListUnsubscribe"] = unsubscribe(&reading);
    message
}

fn attachment_json(reading: &DecodedMail<'_>, attachment: &Attachment) -> Value {
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

/// Returns the unsubscribe links of a mailing list (RFC 2369, RFC 8058).
fn unsubscribe(reading: &DecodedMail<'_>) -> Value {
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
