//! An inbox, the departure board; and the search in it.

use std::{borrow::Cow, sync::Arc};

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
    client::Client,
    scope::{Asked, segment},
    when::{self, Short},
};
use crate::{
    mailboxes::{MailId, Mailboxes, Scope, Summary},
    render::fields::{self, Address},
    search::{self, Cursor},
};

/// Mails on one page.
const ROWS_MAX: usize = 100;
/// Mails on one page of a search.
const FOUND_MAX: usize = 50;
/// What a line of the board has in HTML, give or take: the page is written into memory that need not grow.
const ROW_BYTES: usize = 512;
/// Pages back that are walked; older mails are found by searching.
const SKIP_MAX: usize = 100_000;

/// A line of the board.
#[derive(Template)]
#[template(path = "row.html")]
pub(super) struct RowPage<'a> {
    pub(super) row: Row<'a>,
}

/// It borrows what the summary says: a page has a hundred of them.
pub(super) struct Row<'a> {
    id: MailId,
    /// Of its inbox.
    path: Cow<'a, str>,
    iso: Short,
    exact: Short,
    relative: Short,
    sender: Address<'a>,
    /// What is shown for a sender who says nothing of himself.
    nobody: Cow<'a, str>,
    subject: Cow<'a, str>,
    size: Short,
    /// Where it lies, where a list is of more than one inbox.
    inbox: Option<String>,
}

impl<'a> Row<'a> {
    /// A line of a list of this scope, whose path is `base`.
    pub(super) fn new(summary: &'a Summary, (scope, base): (&Scope, &'a str), now_ms: u64) -> Self {
        let sender = fields::decode_address(&summary.from);
        let nobody = match (sender.label(), &*summary.envelope_from) {
            ("", "") => "(no sender)".into(),
            ("", envelope_from) => fields::printable(envelope_from),
            _ => "".into(),
        };
        let subject = fields::decode(&summary.subject);
        let inbox = scope.is_wide().then(|| summary.inbox.to_string());
        let path = match (scope, &inbox) {
            // Over all a mail is there also when the first inbox that it came into has let it go.
            (Scope::Prefix { .. }, Some(address)) => path_of(address).into(),
            _ => base.into(),
        };
        Self {
            id: summary.id,
            path,
            iso: when::iso(summary.arrived_ms),
            exact: when::exact(summary.arrived_ms),
            relative: when::relative(summary.arrived_ms, now_ms),
            sender,
            nobody,
            subject: if subject.is_empty() { "(no subject)".into() } else { subject },
            size: when::size(summary.size_bytes),
            inbox,
        }
    }

    fn from(&self) -> &str {
        match self.sender.label() {
            "" => &self.nobody,
            label => label,
        }
    }
}

/// Where the page of an inbox, or of more than one, is.
pub(super) fn path_of(address: &str) -> String {
    format!("/inbox/{}", segment(address))
}

#[derive(Template)]
#[template(path = "inbox.html")]
struct InboxPage<'a> {
    site: &'a Site,
    address: &'a str,
    base: &'a str,
    wide: bool,
    rows: Vec<Row<'a>>,
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
    let base = path_of(&address);
    // One inbox has one path: caches and purges know it by that.
    if uri.path() != base && scope_differs(uri.path(), &address) {
        return Ok(Redirect::to(&base).into_response());
    }
    let skip = skip.min(SKIP_MAX);
    let listed = app.mailboxes.list(&scope, skip, ROWS_MAX + 1).await?;
    let now_ms = clock::unix_ms();
    let wide = scope.is_wide();
    let within = (&scope, &*base);
    let rows: Vec<Row<'_>> =
        listed.iter().take(ROWS_MAX).map(|summary| Row::new(summary, within, now_ms)).collect();
    let rows_bytes = rows.len() * ROW_BYTES;
    let more = listed.len() > ROWS_MAX;
    let count = if more || skip > 0 { app.mailboxes.count(&scope).await? } else { rows.len() as u64 };
    let template = InboxPage {
        site: &app.site,
        wide,
        newest: (skip == 0).then(|| rows.first().map(|row| row.id.to_string()).unwrap_or_default()),
        count,
        older: more.then(|| format!("{base}?skip={}", skip + ROWS_MAX)),
        rows,
        address: &address,
        base: &base,
    };
    let response = answer::long_page(&template, rows_bytes)?;
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
    address: &'a str,
    base: &'a str,
    query: String,
    fault: Option<String>,
    summary: String,
    rows: Vec<Row<'a>>,
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
    client: Client,
    Query(searched): Query<Searched>,
) -> Result<Response, Fault> {
    let address = scope.name();
    let base = path_of(&address);
    let within = (&scope, &*base);
    let found;
    let mut template = SearchPage {
        site: &app.site,
        query: searched.q,
        fault: None,
        summary: String::new(),
        rows: Vec::new(),
        older: None,
        address: &address,
        base: &base,
    };
    let cursor = searched.cursor.as_deref().map(str::parse::<Cursor>).transpose();
    match search::Query::parse(&template.query).and_then(|query| Ok((query, cursor?))) {
        Err(fault) => template.fault = Some(format!("This cannot be searched for: {fault}.")),
        Ok((query, cursor)) => {
            found = app.search(client, &scope, &query, cursor, FOUND_MAX).await?;
            let now_ms = clock::unix_ms();
            template.rows = found.mails.iter().map(|mail| Row::new(mail, within, now_ms)).collect();
            template.summary = in_words(&found, query.remarks());
            template.older = found.next.map(|next| {
                let query = super::scope::segment(&template.query);
                format!("{}/search?q={query}&cursor={next}", template.base)
            });
        }
    }
    answer::page(&template)
}

fn in_words(found: &search::Found, remarks: &[String]) -> String {
    let count = match found.mails.len() {
        0 => "No mail".to_owned(),
        1 => "1 mail".to_owned(),
        n => format!("{n} mails"),
    };
    let looked = format!("{count} found among {}", found.looked_at);
    let mut words = match (found.bounded, found.next.is_some()) {
        (true, _) => format!("{looked}; there are more to look at."),
        (false, true) => format!("{looked}, newest first; there may be more."),
        (false, false) => format!("{looked}."),
    };
    for remark in remarks {
        words.push_str(" Note: ");
        words.push_str(remark);
        words.push('.');
    }
    words
}

pub(super) async fn delete_all<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    Asked(scope): Asked,
) -> Result<Response, Fault> {
    app.mailboxes.delete_all(&scope).await?;
    Ok(Redirect::to(&path_of(&scope.name())).into_response())
}
