//! An inbox, the departure board; and the search in it.

use std::sync::Arc;

use askama::Template;
use axum::{
    extract::{Query, State},
    response::{IntoResponse, Redirect, Response},
};
use engine::cores::clock;
use serde::Deserialize;

use super::{
    answer::{self, Fault, inbox_tag, public},
    app::{App, Site},
    counters::Counter,
    scope::{Asked, segment},
    when,
};
use crate::{
    mailboxes::{Mailboxes, Scope, Summary},
    render::fields,
    search::{self, Cursor},
};

/// Mails on one page.
const ROWS_MAX: usize = 100;
/// Mails on one page of a search.
const FOUND_MAX: usize = 50;
/// Pages back that are walked; older mails are found by searching.
const SKIP_MAX: usize = 100_000;

/// A line of the board.
#[derive(Template)]
#[template(path = "row.html")]
pub(super) struct RowPage {
    pub(super) row: Row,
}

pub(super) struct Row {
    id: String,
    href: String,
    iso: String,
    exact: String,
    relative: String,
    from: String,
    from_full: String,
    subject: String,
    size: String,
    /// Where it lies, where a list is of more than one inbox.
    inbox: Option<String>,
}

impl Row {
    pub(super) fn new(summary: &Summary, wide: bool, now_ms: u64) -> Self {
        let from = fields::decode_address(&summary.from);
        let subject = fields::decode(&summary.subject);
        let address = summary.inbox.to_string();
        let from_full = from.to_string();
        let label = match from.label() {
            "" if summary.envelope_from.is_empty() => "(no sender)".to_owned(),
            "" => fields::printable(&summary.envelope_from),
            label => label.to_owned(),
        };
        Self {
            href: format!("/inbox/{}/{}", segment(&address), summary.id),
            id: summary.id.to_string(),
            iso: when::iso(summary.arrived_ms),
            exact: when::exact(summary.arrived_ms),
            relative: when::relative(summary.arrived_ms, now_ms),
            from: label,
            from_full,
            subject: if subject.is_empty() { "(no subject)".to_owned() } else { subject },
            size: when::size(summary.size_bytes),
            inbox: wide.then_some(address),
        }
    }
}

#[derive(Template)]
#[template(path = "inbox.html")]
struct InboxPage<'a> {
    site: &'a Site,
    address: String,
    base: String,
    wide: bool,
    rows: Vec<Row>,
    /// What the page knows as the newest; nothing on pages of older mails, which are not live.
    newest: Option<String>,
    count: u64,
    older: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Page {
    #[serde(default)]
    skip: usize,
}

pub(super) async fn page<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    Asked(scope): Asked,
    Query(Page { skip }): Query<Page>,
    uri: axum::http::Uri,
) -> Result<Response, Fault> {
    let address = scope.name();
    let base = format!("/inbox/{}", segment(&address));
    // One inbox has one path: caches and purges know it by that.
    if uri.path() != base && scope_differs(uri.path(), &address) {
        return Ok(Redirect::to(&base).into_response());
    }
    let skip = skip.min(SKIP_MAX);
    let listed = app.mailboxes.list(&scope, skip, ROWS_MAX + 1).await?;
    let now_ms = clock::unix_ms();
    let wide = scope.is_wide();
    let rows: Vec<Row> =
        listed.iter().take(ROWS_MAX).map(|summary| Row::new(summary, wide, now_ms)).collect();
    let more = listed.len() > ROWS_MAX;
    let count = if more || skip > 0 { app.mailboxes.count(&scope).await? } else { rows.len() as u64 };
    let template = InboxPage {
        site: &app.site,
        wide,
        newest: (skip == 0).then(|| rows.first().map(|row| row.id.clone()).unwrap_or_default()),
        count,
        older: more.then(|| format!("{base}?skip={}", skip + ROWS_MAX)),
        rows,
        address,
        base,
    };
    let response = answer::page(&template)?;
    Ok(match &scope {
        Scope::Inbox(inbox) => public(response, &[inbox_tag(inbox)]),
        _ => response,
    })
}

/// Whether the path says something else than the address, and not only in another encoding.
fn scope_differs(path: &str, address: &str) -> bool {
    let asked = path.strip_prefix("/inbox/").unwrap_or_default();
    percent_encoding::percent_decode_str(asked).decode_utf8_lossy() != address
}

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage<'a> {
    site: &'a Site,
    address: String,
    base: String,
    query: String,
    fault: Option<String>,
    summary: String,
    rows: Vec<Row>,
    older: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Searched {
    #[serde(default)]
    q: String,
    cursor: Option<String>,
}

pub(super) async fn search_page<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    Asked(scope): Asked,
    Query(searched): Query<Searched>,
) -> Result<Response, Fault> {
    let address = scope.name();
    let base = format!("/inbox/{}", segment(&address));
    let mut template = SearchPage {
        site: &app.site,
        query: searched.q,
        fault: None,
        summary: String::new(),
        rows: Vec::new(),
        older: None,
        address,
        base,
    };
    let cursor = searched.cursor.as_deref().map(str::parse::<Cursor>).transpose();
    match search::Query::parse(&template.query).and_then(|query| Ok((query, cursor?))) {
        Err(fault) => template.fault = Some(format!("This cannot be searched for: {fault}.")),
        Ok((query, cursor)) => {
            let found = search::search(&app.mailboxes, &scope, &query, &app.marks, cursor, FOUND_MAX).await?;
            if found.bounded {
                app.counters.add(Counter::SearchesBounded, 1);
            }
            let now_ms = clock::unix_ms();
            template.rows = found.mails.iter().map(|s| Row::new(s, scope.is_wide(), now_ms)).collect();
            template.summary = in_words(&found);
            template.older = found.next.map(|next| {
                let query = super::scope::segment(&template.query);
                format!("{}/search?q={query}&cursor={next}", template.base)
            });
        }
    }
    answer::page(&template)
}

fn in_words(found: &search::Found) -> String {
    let count = match found.mails.len() {
        0 => "No mail".to_owned(),
        1 => "1 mail".to_owned(),
        n => format!("{n} mails"),
    };
    let looked = format!("{count} found among {}", found.looked_at);
    match (found.bounded, found.next.is_some()) {
        (true, _) => format!("{looked}; there are more to look at."),
        (false, true) => format!("{looked}, newest first; there may be more."),
        (false, false) => format!("{looked}."),
    }
}

pub(super) async fn delete_all<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    Asked(scope): Asked,
) -> Result<Response, Fault> {
    app.mailboxes.delete_all(&scope).await?;
    Ok(Redirect::to(&format!("/inbox/{}", segment(&scope.name()))).into_response())
}
