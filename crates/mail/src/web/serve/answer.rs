//! Common parts of all responses: headers, pages, and the middleware around every handler.

use std::sync::Arc;

use askama::Template;
use axum::{
    body::{Body, HttpBody},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::Serialize;

use crate::mailbox::mailboxes::{Inbox, MailId, Mailboxes};
use crate::web::serve::{
    app::{App, Site},
    assets,
    client::Client,
    counters::Counter,
    fault::Fault,
    unread_body,
};

/// Cache tag of all pages of an inbox.
#[must_use]
pub fn inbox_tag(inbox: &Inbox) -> String {
    format!("inbox:{}", super::scope::segment(&inbox.to_string()))
}

/// Cache tag of an inbox's list of mails, which changes when a mail arrives.
#[must_use]
pub fn list_tag(inbox: &Inbox) -> String {
    format!("list:{}", super::scope::segment(&inbox.to_string()))
}

/// Cache tag of a mail's pages, which are purged when the mail is deleted.
#[must_use]
pub fn mail_tag(id: MailId) -> String {
    format!("mail:{id}")
}

/// Header with cache tags, as our accelerator and many CDNs read it.
const SURROGATE_KEY: HeaderName = HeaderName::from_static("surrogate-key");

/// Cache-Control for shared caches (RFC 9213).
const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    site: &'a Site,
    what: &'a str,
    why: String,
    todo: &'a str,
    status: String,
    request: &'a str,
    who_sees: &'a [(&'a str, &'a str, &'a str)],
}

/// Middleware around every handler: refuses foreign host names and cross-site changes, reads the rest of the
/// body, gives the request an ID, counts, sets the common headers, and turns errors into pages for browsers.
pub(crate) async fn request_middleware<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    request: Request,
    next: Next,
) -> Response {
    app.counters.add(Counter::Requests, 1);
    let name = app.request_name();
    let path = request.uri().path();
    let for_programs = path.starts_with("/api") || path.contains("/api/v1/") || path.starts_with("/view/");
    let wants_page = !for_programs
        && request
            .headers()
            .get(header::ACCEPT)
            .and_then(|accept| accept.to_str().ok())
            .is_some_and(|accept| accept.contains("text/html"));
    let client = Client::asking(request.extensions());
    let checked = app
        .check_host(request.headers())
        .and_then(|()| app.check_change(request.method(), request.uri(), request.headers()));
    if checked.is_ok() {
        app.notice_proxy(&request);
    }
    let (request, rest) = unread_body::lend(request);
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(fault) => {
            drop(request);
            fault.into_response()
        }
    };
    if let Some(rest) = rest
        && !rest.read().await
    {
        app.counters.add(Counter::BodiesCut, 1);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    // The client is charged for the response until it has received it; a list of whole mails does its own
    // accounting.
    if let Some(bytes) = response.body().size_hint().exact().filter(|bytes| *bytes > 0) {
        let mut held = app.budget.of(client);
        response = match held.grow(bytes) {
            Ok(()) => response.map(|body| httpd::keep(body, held)),
            Err(fault) => fault.into_response(),
        };
    }
    if matches!(response.extensions().get::<Fault>(), Some(Fault::NoRoom)) {
        app.counters.add(Counter::HeldOver, 1);
    }
    let status = response.status();
    if status.is_client_error() {
        app.counters.add(Counter::ClientFaults, 1);
    } else if status.is_server_error() {
        app.counters.add(Counter::ServerFaults, 1);
        // These refusals are counted; a log line for each would allow a client to fill the log.
        if matches!(response.extensions().get::<Fault>(), Some(Fault::Busy(_) | Fault::NoRoom)) {
            tracing::debug!(request = %name, status = status.as_u16(), "mail request refused: a limit was reached, or the server is stopping");
        } else {
            tracing::warn!(request = %name, status = status.as_u16(), "cannot build a mail page: answered with an error");
        }
    }
    if wants_page && let Some(fault) = response.extensions().get::<Fault>().cloned() {
        let page = ErrorPage {
            site: &app.site,
            what: fault.what(),
            why: sentence(&fault.to_string()),
            todo: fault.advice(),
            status: status.to_string(),
            request: &name,
            who_sees: fault.table(),
        };
        let body = page.render().unwrap_or_default();
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = Body::from(body);
    }
    let headers = response.headers_mut();
    for (field, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "SAMEORIGIN"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.entry(field).or_insert(HeaderValue::from_static(value));
    }
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert_with(|| assets::POLICY.clone());
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(HeaderName::from_static("x-request-id"), name);
    }
    response
}

/// Turns an error message into a sentence for a page.
fn sentence(words: &str) -> String {
    let mut characters = words.chars();
    let first: String = characters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let ended = words.ends_with(['.', '?']);
    format!("{first}{}{}", characters.as_str(), if ended { "" } else { "." })
}

/// Renders a page; a failing template is a server error.
pub(crate) fn page(template: &impl Template) -> Result<Response, Fault> {
    long_page(template, 0)
}

/// Renders a page whose lists take about `lists_bytes` in addition to the template itself.
pub(crate) fn long_page<T: Template>(template: &T, lists_bytes: usize) -> Result<Response, Fault> {
    let mut html = String::with_capacity(T::SIZE_HINT + lists_bytes);
    template.render_into(&mut html).map_err(|error| {
        tracing::error!("cannot render a page: {error}");
        Fault::Broken
    })?;
    Ok(([(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response())
}

/// Serializes JSON of about `bytes` bytes.
pub(crate) fn long_json(value: &impl Serialize, bytes: usize) -> Result<Response, Fault> {
    let mut json = Vec::with_capacity(bytes);
    serde_json::to_writer(&mut json, value).map_err(|error| {
        tracing::error!("cannot serialize a JSON response: {error}");
        Fault::Broken
    })?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}

/// Lets shared caches keep a response for a second, with its cache tags. Browsers must revalidate each time,
/// so that a reader who deletes a mail and goes back within that second does not see it again.
pub(crate) fn public(mut response: Response, tags: &[String]) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=0, s-maxage=1"));
    headers.insert(
        CDN_CACHE_CONTROL,
        HeaderValue::from_static("max-age=1, stale-while-revalidate=0, stale-if-error=0"),
    );
    tag(headers, tags);
    response
}

/// Does the same as [`public`] for a list of mails: shared caches may also show it while they renew it.
pub(crate) fn public_list(response: Response, inbox: &Inbox) -> Response {
    let mut response = public(response, &[list_tag(inbox), inbox_tag(inbox)]);
    let shown = HeaderValue::from_static("max-age=1, stale-while-revalidate=1, stale-if-error=0");
    response.headers_mut().insert(CDN_CACHE_CONTROL, shown);
    response
}

fn tag(headers: &mut HeaderMap, tags: &[String]) {
    // Tags are percent-encoded, so they are a valid header value.
    if !tags.is_empty()
        && let Ok(value) = HeaderValue::from_str(&tags.join(" "))
    {
        headers.insert(SURROGATE_KEY, value);
    }
}
