//! Submits mails through Mailpit's `/send`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Extension, Json, extract::State};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use engine::cores::clock;
use mail_builder::{
    MessageBuilder,
    headers::{address::Address, raw::Raw},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    api::refusals::one_line,
    mailbox::mailboxes::{Mailboxes, Scope},
    web::serve::{app::App, client::Client, fault::Fault, request_body::ChargedBody, scope::RequestScope},
};

/// Largest request body that submits a mail, base64 included.
const SEND_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Maximum number of recipients of one mail.
const RECIPIENTS_MAX: usize = 1000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MailboxName {
    email: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct SendAttachment {
    #[serde(rename = "Content")]
    content: String,
    #[serde(rename = "Filename", default)]
    filename: String,
    #[serde(rename = "ContentType", default)]
    content_type: String,
    #[serde(rename = "ContentID", default)]
    content_id: String,
}

#[derive(Deserialize)]
struct SendRequest {
    #[serde(rename = "From")]
    from: MailboxName,
    #[serde(rename = "To", default)]
    to: Vec<MailboxName>,
    #[serde(rename = "Cc", default)]
    cc: Vec<MailboxName>,
    #[serde(rename = "Bcc", default)]
    bcc: Vec<String>,
    #[serde(rename = "ReplyTo", default)]
    reply_to: Vec<MailboxName>,
    #[serde(rename = "Subject", default)]
    subject: String,
    #[serde(rename = "Text", default)]
    text: String,
    #[serde(rename = "HTML", default)]
    html: String,
    #[serde(rename = "Attachments", default)]
    attachments: Vec<SendAttachment>,
    #[serde(rename = "Headers", default)]
    headers: BTreeMap<String, String>,
    #[serde(rename = "Tags", default)]
    tags: Vec<String>,
}

pub(super) async fn send<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    Extension(httpd::Client(peer)): Extension<httpd::Client>,
    ChargedBody { bytes, mut held }: ChargedBody<SEND_BYTES_MAX>,
) -> Result<Json<Value>, Fault> {
    // The mail built from the request is about as large and is in memory twice for a while.
    held.grow(2 * bytes.len() as u64)?;
    let name = app.request_name();
    let made = app.large(client, bytes.len(), move |_| letter(&bytes, &scope, &name)).await?;
    let Letter { from, recipients, raw, tags } = made?;
    let names = app.marks.names(&tags)?;
    let ids = app.mailboxes.deliver(peer, &from, &recipients, &raw).await?;
    if !names.is_empty() {
        // Each inbox has its own entry; mails that have been deleted in the meantime are skipped.
        app.set_tags(client, &app.mailboxes.find(&Scope::All, &ids).await?, &names).await?;
    }
    Ok(Json(json!({ "ID": ids.first().map(ToString::to_string).unwrap_or_default() })))
}

/// A mail that is ready to be delivered.
struct Letter {
    from: String,
    recipients: Vec<String>,
    raw: Vec<u8>,
    tags: Vec<String>,
}

fn letter(body: &[u8], scope: &Scope, name: &str) -> Result<Letter, Fault> {
    let sent: SendRequest =
        serde_json::from_slice(body).map_err(|error| Fault::Bad(format!("invalid mail: {error}")))?;
    let mut recipients: Vec<String> =
        sent.to.iter().chain(&sent.cc).map(|person| person.email.clone()).collect();
    recipients.extend(sent.bcc.iter().cloned());
    if recipients.is_empty() {
        // With a single inbox as the scope, that inbox is the recipient.
        match scope {
            Scope::Inbox(inbox) => recipients.push(inbox.to_string()),
            _ => return Err(Fault::Bad("a mail needs a recipient in `To`, `Cc` or `Bcc`".to_owned())),
        }
    }
    if recipients.len() > RECIPIENTS_MAX {
        return Err(Fault::Bad(format!("more than {RECIPIENTS_MAX} recipients")));
    }
    sent.check_lines()?;
    let raw = raw(&sent, name)?;
    Ok(Letter { from: sent.from.email, recipients, raw, tags: sent.tags })
}

impl SendRequest {
    /// Refuses values that would span more than one line in the head of the mail or of a part.
    fn check_lines(&self) -> Result<(), Fault> {
        one_line("Subject", &self.subject)?;
        let named = [
            ("From", std::slice::from_ref(&self.from)),
            ("To", &self.to),
            ("Cc", &self.cc),
            ("ReplyTo", &self.reply_to),
        ];
        for (name, people) in named {
            for person in people {
                one_line(name, &person.email)?;
                one_line(name, &person.name)?;
            }
        }
        for address in &self.bcc {
            one_line("Bcc", address)?;
        }
        for attached in &self.attachments {
            one_line("Filename", &attached.filename)?;
            one_line("ContentType", &attached.content_type)?;
            one_line("ContentID", &attached.content_id)?;
        }
        Ok(())
    }
}

fn raw(sent: &SendRequest, name: &str) -> Result<Vec<u8>, Fault> {
    let person = |person: &MailboxName| -> Address<'static> {
        let name = (!person.name.is_empty()).then(|| person.name.clone());
        Address::new_address(name, person.email.clone())
    };
    let people = |all: &[MailboxName]| Address::new_list(all.iter().map(person).collect());
    let mut builder = MessageBuilder::new()
        .from(person(&sent.from))
        .subject(sent.subject.as_str())
        .date((clock::unix_ms() / 1000).cast_signed())
        .message_id(format!("{name}@api.invalid"));
    if !sent.to.is_empty() {
        builder = builder.to(people(&sent.to));
    }
    if !sent.cc.is_empty() {
        builder = builder.cc(people(&sent.cc));
    }
    if !sent.reply_to.is_empty() {
        builder = builder.reply_to(people(&sent.reply_to));
    }
    for (name, value) in &sent.headers {
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':');
        if !is_name || value.contains(['\r', '\n']) {
            return Err(Fault::Bad(format!("invalid header field `{}`", crate::render::cut(name, 80))));
        }
        builder = builder.header(name.as_str(), Raw::new(value.as_str()));
    }
    if !sent.text.is_empty() || sent.html.is_empty() {
        builder = builder.text_body(sent.text.as_str());
    }
    if !sent.html.is_empty() {
        builder = builder.html_body(sent.html.as_str());
    }
    for attached in &sent.attachments {
        let content = BASE64_STANDARD
            .decode(attached.content.trim())
            .map_err(|error| Fault::Bad(format!("invalid base64 in an attachment: {error}")))?;
        let kind = if attached.content_type.is_empty() {
            "application/octet-stream"
        } else {
            &attached.content_type
        };
        builder = if attached.content_id.is_empty() {
            builder.attachment(kind, attached.filename.as_str(), content)
        } else {
            builder.inline(kind, attached.content_id.as_str(), content)
        };
    }
    builder.write_to_vec().map_err(|_| Fault::Broken)
}
