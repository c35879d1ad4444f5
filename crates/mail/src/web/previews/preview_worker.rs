//! The preview worker: builds previews ([`crate::web::previews::preview_cache`]) of new mails before they are
//! listed.
//!
//! ```text
//!  events ─▶ waiting, the newest 16,384 ─▶ thread "mail-gists", low priority: reads, parses ─▶ previews
//! ```
//! Without it the first list of a hundred new mails would parse each of them, at thirty times the cost of the
//! list itself, while a browser waits. A thread of the lowest priority therefore builds previews when the
//! server is idle, beginning with the newest mail, which is listed first. *Memory:* the previews, one mail,
//! and 8 bytes for each waiting mail; beyond [`WAITING_MAX`] the oldest mail gets its preview when it is
//! listed. *Busy server:* while many mails arrive, receiving has priority, as with the search indexer: the
//! thread then runs for 1/33 of the time.

use std::{collections::VecDeque, io, sync::Arc, thread};

use tokio::sync::{
    broadcast::{
        Receiver,
        error::{RecvError, TryRecvError},
    },
    watch,
};

use crate::web::{previews::preview_cache::Preview, serve::app::App};
use crate::{
    background::{self, Pace},
    mailbox::mailboxes::{Event, MailId, Mailboxes, Scope},
    render::StepLimit,
};

/// Maximum number of mails that wait for their preview.
const WAITING_MAX: usize = 16_384;
/// Maximum number of mails stored before the start for which previews are built.
const AT_THE_START: usize = 1_000;
/// Largest mail for which a preview is built in advance; a larger one is parsed when it is listed, within its
/// client's budget.
const MAIL_BYTES_MAX: u64 = 256 * 1024;

/// Starts the thread. It ends when the server stops.
pub(crate) fn start<M: Mailboxes>(
    app: Arc<App<M>>,
    stopping: watch::Receiver<bool>,
) -> io::Result<thread::JoinHandle<()>> {
    background::start("mail-gists", "the preview worker", || async move {
        let events = app.mailboxes.events();
        let mut worker = PreviewWorker { app, events, waiting: VecDeque::new(), pace: Pace::new() };
        let mut stopped = stopping;
        tokio::select! {
            () = worker.run() => {}
            // An error means that the server is gone.
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    })
}

struct PreviewWorker<M> {
    app: Arc<App<M>>,
    events: Receiver<Event>,
    /// Waiting mails, the newest last.
    waiting: VecDeque<MailId>,
    pace: Pace,
}

impl<M: Mailboxes> PreviewWorker<M> {
    async fn run(&mut self) {
        // If the list fails, previews are built when the mails are listed.
        let there = self.app.mailboxes.list(&Scope::All, 0, AT_THE_START).await.unwrap_or_default();
        self.waiting.extend(there.iter().rev().map(|mail| mail.letter));
        loop {
            loop {
                match self.events.try_recv() {
                    Ok(event) => self.queue_preview(event),
                    Err(TryRecvError::Lagged(_)) => {}
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Closed) => return,
                }
            }
            let Some(next) = self.waiting.pop_back() else {
                match self.events.recv().await {
                    Ok(event) => self.queue_preview(event),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                }
                continue;
            };
            self.pace.begin();
            self.make(next).await;
            if let Some(rest) = self.pace.rest() {
                tokio::time::sleep(rest).await;
            }
        }
    }

    fn queue_preview(&mut self, event: Event) {
        let Event::Arrived(summary) = event else { return };
        self.pace.note_arrivals(1);
        if summary.is_letter() && summary.size_bytes <= MAIL_BYTES_MAX {
            if self.waiting.len() == WAITING_MAX {
                self.waiting.pop_front();
            }
            self.waiting.push_back(summary.id);
        }
    }

    /// Builds the preview of a mail, unless the preview already exists or the mail was deleted.
    async fn make(&self, letter: MailId) {
        if self.app.gists.has(letter) {
            return;
        }
        let Ok(Some((mail, ()))) = self.app.mailboxes.mail_into(&Scope::All, letter, ()).await else {
            return;
        };
        self.app.gists.keep(letter, &Arc::new(Preview::new(&mail, &StepLimit::default())));
    }
}

#[cfg(test)]
mod tests {
    use crate::web::tests::Site;

    #[test]
    fn previews_are_made_before_they_are_requested() {
        let site = Site::new();
        site.deliver("ann", "Subject: x\r\n\r\nfirst words\r\n");
        site.until("mail_web_gists_made_total 1");
        let listed = site.get("/inbox/ann@night.test/api/v1/messages").json();
        assert_eq!(listed["messages"][0]["Snippet"], "first words");
        assert!(site.counts("mail_web_gists_made_total 1"), "it was made once");
    }
}
