//! `/objects`: the stored objects, as JSON.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use cache::{OBJECTS_MAX, ObjectSeen, Objects, ObjectsError};
use serde_json::{Value, json};

use super::state::{Admin, error};

/// Number of rows in an answer if the query has no `limit`.
const ROWS: usize = 50;

/// Parses the expression and the number of rows; `None` if the query has unknown or invalid parameters.
fn asked(query: Vec<(String, String)>) -> Option<(Option<String>, usize)> {
    let (mut expression, mut rows) = (None, None);
    for (name, value) in query {
        match &*name {
            "match" if expression.is_none() => expression = Some(value),
            "limit" if rows.is_none() => {
                rows = Some(value.parse().ok().filter(|rows| (1..=OBJECTS_MAX).contains(rows))?);
            }
            _ => return None,
        }
    }
    Some((expression, rows.unwrap_or(ROWS)))
}

/// Answers 200 with the rows, the number of stored answers that were examined, and whether the search covered
/// the whole memory.
pub(super) async fn objects(
    State(admin): State<Arc<Admin>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let Some((expression, rows)) = asked(query) else {
        let message = format!(
            "invalid query: /objects, optionally with ?match=req.url+~+%5E/news and &limit=50 (1 to {OBJECTS_MAX})"
        );
        return error(StatusCode::BAD_REQUEST, &message);
    };
    match admin.ask(move |accelerator| accelerator.objects(expression.as_deref(), rows)).await {
        Ok(Ok(found)) => Json(document(&found)).into_response(),
        Ok(Err(late @ ObjectsError::NoAnswer)) => error(StatusCode::SERVICE_UNAVAILABLE, &late.to_string()),
        Ok(Err(wrong @ ObjectsError::NotAnExpression(_))) => {
            error(StatusCode::BAD_REQUEST, &wrong.to_string())
        }
        Err(answer) => answer,
    }
}

fn document(found: &Objects) -> Value {
    let row = |object: &ObjectSeen| {
        json!({
            "url": object.url,
            "variant": object.is_variant,
            "status": object.status,
            "content_type": object.content_type,
            "body_bytes": object.body_bytes,
            "age_s": object.age_s,
            "ttl_s": object.ttl_s,
            "tags": object.tags,
        })
    };
    let rows: Vec<Value> = found.seen.iter().map(row).collect();
    json!({ "objects": rows, "looked_at": found.looked_at, "all": found.is_all })
}
