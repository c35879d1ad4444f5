//! A request's body, taken in within the budget.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::header,
};
use futures_util::StreamExt;

use crate::mailbox::mailboxes::Mailboxes;
use crate::web::{
    BODY_BYTES_MAX,
    serve::{answer::Fault, app::App, budget::BudgetGuard, client::Client},
};

/// A body of at most so many bytes; a longer one is refused, and one that finds no room in the budget too.
pub(crate) struct ChargedBody<const BYTES_MAX: usize = BODY_BYTES_MAX> {
    pub(crate) bytes: Bytes,
    pub(crate) held: BudgetGuard,
}

impl<M: Mailboxes, const BYTES_MAX: usize> FromRequest<Arc<App<M>>> for ChargedBody<BYTES_MAX> {
    type Rejection = Fault;

    async fn from_request(request: Request, app: &Arc<App<M>>) -> Result<Self, Fault> {
        let (parts, body) = request.into_parts();
        let mut held = app.budget.of(Client::asking(&parts.extensions));
        let said =
            parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if said.is_some_and(|said: u64| said > BYTES_MAX as u64) {
            return Err(Fault::TooLarge(BYTES_MAX));
        }
        let mut pieces = body.into_data_stream();
        let mut bytes = Vec::new();
        // What has come is counted, not what was announced: an announcement costs nothing.
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| Fault::Bad("the body broke off".to_owned()))?;
            if bytes.len() + piece.len() > BYTES_MAX {
                return Err(Fault::TooLarge(BYTES_MAX));
            }
            if bytes.len() + piece.len() > bytes.capacity() {
                let capacity = (bytes.len() + piece.len()).max(bytes.capacity() * 2).min(BYTES_MAX);
                held.grow((capacity - bytes.capacity()) as u64)?;
                bytes.reserve_exact(capacity - bytes.len());
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(Self { bytes: bytes.into(), held })
    }
}
