//! `/explain`: how the accelerator would handle a request, as JSON.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use cache::{ExplainError, Explanation, Figure, RequestOf};
use serde_json::{Value, json};

use super::state::{Admin, error};

/// Parses the request that a query describes; `None` if the query names no URL or has unknown parameters.
fn asked(query: Vec<(String, String)>) -> Option<RequestOf> {
    let (mut url, mut method, mut headers) = (None, None, Vec::new());
    for (name, value) in query {
        match &*name {
            "url" if url.is_none() => url = Some(value),
            "method" if method.is_none() => method = Some(value),
            "header" => headers.push(value),
            _ => return None,
        }
    }
    Some(RequestOf { method: method.unwrap_or_else(|| "GET".to_owned()), url: url?, headers })
}

/// Answers 200 with the steps; the last step is the outcome.
pub(super) async fn explain(
    State(admin): State<Arc<Admin>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let Some(request) = asked(query) else {
        return error(
            StatusCode::BAD_REQUEST,
            "missing URL: /explain?url=http://www.example.org/path, optionally with &method=POST and \
             &header=Name:%20value",
        );
    };
    let asked = admin.ask(move |accelerator| {
        accelerator.explain(&request).map(|explanation| document(&request, explanation))
    });
    match asked.await {
        Ok(Ok(said)) => Json(said).into_response(),
        Ok(Err(late @ ExplainError::NoAnswer)) => error(StatusCode::SERVICE_UNAVAILABLE, &late.to_string()),
        Ok(Err(wrong)) => error(StatusCode::BAD_REQUEST, &wrong.to_string()),
        Err(answer) => answer,
    }
}

fn document(request: &RequestOf, explanation: Explanation) -> Value {
    let steps: Vec<Value> = explanation
        .steps
        .into_iter()
        .map(|step| {
            let mut said = json!({ "state": step.state, "decision": step.decision, "words": step.words });
            if !step.section.is_empty() {
                said["section"] = step.section.into();
            }
            for (name, figure) in step.figures {
                said[name] = match figure {
                    Figure::Number(number) => number.into(),
                    Figure::Text(text) => text.into(),
                };
            }
            said
        })
        .collect();
    let outcome = steps.last().map_or(Value::Null, |last| last["decision"].clone());
    json!({ "method": request.method, "url": request.url, "outcome": outcome, "steps": steps })
}
