//! Pages without mail: home, about, terms.

use std::sync::Arc;

use askama::Template;
use axum::{
    Json,
    extract::{Query, State},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use crate::mailbox::mailboxes::{Mailboxes, Scope, Totals};
use crate::web::serve::{
    access::AllMail,
    answer::{page, public},
    app::{App, Site},
    fault::{Fault, WHO_SEES},
    scope::segment,
};

#[derive(Template)]
#[template(path = "home.html")]
struct Home<'a> {
    site: &'a Site,
    totals: Totals,
    all_mail: AllMail,
    readers: String,
    /// Description of the sign that revealed a proxy, if access to all mail is denied because of it;
    /// otherwise empty.
    why_closed: String,
}

pub(super) async fn home<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    all_mail: AllMail,
) -> Result<Response, Fault> {
    let home = Home {
        site: &app.site,
        totals: app.mailboxes.totals(),
        all_mail,
        readers: app.readers_of_one(),
        why_closed: if all_mail.is_closed() { app.why_closed() } else { String::new() },
    };
    let response = page(&home)?;
    // A response that depends on the client must not be cached for others.
    let is_for_all = matches!(all_mail, AllMail::ByToken | AllMail::Hidden);
    Ok(if !is_for_all { response } else { public(response, &[]) })
}

#[derive(Deserialize)]
pub(super) struct OpenParams {
    #[serde(default)]
    address: String,
}

/// Handles the form of the home page.
pub(super) async fn open<M: Mailboxes>(
    State(app): State<Arc<App<M>>>,
    Query(open): Query<OpenParams>,
) -> Result<Response, Fault> {
    let scope = Scope::of(open.address.trim(), &app.config.domain).map_err(Fault::NotAnAddress)?;
    Ok(Redirect::to(&format!("/inbox/{}", segment(&scope.name()))).into_response())
}

#[derive(Template)]
#[template(path = "about.html")]
struct About<'a> {
    site: &'a Site,
    who_sees: &'a [(&'a str, &'a str, &'a str)],
    totals: Totals,
    readers: String,
}

pub(super) async fn about<M: Mailboxes>(State(app): State<Arc<App<M>>>) -> Result<Response, Fault> {
    Ok(public(
        page(&About {
            site: &app.site,
            who_sees: &WHO_SEES,
            totals: app.mailboxes.totals(),
            readers: app.readers_of_each(),
        })?,
        &[],
    ))
}

#[derive(Template)]
#[template(path = "terms.html")]
struct Terms<'a> {
    site: &'a Site,
    terms: &'a [String],
    /// Link and text of the abuse contact.
    abuse: Option<(String, &'a str)>,
}

pub(super) async fn terms<M: Mailboxes>(State(app): State<Arc<App<M>>>) -> Result<Response, Fault> {
    let abuse = app.config.abuse.as_deref().map(|contact| {
        let is_url = contact.starts_with("https://") || contact.starts_with("http://");
        (if is_url { contact.to_owned() } else { format!("mailto:{contact}") }, contact)
    });
    Ok(public(page(&Terms { site: &app.site, terms: &app.config.terms, abuse })?, &[]))
}

/// Serves the live counters for the pages' script. The response is cached for a second, so the cost does not
/// depend on the number of readers.
pub(super) async fn counters<M: Mailboxes>(State(app): State<Arc<App<M>>>) -> Response {
    let totals = app.mailboxes.totals();
    let body = serde_json::json!({
        "stored": totals.stored,
        "stored_bytes": totals.stored_bytes,
        "inboxes": totals.inboxes,
        "accepted": totals.accepted,
        "refused": totals.refused,
    });
    public(Json(body).into_response(), &[])
}

pub(super) async fn no_such_page() -> Fault {
    Fault::NoSuchPage
}

pub(super) async fn no_such_method() -> Fault {
    Fault::NoSuchMethod
}
