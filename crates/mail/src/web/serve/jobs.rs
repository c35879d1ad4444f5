//! Reading and taking apart mails for an answer: with whose memory, on which thread, for how long.
//!
//! ```text
//!  app.mail ─▶ budget: room before the bytes are read ─▶ ChargedMail ─▶ app.render ─┬▶ small: here
//!                                                                            └▶ large: a turn, a thread, a time
//!  app.search ─▶ turns of its own ─▶ a bunch of mails: read, taken apart, given back
//! ```
//! Rendering, searching and reads of the disk have threads of their own, so that none waits for another; those of searches
//! give way to all others ([`crate::web::serve::low_priority_pool`]). Whatever has a
//! thread is told when its client has gone.

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

use super::{answer::Fault, app::App, budget::BudgetGuard, client::Client, counters::Counter};
use crate::{
    mailbox::mailboxes::{Mail, MailId, Mailboxes, Scope},
    render::StepLimit,
    search::{self, Candidates, Cursor, MatchReport, Query, SearchBackend, SearchOutcome},
};

/// A mail up to this size is rendered where the request is: a thread's wake-up costs more. What is built to be slow
/// (HTML in deep levels) takes milliseconds at this size.
const RENDER_HERE_BYTES_MAX: usize = 16 * 1024;
/// Processor time that the HTML of one mail may take; what the bounds on its cost let through takes a tenth of it.
const RENDER_TIME_MAX: Duration = Duration::from_secs(2);

/// Bytes of mails that are taken apart at once, by renders and by searches each. The parser's copies come to up to three
/// times as many; four of the largest at once were 450 MB.
pub(crate) const PARSING_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes that one permit stands for.
const PERMIT_BYTES: usize = 1024;
/// Permits for [`PARSING_BYTES_MAX`].
pub(crate) const PARSING_PERMITS: usize = PARSING_BYTES_MAX / PERMIT_BYTES;

fn permits(bytes: usize) -> u32 {
    u32::try_from((bytes / PERMIT_BYTES).clamp(1, PARSING_PERMITS)).unwrap_or(u32::MAX)
}

/// A mail is told of some milliseconds after it can be read: those that came just now are looked into, however new the
/// index is.
const FRESH_MS: u64 = 5_000;
const FRESH_MAX: usize = 500;

/// A mail in memory, and the room that it has there.
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
    /// One mail, if it is there and lies where the asker may look: whatever told of it, what is read says where it is.
    pub(crate) async fn mail_in(
        &self,
        client: Client,
        scope: &Scope,
        id: MailId,
    ) -> Result<Option<ChargedMail>, Fault> {
        let read = self.mailboxes.mail_into(scope, id, self.budget.of(client)).await?;
        Ok(read.map(|(mail, _held)| ChargedMail { mail, _held }))
    }

    /// The same of several, in the order in which they are asked for.
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

    /// Takes a mail apart.
    pub(crate) async fn render<T: Send + 'static>(
        &self,
        client: Client,
        mail: ChargedMail,
        work: impl FnOnce(&Mail, &StepLimit) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        self.counters.add(Counter::Rendered, 1);
        self.large(client, mail.raw.len(), move |until| work(&mail, until)).await
    }

    /// Does work over so many bytes: here if they are few, else in turn on a thread for it.
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

    /// Searches, each bunch of mails in turn.
    pub(crate) async fn search(
        &self,
        client: Client,
        scope: &Scope,
        query: &Query,
        from: Option<Cursor>,
        limit: usize,
    ) -> Result<SearchOutcome, Fault> {
        let desk = ClientSearch { app: self, client };
        let found = search::search((&self.mailboxes, &desk), scope, query, &self.marks, from, limit).await?;
        if found.bounded {
            self.counters.add(Counter::SearchesBounded, 1);
        }
        Ok(found)
    }

    /// StepLimit who asks has gone, or the work has taken [`RENDER_TIME_MAX`].
    fn until(&self, asking: &CancelGuard) -> StepLimit {
        let (gone, counters) = (Arc::clone(&asking.gone), Arc::clone(&self.counters));
        let begun_ns = Cell::new(None);
        StepLimit::new(move || {
            let now_ns = clock::thread_cpu_ns();
            // The thread that works asks first.
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

/// Somebody asks for as long as this lives: the handler of a client that goes is dropped.
#[derive(Default)]
struct CancelGuard {
    gone: Arc<AtomicBool>,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

/// One client's search.
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
        after: Option<(u64, MailId)>,
    ) -> Result<Option<Candidates>, Fault> {
        let Some(index) = self.app.index.clone() else { return Ok(None) };
        // One inbox is walked over, unless it is a large one.
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
        let fresh: Vec<_> = fresh.map(|mail| (mail.arrived_ms, mail.letter)).collect();
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
        // Read in turn, too: the bunch is in memory for as long as its turn lasts.
        let turn = self.app.searches.turn(self.client).await?;
        let bunch = self.app.mails_in(self.client, scope, &mails).await?;
        // The mails are taken apart one after the other, so the largest decides the permits.
        let largest = bunch.iter().flatten().map(|mail| mail.raw.len()).max().unwrap_or(0);
        let parsing = Arc::clone(&self.app.searching).acquire_many_owned(permits(largest));
        let parsing = parsing.await.map_err(|_| Fault::Broken)?;
        let query = query.clone();
        // Each mail has a limit of its own: one that is built to be slow does not hide the others.
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
        web::{Config, SEARCH_THREADS_MAX},
    };

    fn client(last: u8) -> Client {
        Client::of(httpd::Client(Ipv4Addr::new(192, 0, 2, last).into()))
    }

    /// A site with one mail of so many bytes, as `ann`.
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
    async fn a_search_waits_for_its_turn_and_a_page_does_not() {
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
        // What summaries answer needs no turn.
        let _held =
            [app.searches.turn(client(2)).await.unwrap(), app.searches.turn(client(3)).await.unwrap()];
        let by_subject = Query::parse("subject:x").unwrap();
        assert_eq!(app.search(client(1), &all, &by_subject, None, 1).await.unwrap().mails.len(), 1);
    }

    #[tokio::test]
    async fn a_mail_is_not_read_when_there_is_no_room() {
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
