//! Request for a monitoring page, its errors, and the pages that need no loop.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::monitor::{inspector::Looker, look::NoAnswer, snapshot::Totals, times::moment};

/// Request for a monitoring page.
pub(crate) struct PageRequest {
    pub(crate) looker: Looker,
}

/// Reason why a monitoring page cannot be built.
#[derive(Debug)]
pub(crate) enum PageError {
    /// A parameter of the query is invalid.
    Wrong(String),
    /// A loop did not answer.
    NoAnswer,
}

impl From<String> for PageError {
    fn from(message: String) -> Self {
        Self::Wrong(message)
    }
}

impl From<NoAnswer> for PageError {
    fn from(_: NoAnswer) -> Self {
        Self::NoAnswer
    }
}

/// Errors in queries are answered in plain text with status 400, as in nats-server.
impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        match self {
            Self::Wrong(message) => (StatusCode::BAD_REQUEST, message).into_response(),
            Self::NoAnswer => (StatusCode::SERVICE_UNAVAILABLE, "no answer from the feed\n").into_response(),
        }
    }
}

/// Builds the page `/routez`.
pub(crate) fn routes(asked: &PageRequest) -> Value {
    let totals = asked.looker.totals();
    let mut page = head(&totals);
    page["server_name"] = totals.server_name.into();
    page["num_routes"] = 0.into();
    page["routes"] = json!([]);
    page
}

/// Builds the page `/gatewayz`.
pub(crate) fn gateways(asked: &PageRequest) -> Value {
    let mut page = head(&asked.looker.totals());
    page["outbound_gateways"] = json!({});
    page["inbound_gateways"] = json!({});
    page
}

/// Builds the page `/accountz`.
pub(crate) fn accounts(asked: &PageRequest) -> Value {
    let authorization = &asked.looker.settings.config.authorization;
    let system = authorization.system_account.as_deref().unwrap_or(crate::accounts::identity::SYSTEM_ACCOUNT);
    let mut names = vec![crate::accounts::identity::GLOBAL_ACCOUNT, system];
    names.extend(authorization.accounts.iter().map(|account| &*account.name).filter(|name| *name != system));
    let mut page = head(&asked.looker.totals());
    page["system_account"] = system.into();
    page["accounts"] = names.into();
    page
}

/// Builds the fields that every page begins with.
pub(crate) fn head(totals: &Totals) -> Value {
    json!({"server_id": totals.server_id, "now": moment(totals.now)})
}
