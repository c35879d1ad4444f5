//! Common parts of all responses: headers, and one table that maps errors to replies.

use std::{net::IpAddr, sync::Arc};

use askama::Template;
use axum::{
    Json,
    body::{Body, HttpBody},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::Serialize;

use crate::web::serve::{
    access::WHO_SEES,
    app::{App, Site},
    assets,
    client::Client,
    counters::Counter,
    unread_body,
};
use crate::{
    mailbox::mailboxes::{Inbox, MailId, Mailboxes, Unavailable},
    search::QueryFault,
    smtp::address::AddressFault,
};

/// Cache tag of an inbox's pages, which are purged when a mail arrives there or is deleted.
#[must_use]
pub fn inbox_tag(inbox: &Inbox) -> String {
    format!("inbox:{}", super::scope::segment(&inbox.to_string()))
}

/// Cache tag of a mail's pages, which are purged when the mail is deleted.
#[must_use]
pub fn mail_tag(id: MailId) -> String {
    format!("mail:{id}")
}

/// Header with cache tags, as our accelerator and many CDNs read it.
const SURROGATE_KEY: HeaderName = HeaderName::from_static("surrogate-key");

/// Error of a request, shown as a page to people and as JSON to programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("no such page")]
    NoSuchPage,
    #[error("this page does not support the request's method")]
    NoSuchMethod,
    #[error("no such mail: it was deleted, has expired, or never arrived")]
    NoSuchMail,
    #[error("the mail has no such part")]
    NoSuchPart,
    #[error("invalid address: {0}")]
    NotAnAddress(AddressFault),
    #[error("{0}")]
    Query(QueryFault),
    #[error("{0}")]
    Bad(String),
    #[error("{0}")]
    TimedOut(String),
    #[error("the token is required to see more than one inbox")]
    TokenNeeded,
    #[error(
        "more than one inbox is shown to this machine only, unless --mail-readers names a network that contains {0}"
    )]
    OnlyFromHere(IpAddr),
    #[error(
        "a proxy on this machine does not name its clients ({0}), so the token is required to see more than one inbox"
    )]
    BehindProxy(String),
    #[error("the change was sent by another site's page")]
    ForeignWrite,
    #[error(
        "`{name}` is not a host name of this service; it answers to addresses, `localhost`{named} (--http-hosts)"
    )]
    ForeignHost {
        name: String,
        /// Names that the operator configured, each preceded by a comma.
        named: String,
    },
    #[error("not supported: {0}")]
    NotDone(&'static str),
    #[error("{0}")]
    Busy(&'static str),
    #[error("the memory for requests and answers is used up (http-bytes-max)")]
    NoRoom,
    #[error("{0}")]
    TooMany(&'static str),
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
    #[error("{0}")]
    Store(Unavailable),
    #[error("the answer was interrupted")]
    Broken,
}

impl From<Unavailable> for Fault {
    fn from(unavailable: Unavailable) -> Self {
        match unavailable {
            Unavailable::NoRoom => Self::NoRoom,
            other => Self::Store(other),
        }
    }
}

impl From<QueryFault> for Fault {
    fn from(fault: QueryFault) -> Self {
        Self::Query(fault)
    }
}

impl Fault {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchPage | Self::NoSuchMail | Self::NoSuchPart | Self::TimedOut(_) => {
                StatusCode::NOT_FOUND
            }
            Self::NoSuchMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAnAddress(_) | Self::Query(_) | Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::TokenNeeded => StatusCode::UNAUTHORIZED,
            Self::OnlyFromHere(_) | Self::BehindProxy(_) | Self::ForeignWrite => StatusCode::FORBIDDEN,
            Self::NotDone(_) => StatusCode::NOT_IMPLEMENTED,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::ForeignHost { .. } => StatusCode::MISDIRECTED_REQUEST,
            Self::Store(Unavailable::Refused(_)) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Store(Unavailable::TooOften(_)) => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy(_) | Self::NoRoom | Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the heading of the error page.
    fn what(&self) -> &'static str {
        match self {
            Self::NoSuchPage | Self::NoSuchMethod => "No such page",
            Self::NoSuchMail => "This mail is gone",
            Self::NoSuchPart => "No such part",
            Self::NotAnAddress(_) => "Invalid address",
            Self::Query(_) | Self::Bad(_) => "The request cannot be understood",
            Self::TimedOut(_) => "Nothing came",
            Self::TokenNeeded | Self::OnlyFromHere(_) | Self::BehindProxy(_) | Self::ForeignWrite => {
                "Not allowed"
            }
            Self::NotDone(_) => "Not supported",
            Self::Store(Unavailable::Refused(_)) => "The mail was not accepted",
            Self::Store(Unavailable::TooOften(_)) => "Too often",
            Self::Busy(_) | Self::NoRoom | Self::TooMany(_) => "Too busy",
            Self::TooLarge(_) => "Too large",
            Self::ForeignHost { .. } => "Unknown host name",
            Self::Store(_) => "The mail cannot be read now",
            Self::Broken => "The answer was interrupted",
        }
    }

    /// Returns advice to the reader, which also says whether the reader or the server is at fault.
    fn advice(&self) -> &'static str {
        match self {
            Self::NoSuchPage | Self::NoSuchMethod | Self::NoSuchPart => {
                "Check the address in the browser's address bar."
            }
            Self::NoSuchMail => "Ask the sender to send it again.",
            Self::NotAnAddress(_) => {
                "An address is a name, optionally with @ and a domain: ann, or ann@example.org."
            }
            Self::Query(_) | Self::Bad(_) | Self::TooLarge(_) => "Change the request and send it again.",
            Self::TooMany(_) => "Wait until your other requests are answered.",
            Self::TimedOut(_) => "Try again, or wait longer.",
            Self::TokenNeeded => {
                "Log in with any name and the token as the password, or look at one inbox by its name."
            }
            Self::OnlyFromHere(_) => {
                "Look at one inbox by its name. The operator of this service can add your network with --mail-readers, \
                 or configure a token."
            }
            Self::BehindProxy(_) => {
                "Look at one inbox by its name. The operator of this service can configure a token (--token-file), or \
                 have the proxy send X-Forwarded-For, list it in --trusted-proxies and name readers with \
                 --mail-readers."
            }
            Self::ForeignWrite => "Do it on the inbox's own page.",
            Self::ForeignHost { .. } => {
                "Use the address, or localhost. The operator of this service can add the name with --http-hosts."
            }
            Self::NotDone(_) => "The API page lists what is supported.",
            Self::Store(Unavailable::Refused(_)) => "Change the mail and send it again.",
            Self::Store(Unavailable::TooOften(_)) => "Wait a minute, and send fewer requests.",
            Self::Busy(_) | Self::NoRoom => "The problem is on our side. Try again in a few seconds.",
            Self::Store(_) | Self::Broken => {
                "The problem is on our side. Try again in a minute; if it persists, tell the operator of this service \
                 the request's name."
            }
        }
    }

    /// Returns the table of access rules if the error refuses access to all mail; otherwise empty.
    fn table(&self) -> &'static [(&'static str, &'static str, &'static str)] {
        match self {
            Self::TokenNeeded | Self::OnlyFromHere(_) | Self::BehindProxy(_) => &WHO_SEES,
            _ => &[],
        }
    }
}

/// Builds the JSON response; [`request_middleware`] turns it into a page for browsers.
impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut said = serde_json::json!({ "error": self.to_string() });
        if !self.table().is_empty() {
            let rows = self.table().iter();
            said["all_mail_is_shown_to"] = rows.map(|(who, _, all)| serde_json::json!([who, all])).collect();
        }
        let mut response = (status, Json(said)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Basic realm=\"all inboxes: any name, the token as password\""),
            );
        }
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
        }
        // Rates are counted per minute.
        if status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

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
            tracing::debug!(request = %name, status = status.as_u16(), "no memory for a mail page: answered 503");
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
        tracing::error!("cannot write an answer: {error}");
        Fault::Broken
    })?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}

/// Lets shared caches keep a response for a second, with its cache tags. Browsers must revalidate each time,
/// so that a reader who deletes a mail and goes back within that second does not see it again.
pub(crate) fn public(mut response: Response, tags: &[String]) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=0, s-maxage=1"));
    tag(headers, tags);
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
