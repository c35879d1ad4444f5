//! Waiting for a mail: what a test suite does between "send me a code" and typing it in.
//!
//! First the ear, then the look: the events are subscribed before the stored mails are searched, so no mail falls
//! between.

use std::{sync::Arc, time::Duration};

use engine::cores::clock;
use serde::Deserialize;

use super::{duration, letter::Found};
use crate::{
    mailboxes::{Mailboxes, Scope},
    search::{Query, Term, Verdict},
    web::{
        answer::Fault,
        app::App,
        client::Client,
        live::{Arrivals, Told},
        work::Kept,
    },
};

/// What is waited if nothing is said.
const WAIT: Duration = Duration::from_secs(30);
/// The longest wait; behind it a connection would be idle for too long.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(300);

/// What is waited for; all conditions must hold.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    from: Option<String>,
    subject: Option<String>,
    /// A word or phrase anywhere.
    text: Option<String>,
    /// Any search.
    query: Option<String>,
    /// Milliseconds since 1970: older mails do not count.
    since: Option<u64>,
    timeout: Option<String>,
    /// `true`: the mail is deleted once it is told.
    #[serde(default)]
    delete: bool,
}

impl Wanted {
    fn query(&self) -> Result<Query, Fault> {
        let mut query = Query::parse(self.query.as_deref().unwrap_or_default())?;
        let term = |value: &Option<String>, make: fn(String) -> Term| {
            value
                .as_deref()
                .map(str::trim)
                .filter(|value| !value.is_empty())
                .map(|value| make(value.to_lowercase()))
        };
        for term in
            [term(&self.from, Term::From), term(&self.subject, Term::Subject), term(&self.text, Term::Word)]
                .into_iter()
                .flatten()
                .chain(self.since.map(Term::After))
        {
            query = query.and(term);
        }
        Ok(query)
    }
}

/// The newest mail that fits, stored already or arriving in time.
pub(super) async fn wait<M: Mailboxes>(
    app: &Arc<App<M>>,
    client: Client,
    scope: Scope,
    wanted: &Wanted,
) -> Result<Found, Fault> {
    let query = wanted.query()?;
    let timeout = wanted.timeout.as_deref().map_or(Ok(WAIT), |text| duration::parse(text, WAIT_MAX))?;
    let arrivals = Arrivals::new(app, scope.clone(), None).await?;
    let mail = match tokio::time::timeout(timeout, first(app, client, &scope, &query, arrivals)).await {
        Ok(mail) => mail?,
        Err(_) => {
            return Err(Fault::TimedOut(format!(
                "no mail that fits came to {} within {} ms",
                scope.name(),
                timeout.as_millis()
            )));
        }
    };
    let (id, now_ms) = (mail.summary.id, clock::unix_ms());
    let found = app.render(client, mail, move |mail, until| Found::new(mail, now_ms, until)).await?;
    if wanted.delete {
        app.mailboxes.delete(id).await?;
    }
    Ok(found)
}

async fn first<M: Mailboxes>(
    app: &Arc<App<M>>,
    client: Client,
    scope: &Scope,
    query: &Query,
    mut arrivals: Arrivals,
) -> Result<Kept, Fault> {
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
            Some(Told::Arrived(summary)) => {
                let fits = match query.judge(&summary, &app.marks) {
                    Verdict::No => continue,
                    Verdict::Yes => true,
                    Verdict::Open => {
                        let Some(mail) = app.mail_in(client, scope, summary.id).await? else { continue };
                        let query = query.clone();
                        app.render(client, mail, move |mail, _| query.matches_mail(mail)).await?
                    }
                };
                if fits && let Some(mail) = app.mail_in(client, scope, summary.id).await? {
                    return Ok(mail);
                }
            }
            Some(Told::Deleted(_)) => {}
            Some(Told::Missed) => {
                if let Some(mail) = stored().await? {
                    return Ok(mail);
                }
            }
            None => return Err(Fault::Busy("the server is stopping")),
        }
    }
}
