//! ScopeEvents as they happen, as server-sent events.
//!
//! A page says which mail it knows as the newest (`?after=`, or `Last-Event-ID` when the browser comes back), and gets
//! what came since before what comes next, so that nothing falls between the page and the stream. Who reads too slowly
//! is told to load the page again rather than served from an unbounded queue.

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
        answer::Fault,
        app::{App, ListenerSlot},
        client::Client,
        scope::RequestScope,
    },
};

/// Mails that came between the page and the stream, or while the browser was away; more, and the page is loaded again.
const MISSED_MAX: usize = 100;
/// A comment is sent after so long a silence, so that proxies keep the stream open.
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
    // An empty inbox's page knows no mail: all that is there came after it.
    let known = again.or(after).map(|id| id.parse::<MailId>().ok());
    let arrivals = ScopeEvents::new(&app, client, scope, known).await?;
    let events = stream::unfold((app, arrivals), move |(app, mut arrivals)| async move {
        let event = arrivals.next().await?;
        // The line shows what the list would. A mail that cannot be read now has a shorter one.
        if let LiveEvent::Arrived(summary) = &event {
            _ = app.gist(client, summary).await;
        }
        let told = arrivals.to_sse(&app, &event);
        Some((Ok::<_, Infallible>(told), (app, arrivals)))
    });
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    // nginx and others would gather events into blocks.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// What a listener is told.
#[derive(Debug, Clone)]
pub(crate) enum LiveEvent {
    Arrived(Arc<Summary>),
    Deleted(MailId),
    /// Some were missed.
    Missed,
}

/// The events of a scope from a point on.
pub(crate) struct ScopeEvents {
    scope: Scope,
    events: Receiver<Event>,
    /// Came before the stream began; the next one last.
    missed: Vec<Arc<Summary>>,
    too_many_missed: bool,
    listener: ListenerSlot,
}

impl ScopeEvents {
    /// From now on, and first what came after `known` (all there is for `Some(None)`, nothing for `None`).
    pub(crate) async fn new<M: Mailboxes>(
        app: &Arc<App<M>>,
        client: Client,
        scope: Scope,
        known: Option<Option<MailId>>,
    ) -> Result<Self, Fault> {
        let listener = app.listener(client).await?;
        // First the ear, then the look: what comes between is heard twice, and the page knows it by its name.
        let events = app.mailboxes.events();
        let mut arrivals = Self { scope, events, missed: Vec::new(), too_many_missed: false, listener };
        if let Some(known) = known {
            let mut missed = app.mailboxes.list(&arrivals.scope, 0, MISSED_MAX + 1).await?;
            match known.and_then(|known| missed.iter().position(|summary| summary.id == known)) {
                Some(place) => missed.truncate(place),
                // The known one was deleted, or lies further back. Names grow with time.
                None => missed.retain(|summary| known.is_none_or(|known| summary.id > known)),
            }
            arrivals.too_many_missed = missed.len() > MISSED_MAX;
            arrivals.missed = missed;
        }
        Ok(arrivals)
    }

    /// Which mails it hears of.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns whether the events ended because the client has given way to others.
    pub(crate) fn is_cut(&self) -> bool {
        self.listener.is_cut()
    }

    /// Returns the next event; `None` when the server stops, or the client gives way to others.
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

    /// Whether a list of the scope shows a mail no more that an inbox has let go.
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
                let list = (&*path, self.scope.is_wide());
                let row = Row::new(summary, app.beside(summary), list, clock::unix_ms());
                let html = RowPage { row }.render().unwrap_or_default();
                sse::Event::default().event("arrived").id(summary.id.to_string()).data(html)
            }
            LiveEvent::Deleted(id) => sse::Event::default().event("deleted").data(id.to_string()),
            LiveEvent::Missed => sse::Event::default().event("reload").data("missed"),
        }
    }
}
