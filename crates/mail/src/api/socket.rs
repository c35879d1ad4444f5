//! Arrivals and deletions over WebSocket, in the format of the requested API.
//!
//! *Bounds:* messages from a client may have up to [`MESSAGE_BYTES_MAX`] bytes and are discarded; a client
//! that does not take an event for [`SEND_MAX`] is disconnected.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::ws::{Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    http::HeaderMap,
    response::Response,
};

use crate::{
    mailbox::mailboxes::{Mailboxes, Scope},
    web::{
        live::{LiveEvent, ScopeEvents},
        serve::{app::App, client::Client, fault::Fault},
    },
};

/// Silence after which a ping is sent, so that proxies keep the connection.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Largest message from a client; no messages are expected.
const MESSAGE_BYTES_MAX: usize = 4096;
/// Time after which a client that does not take an event is disconnected.
const SEND_MAX: Duration = Duration::from_secs(30);

/// Sends a scope's events for as long as the client is connected. `say` formats an event, or returns `None`
/// to skip it.
///
/// # Errors
/// Returns a [`Fault`] if the request is not a WebSocket upgrade, comes from a page of another site, or finds
/// no free listener slot.
pub(super) async fn stream_events<M: Mailboxes, S, F>(
    app: Arc<App<M>>,
    client: Client,
    scope: Scope,
    headers: &HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    say: S,
) -> Result<Response, Fault>
where
    S: Fn(Arc<App<M>>, Client, Scope, LiveEvent) -> F + Send + 'static,
    F: Future<Output = Option<String>> + Send,
{
    let upgrade = upgrade
        .map_err(|_| Fault::Bad("a WebSocket is needed here: send `Upgrade: websocket`".to_owned()))?;
    // Browsers let any page open a WebSocket to any address and, unlike with a GET, read the messages.
    app.check_asker(headers)?;
    let mut arrivals = ScopeEvents::new(&app, client, scope, None).await?;
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(async move |mut socket: WebSocket| {
        loop {
            let message = tokio::select! {
                told = arrivals.next() => match told {
                    // Events are formatted outside of `select!`: a message from the client would otherwise
                    // cancel the formatting and lose the event.
                    Some(told) => match say(Arc::clone(&app), client, arrivals.scope().clone(), told).await {
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
    }))
}
