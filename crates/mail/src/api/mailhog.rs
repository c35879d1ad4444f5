//! MailHog's API, v1 and v2, with its paths and fields, so that existing clients keep working.
//!
//! The API is at the root, except for `GET /api/v1/messages`: there Mailpit's API responds, in a different
//! format. All of MailHog's API is also available below `/mailhog`, for clients that take a base URL. It
//! covers more than one inbox, so only the operator has access. Functions that do not exist here (releasing
//! mail, failures on demand) return an error that says so.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::{self, Write as _},
    sync::Arc,
};

use axum::{
    Json,
    extract::{
        State,
        ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::{HeaderMap, header},
    response::{
        IntoResponse, Response,
        sse::{self, KeepAlive, Sse},
    },
};
use futures_util::stream;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::{
    refusals::not_released,
    routes::{DELETE, GET, POST, PUT, Routes},
    socket,
};
use crate::{
    mailbox::mailboxes::{Mail, MailId, Mailboxes, Scope},
    render::{ParsedMail, RawPart, StepLimit},
    search::{self, Query, Term},
    web::{
        lists::{self, Extent, ListFrame},
        live::{LiveEvent, ScopeEvents},
        message::{download, fetch, saved},
        serve::{
            app::App,
            charged_buffer::ChargedBuffer,
            client::Client,
            fault::Fault,
            params::{PathParams, QueryParams},
            scope::RequestScope,
        },
        source::source,
        when,
    },
};

/// Default and largest page size, as in MailHog.
const LIMIT: usize = 50;
const LIMIT_MAX: usize = 250;
/// Maximum number of mails in the v1 list, which has no pages.
const LIMIT_V1: usize = 1000;
/// Maximum number of mails that a search finds; if more match, `total` is this number.
const FOUND_MAX: usize = 10_000;

pub(super) fn routes<M: Mailboxes>(before: Routes<M>) -> Routes<M> {
    let below = Routes::at("/mailhog").unlisted(GET, "/api/v1/messages", list_v1::<M>).unlisted(
        DELETE,
        "/api/v1/messages",
        delete_all::<M>,
    );
    put_in(before).merge_unlisted(put_in(below))
}

fn put_in<M: Mailboxes>(routes: Routes<M>) -> Routes<M> {
    routes
        .group(
            "MailHog's API, v1 and v2",
            "With http://HOST:PORT/mailhog as the base URL all of it; at the root GET /api/v1/messages is \
             Mailpit's.",
        )
        .get("/api/v2/messages", list::<M>, "Mails with their content, newest first.")
        .query("start limit")
        .get("/api/v2/search", find::<M>, "Mails from, to or containing something.")
        .query("kind query start limit")
        .get("/api/v1/messages/{id}", message::<M>, "A mail with its content.")
        .delete("/api/v1/messages/{id}", delete::<M>, "Deletes a mail.")
        .get("/api/v1/messages/{id}/download", raw::<M>, "Its source.")
        .get("/api/v1/messages/{id}/mime/part/{part}/download", part::<M>, "A part of a mail, decoded.")
        .get("/api/v1/events", events::<M>, "Arrivals as server-sent events.")
        .get("/api/v2/websocket", websocket::<M>, "Arrivals by WebSocket.")
        .get("/api/v2/outgoing-smtp", no_servers, "The servers that mail may be released to: none.")
        .unlisted(GET, "/api/v2/jim", no_jim)
        .unlisted(POST, "/api/v2/jim", no_jim)
        .unlisted(PUT, "/api/v2/jim", no_jim)
        .unlisted(DELETE, "/api/v2/jim", no_jim)
        .unlisted(POST, "/api/v1/messages/{id}/release", not_released)
}

/// Responds as MailHog does when Jim, its chaos monkey, is disabled.
async fn no_jim() -> Fault {
    Fault::NoSuchPage
}

async fn no_servers() -> Json<Value> {
    Json(json!({}))
}

#[derive(Deserialize)]
struct Listing {
    #[serde(default)]
    start: usize,
    limit: Option<usize>,
    kind: Option<String>,
    #[serde(default)]
    query: String,
}

impl Listing {
    fn limit(&self) -> usize {
        self.limit.filter(|limit| *limit > 0).unwrap_or(LIMIT).min(LIMIT_MAX)
    }
}

async fn list<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    QueryParams(listing): QueryParams<Listing>,
) -> Result<Response, Fault> {
    let total = app.mailboxes.count(&scope).await?;
    let found = app.mailboxes.list(&scope, listing.start, listing.limit()).await?;
    let around = around(total, found.len(), listing.start);
    lists::of_mails(&app, client, &scope, found, around, write).await
}

async fn find<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    QueryParams(listing): QueryParams<Listing>,
) -> Result<Response, Fault> {
    if listing.query.is_empty() {
        return Err(Fault::Bad("the parameter `query` is missing: the text to look for".to_owned()));
    }
    let word = search::fold(&listing.query);
    let term = match listing.kind.as_deref() {
        Some("from") => Term::From(word),
        Some("to") => Term::To(word),
        Some("containing") => Term::Word(word),
        _ => return Err(Fault::Bad("the parameter `kind` must be from, to or containing".to_owned())),
    };
    let found = app.search(client, &scope, &Query::default().and(term), None, FOUND_MAX).await?.mails;
    let total = found.len() as u64;
    let page: Vec<_> = found.into_iter().skip(listing.start).take(listing.limit()).collect();
    let around = around(total, page.len(), listing.start);
    lists::of_mails(&app, client, &scope, page, around, write).await
}

fn around(total: u64, count: usize, start: usize) -> ListFrame {
    ListFrame {
        head: format!("{{\"total\":{total},\"count\":{count},\"start\":{start},\"items\":["),
        tail: "]}".to_owned(),
    }
}

async fn list_v1<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
) -> Result<Response, Fault> {
    let found = app.mailboxes.list(&scope, 0, LIMIT_V1).await?;
    let around = ListFrame { head: "[".to_owned(), tail: "]".to_owned() };
    lists::of_mails(&app, client, &scope, found, around, write).await
}

#[derive(Deserialize)]
struct MessageParams {
    id: String,
    part: Option<usize>,
}

async fn message<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams(named): PathParams<MessageParams>,
) -> Result<Response, Fault> {
    let mail = fetch(&app, client, &scope, &named.id).await?;
    // From here on the memory is charged to the response.
    let (json, _held) = lists::printed(&app, client, mail, b"", write).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}

async fn delete<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    PathParams(named): PathParams<MessageParams>,
) -> Result<Response, Fault> {
    let id = named.id.parse().map_err(|_| Fault::NoSuchMail)?;
    match app.mailboxes.delete(&scope, id).await? {
        true => Ok(().into_response()),
        false => Err(Fault::NoSuchMail),
    }
}

async fn delete_all<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
) -> Result<Response, Fault> {
    app.mailboxes.delete_all(&scope).await?;
    Ok(().into_response())
}

async fn raw<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams(named): PathParams<MessageParams>,
) -> Result<Response, Fault> {
    let id: MailId = named.id.parse().map_err(|_| Fault::NoSuchMail)?;
    Ok(saved("message/rfc822", &format!("{id}.eml"), source(&app, client, &scope, id).await?))
}

async fn part<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams(named): PathParams<MessageParams>,
) -> Result<Response, Fault> {
    let mail = fetch(&app, client, &scope, &named.id).await?;
    let number = named.part.ok_or(Fault::NoSuchPart)?;
    let found = app.render(client, mail, move |mail, until| {
        let prepared = ParsedMail::within(&mail.raw, until);
        let reading = prepared.read();
        let pieces = reading.pieces().pieces;
        let piece = pieces.get(number)?;
        Some((piece.content_type.clone(), piece.content.to_vec()))
    });
    let (content_type, content) = found.await?.ok_or(Fault::NoSuchPart)?;
    Ok(download(&content_type, &format!("{}-part-{number}", named.id), content))
}

/// Streams an event for each mail that arrives, with the mail as JSON.
async fn events<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
) -> Result<Response, Fault> {
    let arrivals = ScopeEvents::new(&app, client, scope, None).await?;
    let events = stream::unfold((app, arrivals), move |(app, mut arrivals)| async move {
        let json = next(&app, client, &mut arrivals).await?;
        Some((Ok::<_, Infallible>(sse::Event::default().data(json)), (app, arrivals)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

async fn websocket<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Fault> {
    socket::stream_events(app, client, scope, &headers, upgrade, event).await
}

/// Returns the next arrival as JSON; `None` when the server stops.
async fn next<M: Mailboxes>(app: &Arc<App<M>>, client: Client, arrivals: &mut ScopeEvents) -> Option<String> {
    loop {
        let told = arrivals.next().await?;
        let said = event(Arc::clone(app), client, arrivals.scope().clone(), told).await;
        if said.is_some() {
            return said;
        }
    }
}

/// Returns an arrival as JSON. MailHog has no other events.
async fn event<M: Mailboxes>(
    app: Arc<App<M>>,
    client: Client,
    scope: Scope,
    told: LiveEvent,
) -> Option<String> {
    let LiveEvent::Arrived(summary) = told else { return None };
    // No event is sent if the mail has been deleted in the meantime, or if there is no memory for it.
    let mail = app.mail_in(client, &scope, summary.id).await.ok().flatten()?;
    let (json, _held) = lists::printed(&app, client, mail, b"", write).await.ok()?;
    String::from_utf8(json).ok()
}

/// Writes a mail with MailHog's field names. Without bodies, the texts of the mail and of its parts are
/// empty, but their sizes are still given.
fn write(mail: &Mail, until: &StepLimit, extent: Extent, out: &mut ChargedBuffer) -> serde_json::Result<()> {
    let prepared = ParsedMail::within(&mail.raw, until);
    let reading = prepared.read();
    let whole = reading.pieces();
    serde_json::to_writer(out, &Shape::of(mail, &whole, extent))
}

/// A mail in MailHog's JSON.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Shape<'a> {
    #[serde(rename = "ID")]
    id: String,
    from: Path<'a>,
    to: Vec<Path<'a>>,
    #[serde(rename = "MIME")]
    mime: Option<Mime<'a>>,
    content: Content<'a>,
    created: String,
    raw: Raw<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Path<'a> {
    relays: Option<()>,
    mailbox: &'a str,
    domain: &'a str,
    params: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Raw<'a> {
    from: &'a str,
    to: Vec<&'a str>,
    data: Lossy<'a>,
    helo: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Mime<'a> {
    parts: Vec<Content<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Content<'a> {
    headers: Headers<'a>,
    body: Lossy<'a>,
    size: usize,
    #[serde(rename = "MIME")]
    mime: Option<Mime<'a>>,
}

impl<'a> Shape<'a> {
    fn of(mail: &'a Mail, whole: &'a RawPart<'a>, extent: Extent) -> Self {
        let envelope_from: &str = &mail.summary.envelope_from;
        Self {
            id: mail.summary.id.to_string(),
            from: Path::of(envelope_from),
            to: mail.recipients.iter().map(|said| Path::of(said)).collect(),
            mime: Mime::of(whole, extent, 0),
            content: Content::of(whole, extent, 0),
            created: when::iso(mail.summary.arrived_ms).to_string(),
            raw: Raw {
                from: envelope_from,
                to: mail.recipients.iter().map(AsRef::as_ref).collect(),
                data: Lossy(if extent == Extent::Whole { &mail.raw } else { b"" }),
                helo: "",
            },
        }
    }
}

impl<'a> Path<'a> {
    fn of(address: &'a str) -> Self {
        let (mailbox, domain) = address.rsplit_once('@').unwrap_or((address, ""));
        Self { relays: None, mailbox, domain, params: "" }
    }
}

impl<'a> Mime<'a> {
    fn of(piece: &'a RawPart<'a>, extent: Extent, depth: usize) -> Option<Self> {
        let parts = piece.pieces.iter().map(|part| Content::of(part, extent, depth + 1));
        (!piece.pieces.is_empty()).then(|| Self { parts: parts.collect() })
    }
}

impl<'a> Content<'a> {
    /// Builds the content of a part at this depth. Unlike in MailHog, a multipart within a part has no body
    /// of its own, because its parts have one: with multiparts nested twenty levels deep the mail would be
    /// repeated twenty times.
    fn of(piece: &'a RawPart<'a>, extent: Extent, depth: usize) -> Self {
        let is_told = extent == Extent::Whole && (piece.pieces.is_empty() || depth < 2);
        Self {
            headers: Headers(&piece.headers),
            body: Lossy(if is_told { piece.body } else { b"" }),
            size: piece.body.len(),
            mime: Mime::of(piece, extent, depth),
        }
    }
}

/// Bytes shown as text without a copy; invalid UTF-8 becomes U+FFFD.
struct Lossy<'a>(&'a [u8]);

impl fmt::Display for Lossy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        Ok(())
    }
}

impl Serialize for Lossy<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Fields by name, with all values in order.
struct Headers<'a>(&'a [(String, String)]);

impl Serialize for Headers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, value) in self.0 {
            by_name.entry(name).or_default().push(value);
        }
        serializer.collect_map(by_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::{mailboxes::MailId, twin};

    fn shape(mail: &Mail, extent: Extent) -> Value {
        let until = StepLimit::default();
        let prepared = ParsedMail::within(&mail.raw, &until);
        let reading = prepared.read();
        serde_json::to_value(Shape::of(mail, &reading.pieces(), extent)).unwrap()
    }

    #[test]
    fn multiparts_within_each_other_are_told_once() {
        const LEVELS: usize = 20;
        let heads: String = (0..LEVELS)
            .map(|n| format!("Content-Type: multipart/mixed; boundary=\"q{n}\"\r\n\r\n--q{n}\r\n"))
            .collect();
        let raw = format!("{heads}\r\n{}", "text\r\n".repeat(10_000));
        let twin = twin::Twin::new(twin::Retention::default(), "night.test");
        twin.deliver_at(engine::cores::clock::unix_ms(), "s@x.test", &["ann".to_owned()], raw.as_bytes())
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (mail, ()) = runtime.block_on(twin.mail_into(&Scope::All, MailId(1), ())).unwrap().unwrap();
        let told = |extent| shape(&mail, extent).to_string().matches("text").count() / 10_000;
        // The text appears in the mail, its content, the first part and the innermost part, and again in
        // `MIME`.
        assert_eq!((told(Extent::Whole), told(Extent::Heads)), (6, 0));
    }

    #[test]
    fn a_mail_has_its_parts_as_they_came() {
        let twin = twin::Twin::new(twin::Retention::default(), "night.test");
        let raw = "From: a@b\r\nSubject: =?utf-8?q?h=C3=BC?=\r\nX: 1\r\nX: 2\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n\
                   --b\r\n\r\nhello\r\n--b\r\nContent-Type: text/csv\r\nContent-Transfer-Encoding: base64\r\n\r\nb25lLHR3bw==\r\n--b--\r\n";
        twin.deliver_at(engine::cores::clock::unix_ms(), "s@x.test", &["ann".to_owned()], raw.as_bytes())
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (mail, ()) = runtime.block_on(twin.mail_into(&Scope::All, MailId(1), ())).unwrap().unwrap();
        let shape = shape(&mail, Extent::Whole);
        assert_eq!(
            shape["From"],
            json!({ "Relays": null, "Mailbox": "s", "Domain": "x.test", "Params": "" })
        );
        assert_eq!(shape["To"][0]["Mailbox"], "ann");
        assert_eq!(shape["Content"]["Headers"]["X"], json!(["1", "2"]));
        assert_eq!(shape["Content"]["Headers"]["Subject"], json!(["=?utf-8?q?h=C3=BC?="]), "as it came");
        let parts = shape["MIME"]["Parts"].as_array().unwrap();
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[0]["Body"], "hello");
        assert_eq!(parts[1]["Body"], "b25lLHR3bw==");
        assert_eq!(shape["Raw"]["Data"], raw);
    }
}
