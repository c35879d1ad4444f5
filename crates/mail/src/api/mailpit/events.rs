//! Mailpit's events by WebSocket: `{"Type": "new", "Data": {…}}` for an arrival, `delete` with the ID for a deletion,
//! `prune` when some were missed and a list should be read again.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{
        State,
        ws::{Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::HeaderMap,
    response::Response,
};
use serde_json::json;

use super::item;
use crate::{
    mailboxes::{Mailboxes, Scope},
    web::{
        answer::Fault,
        app::App,
        client::Client,
        live::{Arrivals, Told},
        scope::Asked,
    },
};

/// A ping after so long a silence, so that proxies keep the connection.
const PING_EVERY: Duration = Duration::from_secs(30);
/// What a client may send: it has nothing to say.
const MESSAGE_BYTES_MAX: usize = 4096;
/// A client that does not take an event for so long is gone.
const SEND_MAX: Duration = Duration::from_secs(30);

pub(super) async fn events<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    Asked(scope): Asked,
    client: Client,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Fault> {
    let upgrade = crate::api::upgrade(upgrade)?;
    // A browser lets any page open a WebSocket to anywhere: unlike a GET, its answers can be read.
    app.check_asker(&headers)?;
    let arrivals = Arrivals::new(&app, scope, None).await?;
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |socket| tell(app, client, arrivals, socket)))
}

async fn tell<M: Mailboxes>(app: Arc<App<M>>, client: Client, mut arrivals: Arrivals, mut socket: WebSocket) {
    loop {
        let message = tokio::select! {
            told = arrivals.next() => match told {
                Some(told) => match event(&app, client, arrivals.scope(), told).await {
                    Some(event) => Message::Text(event.into()),
                    None => continue,
                },
                None => return,
            },
            said = socket.recv() => match said {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => continue,
            },
            () = tokio::time::sleep(PING_EVERY) => Message::Ping(Vec::new().into()),
        };
        match tokio::time::timeout(SEND_MAX, socket.send(message)).await {
            Ok(Ok(())) => {}
            _ => return,
        }
    }
}

async fn event<M: Mailboxes>(app: &Arc<App<M>>, client: Client, scope: &Scope, told: Told) -> Option<String> {
    Some(match told {
        Told::Arrived(summary) => {
            // Gone again, or the store fails: nothing to tell.
            let gist = app.gist(client, &summary).await.ok().flatten()?;
            let mut event = b"{\"Type\":\"new\",\"Data\":".to_vec();
            item(app, scope, &summary, &gist, &mut event).ok()?;
            event.push(b'}');
            String::from_utf8(event).ok()?
        }
        Told::Deleted(id) => json!({ "Type": "delete", "Data": { "ID": id.to_string() } }).to_string(),
        Told::Missed => json!({ "Type": "prune", "Data": null }).to_string(),
    })
}
