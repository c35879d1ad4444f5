//! Live events of a scope as server-sent events.
//!
//! A page names the newest mail that it shows (`?after=`, or `Last-Event-ID` when the browser reconnects),
//! and first gets all later mails, so that no mail is lost between the page and the stream. A client that
//! reads too slowly is told to reload the page, because queues are bounded.

use std::{convert::Infallible, sync::Arc, time::Duration};

use askama::Template;
use axum::{
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, header},
    response::{
        IntoResponse, Response,
        sse::{self, KeepAlive, Sse},
    },
};
use engine::cores::clock;
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::mailbox::mailboxes::{Event, Inbox, MailId, Mailboxes, RemainingName, Scope, Summary};
use crate::web::{
    board::{Row, RowPage, path_of},
    serve::{
        app::{App, ListenerSlot},
        client::Client,
        fault::Fault,
        scope::RequestScope,
    },
};

/// Maximum number of mails that are sent after a gap between page and stream or after a reconnect; if there
/// are more, the page is reloaded.
const MISSED_MAX: usize = 100;
/// Silence after which a comment is sent, so that proxies keep the stream open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
pub(super) struct EventParams {
    after: Option<String>,
}

pub(super) async fn events<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    Query(EventParams { after }): Query<EventParams>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    let again = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    // The page of an empty inbox has no newest mail: every mail in the inbox is newer than the page.
    let known = again.or(after).map(|id| id.parse::<MailId>().ok());
    let arrivals = ScopeEvents::new(&app, client, scope, known).await?;
    let events = stream::unfold((app, arrivals), move |(app, mut arrivals)| async move {
        let event = arrivals.next().await?;
        // The preview is loaded so that the row is the same as in the list; a mail that cannot be read now
        // has a shorter row.
        if let LiveEvent::Arrived(summary) = &event {
            _ = app.gist(client, summary).await;
        }
        let told = arrivals.to_sse(&app, &event);
        Some((Ok::<_, Infallible>(told), (app, arrivals)))
    });
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    // nginx and other proxies would buffer the events.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// An event for a client.
#[derive(Debug, Clone)]
pub(crate) enum LiveEvent {
    Arrived(Arc<Summary>),
    Deleted(MailId),
    /// Some events were lost.
    Missed,
}

/// Stream of a scope's events, beginning at a given point.
pub(crate) struct ScopeEvents {
    scope: Scope,
    events: Receiver<Event>,
    /// Mails that arrived before the stream began; the next one to send is last.
    missed: Vec<Arc<Summary>>,
    too_many_missed: bool,
    listener: ListenerSlot,
}

impl ScopeEvents {
    /// Subscribes to the scope's events. The stream begins with the stored mails that arrived after `known`:
    /// with all stored mails for `Some(None)`, and with none for `None`.
    pub(crate) async fn new<M: Mailboxes>(
        app: &Arc<App<M>>,
        client: Client,
        scope: Scope,
        known: Option<Option<MailId>>,
    ) -> Result<Self, Fault> {
        let listener = app.listener(client).await?;
        // The stream subscribes to events before it lists mails. A mail that arrives between the two is
        // therefore sent twice, and the page detects the duplicate by its ID.
        let events = app.mailboxes.events();
        let mut arrivals = Self { scope, events, missed: Vec::new(), too_many_missed: false, listener };
        if let Some(known) = known {
            let mut missed = app.mailboxes.list(&arrivals.scope, 0, MISSED_MAX + 1).await?;
            match known.and_then(|known| missed.iter().position(|summary| summary.id == known)) {
                Some(place) => missed.truncate(place),
                // The known mail was deleted, or is older than the listed ones. IDs increase with time.
                None => missed.retain(|summary| known.is_none_or(|known| summary.id > known)),
            }
            arrivals.too_many_missed = missed.len() > MISSED_MAX;
            arrivals.missed = missed;
        }
        Ok(arrivals)
    }

    /// Scope of the stream.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns whether the stream ended because its client's slot was given to another client.
    pub(crate) fn is_cut(&self) -> bool {
        self.listener.is_cut()
    }

    /// Returns the next event; `None` when the server stops, or when the client's slot was given to another
    /// client.
    pub(crate) async fn next(&mut self) -> Option<LiveEvent> {
        if self.too_many_missed {
            self.too_many_missed = false;
            self.missed.clear();
            return Some(LiveEvent::Missed);
        }
        if let Some(summary) = self.missed.pop() {
            return Some(LiveEvent::Arrived(summary));
        }
        loop {
            let event = tokio::select! {
                event = self.events.recv() => event,
                () = self.listener.stopped() => return None,
            };
            match event {
                Ok(Event::Arrived(summary)) if self.scope.shows(&summary) => {
                    return Some(LiveEvent::Arrived(summary));
                }
                Ok(Event::Deleted { inbox, id, remains }) if self.is_gone(&inbox, remains) => {
                    return Some(LiveEvent::Deleted(id));
                }
                Ok(Event::Over { letter }) if self.scope == Scope::All => {
                    return Some(LiveEvent::Deleted(letter));
                }
                Ok(Event::Arrived(_) | Event::Deleted { .. } | Event::Over { .. }) => {}
                Ok(Event::Missed) | Err(RecvError::Lagged(_)) => {
                    self.listener.lagged();
                    return Some(LiveEvent::Missed);
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// Returns whether a list of the scope no longer shows a mail that an inbox has dropped.
    fn is_gone(&self, inbox: &Inbox, remains: RemainingName) -> bool {
        match self.scope {
            Scope::All => remains == RemainingName::Nothing,
            _ => self.scope.contains(inbox),
        }
    }

    fn to_sse<M: Mailboxes>(&self, app: &App<M>, told: &LiveEvent) -> sse::Event {
        match told {
            LiveEvent::Arrived(summary) => {
                let path = path_of(&self.scope.name());
                let extras = app.beside(summary);
                let row = Row::new(summary, extras, &path, self.scope.is_wide(), clock::unix_ms());
                let html = RowPage { row }.render().unwrap_or_default();
                sse::Event::default().event("arrived").id(summary.id.to_string()).data(html)
            }
            LiveEvent::Deleted(id) => sse::Event::default().event("deleted").data(id.to_string()),
            LiveEvent::Missed => sse::Event::default().event("reload").data("missed"),
        }
    }
}
