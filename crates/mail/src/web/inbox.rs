//! Pages of one or more inboxes: the list, and its search.

use std::sync::Arc;

use askama::Template;
use axum::{
    extract::{Query, State},
    response::{IntoResponse, Redirect, Response},
};
use engine::cores::clock;
use serde::Deserialize;

use crate::web::{
    board::{Board, ListPage, ROW_BYTES, Row, name_of, path_of},
    serve::{
        answer::{self, public_list},
        app::{App, Site},
        client::Client,
        fault::Fault,
        scope::RequestScope,
    },
};
use crate::{
    mailbox::mailboxes::{Mailboxes, Scope},
    search::{self, Cursor},
};

/// Maximum number of mails on one page of a search.
const FOUND_MAX: usize = 50;

#[derive(Template)]
#[template(path = "inbox.html")]
struct InboxPage<'a> {
    site: &'a Site,
    address: &'a str,
    name: &'a str,
    base: &'a str,
    board: Board<'a>,
    /// Sentence that states who can read this list.
    readers: String,
    /// Number of mails deleted a moment ago, and the batch ID for restoring them.
    deleted: Option<(usize, u64)>,
    /// The search query.
    query: &'a str,
}

#[derive(Deserialize)]
pub(super) struct PageParams {
    #[serde(default)]
    skip: usize,
    deleted: Option<u64>,
}

pub(super) async fn page<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    Query(PageParams { skip, deleted }): Query<PageParams>,
    uri: axum::http::Uri,
) -> Result<Response, Fault> {
    let address = scope.name();
    // Each inbox has one canonical path, which caches and purges use.
    if uri.path() != path_of(&address) && scope_differs(uri.path(), &address) {
        return Ok(Redirect::to(&path_of(&address)).into_response());
    }
    app.note_handed_out(&scope);
    let listed = ListPage::load(&app, client, &scope, skip).await?;
    let board = listed.board(&app, None);
    let rows_bytes = board.rows.len() * ROW_BYTES;
    let template = InboxPage {
        site: &app.site,
        address: &listed.address,
        name: &listed.name,
        base: &listed.base,
        board,
        readers: app.readers(&scope),
        deleted: deleted.and_then(|name| app.leaving.batch(name, &scope).map(|count| (count, name))),
        query: "",
    };
    let response = answer::long_page(&template, rows_bytes)?;
    Ok(match &scope {
        Scope::Inbox(inbox) => public_list(response, inbox),
        _ => response,
    })
}

/// Returns whether the path differs from the address in more than its percent-encoding.
fn scope_differs(path: &str, address: &str) -> bool {
    let asked = path.strip_prefix("/inbox/").unwrap_or_default();
    percent_encoding::percent_decode_str(asked).decode_utf8_lossy() != address
}

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage<'a> {
    site: &'a Site,
    name: &'a str,
    base: &'a str,
    query: &'a str,
    fault: Option<String>,
    summary: String,
    rows: Vec<Row<'a>>,
    older: Option<String>,
    readers: String,
    /// Path to which forms of this page return.
    here: String,
}

#[derive(Deserialize)]
pub(super) struct SearchParams {
    #[serde(default)]
    q: String,
    cursor: Option<String>,
}

pub(super) async fn search_page<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
    client: Client,
    Query(searched): Query<SearchParams>,
) -> Result<Response, Fault> {
    let address = scope.name();
    let base = path_of(&address);
    let words = crate::web::serve::scope::segment(&searched.q);
    let mut found;
    let mut template = SearchPage {
        site: &app.site,
        query: &searched.q,
        fault: None,
        summary: String::new(),
        rows: Vec::new(),
        older: None,
        name: &name_of(&scope),
        base: &base,
        readers: app.readers(&scope),
        here: format!("{base}/search?q={words}"),
    };
    let cursor = searched.cursor.as_deref().map(str::parse::<Cursor>).transpose();
    match search::Query::parse(template.query).and_then(|query| Ok((query, cursor?))) {
        Err(fault) => template.fault = Some(format!("Invalid search: {fault}.")),
        Ok((query, cursor)) => {
            found = app.search(client, &scope, &query, cursor, FOUND_MAX).await?;
            found.mails.retain(|mail| !app.leaving.has(&scope, mail.id));
            let now_ms = clock::unix_ms();
            let shown = found.mails.iter();
            template.rows =
                shown.map(|mail| Row::new(mail, app.beside(mail), &base, scope.is_wide(), now_ms)).collect();
            template.summary = in_words(&found);
            template.older = found.next.map(|next| format!("{}&cursor={next}", template.here));
        }
    }
    answer::page(&template)
}

fn in_words(found: &search::SearchOutcome) -> String {
    let count = match found.mails.len() {
        0 => "No mail".to_owned(),
        1 => "1 mail".to_owned(),
        n => format!("{n} mails"),
    };
    let looked = format!("{count} found among {}", found.looked_at);
    match (found.bounded, found.next.is_some()) {
        (true, _) => format!("{looked}; there are more to search."),
        (false, true) => format!("{looked}, newest first; there may be more."),
        (false, false) => format!("{looked}."),
    }
}

/// Deletes all mails of a scope immediately and permanently, for programs.
pub(super) async fn delete_all<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    RequestScope(scope): RequestScope,
) -> Result<Response, Fault> {
    app.mailboxes.delete_all(&scope).await?;
    Ok(Redirect::to(&path_of(&scope.name())).into_response())
}
