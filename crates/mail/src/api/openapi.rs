//! The list of all operations: as an OpenAPI document, and as a page made of the same list.

use std::{collections::BTreeMap, sync::Arc};

use askama::Template;
use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, header},
    response::Response,
    routing::get,
};
use serde_json::{Value, json};

use crate::{
    mailboxes::Mailboxes,
    web::{
        answer::{self, Fault},
        app::{App, Site},
    },
};

pub(super) fn router<M: Mailboxes>() -> Router<Arc<App<M>>> {
    Router::new().route("/api", get(page::<M>)).route("/api/openapi.json", get(document::<M>))
}

pub(super) struct Group {
    pub(super) name: &'static str,
    words: &'static str,
    pub(super) operations: &'static [Operation],
}

pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    summary: &'static str,
    /// Of the query, separated by blanks.
    parameters: &'static str,
}

const fn operation(
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    parameters: &'static str,
) -> Operation {
    Operation { method, path, summary, parameters }
}

pub(super) const GROUPS: &[Group] = &[
    Group {
        name: "Waiting, links and codes",
        words: "For test suites: one request between asking for a code and typing it in.",
        operations: &[
            operation(
                "GET",
                "/api/v2/domains/{domain}/inboxes/{inbox}/wait",
                "The newest mail that fits, stored already or arriving in time, with its codes and links; 404 if none came.",
                "from subject text query since timeout delete",
            ),
            operation(
                "GET",
                "/api/v2/domains/{domain}/inboxes/{inbox}/messages/{id}/codes",
                "One-time codes of a mail, the likeliest first.",
                "",
            ),
            operation(
                "GET",
                "/api/v2/domains/{domain}/inboxes/{inbox}/messages/{id}/links",
                "Links of a mail with their true targets.",
                "",
            ),
        ],
    },
    Group {
        name: "Mailinator's API v2",
        words: "The paths and fields that Mailinator's own clients use. An inbox may be a whole address, and may end in *.",
        operations: &[
            operation(
                "GET",
                "/api/v2/domains/{domain}/inboxes/{inbox}",
                "Mails of an inbox, newest first; wait=2m waits for one if there is none.",
                "skip limit sort decode_subject cursor full wait delete",
            ),
            operation(
                "DELETE",
                "/api/v2/domains/{domain}/inboxes/{inbox}",
                "Deletes all mails of an inbox.",
                "",
            ),
            operation(
                "POST",
                "/api/v2/domains/{domain}/inboxes/{inbox}/messages",
                "Puts a mail into an inbox: {from, subject, text}.",
                "",
            ),
            operation(
                "GET",
                "/api/v2/domains/{domain}/inboxes/{inbox}/messages/{id}",
                "A mail with its content; * is the latest five.",
                "delete",
            ),
            operation(
                "DELETE",
                "/api/v2/domains/{domain}/inboxes/{inbox}/messages/{id}",
                "Deletes a mail.",
                "",
            ),
            operation(
                "GET",
                "/api/v2/domains/{domain}/inboxes/{inbox}/messages/{id}/{what}",
                "summary, headers, text, textplain, texthtml, linksfull, attachments, raw or smtplog of a mail.",
                "",
            ),
            operation(
                "GET",
                "/api/v2/domains/{domain}/inboxes/{inbox}/messages/{id}/attachments/{part}",
                "An attachment.",
                "",
            ),
            operation(
                "GET",
                "/api/v2/domains/{domain}/inboxes",
                "Mails of all inboxes of a domain. Needs the token, as do the following.",
                "inbox skip limit sort decode_subject cursor full wait delete",
            ),
            operation("DELETE", "/api/v2/domains/{domain}/inboxes", "Deletes all mails of a domain.", ""),
            operation(
                "GET",
                "/api/v2/domains/{domain}/messages/{id}",
                "A mail of any inbox of the domain.",
                "delete",
            ),
            operation(
                "GET",
                "/api/v2/domains/{domain}/messages/{id}/{what}",
                "As above, of any inbox of the domain.",
                "",
            ),
            operation("GET", "/api/v2/domains/{domain}/stream", "Arrivals as server-sent events.", "full"),
            operation(
                "GET",
                "/api/v2/domains/{domain}/stream/{inbox}",
                "Arrivals in one inbox as server-sent events.",
                "full",
            ),
            operation(
                "POST",
                "/api/v2/domains/{domain}/webhook",
                "Puts a mail into an inbox: {from, subject, text, to}.",
                "",
            ),
            operation("GET", "/api/v2/domains", "The service's own domain.", ""),
            operation("GET", "/api/v2/team/stats", "Mails accepted.", ""),
        ],
    },
    Group {
        name: "Mailpit's API v1",
        words: "Over everything with the token; over one inbox with that inbox's page as the base URL, as in /inbox/ann@example.org/api/v1/messages.",
        operations: &[
            operation("GET", "/api/v1/messages", "Mails, newest first.", "start limit"),
            operation("PUT", "/api/v1/messages", "Marks mails read or unread: {IDs, Read, Search}.", ""),
            operation("DELETE", "/api/v1/messages", "Deletes the mails named in {IDs}, or all.", ""),
            operation("GET", "/api/v1/search", "Mails that fit a search.", "query start limit"),
            operation("DELETE", "/api/v1/search", "Deletes the mails that fit a search.", "query"),
            operation("GET", "/api/v1/message/{id}", "A mail with its content; latest is the newest.", ""),
            operation("GET", "/api/v1/message/{id}/headers", "Its header fields.", ""),
            operation("GET", "/api/v1/message/{id}/raw", "Its source.", ""),
            operation("GET", "/api/v1/message/{id}/part/{part}", "An attachment.", ""),
            operation(
                "POST",
                "/api/v1/send",
                "Takes a mail: {From, To, Cc, Bcc, ReplyTo, Subject, Text, HTML, Attachments, Headers, Tags}.",
                "",
            ),
            operation("GET", "/api/v1/tags", "All tags.", ""),
            operation("PUT", "/api/v1/tags", "Tags mails: {IDs, Tags}.", ""),
            operation("PUT", "/api/v1/tags/{tag}", "Renames a tag: {Name}.", ""),
            operation("DELETE", "/api/v1/tags/{tag}", "Takes a tag off all mails.", ""),
            operation("GET", "/api/v1/info", "Counts and versions.", ""),
            operation("GET", "/view/{file}", "ID.html or ID.txt: a mail's body, cleaned.", ""),
            operation("GET", "/api/events", "Arrivals and deletions by WebSocket.", ""),
        ],
    },
];

#[derive(Template)]
#[template(path = "api.html")]
struct ApiPage<'a> {
    site: &'a Site,
    origin: String,
    groups: &'static [Group],
}

async fn page<M: Mailboxes>(State(app): State<Arc<App<M>>>, headers: HeaderMap) -> Result<Response, Fault> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost:8025");
    let page = ApiPage { site: &app.site, origin: format!("http://{host}"), groups: GROUPS };
    // Not for caches: it shows the name under which it was asked for.
    answer::page(&page)
}

async fn document<M: Mailboxes>(State(app): State<Arc<App<M>>>) -> Json<Value> {
    let mut paths: BTreeMap<&str, Value> = BTreeMap::new();
    for group in GROUPS {
        for operation in group.operations {
            let of_path = operation.path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
            let of_path = of_path.map(|name| {
                json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
            });
            let of_query = operation.parameters.split_whitespace().map(|name| {
                json!({ "name": name, "in": "query", "required": false, "schema": { "type": "string" } })
            });
            let method = operation.method.to_ascii_lowercase();
            let mut described = json!({
                "summary": operation.summary,
                "operationId": format!("{method}{}", operation.path.replace(|c: char| !c.is_ascii_alphanumeric(), "_")),
                "tags": [group.name],
                "parameters": of_path.chain(of_query).collect::<Vec<_>>(),
                "responses": {
                    "200": { "description": "done" },
                    "default": { "description": "{\"error\": what is wrong, on whose side, what would be right}" },
                },
            });
            if matches!(operation.method, "POST" | "PUT") {
                described["requestBody"] =
                    json!({ "content": { "application/json": { "schema": { "type": "object" } } } });
            }
            paths.entry(operation.path).or_insert_with(|| json!({}))[&method] = described;
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
