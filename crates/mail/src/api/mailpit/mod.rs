//! Mailpit's API v1 with its paths and JSON fields, so that its clients and the plug-ins of test frameworks
//! work.
//!
//! The API covers all mail at `/api/v1/…` (more than one inbox, so only the operator has access), and one
//! inbox with the inbox's page as the base URL: `/inbox/ann@example.org/api/v1/…`. Read flags and tags are
//! stored separately from the mails ([`crate::web`]'s flags). There is no relaying, and there are no spam
//! checks or link checks: this program never sends.

mod events;
mod send;
pub(crate) mod shapes;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use engine::cores::clock;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    refusals::not_released,
    routes::{GET, POST, PUT, Routes},
};
use crate::{
    mailbox::mailboxes::{MailId, Mailboxes, Scope, Summary},
    render::{
        ParsedMail,
        html::{DisplayOptions, RemoteContent, SanitizedHtml},
    },
    search::{FlagLookup as _, Query as Search},
    web::{
        lists::{self, ListFrame},
        message::{attachments_of, download, part_of},
        serve::{
            app::App,
            client::Client,
            fault::Fault,
            jobs::ChargedMail,
            params::{PathParams, QueryParams},
            request_body::ChargedBody,
            request_source::{RequestInitiator, asker},
            scope::RequestScope,
        },
        source::source,
    },
};

/// Default page size, as in Mailpit.
const LIMIT: usize = 50;
/// Maximum number of mails in one list.
const LIMIT_MAX: usize = 500;
/// Maximum number of mails that one request may change.
const IDS_MAX: usize = 10_000;

pub(super) fn routes<M: Mailboxes>(before: Routes<M>) -> Routes<M> {
    put_in(before).merge_unlisted(put_in(Routes::at("/inbox/{address}")))
}

fn put_in<M: Mailboxes>(routes: Routes<M>) -> Routes<M> {
    routes
        .group(
            "Mailpit's API v1",
            "Over everything with the token; over one inbox with that inbox's page as the base URL, as in \
             /inbox/ann@example.org/api/v1/messages.",
        )
        .get("/api/v1/messages", list::<M>, "Mails, newest first.")
        .query("start limit")
        .put("/api/v1/messages", set_read::<M>, "Marks mails read or unread: {IDs, Read, Search}.")
        .delete("/api/v1/messages", delete::<M>, "Deletes the mails named in {IDs}, or all.")
        .get("/api/v1/search", find::<M>, "Mails that match a search.")
        .query("query start limit")
        .delete("/api/v1/search", delete_found::<M>, "Deletes the mails that match a search.")
        .query("query")
        .get(
            "/api/v1/message/{id}",
            message::<M>,
            "A mail with its content; latest is the newest. It is marked read.",
        )
        .get("/api/v1/message/{id}/headers", headers::<M>, "The header fields of a mail.")
        .get("/api/v1/message/{id}/raw", raw::<M>, "Its source.")
        .get("/api/v1/message/{id}/part/{part}", part::<M>, "An attachment.")
        .post(
            "/api/v1/send",
            send::send::<M>,
            "Takes a mail: {From, To, Cc, Bcc, ReplyTo, Subject, Text, HTML, Attachments, Headers, Tags}.",
        )
        .get("/api/v1/tags", tags::<M>, "All tags.")
        .put("/api/v1/tags", set_tags::<M>, "Tags mails: {IDs, Tags}.")
        .put("/api/v1/tags/{tag}", rename_tag::<M>, "Renames a tag: {Name}.")
        .delete("/api/v1/tags/{tag}", delete_tag::<M>, "Removes a tag from all mails.")
        .get("/api/v1/info", info::<M>, "Counts and versions.")
        .get("/view/{file}", view::<M>, "ID.html or ID.txt: a mail's body, sanitized.")
        .get("/api/events", events::events::<M>, "Arrivals and deletions by WebSocket.")
        // Paths that Mailpit's own pages request, and functions that do not exist here, each with an error
        // that says why.
        .unlisted(GET, "/api/v1/webui", webui::<M>)
        .unlisted(GET, "/api/v1/message/{id}/part/{part}/thumb", part::<M>)
        .unlisted(GET, "/api/v1/message/{id}/html-check", not_checked)
        .unlisted(GET, "/api/v1/message/{id}/link-check", not_checked)
        .unlisted(GET, "/api/v1/message/{id}/sa-check", not_checked)
        .unlisted(POST, "/api/v1/message/{id}/release", not_released)
        .unlisted(GET, "/api/v1/chaos", no_chaos)
        .unlisted(PUT, "/api/v1/chaos", no_chaos)
}

async fn not_checked() -> Fault {
    Fault::NotDone("checks of HTML, links or spam are not supported")
}

async fn no_chaos() -> Fault {
    Fault::NotDone("chaos testing is not supported")
}

/// Last parameters of a path; `{address}` is parsed by [`RequestScope`].
#[derive(Deserialize)]
struct MessageParams {
    id: Option<String>,
    part: Option<u32>,
    tag: Option<String>,
    file: Option<String>,
}

async fn info<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
) -> Result<Json<Value>, Fault> {
    let count = app.mailboxes.count(&scope).await?;
    let totals = app.mailboxes.totals();
    let tags: BTreeMap<String, u64> = app.marks.all_tags(&scope);
    Ok(Json(json!({
        "Version": concat!("nighttrain ", env!("CARGO_PKG_VERSION")),
        "LatestVersion": concat!("nighttrain ", env!("CARGO_PKG_VERSION")),
        "Database": "", "DatabaseSize": totals.stored_bytes,
        "Messages": count, "Unread": count.saturating_sub(app.marks.read_count(&scope)), "Tags": tags,
        "RuntimeStats": {
            "Uptime": clock::unix_ms().saturating_sub(app.started_ms) / 1000, "Memory": 0,
            "MessagesDeleted": totals.accepted.saturating_sub(totals.stored), "SMTPAccepted": totals.accepted,
            "SMTPAcceptedSize": totals.stored_bytes, "SMTPRejected": totals.refused, "SMTPIgnored": 0,
        },
    })))
}

async fn webui<M: Mailboxes>(State(app): State<Arc<App<M>>>) -> Json<Value> {
    Json(json!({
        "Label": app.config.name, "SpamAssassin": false, "ChaosEnabled": false, "DuplicatesIgnored": false,
        "HideDeleteAllButton": false,
        "MessageRelay": {
            "Enabled": false, "SMTPServer": "", "ReturnPath": "", "AllowedRecipients": "", "BlockedRecipients": "",
            "OverrideFrom": "", "PreserveMessageIDs": false, "RecipientAllowlist": "",
        },
    }))
}

#[derive(Deserialize)]
struct Listing {
    #[serde(default)]
    start: usize,
    limit: Option<usize>,
    #[serde(default)]
    query: String,
}

async fn list<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    QueryParams(listing): QueryParams<Listing>,
) -> Result<Response, Fault> {
    let limit = listing.limit.unwrap_or(LIMIT).min(LIMIT_MAX);
    let total = app.mailboxes.count(&scope).await?;
    let found = app.mailboxes.list(&scope, listing.start, limit).await?;
    let unread = total.saturating_sub(app.marks.read_count(&scope));
    let whole = MailCounts { total, unread };
    answer(&app, client, &scope, found, listing.start, ListCounts { matching: whole, whole }).await
}

async fn find<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    QueryParams(listing): QueryParams<Listing>,
) -> Result<Response, Fault> {
    let limit = listing.limit.unwrap_or(LIMIT).min(LIMIT_MAX);
    let all = all_found(&app, client, &scope, &listing.query).await?;
    let unread = all.iter().filter(|summary| !app.marks.is_read(summary.id)).count() as u64;
    let matching = MailCounts { total: all.len() as u64, unread };
    let total = app.mailboxes.count(&scope).await?;
    let page: Vec<Arc<Summary>> = all.iter().skip(listing.start).take(limit).cloned().collect();
    let whole = MailCounts { total, unread: total.saturating_sub(app.marks.read_count(&scope)) };
    answer(&app, client, &scope, page, listing.start, ListCounts { matching, whole }).await
}

/// Returns all matching mails, up to the search's limits: Mailpit's lists have a total.
async fn all_found<M: Mailboxes>(
    app: &Arc<App<M>>,
    client: Client,
    scope: &Scope,
    query: &str,
) -> Result<Vec<Arc<Summary>>, Fault> {
    let query = Search::parse(query)?;
    let found = app.search(client, scope, &query, None, IDS_MAX).await?;
    Ok(found.mails)
}

/// Number of mails, and of the unread ones among them.
#[derive(Clone, Copy)]
struct MailCounts {
    total: u64,
    unread: u64,
}

/// Counts that a list shows.
struct ListCounts {
    /// Mails that match the search, on all pages.
    matching: MailCounts,
    /// Mails of the scope.
    whole: MailCounts,
}

/// Builds a list.
async fn answer<M: Mailboxes>(
    app: &Arc<App<M>>,
    client: Client,
    scope: &Scope,
    summaries: Vec<Arc<Summary>>,
    start: usize,
    ListCounts { matching, whole }: ListCounts,
) -> Result<Response, Fault> {
    let tags: Vec<String> = app.marks.all_tags(scope).into_keys().collect();
    let around = ListFrame {
        head: "{\"messages\":[".to_owned(),
        tail: format!(
            "],\"start\":{start},\"count\":{},\"messages_count\":{},\"messages_unread\":{},\"total\":{},\"unread\":{},\"tags\":{}}}",
            summaries.len(),
            matching.total,
            matching.unread,
            whole.total,
            whole.unread,
            json!(tags),
        ),
    };
    let (asked, scope) = (Arc::clone(app), scope.clone());
    lists::of_lines(app, client, summaries, around, move |summary, gist, out| {
        shapes::item(&asked, &scope, summary, gist, out)
    })
    .await
}

/// Reads the mail with this ID, or the newest for `latest`.
async fn fetch<M: Mailboxes>(
    app: &Arc<App<M>>,
    client: Client,
    scope: &Scope,
    named: &MessageParams,
) -> Result<ChargedMail, Fault> {
    let id = id_of(app, scope, named).await?;
    app.mail_in(client, scope, id).await?.ok_or(Fault::NoSuchMail)
}

async fn id_of<M: Mailboxes>(app: &App<M>, scope: &Scope, named: &MessageParams) -> Result<MailId, Fault> {
    let name = named.id.as_deref().unwrap_or_default();
    let id = if name == "latest" {
        app.mailboxes.list(scope, 0, 1).await?.first().map(|summary| summary.id)
    } else {
        name.parse::<MailId>().ok()
    };
    id.ok_or(Fault::NoSuchMail)
}

/// Serves a mail, which marks it read as in Mailpit, unless a page of another site requests it.
async fn message<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams(named): PathParams<MessageParams>,
    headers: HeaderMap,
) -> Result<Json<Value>, Fault> {
    let mail = fetch(&app, client, &scope, &named).await?;
    if asker(&headers) == RequestInitiator::OwnPageOrProgram {
        app.set_read(client, &[Arc::new(mail.summary.clone())], true).await?;
    }
    let tags = app.marks.tags(mail.summary.id);
    Ok(Json(app.render(client, mail, move |mail, until| shapes::message(mail, &tags, until)).await?))
}

async fn headers<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams(named): PathParams<MessageParams>,
) -> Result<Json<Value>, Fault> {
    let mail = fetch(&app, client, &scope, &named).await?;
    let all = app
        .render(client, mail, |mail, until| {
            let prepared = ParsedMail::within(&mail.raw, until);
            let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (name, value) in prepared.read().headers() {
                all.entry(name).or_default().push(value);
            }
            all
        })
        .await?;
    Ok(Json(json!(all)))
}

async fn raw<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams(named): PathParams<MessageParams>,
) -> Result<Response, Fault> {
    let id = id_of(&app, &scope, &named).await?;
    // Plain text that no browser treats as a page: every response has nosniff.
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))];
    Ok((kind, source(&app, client, &scope, id).await?).into_response())
}

async fn part<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams(named): PathParams<MessageParams>,
) -> Result<Response, Fault> {
    let mail = fetch(&app, client, &scope, &named).await?;
    let part = named.part.ok_or(Fault::NoSuchPart)?;
    let found = app.render(client, mail, move |mail, until| part_of(mail, part, until)).await?;
    let (attachment, bytes) = found.ok_or(Fault::NoSuchPart)?;
    Ok(download(&attachment.content_type, &attachment.filename, bytes))
}

/// Serves `ID.html` or `ID.txt`: sanitized, and under the frame's policy, because it is a page on our own
/// origin.
async fn view<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    PathParams(named): PathParams<MessageParams>,
) -> Result<Response, Fault> {
    let file = named.file.as_deref().unwrap_or_default();
    let (id, kind) = file.rsplit_once('.').ok_or(Fault::NoSuchPage)?;
    let as_html = match kind {
        "html" => true,
        "txt" => false,
        _ => return Err(Fault::NoSuchPage),
    };
    let named = MessageParams { id: Some(id.to_owned()), part: None, tag: None, file: None };
    let mail = fetch(&app, client, &scope, &named).await?;
    let pictures = attachments_of(&mail.summary);
    let body = app
        .render(client, mail, move |mail, until| {
            let prepared = ParsedMail::within(&mail.raw, until);
            let reading = prepared.read();
            if as_html {
                reading
                    .html(&DisplayOptions { pictures: &pictures, ..DisplayOptions::default() }, until)
                    .map(|clean| clean.html)
            } else {
                Some(reading.text().0)
            }
        })
        .await?
        .ok_or(Fault::NoSuchPart)?;
    let kind = if as_html { "text/html; charset=utf-8" } else { "text/plain; charset=utf-8" };
    let policy = SanitizedHtml::content_security_policy(RemoteContent::Blocked);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy)),
    ];
    Ok((headers, body).into_response())
}

/// Parameters of a change, with the mails that it applies to.
#[derive(Deserialize, Default)]
struct Change {
    #[serde(rename = "IDs", default)]
    ids: Vec<String>,
    #[serde(rename = "Read", default)]
    read: bool,
    #[serde(rename = "Search", default)]
    search: String,
    #[serde(rename = "Tags", default)]
    tags: Vec<String>,
    #[serde(rename = "Name", default)]
    name: String,
}

fn change(body: &[u8]) -> Result<Change, Fault> {
    if body.is_empty() {
        return Ok(Change::default());
    }
    let change: Change = serde_json::from_slice(body)
        .map_err(|error| Fault::Bad(format!("invalid change of mails: {error}")))?;
    if change.ids.len() > IDS_MAX {
        return Err(Fault::Bad(format!("more than {IDS_MAX} IDs")));
    }
    Ok(change)
}

/// Returns the mails named in a change that are within the scope; mails that do not exist are skipped.
async fn named<M: Mailboxes>(
    app: &App<M>,
    scope: &Scope,
    ids: &[String],
) -> Result<Vec<Arc<Summary>>, Fault> {
    let ids: Vec<MailId> = ids.iter().filter_map(|id| id.parse().ok()).collect();
    Ok(app.mailboxes.find(scope, &ids).await?)
}

async fn set_read<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    body: ChargedBody,
) -> Result<&'static str, Fault> {
    let change = change(&body.bytes)?;
    let mails = match change.ids.is_empty() {
        true => all_found(&app, client, &scope, &change.search).await?,
        false => named(&app, &scope, &change.ids).await?,
    };
    app.set_read(client, &mails, change.read).await?;
    Ok("ok")
}

async fn delete<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    body: ChargedBody,
) -> Result<&'static str, Fault> {
    let change = change(&body.bytes)?;
    if change.ids.is_empty() {
        app.mailboxes.delete_all(&scope).await?;
    }
    for summary in named(&app, &scope, &change.ids).await? {
        app.mailboxes.delete(&scope, summary.id).await?;
    }
    Ok("ok")
}

async fn delete_found<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    QueryParams(listing): QueryParams<Listing>,
) -> Result<&'static str, Fault> {
    if listing.query.trim().is_empty() {
        return Err(Fault::Bad("an empty search deletes nothing".to_owned()));
    }
    for summary in all_found(&app, client, &scope, &listing.query).await? {
        app.mailboxes.delete(&scope, summary.id).await?;
    }
    Ok("ok")
}

async fn tags<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
) -> Json<Vec<String>> {
    Json(app.marks.all_tags(&scope).into_keys().collect())
}

async fn set_tags<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    body: ChargedBody,
) -> Result<&'static str, Fault> {
    let change = change(&body.bytes)?;
    let names = app.marks.names(&change.tags)?;
    app.set_tags(client, &named(&app, &scope, &change.ids).await?, &names).await?;
    Ok("ok")
}

async fn rename_tag<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    PathParams(named): PathParams<MessageParams>,
    body: ChargedBody,
) -> Result<&'static str, Fault> {
    let change = change(&body.bytes)?;
    if change.name.trim().is_empty() {
        return Err(Fault::Bad("the field `Name` is missing: the tag's new name".to_owned()));
    }
    app.replace_tag(&scope, named.tag.as_deref().unwrap_or_default(), Some(change.name.trim())).await?;
    Ok("ok")
}

async fn delete_tag<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    PathParams(named): PathParams<MessageParams>,
) -> Result<&'static str, Fault> {
    app.replace_tag(&scope, named.tag.as_deref().unwrap_or_default(), None).await?;
    Ok("ok")
}
