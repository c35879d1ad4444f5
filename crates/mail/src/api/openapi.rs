//! The list of all routed operations, as an OpenAPI document and as a page.

use std::{collections::BTreeMap, sync::Arc};

use askama::Template;
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, Method, header},
    response::Response,
};
use serde_json::{Value, json};

use super::routes::{GET, Group, Operation, Routes};
use crate::{
    mailbox::mailboxes::Mailboxes,
    web::serve::{
        answer,
        app::{App, Site},
        fault::Fault,
    },
};

pub(super) fn routes<M: Mailboxes>(routes: Routes<M>) -> Routes<M> {
    let groups: Arc<[Group]> = routes.groups().into();
    let told = Arc::clone(&groups);
    let page = move |State(app): State<Arc<App<M>>>, headers: HeaderMap| async move {
        page(&app, &headers, &groups)
    };
    let document = move |State(app): State<Arc<App<M>>>| async move { document(&app, &told) };
    routes.unlisted(GET, "/api", page).unlisted(GET, "/api/openapi.json", document)
}

#[derive(Template)]
#[template(path = "api.html")]
struct ApiPage<'a> {
    site: &'a Site,
    origin: String,
    groups: &'a [Group],
}

fn page<M: Mailboxes>(app: &App<M>, headers: &HeaderMap, groups: &[Group]) -> Result<Response, Fault> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost:8025");
    let page = ApiPage { site: &app.site, origin: format!("http://{host}"), groups };
    // Not cacheable: the page contains the host name of the request.
    answer::page(&page)
}

fn document<M: Mailboxes>(app: &App<M>, groups: &[Group]) -> Json<Value> {
    let mut paths: BTreeMap<&str, Value> = BTreeMap::new();
    for group in groups {
        for operation in &group.operations {
            let method = operation.method.as_str().to_ascii_lowercase();
            paths.entry(&operation.path).or_insert_with(|| json!({}))[&method] =
                operation_object(group.name, operation, &method);
        }
    }
    Json(json!({
        "openapi": "3.1.0",
        "info": { "title": app.config.name, "version": env!("CARGO_PKG_VERSION"), "description": "Disposable mail: read, wait, search, delete." },
        "paths": paths,
        "components": { "securitySchemes": { "token": { "type": "apiKey", "in": "header", "name": "Authorization" } } },
        "security": [{}, { "token": [] }],
    }))
}

/// Returns the OpenAPI operation object of an operation; `tag` is the name of its group.
fn operation_object(tag: &str, operation: &Operation, method: &str) -> Value {
    let of_path = operation.path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let of_path = of_path
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    let of_query = operation.parameters.split_whitespace().map(
        |name| json!({ "name": name, "in": "query", "required": false, "schema": { "type": "string" } }),
    );
    let mut described = json!({
        "summary": operation.summary,
        "operationId": format!("{method}{}", operation.path.replace(|c: char| !c.is_ascii_alphanumeric(), "_")),
        "tags": [tag],
        "parameters": of_path.chain(of_query).collect::<Vec<_>>(),
        "responses": {
            "200": { "description": "done" },
            "default": { "description": "{\"error\": what is wrong, on whose side, what would be right}" },
        },
    });
    if matches!(operation.method, Method::POST | Method::PUT) {
        described["requestBody"] =
            json!({ "content": { "application/json": { "schema": { "type": "object" } } } });
    }
    described
}
