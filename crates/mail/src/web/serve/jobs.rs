//! Reading and parsing mails for a response: memory budget, thread and time limit.
//!
//! ```text
//!  app.mail ─▶ budget: room before the bytes are read ─▶ ChargedMail ─▶ app.render ─┬▶ small: here
//!                                                                            └▶ large: a permit, a thread, a time
//!  app.search ─▶ a queue of its own ─▶ a bunch of mails: read, parsed, freed
//! ```
//! Rendering, searching and disk reads have separate threads, so that none of them waits for another; search
//! threads have low priority ([`crate::background`]). Every job can tell when its client
//! has disconnected.

use std::{
    cell::Cell,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use engine::cores::clock;

use super::{
    app::App,
    budget::BudgetGuard,
    client::Client,
    config::{PARSING_PERMITS, PERMIT_BYTES},
    counters::Counter,
    fault::Fault,
};
use crate::{
    mailbox::mailboxes::{Mail, MailId, Mailboxes, Scope},
    render::StepLimit,
    search::{self, Candidates, Cursor, MailKey, MatchReport, Query, SearchBackend, SearchOutcome},
};

/// Largest mail that is rendered on the web's own thread, as waking another thread costs more. Hostile HTML
/// (deeply nested) takes milliseconds at this size.
const RENDER_HERE_BYTES_MAX: usize = 16 * 1024;
/// Processor time for the HTML of one mail; HTML within the cost limits takes a tenth of it.
const RENDER_TIME_MAX: Duration = Duration::from_secs(2);

fn permits(bytes: usize) -> u32 {
    u32::try_from((bytes / PERMIT_BYTES).clamp(1, PARSING_PERMITS)).unwrap_or(u32::MAX)
}

/// Mails up to this age are always candidates, up to a maximum number: the event of a mail reaches the index
/// some milliseconds after the mail can be read.
const FRESH_MS: u64 = 5_000;
const FRESH_MAX: usize = 500;

/// A mail in memory, with the charge for it.
pub(crate) struct ChargedMail {
    mail: Mail,
    _held: BudgetGuard,
}

impl Deref for ChargedMail {
    type Target = Mail;

    fn deref(&self) -> &Mail {
        &self.mail
    }
}

impl<M: Mailboxes> App<M> {
    /// Reads a mail if it exists within the scope. The scope is checked against the mail itself, wherever the
    /// ID came from.
    pub(crate) async fn mail_in(
        &self,
        client: Client,
        scope: &Scope,
        id: MailId,
    ) -> Result<Option<ChargedMail>, Fault> {
        let read = self.mailboxes.mail_into(scope, id, self.budget.of(client)).await?;
        Ok(read.map(|(mail, _held)| ChargedMail { mail, _held }))
    }

    /// Reads several mails, in the order requested.
    async fn mails_in(
        &self,
        client: Client,
        scope: &Scope,
        ids: &[MailId],
    ) -> Result<Vec<Option<ChargedMail>>, Fault> {
        let wanted = ids.iter().map(|id| (*id, self.budget.of(client))).collect();
        let read = self.mailboxes.mails_into(scope, wanted).await?;
        Ok(read.into_iter().map(|read| read.map(|(mail, _held)| ChargedMail { mail, _held })).collect())
    }

    /// Parses and renders a mail with `work`.
    pub(crate) async fn render<T: Send + 'static>(
        &self,
        client: Client,
        mail: ChargedMail,
        work: impl FnOnce(&Mail, &StepLimit) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        self.counters.add(Counter::Rendered, 1);
        self.large(client, mail.raw.len(), move |until| work(&mail, until)).await
    }

    /// Runs work that reads this many bytes: on this thread if there are few, otherwise on a helper thread
    /// with a permit.
    pub(crate) async fn large<T: Send + 'static>(
        &self,
        client: Client,
        bytes: usize,
        work: impl FnOnce(&StepLimit) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let asking = CancelGuard::default();
        let until = self.until(&asking);
        if bytes <= RENDER_HERE_BYTES_MAX {
            return Ok(work(&until));
        }
        let turn = self.renders.turn(client).await?;
        let parsing = Arc::clone(&self.rendering).acquire_many_owned(permits(bytes));
        let parsing = parsing.await.map_err(|_| Fault::Broken)?;
        let working = tokio::task::spawn_blocking(move || {
            let done = work(&until);
            drop((parsing, turn));
            done
        });
        working.await.map_err(|_| Fault::Broken)
    }

    /// Runs a search; each bunch of mails needs a permit.
    pub(crate) async fn search(
        &self,
        client: Client,
        scope: &Scope,
        query: &Query,
        from: Option<Cursor>,
        limit: usize,
    ) -> Result<SearchOutcome, Fault> {
        let desk = ClientSearch { app: self, client };
        let found = search::search(&self.mailboxes, &desk, scope, query, &self.marks, from, limit).await?;
        if found.bounded {
            self.counters.add(Counter::SearchesBounded, 1);
        }
        Ok(found)
    }

    /// Returns a limit that ends when the client has disconnected, or the work has taken [`RENDER_TIME_MAX`].
    fn until(&self, asking: &CancelGuard) -> StepLimit {
        let (gone, counters) = (Arc::clone(&asking.gone), Arc::clone(&self.counters));
        let begun_ns = Cell::new(None);
        StepLimit::new(move || {
            let now_ns = clock::thread_cpu_ns();
            // The first call is made by the thread that does the work.
            let begun_ns = begun_ns.get().unwrap_or_else(|| {
                begun_ns.set(Some(now_ns));
                now_ns
            });
            let ended = if gone.load(Ordering::Relaxed) {
                Counter::RenderLeft
            } else if Duration::from_nanos(now_ns.saturating_sub(begun_ns)) > RENDER_TIME_MAX {
                Counter::RenderTimeOver
            } else {
                return false;
            };
            counters.add(ended, 1);
            true
        })
    }
}

/// Guard that marks a request as abandoned on drop, as hyper drops the handler of a client that disconnects.
#[derive(Default)]
struct CancelGuard {
    gone: Arc<AtomicBool>,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

/// Search backend of one client.
struct ClientSearch<'a, M> {
    app: &'a App<M>,
    client: Client,
}

impl<M: Mailboxes> SearchBackend for ClientSearch<'_, M> {
    type Fault = Fault;

    async fn candidates(
        &self,
        scope: &Scope,
        query: &Query,
        after: Option<MailKey>,
    ) -> Result<Option<Candidates>, Fault> {
        let Some(index) = self.app.index.clone() else { return Ok(None) };
        // A single inbox is searched without the index, unless it is large.
        let few = match scope {
            Scope::Inbox(_) => self.app.mailboxes.count(scope).await? <= search::OPENED_MAX as u64,
            Scope::Prefix { .. } | Scope::All => false,
        };
        if few || query.words().next().is_none() {
            return Ok(None);
        }
        let turn = self.app.searches.turn(self.client).await?;
        let newest = self.app.mailboxes.list(&Scope::All, 0, FRESH_MAX).await?;
        let since_ms = clock::unix_ms().saturating_sub(FRESH_MS);
        let fresh = newest.iter().take_while(|mail| mail.arrived_ms >= since_ms);
        let fresh: Vec<_> = fresh.map(|mail| MailKey::of(mail)).collect();
        let query = query.clone();
        let asking = self.app.behind.spawn(move || {
            let candidates = index.candidates(query.words(), &fresh, after, search::LOOKED_AT_MAX);
            drop(turn);
            candidates
        });
        let candidates = asking.await.map_err(|_| Fault::Broken)?;
        if candidates.is_some() {
            self.app.counters.add(Counter::IndexAsked, 1);
        }
        Ok(candidates)
    }

    async fn judge(&self, scope: &Scope, query: &Query, mails: Vec<MailId>) -> Result<MatchReport, Fault> {
        let asking = CancelGuard::default();
        // Reading needs the permit, too, as the bunch stays in memory while the permit is held.
        let turn = self.app.searches.turn(self.client).await?;
        let bunch = self.app.mails_in(self.client, scope, &mails).await?;
        // Mails are parsed one after the other, so the largest determines the permits.
        let largest = bunch.iter().flatten().map(|mail| mail.raw.len()).max().unwrap_or(0);
        let parsing = Arc::clone(&self.app.searching).acquire_many_owned(permits(largest));
        let parsing = parsing.await.map_err(|_| Fault::Broken)?;
        let query = query.clone();
        // Each mail has its own limit, so that a hostile mail does not keep the others from being found.
        let untils: Vec<StepLimit> = bunch.iter().map(|_| self.app.until(&asking)).collect();
        let judging = self.app.behind.spawn(move || {
            let begun_ns = clock::thread_cpu_ns();
            let mut is_cut = false;
            let judge = |(mail, until): (Option<ChargedMail>, StepLimit)| {
                let matches = mail.is_some_and(|mail| query.matches_mail(&mail, &until));
                is_cut |= until.has_ended();
                matches
            };
            let matches = bunch.into_iter().zip(untils).map(judge).collect();
            drop((parsing, turn));
            let took = Duration::from_nanos(clock::thread_cpu_ns().saturating_sub(begun_ns));
            MatchReport { matches, took, is_cut }
        });
        judging.await.map_err(|_| Fault::Broken)
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, pin::pin};

    use futures_util::FutureExt;
    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::{
        mailbox::twin::{Retention, Twin},
        web::serve::config::{Config, SEARCH_THREADS_MAX},
    };

    fn client(last: u8) -> Client {
        Client::of(httpd::Client(Ipv4Addr::new(192, 0, 2, last).into()))
    }

    /// An app with one mail of this size, to `ann`.
    fn app(bytes: usize, config: Config) -> (Arc<App<Twin>>, MailId) {
        let twin = Twin::new(Retention::default(), "night.test");
        let raw = format!("Subject: x\r\n\r\n{}", "word ".repeat(bytes / 5));
        let ids = twin.deliver_at(clock::unix_ms(), "a@b", &["ann".to_owned()], raw.as_bytes()).unwrap();
        let (_, stopping) = watch::channel(false);
        let here = (Ipv4Addr::LOCALHOST, 0).into();
        let config = Config { domain: "night.test".to_owned(), ..config };
        (Arc::new(App::new(twin, config, here, stopping)), ids[0])
    }

    #[tokio::test]
    async fn work_ends_when_nobody_waits_for_it() {
        let (app, id) = app(10 * RENDER_HERE_BYTES_MAX, Config::default());
        let mail = app.mail_in(client(1), &Scope::All, id).await.unwrap().unwrap();
        let (tell, mut told) = mpsc::unbounded_channel();
        let mut render = Box::pin(app.render(client(1), mail, move |_, until| {
            tell.send("begun").unwrap();
            while !until.is_over() {
                std::thread::yield_now();
            }
            tell.send("ended").unwrap();
        }));
        tokio::select! {
            _ = &mut render => panic!("it ended by itself"),
            begun = told.recv() => assert_eq!(begun, Some("begun")),
        }
        drop(render);
        assert_eq!(told.recv().await, Some("ended"));
    }

    #[tokio::test]
    async fn searches_queue_without_delaying_pages() {
        let (app, id) = app(10 * RENDER_HERE_BYTES_MAX, Config::default());
        let mut held = Vec::new();
        for last in 0..SEARCH_THREADS_MAX {
            held.push(app.searches.turn(client(100 + last as u8)).await.unwrap());
        }
        let (all, query) = (Scope::All, Query::parse("word").unwrap());
        let mut search = pin!(app.search(client(1), &all, &query, None, 1));
        assert!((&mut search).now_or_never().is_none(), "all helpers search");
        let mail = app.mail_in(client(1), &Scope::All, id).await.unwrap().unwrap();
        assert_eq!(app.render(client(1), mail, |mail, _| mail.summary.id).await.unwrap(), id);
        held.clear();
        assert_eq!(search.await.unwrap().mails.len(), 1);
        // A query that summaries answer needs no permit.
        let _held =
            [app.searches.turn(client(2)).await.unwrap(), app.searches.turn(client(3)).await.unwrap()];
        let by_subject = Query::parse("subject:x").unwrap();
        assert_eq!(app.search(client(1), &all, &by_subject, None, 1).await.unwrap().mails.len(), 1);
    }

    #[tokio::test]
    async fn a_mail_is_not_read_beyond_the_budget() {
        let (app, id) = app(1 << 20, Config { http_bytes_max: 3 << 20, ..Config::default() });
        let first = app.mail_in(client(1), &Scope::All, id).await.unwrap();
        assert!(
            matches!(app.mail_in(client(1), &Scope::All, id).await, Err(Fault::NoRoom)),
            "one address has half"
        );
        let second = app.mail_in(client(2), &Scope::All, id).await.unwrap();
        assert!(matches!(app.mail_in(client(3), &Scope::All, id).await, Err(Fault::NoRoom)));
        drop((first, second));
        assert!(app.mail_in(client(3), &Scope::All, id).await.unwrap().is_some());
    }
}
