//! Raw mail, sent piece by piece: a response holds no more memory for a large mail than for a small one.
//!
//! If a piece is damaged, or its mail is deleted while the response is sent, the response ends before its
//! announced length, and every client notices that it is incomplete.

use std::{io, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;

use crate::mailbox::mailboxes::{MailId, Mailboxes, PieceLocation, Scope};
use crate::web::serve::{app::App, budget::BudgetGuard, client::Client, counters::Counter, fault::Fault};

/// Maximum time that a started response waits for room for its next piece.
const ROOM_TIME_MAX: Duration = Duration::from_secs(10);

/// Stream of the pieces that are still to be sent.
struct PieceStream<M> {
    app: Arc<App<M>>,
    pieces: std::vec::IntoIter<PieceLocation>,
    held: BudgetGuard,
}

/// Builds a response with the raw bytes of a mail.
pub(crate) async fn source<M: Mailboxes>(
    app: &Arc<App<M>>,
    client: Client,
    scope: &Scope,
    id: MailId,
) -> Result<Response, Fault> {
    let read = app.mailboxes.source_into(scope, id, app.budget.of(client)).await?;
    let (source, mut held) = read.ok_or(Fault::NoSuchMail)?;
    if source.pieces.is_empty() {
        // A complete body is charged later, as part of the response.
        held.release();
        return Ok(Bytes::from(source.front).into_response());
    }
    let front = stream::iter([Ok(Bytes::from(source.front))]);
    let rest = PieceStream { app: Arc::clone(app), pieces: source.pieces.into_iter(), held };
    let rest = stream::unfold(Some(rest), |rest| async move {
        let mut rest = rest?;
        match rest.next().await {
            Ok(Some(piece)) => Some((Ok(piece), Some(rest))),
            Ok(None) => None,
            Err(fault) => {
                rest.app.counters.add(Counter::SourcesBroken, 1);
                tracing::warn!("sending the source of a mail was interrupted: {fault}");
                Some((Err(io::Error::other(fault)), None))
            }
        }
    });
    let mut response = Body::from_stream(futures_util::StreamExt::chain(front, rest)).into_response();
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(source.summary.size_bytes));
    Ok(response)
}

impl<M: Mailboxes> PieceStream<M> {
    async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        // The client has taken the previous piece.
        self.held.release();
        let Some(at) = self.pieces.next() else { return Ok(None) };
        self.held.wait_for(at.bytes.into(), ROOM_TIME_MAX).await?;
        let piece = self.app.mailboxes.piece(at).await?.ok_or(Fault::NoSuchMail)?;
        Ok(Some(piece.into()))
    }
}
