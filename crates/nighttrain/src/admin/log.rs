//! `/log`: where the log of transactions is, for `nighttrain log` on this machine.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::{Admin, error};

/// 200 and the process with its descriptors: who may open them is the kernel's to say.
pub(super) async fn log(State(admin): State<Arc<Admin>>) -> Response {
    let Some(journal) = &admin.journal else {
        return error(StatusCode::NOT_FOUND, "this server has no log of transactions; its own log says why");
    };
    let opened = journal.opened();
    Json(json!({
        "pid": opened.pid,
        "rings_fd": opened.rings_fd,
        "lease_fd": opened.lease_fd,
        // Not every reader of JSON has whole numbers so large.
        "token": format!("{:x}", opened.token),
    }))
    .into_response()
}
