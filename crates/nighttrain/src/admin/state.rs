//! State of the admin server, and the queries of its pages to the accelerator.

use std::{sync::Arc, time::Instant};

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use engine::journal::Journal;
use tokio::sync::Semaphore;

use super::views::{OperatorView, Purger};

/// Maximum number of purges and queries under way at once; more are answered 503. Each runs on a thread of
/// its own, where it may wait for a core.
pub(super) const PURGES_MAX: usize = 8;

/// State that all pages share.
pub(super) struct Admin {
    pub(super) operated: Arc<dyn OperatorView>,
    pub(super) accelerator: Option<Arc<dyn Purger>>,
    pub(super) journal: Option<Arc<Journal>>,
    pub(super) started: Instant,
    pub(super) purges: Arc<Semaphore>,
}

/// Answers with an error, as JSON.
pub(super) fn error(status: StatusCode, message: &str) -> Response {
    (status, Json(serde_json::json!({ "error": message }))).into_response()
}

impl Admin {
    /// Runs a query on the accelerator on a thread that may block. At most [`PURGES_MAX`] run at once.
    ///
    /// # Errors
    /// Returns the error response for the client: 503 if too many run, 404 if there is no accelerator.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn Purger) -> T + Send + 'static,
    ) -> Result<T, Response> {
        let Ok(permit) = Arc::clone(&self.purges).try_acquire_owned() else {
            let message = "too many purges and requests at once; try again";
            return Err(error(StatusCode::SERVICE_UNAVAILABLE, message));
        };
        let Some(accelerator) = self.accelerator.clone() else {
            return Err(error(StatusCode::NOT_FOUND, "no accelerator runs in this process"));
        };
        let asked = tokio::task::spawn_blocking(move || {
            let answer = ask(&*accelerator);
            drop(permit);
            answer
        });
        asked.await.map_err(|_| error(StatusCode::INTERNAL_SERVER_ERROR, "internal error; see the log"))
    }
}
