//! What programs ask: Mailinator's API v2, Mailpit's API v1, and waiting for a mail.

use std::sync::Arc;

use axum::Router;

use crate::{mailboxes::Mailboxes, web::app::App};

/// All paths of the APIs.
pub(crate) fn router<M: Mailboxes>() -> Router<Arc<App<M>>> {
    Router::new()
}
