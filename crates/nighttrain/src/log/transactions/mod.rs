//! The transaction log: records that event loops write about requests, mails and consumers, live and in a
//! file. (Messages for the operator go to [`crate::log`].)
//!
//! ```text
//!                                    ┌──▶ access_log: a thread, a file, rotation
//!  loops ──▶ engine::journal (rings)─┤
//!                                    └──▶ another process: live, `nighttrain log` ◀── its location: GET /log of the admin port
//! ```

mod access_log;
mod files;
mod groups;
mod live;
mod rules;

use std::sync::Arc;

use engine::journal::Journal;

pub(crate) use self::{
    access_log::AccessLog,
    live::log,
    rules::{FileFormat, LogRules, Rotate},
};
use crate::{failure::Failure, settings::Settings};

/// Number of servers in a process that may each have a loop on every core.
const SERVERS: usize = 3;

/// Creates a journal with a ring for each loop; `None`, with a warning, if the system cannot provide the
/// shared memory.
///
/// # Errors
/// Returns `Failure::Failed` if an access log needs the journal and it cannot be created.
pub(crate) fn journal(settings: &Settings) -> Result<Option<Arc<Journal>>, Failure> {
    let is_always_read = settings.log_rules.access_log.is_some();
    let made = loops(settings)
        .and_then(|loops| Journal::create(SERVERS * loops, settings.log_rules.ring_bytes, is_always_read));
    match made {
        Ok(journal) => Ok(Some(journal)),
        Err(error) if is_always_read => {
            Err(Failure::Failed(format!("no memory to share the log through: {error}")))
        }
        Err(error) => {
            tracing::warn!(%error, "cannot create the transaction log: `nighttrain log` will show nothing");
            Ok(None)
        }
    }
}

fn loops(settings: &Settings) -> std::io::Result<usize> {
    match settings.cache.cores.len() {
        0 => engine::cores::available().map(|cores| cores.len()),
        listed => Ok(listed),
    }
}
