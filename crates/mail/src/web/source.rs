//! A mail as it came, sent a piece at a time: of a large one an answer holds no more than of a small one.
//!
//! A piece that is damaged, or gone with its mail, ends the answer before its length: a client that compares the two, as
//! every one does, is not left with half a mail.

use std::{io, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;

use crate::mailbox::mailboxes::{MailId, Mailboxes, PieceLocation, Scope};
use crate::web::serve::{answer::Fault, app::App, budget::BudgetGuard, client::Client, counters::Counter};

/// How long an answer that has begun waits for room for its next piece.
const ROOM_TIME_MAX: Duration = Duration::from_secs(10);

/// The pieces that are still to come.
struct PieceStream<M> {
    app: Arc<App<M>>,
    pieces: std::vec::IntoIter<PieceLocation>,
    held: BudgetGuard,
}

/// The bytes of a mail, as they came.
pub(crate) async fn source<M: Mailboxes>(
    app: &Arc<App<M>>,
    client: Client,
    scope: &Scope,
    id: MailId,
) -> Result<Response, Fault> {
    let read = app.mailboxes.source_into(scope, id, app.budget.of(client)).await?;
    let (source, mut held) = read.ok_or(Fault::NoSuchMail)?;
    if source.pieces.is_empty() {
        // As part of the answer they are counted.
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
                tracing::warn!("the source of a mail broke off: {fault}");
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
        // The client has taken what came before.
        self.held.release();
        let Some(at) = self.pieces.next() else { return Ok(None) };
        self.held.wait_for(at.bytes.into(), ROOM_TIME_MAX).await?;
        let piece = self.app.mailboxes.piece(at).await?.ok_or(Fault::NoSuchMail)?;
        Ok(Some(piece.into()))
    }
}
