//! Mailpit's events over WebSocket: `{"Type": "new", "Data": {…}}` for an arrival, `delete` with the ID for a
//! deletion, `prune` when events were missed and a list should be read again.

use std::sync::Arc;

use axum::{
    extract::{
        State,
        ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::HeaderMap,
    response::Response,
};
use serde_json::json;

use super::shapes::item;
use crate::{
    api::socket,
    mailbox::mailboxes::{Mailboxes, Scope},
    web::{
        live::LiveEvent,
        serve::{app::App, client::Client, fault::Fault, scope::RequestScope},
    },
};

pub(super) async fn events<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Fault> {
    socket::stream_events(app, client, scope, &headers, upgrade, event).await
}

async fn event<M: Mailboxes>(
    app: Arc<App<M>>,
    client: Client,
    scope: Scope,
    told: LiveEvent,
) -> Option<String> {
    Some(match told {
        LiveEvent::Arrived(summary) => {
            // No event is sent if the mail has been deleted in the meantime, or if the store fails.
            let gist = app.gist(client, &summary).await.ok().flatten()?;
            let mut event = b"{\"Type\":\"new\",\"Data\":".to_vec();
            item(&app, &scope, &summary, &gist, &mut event).ok()?;
            event.push(b'}');
            String::from_utf8(event).ok()?
        }
        LiveEvent::Deleted(id) => json!({ "Type": "delete", "Data": { "ID": id.to_string() } }).to_string(),
        LiveEvent::Missed => json!({ "Type": "prune", "Data": null }).to_string(),
    })
}
