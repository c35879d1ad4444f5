//! `/origins`: the state of the origins' servers, and the operator's overrides.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use cache::{ByHand, HealthState, MemberSaid};
use serde_json::{Value, json};

use super::state::{Admin, error};

/// Answers 200 with the servers, in the order of the configuration.
pub(super) async fn origins(State(admin): State<Arc<Admin>>) -> Response {
    match admin.ask(|accelerator| accelerator.origins()).await {
        Ok(found) => {
            let rows: Vec<Value> = found.iter().map(row).collect();
            Json(json!({ "origins": rows })).into_response()
        }
        Err(answer) => answer,
    }
}

fn row(member: &MemberSaid) -> Value {
    let (state, steps) = match member.standing {
        HealthState::Up => ("up", None),
        HealthState::Warming(steps) => ("warming", Some(steps)),
        HealthState::Ejected => ("ejected", None),
        HealthState::Sick => ("sick", None),
        HealthState::Drained => ("drained", None),
        HealthState::Down => ("down", None),
    };
    json!({
        "server": member.server,
        "state": state,
        "sixteenths": steps,
        "busy": member.busy,
        "requests": member.requests,
        "failures": member.failures,
        "probes_good": member.probes.map(|(good, _)| good),
        "probes": member.probes.map(|(_, window)| window),
    })
}

/// Parses the server and its new state; `None` if the query has unknown or invalid parameters.
fn asked(query: Vec<(String, String)>) -> Option<(String, ByHand)> {
    let (mut server, mut by_hand) = (None, None);
    for (name, value) in query {
        match &*name {
            "server" if server.is_none() => server = Some(value),
            "set" if by_hand.is_none() => {
                by_hand = Some(ByHand::ALL.iter().find(|(name, _)| *name == value)?.1);
            }
            _ => return None,
        }
    }
    server.zip(by_hand)
}

/// Answers 200 once the state is set, or 404 if no origin has such a server.
pub(super) async fn set(
    State(admin): State<Arc<Admin>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let Some((server, by_hand)) = asked(query) else {
        let message = "missing server: POST /origins?server=http://10.0.0.1:3000&set=drain, or down, or auto";
        return error(StatusCode::BAD_REQUEST, message);
    };
    let message = format!("unknown server {server}; GET /origins lists the servers");
    match admin.ask(move |accelerator| accelerator.set_origin(&server, by_hand)).await {
        Ok(true) => Json(json!({ "set": true })).into_response(),
        Ok(false) => error(StatusCode::NOT_FOUND, &message),
        Err(answer) => answer,
    }
}
