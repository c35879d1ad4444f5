//! Mailinator's endpoints for injecting mails, for webhooks and for streaming new mails.

use std::{convert::Infallible, net::IpAddr, sync::Arc};

use axum::{
    Extension, Json,
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{self, KeepAlive, Sse},
    },
};
use engine::cores::clock;
use futures_util::stream;
use mail_builder::MessageBuilder;
use serde::Deserialize;
use serde_json::{Value, json};

use super::params::{Flag, PathScope};
use crate::{
    api::{
        letter::{Entry, Letter},
        refusals::one_line,
    },
    mailbox::mailboxes::{Mailboxes, Scope},
    web::{
        live::{LiveEvent, ScopeEvents},
        serve::{app::App, client::Client, fault::Fault, params::QueryParams, request_body::ChargedBody},
    },
};

/// A mail submitted through the API.
#[derive(Deserialize)]
struct InjectRequest {
    #[serde(default)]
    subject: String,
    #[serde(default)]
    from: String,
    #[serde(default)]
    text: String,
    /// Recipient, for a webhook whose path does not name an inbox.
    to: Option<String>,
}

pub(super) async fn inject<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    PathScope(scope): PathScope,
    Extension(httpd::Client(peer)): Extension<httpd::Client>,
    body: ChargedBody,
) -> Result<Json<Value>, Fault> {
    let injected = read_injected(&body.bytes)?;
    let Scope::Inbox(inbox) = scope else {
        return Err(Fault::Bad("a mail goes to one inbox; name it without `*`".to_owned()));
    };
    let id = deliver(&app, peer, &injected, &inbox.to_string()).await?;
    Ok(Json(json!({ "status": "ok", "id": id, "rules_fired": [] })))
}

pub(super) async fn webhook<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    PathScope(scope): PathScope,
    Extension(httpd::Client(peer)): Extension<httpd::Client>,
    body: ChargedBody,
) -> Result<Json<Value>, Fault> {
    let injected = read_injected(&body.bytes)?;
    let to = match (&scope, &injected.to) {
        (Scope::Inbox(inbox), _) => inbox.to_string(),
        (Scope::Prefix { domain, .. }, Some(to)) if !to.contains('@') => format!("{to}@{domain}"),
        (_, Some(to)) => to.clone(),
        (_, None) => return Err(Fault::Bad("the field `to` is missing".to_owned())),
    };
    let id = deliver(&app, peer, &injected, &to).await?;
    Ok(Json(json!({ "status": "ok", "id": id })))
}

fn read_injected(body: &[u8]) -> Result<InjectRequest, Fault> {
    let injected: InjectRequest = serde_json::from_slice(body)
        .map_err(|error| Fault::Bad(format!("invalid {{\"from\", \"subject\", \"text\"}}: {error}")))?;
    let to = injected.to.as_deref().unwrap_or_default();
    for (name, value) in [("subject", &*injected.subject), ("from", &injected.from), ("to", to)] {
        one_line(name, value)?;
    }
    Ok(injected)
}

async fn deliver<M: Mailboxes>(
    app: &Arc<App<M>>,
    peer: IpAddr,
    injected: &InjectRequest,
    to: &str,
) -> Result<String, Fault> {
    let from = if injected.from.contains('@') {
        injected.from.clone()
    } else {
        format!("{}@api.invalid", injected.from)
    };
    let now_ms = clock::unix_ms();
    let raw = MessageBuilder::new()
        .from(from.as_str())
        .to(to)
        .subject(injected.subject.as_str())
        .date((now_ms / 1000).cast_signed())
        .message_id(format!("{}@api.invalid", app.request_name()))
        .text_body(injected.text.as_str())
        .write_to_vec()
        .map_err(|_| Fault::Broken)?;
    let ids = app.mailboxes.deliver(peer, &from, &[to.to_owned()], &raw).await?;
    Ok(ids.first().map(ToString::to_string).unwrap_or_default())
}

#[derive(Deserialize)]
pub(super) struct Throttle {
    #[serde(default)]
    full: Flag,
}

/// Streams each arrival as a server-sent event with the mail's entry, or with the whole mail for `full=true`.
pub(super) async fn stream_of<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    PathScope(scope): PathScope,
    client: Client,
    QueryParams(Throttle { full }): QueryParams<Throttle>,
) -> Result<Response, Fault> {
    let arrivals = ScopeEvents::new(&app, client, scope, None).await?;
    let events = stream::unfold((app, arrivals), move |(app, mut arrivals)| async move {
        loop {
            let summary = match arrivals.next().await? {
                LiveEvent::Arrived(summary) => summary,
                LiveEvent::Deleted(_) => continue,
                // Mailinator's clients receive only events without a name; a client that handles this one
                // knows that it must list again.
                LiveEvent::Missed => {
                    let missed = sse::Event::default().event("missed").data("{}");
                    return Some((Ok(missed), (app, arrivals)));
                }
            };
            let now_ms = clock::unix_ms();
            let json = if full.0 {
                let read = app.mail_in(client, arrivals.scope(), summary.id).await;
                let Ok(Some(mail)) = read else { continue };
                let Ok(letter) =
                    app.render(client, mail, move |mail, until| Letter::new(mail, now_ms, until)).await
                else {
                    continue;
                };
                serde_json::to_string(&letter)
            } else {
                serde_json::to_string(&Entry::new(&summary, true, now_ms))
            };
            let event = sse::Event::default().data(json.unwrap_or_default());
            return Some((Ok::<_, Infallible>(event), (app, arrivals)));
        }
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}
