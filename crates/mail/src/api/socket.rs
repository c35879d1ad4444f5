//! What arrives and goes, told by WebSocket, in the words of whichever API was asked.
//!
//! *Bounds:* a client may send [`MESSAGE_BYTES_MAX`] at once, which is thrown away; one that does not take an event for
//! [`SEND_MAX`] is gone.

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
        serve::{answer::Fault, app::App, client::Client},
    },
};

/// A ping after so long a silence, so that proxies keep the connection.
const PING_EVERY: Duration = Duration::from_secs(30);
/// What a client may send: it has nothing to say.
const MESSAGE_BYTES_MAX: usize = 4096;
/// A client that does not take an event for so long is gone.
const SEND_MAX: Duration = Duration::from_secs(30);

/// Tells of a scope's mails for as long as the client listens. `say` is what is said of one event, or nothing.
///
/// # Errors
/// It was not asked for by WebSocket, by a page of another site, or of a scope that cannot be listened to.
pub(super) async fn tell<M: Mailboxes, S, F>(
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
        .map_err(|_| Fault::Bad("this is asked for by WebSocket, with `Upgrade: websocket`".to_owned()))?;
    // A browser lets any page open a WebSocket to anywhere: unlike a GET, its answers can be read.
    app.check_asker(headers)?;
    let mut arrivals = ScopeEvents::new(&app, client, scope, None).await?;
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(async move |mut socket: WebSocket| {
        loop {
            let message = tokio::select! {
                told = arrivals.next() => match told {
                    // Not within the wait: what the client says meanwhile would take the event's place.
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
