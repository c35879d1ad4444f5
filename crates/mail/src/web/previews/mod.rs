//! Previews of mails for lists, and a cache of rendered documents.

pub(crate) mod mailpit_fields;
pub(crate) mod preview_cache;
pub(crate) mod preview_worker;
pub(crate) mod rendered_cache;

use std::sync::Arc;

use crate::{
    mailbox::mailboxes::{Mailboxes, Scope, Summary},
    web::{
        previews::preview_cache::Preview,
        serve::{app::App, client::Client, fault::Fault},
    },
};

impl<M: Mailboxes> App<M> {
    /// Returns the preview of a listed mail, from the cache or built now; `None` if the mail no longer
    /// exists.
    pub(crate) async fn gist(&self, client: Client, of: &Summary) -> Result<Option<Arc<Preview>>, Fault> {
        let letter = of.letter;
        let kept = self.gists.of(letter);
        if kept.is_some() {
            return Ok(kept);
        }
        let Some(mail) = self.mail_in(client, &Scope::All, letter).await? else { return Ok(None) };
        let gist = Arc::new(self.render(client, mail, Preview::new).await?);
        self.gists.keep(letter, &gist);
        Ok(Some(gist))
    }
}
