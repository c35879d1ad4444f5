//! Waits for a mail: the step in a test between "send me a code" and typing the code in.
//!
//! The wait subscribes to events before it searches the stored mails, so that no mail is missed between the
//! two.

use std::{sync::Arc, time::Duration};

use engine::cores::clock;
use serde::Deserialize;

use super::{
    deletion::{DELETE_AFTER_MAX, delete_later},
    duration,
    letter::MailWithFindings,
};
use crate::{
    mailbox::mailboxes::{Mailboxes, Scope, Summary},
    search::{self, Query, Term, Verdict},
    web::{
        live::{LiveEvent, ScopeEvents},
        serve::{app::App, client::Client, fault::Fault, jobs::ChargedMail},
    },
};

/// Default timeout.
const WAIT: Duration = Duration::from_secs(30);
/// Longest timeout; a longer one would leave the connection idle for too long.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(300);

/// Conditions on the mail, all of which must hold.
#[derive(Debug, Deserialize)]
pub(super) struct WaitQuery {
    from: Option<String>,
    subject: Option<String>,
    /// Word or phrase anywhere in the mail.
    text: Option<String>,
    /// Search query.
    query: Option<String>,
    /// Earliest arrival; see [`since_ms`].
    since: Option<String>,
    timeout: Option<String>,
    /// `true` or `1` deletes the mail once it is returned, `1m` a minute later.
    delete: Option<String>,
}

impl WaitQuery {
    fn query(&self) -> Result<Query, Fault> {
        let mut query = Query::parse(self.query.as_deref().unwrap_or_default())?;
        let since = self.since.as_deref().filter(|since| !since.is_empty()).map(since_ms).transpose()?;
        let term = |value: &Option<String>, make: fn(String) -> Term| {
            value
                .as_deref()
                .map(str::trim)
                .filter(|value| !value.is_empty())
                .map(|value| make(search::fold(value)))
        };
        for term in
            [term(&self.from, Term::From), term(&self.subject, Term::Subject), term(&self.text, Term::Word)]
                .into_iter()
                .flatten()
                .chain(since.map(Term::After))
        {
            query = query.and(term);
        }
        Ok(query)
    }

    /// Returns the delay after which the returned mail is deleted, if requested.
    fn deletion(&self) -> Result<Option<Duration>, Fault> {
        match self.delete.as_deref() {
            None | Some("" | "false" | "False" | "0" | "no") => Ok(None),
            Some("true" | "True" | "1" | "yes") => Ok(Some(Duration::ZERO)),
            Some(after) => duration::parse(after, DELETE_AFTER_MAX).map(Some),
        }
    }
}

/// Numbers from this one on are milliseconds since 1970, smaller ones seconds. This number is in 1973 as
/// milliseconds, and in the year 5138 as seconds.
const SINCE_MS_MIN: u64 = 100_000_000_000;

/// Parses a point in time: milliseconds or seconds since 1970, a day, or a day and a time of day.
fn since_ms(text: &str) -> Result<u64, Fault> {
    match text.parse::<u64>() {
        Ok(number) if number < SINCE_MS_MIN => Ok(number * 1000),
        Ok(number) => Ok(number),
        // A plus sign in a query was decoded as a blank.
        Err(_) => search::date_ms(&text.replace(' ', "+")).map_err(|_| {
            Fault::Bad(format!(
                "invalid start time `{}`; expected 2026-11-21, 2026-11-21T22:00:00Z or milliseconds since 1970",
                crate::render::cut(text, 40)
            ))
        }),
    }
}

/// Returns the newest matching mail, whether it is stored already or arrives before the timeout.
pub(super) async fn wait<M: Mailboxes>(
    app: &Arc<App<M>>,
    client: Client,
    scope: Scope,
    wanted: &WaitQuery,
) -> Result<MailWithFindings, Fault> {
    let (query, deletion) = (wanted.query()?, wanted.deletion()?);
    let timeout = wanted.timeout.as_deref().map_or(Ok(WAIT), |text| duration::parse(text, WAIT_MAX))?;
    let arrivals = ScopeEvents::new(app, client, scope.clone(), None).await?;
    let mail = match tokio::time::timeout(timeout, first_match(app, client, &scope, &query, arrivals)).await {
        Ok(mail) => mail?,
        Err(_) => {
            return Err(Fault::TimedOut(format!(
                "no matching mail arrived for {} within {} ms",
                scope.name(),
                timeout.as_millis()
            )));
        }
    };
    let (id, now_ms) = (mail.summary.id, clock::unix_ms());
    let found =
        app.render(client, mail, move |mail, until| MailWithFindings::new(mail, now_ms, until)).await?;
    match deletion {
        None => {}
        Some(Duration::ZERO) => _ = app.mailboxes.delete(&scope, id).await?,
        Some(after) => delete_later(app, &[id], after).await?,
    }
    Ok(found)
}

async fn first_match<M: Mailboxes>(
    app: &Arc<App<M>>,
    client: Client,
    scope: &Scope,
    query: &Query,
    mut arrivals: ScopeEvents,
) -> Result<ChargedMail, Fault> {
    let stored = async || {
        let found = app.search(client, scope, query, None, 1).await?;
        match found.mails.first() {
            Some(summary) => app.mail_in(client, scope, summary.id).await,
            None => Ok(None),
        }
    };
    if let Some(mail) = stored().await? {
        return Ok(mail);
    }
    loop {
        match arrivals.next().await {
            Some(LiveEvent::Arrived(summary)) => {
                if matches(app, client, scope, query, &summary).await?
                    && let Some(mail) = app.mail_in(client, scope, summary.id).await?
                {
                    return Ok(mail);
                }
            }
            Some(LiveEvent::Deleted(_)) => {}
            Some(LiveEvent::Missed) => {
                if let Some(mail) = stored().await? {
                    return Ok(mail);
                }
            }
            None if arrivals.is_cut() => {
                return Err(Fault::Busy("too many waits from this address"));
            }
            None => return Err(Fault::Busy("the server is stopping")),
        }
    }
}

/// Returns whether a mail matches the query; the mail is opened only if its summary cannot answer. A mail that
/// no longer exists does not match.
async fn matches<M: Mailboxes>(
    app: &Arc<App<M>>,
    client: Client,
    scope: &Scope,
    query: &Query,
    summary: &Summary,
) -> Result<bool, Fault> {
    match query.judge(summary, &app.marks) {
        Verdict::No => Ok(false),
        Verdict::Yes => Ok(true),
        Verdict::Open => {
            let Some(mail) = app.mail_in(client, scope, summary.id).await? else { return Ok(false) };
            let query = query.clone();
            app.render(client, mail, move |mail, until| query.matches_mail(mail, until)).await
        }
    }
}
