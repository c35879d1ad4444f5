//! Changes of flags and tags: by requests, and by deletions of mails.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::{
    mailbox::mailboxes::{Event, MailId, Mailboxes, RemainingName, Scope, Summary},
    web::serve::{app::App, client::Client, fault::Fault},
};

impl<M: Mailboxes> App<M> {
    /// Marks mails read or unread, and writes the change to the log.
    pub(crate) async fn set_read(
        &self,
        client: Client,
        mails: &[Arc<Summary>],
        read: bool,
    ) -> Result<(), Fault> {
        let changed = mails.iter().filter(|mail| self.marks.set_read(client, mail, read));
        let ids: Vec<MailId> = changed.map(|mail| mail.id).collect();
        self.write_marks(&ids).await
    }

    /// Replaces the tags of mails, and writes the change to the log.
    pub(crate) async fn set_tags(
        &self,
        client: Client,
        mails: &[Arc<Summary>],
        names: &BTreeSet<String>,
    ) -> Result<(), Fault> {
        for mail in mails {
            self.marks.set_tags(client, mail, names.clone())?;
        }
        let ids: Vec<MailId> = mails.iter().map(|mail| mail.id).collect();
        self.write_marks(&ids).await
    }

    /// Removes a tag from all mails of the scope, adds another if given, and writes the change to the log.
    pub(crate) async fn replace_tag(
        &self,
        scope: &Scope,
        tag: &str,
        with: Option<&str>,
    ) -> Result<(), Fault> {
        let changed = self.marks.replace_tag(scope, tag, with)?;
        self.write_marks(&changed).await
    }

    async fn write_marks(&self, ids: &[MailId]) -> Result<(), Fault> {
        if ids.is_empty() {
            return Ok(());
        }
        Ok(self.mailboxes.write_note(self.marks.notes(ids)).await?)
    }
}

/// Interval at which deletions are processed: while many mails arrive, waking up for each deletion would cost
/// more than receiving a mail.
const FORGET_EVERY: Duration = Duration::from_millis(10);

/// Removes flags, tags, previews and rendered documents of deleted mails.
pub(in crate::web) async fn forget_deleted<M: Mailboxes>(app: Arc<App<M>>) {
    let mut events = app.mailboxes.events();
    loop {
        let mut next = events.recv().await;
        loop {
            match next {
                Ok(Event::Deleted { id, remains: RemainingName::ThisName, .. }) => app.marks.let_go(id),
                Ok(Event::Deleted { id, remains: RemainingName::OtherName, .. }) => app.marks.forget(id),
                Ok(Event::Deleted { id, .. } | Event::Over { letter: id }) => {
                    app.marks.forget(id);
                    app.gists.forget(id);
                    app.renderings.forget(id);
                }
                // Entries of deletions that were missed age out of the bounded list.
                Ok(Event::Arrived(_) | Event::Missed) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
            next = match events.try_recv() {
                Ok(event) => Ok(event),
                Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
                Err(TryRecvError::Closed) => Err(RecvError::Closed),
                Err(TryRecvError::Empty) => break,
            };
        }
        tokio::time::sleep(FORGET_EVERY).await;
    }
}
