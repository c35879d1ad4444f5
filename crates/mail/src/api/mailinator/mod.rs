//! Mailinator's API v2, with the paths and fields that its official clients use (the published documentation
//! differs in places).
//!
//! The domain `public` (and `private`, with the token) is the service's own; any other is given by its name.
//! An inbox may be a full address, and may end in `*`.

mod deliver;
mod params;

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use engine::cores::clock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    deletion::{delete_later, deletion},
    duration,
    letter::{Entry, Letter, headers},
    routes::{DELETE, GET, POST, Routes},
    wait::{self, WAIT_MAX, WaitQuery},
};
use crate::{
    mailbox::mailboxes::{Mail, MailId, Mailboxes, Scope, Summary},
    render::{Attachment, ParsedMail, StepLimit, findings},
    smtp::address::fold_domain,
    web::{
        lists::{self, Extent, ListFrame},
        live::{LiveEvent, ScopeEvents},
        message::{download, fetch},
        serve::{
            answer::long_json,
            app::App,
            charged_buffer::ChargedBuffer,
            client::Client,
            fault::Fault,
            params::{PathParams, QueryParams},
        },
        source::source,
        when,
    },
};

use deliver::{inject, stream_of, webhook};
use params::{Flag, PathScope};

/// Default page size, as in Mailinator.
const LIMIT: usize = 50;
/// Largest page size, as in Mailinator.
const LIMIT_MAX: usize = 99;
/// Approximate size of a mail in a list as JSON, used to preallocate the list.
const ENTRY_BYTES: usize = 512;
/// Number of mails that `messages/*` returns.
const LATEST: usize = 5;

/// Paths of a domain and of one of its inboxes.
const DOMAIN: &str = "/api/v2/domains/{domain}";
const INBOX: &str = "/api/v2/domains/{domain}/inboxes/{inbox}";

fn of_domain(path: &str) -> String {
    format!("{DOMAIN}{path}")
}

fn of_inbox(path: &str) -> String {
    format!("{INBOX}{path}")
}

pub(super) fn routes<M: Mailboxes>(routes: Routes<M>) -> Routes<M> {
    add_unlisted(add_domain(add_inbox(add_waiting(routes))))
}

/// Adds operations that Mailinator does not have.
fn add_waiting<M: Mailboxes>(routes: Routes<M>) -> Routes<M> {
    routes
        .group(
            "Waiting, links and codes",
            "For test suites: one request between asking for a code and typing it in.",
        )
        .get(
            &of_inbox("/wait"),
            wait_for::<M>,
            "The newest matching mail, stored already or arriving in time, with its codes and links; 404 if none \
             arrived.",
        )
        .query("from subject text query since timeout delete")
        .get(
            &of_inbox("/messages/{id}/codes"),
            codes::<M>,
            "One-time codes of a mail, the likeliest first.",
        )
        .get(&of_inbox("/messages/{id}/links"), links::<M>, "Links of a mail with their true targets.")
}

/// Adds Mailinator's operations on one inbox.
fn add_inbox<M: Mailboxes>(routes: Routes<M>) -> Routes<M> {
    routes
        .group(
            "Mailinator's API v2",
            "The paths and fields that Mailinator's own clients use. An inbox may be a whole address, and may end \
             in *.",
        )
        .get(INBOX, list::<M>, "Mails of an inbox, newest first; wait=2m waits for one if there is none.")
        .query("skip limit sort decode_subject cursor full wait delete")
        .delete(INBOX, delete_all::<M>, "Deletes all mails of an inbox.")
        .post(&of_inbox("/messages"), inject::<M>, "Puts a mail into an inbox: {from, subject, text}.")
        .get(&of_inbox("/messages/{id}"), message::<M>, "A mail with its content; * is the latest five.")
        .query("delete")
        .delete(&of_inbox("/messages/{id}"), delete::<M>, "Deletes a mail.")
        .get(
            &of_inbox("/messages/{id}/{what}"),
            aspect::<M>,
            "summary, headers, text, textplain, texthtml, linksfull, attachments, raw or smtplog of a mail.",
        )
        .get(&of_inbox("/messages/{id}/attachments/{part}"), attachment::<M>, "An attachment.")
}

/// Adds Mailinator's operations on a domain, and on the team.
fn add_domain<M: Mailboxes>(routes: Routes<M>) -> Routes<M> {
    routes
        .get(
            &of_domain("/inboxes"),
            list::<M>,
            "Mails of all inboxes of a domain. Needs the token, as do the following.",
        )
        .query("inbox skip limit sort decode_subject cursor full wait delete")
        .delete(&of_domain("/inboxes"), delete_all::<M>, "Deletes all mails of a domain.")
        .get(&of_domain("/messages/{id}"), message::<M>, "A mail of any inbox of the domain.")
        .query("delete")
        .delete(&of_domain("/messages/{id}"), delete::<M>, "Deletes a mail of any inbox of the domain.")
        .get(&of_domain("/messages/{id}/{what}"), aspect::<M>, "As above, of any inbox of the domain.")
        .get(
            &of_domain("/messages/{id}/attachments/{part}"),
            attachment::<M>,
            "An attachment of a mail of any inbox of the domain.",
        )
        .get(&of_domain("/stream"), stream_of::<M>, "Arrivals as server-sent events.")
        .query("full")
        .get(&of_domain("/stream/{inbox}"), stream_of::<M>, "Arrivals in one inbox as server-sent events.")
        .query("full")
        .post(&of_domain("/webhook"), webhook::<M>, "Puts a mail into an inbox: {from, subject, text, to}.")
        .post(
            &of_domain("/webhook/{inbox}"),
            webhook::<M>,
            "Puts a mail into this inbox: {from, subject, text}.",
        )
        .get("/api/v2/domains", domains::<M>, "The service's own domain.")
        .get(DOMAIN, domain::<M>, "A domain; every name exists.")
        .get(&of_domain("/rules"), rules, "The rules of a domain; there are none.")
        .get("/api/v2/team", team::<M>, "The operator, in Mailinator's format.")
        .get("/api/v2/team/stats", stats::<M>, "Mails accepted.")
}

/// Adds operations that return an error, and alternative spellings.
fn add_unlisted<M: Mailboxes>(routes: Routes<M>) -> Routes<M> {
    routes
        // Operations for a domain's owner. They are not supported here and return an error.
        .unlisted(POST, DOMAIN, not_done)
        .unlisted(DELETE, DOMAIN, not_done)
        .unlisted(POST, &of_domain("/rules"), not_done)
        // Variants of the paths that Mailinator's clients use: a trailing slash, or another word.
        .unlisted(POST, INBOX, inject::<M>)
        .unlisted(GET, &of_domain("/"), domain::<M>)
        .unlisted(GET, &of_domain("/rules/"), rules)
        .unlisted(POST, &of_domain("/rules/"), not_done)
        .unlisted(GET, &of_domain("/stream/"), stream_of::<M>)
        .unlisted(POST, &of_domain("/webhook/"), webhook::<M>)
        .unlisted(GET, "/api/v2/team/stats/", stats::<M>)
        .unlisted(GET, "/api/v2/teaminfo", team::<M>)
}

#[derive(Deserialize)]
struct Listing {
    #[serde(default)]
    skip: usize,
    limit: Option<usize>,
    /// `ascending` sorts oldest first; any other value newest first.
    sort: Option<String>,
    #[serde(default)]
    decode_subject: Flag,
    cursor: Option<String>,
    #[serde(default)]
    full: Flag,
    wait: Option<String>,
    delete: Option<String>,
    /// Inbox, or prefix of inboxes, within a list of a domain.
    inbox: Option<String>,
}

#[derive(Serialize)]
struct List<T> {
    domain: String,
    to: String,
    msgs: Vec<T>,
    /// Position of the next page; empty at the end.
    cursor: String,
}

async fn list<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    PathScope(mut scope): PathScope,
    client: Client,
    QueryParams(listing): QueryParams<Listing>,
) -> Result<Response, Fault> {
    if let (Some(inbox), Scope::Prefix { local, domain }) = (&listing.inbox, &scope)
        && local.is_empty()
    {
        scope = Scope::of(inbox, domain).map_err(Fault::NotAnAddress)?;
    }
    let deletion = deletion(listing.delete.as_deref())?;
    let wait = listing.wait.as_deref().map(|wait| duration::parse(wait, WAIT_MAX)).transpose()?;
    let limit = listing.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX);
    let skip = match listing.cursor.as_deref().filter(|cursor| !cursor.is_empty()) {
        Some(cursor) => cursor
            .parse()
            .map_err(|_| Fault::Bad("invalid cursor; use the one of the previous list".to_owned()))?,
        None => listing.skip,
    };
    let mut found = listed(&app, &scope, skip, limit, &listing).await?;
    if found.is_empty()
        && let Some(wait) = wait
    {
        let mut arrivals = ScopeEvents::new(&app, client, scope.clone(), Some(None)).await?;
        let looked = async {
            while let Some(told) = arrivals.next().await {
                let found = match told {
                    LiveEvent::Deleted(_) => Vec::new(),
                    LiveEvent::Arrived(_) | LiveEvent::Missed => {
                        listed(&app, &scope, skip, limit, &listing).await?
                    }
                };
                if !found.is_empty() {
                    return Ok(found);
                }
            }
            Ok::<_, Fault>(Vec::new())
        };
        // After the timeout an empty list is a valid response.
        found = tokio::time::timeout(wait, looked).await.unwrap_or_else(|_| Ok(Vec::new()))?;
    }
    let now_ms = clock::unix_ms();
    let cursor = if found.len() == limit { (skip + limit).to_string() } else { String::new() };
    let (domain, to) = match &scope {
        Scope::Inbox(inbox) => (inbox.domain.to_string(), inbox.name().into_owned()),
        Scope::Prefix { local, domain } => (domain.to_string(), format!("{local}*")),
        Scope::All => (String::new(), "*".to_owned()),
    };
    if let Some(after) = deletion {
        let ids: Vec<MailId> = found.iter().map(|summary| summary.id).collect();
        delete_later(&app, &ids, after).await?;
    }
    if !listing.full.0 {
        let msgs: Vec<Entry<'_>> =
            found.iter().map(|summary| Entry::new(summary, listing.decode_subject.0, now_ms)).collect();
        let bytes = (1 + msgs.len()) * ENTRY_BYTES;
        return long_json(&List { domain, to, msgs, cursor }, bytes);
    }
    let around = ListFrame {
        head: format!("{{\"domain\":{},\"to\":{},\"msgs\":[", json!(domain), json!(to)),
        tail: format!("],\"cursor\":{}}}", json!(cursor)),
    };
    lists::of_mails(&app, client, &scope, found, around, letter_json).await
}

async fn listed<M: Mailboxes>(
    app: &Arc<App<M>>,
    scope: &Scope,
    skip: usize,
    limit: usize,
    listing: &Listing,
) -> Result<Vec<Arc<Summary>>, Fault> {
    if listing.sort.as_deref() != Some("ascending") {
        return Ok(app.mailboxes.list(scope, skip, limit).await?);
    }
    let all = usize::try_from(app.mailboxes.count(scope).await?).unwrap_or(usize::MAX);
    let end = all.saturating_sub(skip);
    let begin = end.saturating_sub(limit);
    let mut found = app.mailboxes.list(scope, begin, end - begin).await?;
    found.reverse();
    Ok(found)
}

fn letter_json(mail: &Mail, until: &StepLimit, _: Extent, out: &mut ChargedBuffer) -> serde_json::Result<()> {
    serde_json::to_writer(out, &Letter::new(mail, clock::unix_ms(), until))
}

/// Last parameters of a path: the mail, and the part of it that is requested.
#[derive(Deserialize)]
struct MessageParams {
    id: String,
    what: Option<String>,
    /// Attachment, by its `attachment-id` or its name.
    part: Option<String>,
}

#[derive(Deserialize)]
struct DeleteQuery {
    delete: Option<String>,
}

async fn message<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    PathScope(scope): PathScope,
    client: Client,
    PathParams(MessageParams { id, .. }): PathParams<MessageParams>,
    QueryParams(deleting): QueryParams<DeleteQuery>,
) -> Result<Response, Fault> {
    if id == "*" {
        let latest = app.mailboxes.list(&scope, 0, LATEST).await?;
        let around =
            ListFrame { head: format!("{{\"to\":{},\"msgs\":[", json!(scope.name())), tail: "]}".to_owned() };
        return lists::of_mails(&app, client, &scope, latest, around, letter_json).await;
    }
    let deletion = deletion(deleting.delete.as_deref())?;
    let mail = fetch(&app, client, &scope, &id).await?;
    let (id, now_ms) = (mail.summary.id, clock::unix_ms());
    let letter = app.render(client, mail, move |mail, until| Letter::new(mail, now_ms, until)).await?;
    if let Some(after) = deletion {
        delete_later(&app, &[id], after).await?;
    }
    Ok(Json(letter).into_response())
}

async fn aspect<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    PathScope(scope): PathScope,
    client: Client,
    PathParams(named): PathParams<MessageParams>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    let what = named.what.clone().unwrap_or_default();
    if what == "raw" && !wants_json(&headers) {
        // Plain text that no browser treats as a page: every response has nosniff.
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))];
        let id = named.id.parse().map_err(|_| Fault::NoSuchMail)?;
        return Ok((kind, source(&app, client, &scope, id).await?).into_response());
    }
    Ok(shown(&app, client, &scope, &named, what).await?.into_response())
}

/// Returns whether the client wants JSON. Mailinator serves the source as text, which its Python client
/// passes on. Its JavaScript client asks for JSON and cannot handle any other response.
fn wants_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("application/json"))
}

async fn codes<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    PathScope(scope): PathScope,
    client: Client,
    PathParams(named): PathParams<MessageParams>,
) -> Result<Json<Value>, Fault> {
    shown(&app, client, &scope, &named, "codes".to_owned()).await
}

async fn links<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    PathScope(scope): PathScope,
    client: Client,
    PathParams(named): PathParams<MessageParams>,
) -> Result<Json<Value>, Fault> {
    shown(&app, client, &scope, &named, "links".to_owned()).await
}

async fn shown<M: Mailboxes>(
    app: &Arc<App<M>>,
    client: Client,
    scope: &Scope,
    named: &MessageParams,
    what: String,
) -> Result<Json<Value>, Fault> {
    let mail = fetch(app, client, scope, &named.id).await?;
    let now_ms = clock::unix_ms();
    app.render(client, mail, move |mail, until| aspect_of(mail, &what, now_ms, until)).await?.map(Json)
}

fn aspect_of(mail: &Mail, what: &str, now_ms: u64, until: &StepLimit) -> Result<Value, Fault> {
    let prepared = ParsedMail::within(&mail.raw, until);
    let reading = prepared.read();
    Ok(match what {
        "summary" => json!({ "summary": Entry::new(&mail.summary, true, now_ms) }),
        "headers" => json!({ "headers": headers(&reading) }),
        "text" => json!({ "text": reading.text().0 }),
        "textplain" => json!({ "text/plain": reading.text().0 }),
        "texthtml" => json!({ "text/html": reading.html_source().unwrap_or_default() }),
        "links" => {
            json!({ "links": findings::links(&reading, until).into_iter().map(|l| l.link).collect::<Vec<_>>() })
        }
        "linksfull" => json!({ "links": findings::links(&reading, until) }),
        "codes" => json!({ "codes": findings::codes(&reading.subject(), &reading.whole_text(), until) }),
        "attachments" => {
            let attachments = reading.attachments().iter().map(|attachment| {
                json!({
                    "filename": attachment.filename,
                    "content-type": attachment.content_type,
                    "content-disposition": if attachment.inline { "inline" } else { "attachment" },
                    "content-transfer-encoding": attachment.encoding,
                    "attachment-id": attachment.part,
                    "size": attachment.size_bytes,
                })
            });
            json!({ "attachments": attachments.collect::<Vec<_>>() })
        }
        // JSON with the field names that the JavaScript and Python clients know.
        "raw" if !mail.is_whole() => {
            return Err(Fault::NotDone(
                "the mail is too large for JSON; the page of the mail has its source",
            ));
        }
        "raw" => {
            let raw = String::from_utf8_lossy(&mail.raw);
            json!({ "rawData": raw, "raw_data": raw })
        }
        "smtplog" => {
            let log = smtp_log(mail);
            json!({ "log": log, "smtp_logs": log })
        }
        _ => return Err(Fault::NoSuchPage),
    })
}

/// Reconstructs the SMTP dialog from the stored data; the original lines are not kept.
fn smtp_log(mail: &Mail) -> Vec<Value> {
    let time = when::iso(mail.summary.arrived_ms);
    let entry = |event: &str, log: String| json!({ "log": log, "time": time, "event": event });
    let mut log = vec![entry("MAIL", format!("MAIL FROM:<{}>", mail.summary.envelope_from))];
    log.extend(mail.recipients.iter().map(|recipient| entry("RCPT", format!("RCPT TO:<{recipient}>"))));
    log.push(entry("DATA", format!("250 accepted {} bytes as {}", mail.summary.size_bytes, mail.summary.id)));
    log
}

async fn attachment<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    PathScope(scope): PathScope,
    client: Client,
    PathParams(MessageParams { id, part, .. }): PathParams<MessageParams>,
) -> Result<Response, Fault> {
    let mail = fetch(&app, client, &scope, &id).await?;
    let part = part.ok_or(Fault::NoSuchPart)?;
    let found = app.render(client, mail, move |mail, until| part_called(mail, &part, until)).await?;
    let (attachment, bytes) = found.ok_or(Fault::NoSuchPart)?;
    Ok(download(&attachment.content_type, &attachment.filename, bytes))
}

/// Returns the attachment with this name, or with this `attachment-id` if no attachment has the name.
fn part_called(mail: &Mail, called: &str, until: &StepLimit) -> Option<(Attachment, Vec<u8>)> {
    let prepared = ParsedMail::within(&mail.raw, until);
    let reading = prepared.read();
    let all = reading.attachments();
    let number = called.parse::<u32>().ok();
    let attachment = all
        .iter()
        .find(|attachment| attachment.filename == called)
        .or_else(|| all.iter().find(|attachment| Some(attachment.part) == number))?;
    Some((attachment.clone(), reading.attachment_bytes(attachment).into_owned()))
}

async fn delete<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    PathScope(scope): PathScope,
    client: Client,
    PathParams(MessageParams { id, .. }): PathParams<MessageParams>,
) -> Result<Json<Value>, Fault> {
    let mail = fetch(&app, client, &scope, &id).await?;
    let deleted = app.mailboxes.delete(&scope, mail.summary.id).await?;
    Ok(Json(json!({ "status": "ok", "count": u8::from(deleted) })))
}

async fn delete_all<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    PathScope(scope): PathScope,
) -> Result<Json<Value>, Fault> {
    let count = app.mailboxes.delete_all(&scope).await?;
    Ok(Json(json!({ "status": "ok", "count": count })))
}

async fn wait_for<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    PathScope(scope): PathScope,
    client: Client,
    QueryParams(wanted): QueryParams<WaitQuery>,
) -> Result<Response, Fault> {
    Ok(Json(wait::wait(&app, client, scope, &wanted).await?).into_response())
}

fn domain_json(name: &str) -> Value {
    json!({ "_id": name, "name": name, "description": "all addresses are inboxes", "enabled": true, "ownerid": "", "rules": [] })
}

async fn domains<M: Mailboxes>(State(app): State<Arc<App<M>>>) -> Json<Value> {
    Json(json!({ "domains": [domain_json(&app.config.domain)] }))
}

async fn domain<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    PathParams(name): PathParams<String>,
) -> Result<Json<Value>, Fault> {
    let name = match name.as_str() {
        "public" | "private" => app.config.domain.as_str().into(),
        name => fold_domain(name).map_err(Fault::NotAnAddress)?,
    };
    Ok(Json(domain_json(&name)))
}

async fn rules() -> Json<Value> {
    Json(json!({ "rules": [] }))
}

async fn not_done() -> Fault {
    Fault::NotDone("domains need not be created, and there are no rules")
}

async fn team<M: Mailboxes>(State(app): State<Arc<App<M>>>) -> Json<Value> {
    Json(json!({
        "_id": "nighttrain", "team_name": app.config.name, "plan": "unlimited", "status": "active", "token": "",
        "private_domains": [], "sms_numbers": [], "members": [], "plan_data": {},
        "server_time": when::iso(clock::unix_ms()), "domains": [app.config.domain.clone()],
    }))
}

async fn stats<M: Mailboxes>(State(app): State<Arc<App<M>>>) -> Json<Value> {
    let totals = app.mailboxes.totals();
    Json(json!({
        "stats": [{
            "date": &when::iso(clock::unix_ms())[..10],
            "retrieved": { "web_private": 0, "web_public": 0, "api_email": 0, "api_sms": 0, "api_error": 0 },
            "sent": { "email": totals.accepted, "sms": 0 },
        }],
    }))
}
