//! Request bodies, received within the memory budget.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::header,
};
use futures_util::StreamExt;

use crate::mailbox::mailboxes::Mailboxes;
use crate::web::serve::{
    app::App, budget::BudgetGuard, client::Client, config::BODY_BYTES_MAX, fault::Fault,
};

/// A body of at most `BYTES_MAX` bytes. Longer bodies, and bodies that do not fit the budget, are refused.
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
        // Only received bytes are charged: an announced length takes no memory.
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| Fault::Bad("the request body was interrupted".to_owned()))?;
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
