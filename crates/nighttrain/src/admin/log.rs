//! `/log`: the location of the transaction log, for `nighttrain log` on this machine.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::state::{Admin, error};

/// Answers 200 with the process ID and the descriptors of the shared memory. The kernel decides which
/// processes may open them.
pub(super) async fn log(State(admin): State<Arc<Admin>>) -> Response {
    let Some(journal) = &admin.journal else {
        return error(StatusCode::NOT_FOUND, "no transaction log on this server; its own log has the reason");
    };
    let opened = journal.opened();
    Json(json!({
        "pid": opened.pid,
        "rings_fd": opened.rings_fd,
        "lease_fd": opened.lease_fd,
        // Some JSON readers cannot hold integers this large, so the token is a string.
        "token": format!("{:x}", opened.token),
    }))
    .into_response()
}
