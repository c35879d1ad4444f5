//! Deletion of mails after a response has shown them (`delete=`).

use std::time::Duration;

use engine::cores::clock;

use super::duration;
use crate::{
    mailbox::mailboxes::{MailId, Mailboxes},
    web::serve::{app::App, fault::Fault},
};

/// Longest delay of a requested deletion (`delete=`).
pub(super) const DELETE_AFTER_MAX: Duration = Duration::from_secs(300);

/// Parses `delete=`, before anything is done.
pub(super) fn deletion(said: Option<&str>) -> Result<Option<Duration>, Fault> {
    said.map(|said| duration::parse(said, DELETE_AFTER_MAX)).transpose()
}

/// Schedules deletions: with `delete=1m` the mails expire a minute after the request.
pub(super) async fn delete_later<M: Mailboxes>(
    app: &App<M>,
    ids: &[MailId],
    after: Duration,
) -> Result<(), Fault> {
    let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
    Ok(app.mailboxes.expire_early(ids, clock::unix_ms().saturating_add(after_ms)).await?)
}
