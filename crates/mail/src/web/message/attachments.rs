//! A mail's source and its attachments, as downloads.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{Query, State},
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::{fetch, named};
use crate::web::{
    serve::{app::App, client::Client, fault::Fault, params::PathParams, scope::RequestScope},
    source::source,
};
use crate::{
    mailbox::mailboxes::{Mail, Mailboxes},
    render::{Attachment, ParsedMail, StepLimit, cut, html::picture_type},
};

/// Serves the raw mail for download.
pub(in crate::web) async fn raw<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams((_, id)): PathParams<(String, String)>,
) -> Result<Response, Fault> {
    let id = named(&app, &scope, &id)?;
    Ok(saved("message/rfc822", &format!("{id}.eml"), source(&app, client, &scope, id).await?))
}

/// Query parameters of an attachment's request.
#[derive(Deserialize)]
pub(in crate::web) struct AttachmentQuery {
    /// Set in the URLs of pictures in the mail's HTML.
    picture: Option<String>,
}

pub(in crate::web) async fn attachment<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams((_, id, part, _)): PathParams<(String, String, u32, String)>,
    Query(asked): Query<AttachmentQuery>,
) -> Result<Response, Fault> {
    let mail = fetch(&app, client, &scope, &id).await?;
    let found = app.render(client, mail, move |mail, until| part_of(mail, part, until)).await?;
    let (attachment, bytes) = found.ok_or(Fault::NoSuchPart)?;
    let mut response = download(&attachment.content_type, &attachment.filename, bytes);
    // If the URL is opened directly, the response is still a download, and nothing in it runs.
    if asked.picture.is_some()
        && let Some(kind) = picture_type(&attachment).and_then(|kind| HeaderValue::from_str(kind).ok())
    {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    Ok(response)
}

/// Returns an attachment with its bytes.
pub(crate) fn part_of(mail: &Mail, part: u32, until: &StepLimit) -> Option<(Attachment, Vec<u8>)> {
    let prepared = ParsedMail::within(&mail.raw, until);
    let reading = prepared.read();
    let attachment = reading.attachments().iter().find(|attachment| attachment.part == part)?;
    Some((attachment.clone(), reading.attachment_bytes(attachment).into_owned()))
}

/// Builds a download response: whatever type the sender declares, a browser saves the file and never runs it.
pub(crate) fn download(content_type: &str, filename: &str, bytes: impl Into<Bytes>) -> Response {
    saved(content_type, filename, bytes.into().into_response())
}

/// Turns a response that already has its body into a download.
pub(crate) fn saved(content_type: &str, filename: &str, mut response: Response) -> Response {
    let runs = ["html", "xml", "svg", "script", "pdf"].iter().any(|word| content_type.contains(word));
    let kind = if runs { "application/octet-stream" } else { content_type };
    let ascii: String = filename
        .chars()
        .map(|c| if c.is_ascii_graphic() && c != '"' && c != '\\' { c } else { '_' })
        .collect();
    let encoded = utf8_percent_encode(cut(filename, 400), NON_ALPHANUMERIC);
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, kind);
    // RFC 6266: the plain name is for old programs, the encoded one for all others.
    set(
        header::CONTENT_DISPOSITION,
        &format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{encoded}"),
    );
    set(header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'");
    set(header::CACHE_CONTROL, "private, no-store");
    response
}
