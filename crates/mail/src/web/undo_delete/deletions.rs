//! Deletions by pages, delayed for as long as they can be undone.

use std::sync::Arc;

use super::{LEAVING_TIME, PendingDelete};
use crate::{
    mailbox::mailboxes::{Mailboxes, Scope, Summary},
    web::serve::{app::App, client::Client, fault::Fault},
};

impl<M: Mailboxes> App<M> {
    /// Deletes mails from a list. If there is room, the deletion is delayed and can be undone, and the
    /// batch's ID is returned.
    pub(in crate::web) async fn delete_with_undo(
        self: &Arc<Self>,
        client: Client,
        scope: &Scope,
        mails: &[Arc<Summary>],
    ) -> Result<Option<u64>, Fault> {
        let leaver = |mail: &Arc<Summary>| PendingDelete {
            inbox: mail.inbox.clone(),
            everywhere: *scope == Scope::All || mail.inboxes == 1,
        };
        let named = mails.iter().map(|mail| (mail.id, leaver(mail))).collect();
        let Some(name) = self.leaving.enter(client, scope, named) else {
            for mail in mails {
                self.mailboxes.delete(scope, mail.id).await?;
            }
            return Ok(None);
        };
        let app = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(LEAVING_TIME).await;
            app.delete_batch(name).await;
        });
        Ok(Some(name))
    }

    /// Deletes a batch permanently, unless it was restored.
    async fn delete_batch(&self, name: u64) {
        let batch =
            self.leaving.state.lock().batches.get(&name).map(|of| (of.scope.clone(), of.mails.clone()));
        let Some((scope, mails)) = batch else { return };
        // The mails stay hidden until they are deleted.
        for id in mails {
            if let Err(error) = self.mailboxes.delete(&scope, id).await {
                tracing::warn!("cannot remove a mail that a user deleted: {error}");
            }
        }
        self.leaving.take(name, |_| true);
    }

    /// Deletes all batches permanently before the server stops.
    pub(in crate::web) async fn end_all(&self) {
        let names: Vec<u64> = self.leaving.state.lock().batches.keys().copied().collect();
        for name in names {
            self.delete_batch(name).await;
        }
    }
}
