//! The log of transactions: what loops say of requests, mails and consumers, live and on a file. (Messages for the operator
//! are [`crate::log`]'s.)
//!
//! ```text
//!                                    ┌──▶ access_log: a thread, a file, rotation
//!  loops ──▶ engine::journal (rings)─┤
//!                                    └──▶ another process: live, `nighttrain log` ◀── where it is: GET /log of the admin port
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
    rules::{LOG_SETTINGS, LogRules},
};
use crate::{failure::Failure, settings::Settings};

/// Servers of one process that may each have a loop on every processor.
const SERVERS: usize = 3;

/// A journal with a ring for each loop; `None`, and a warning, where the system has no such memory.
///
/// # Errors
/// It is needed for a file, and cannot be had.
pub(crate) fn journal(settings: &Settings) -> Result<Option<Arc<Journal>>, Failure> {
    let is_always_read = settings.log_rules.access_log.is_some();
    let made = loops(settings)
        .and_then(|loops| Journal::create(SERVERS * loops, settings.log_rules.ring_bytes, is_always_read));
    match made {
        Ok(journal) => Ok(Some(journal)),
        Err(error) if is_always_read => {
            Err(Failure::Failed(format!("there is no memory that the log can be read from: {error}")))
        }
        Err(error) => {
            tracing::warn!(%error, "no memory for the transaction log: `nighttrain log` shows nothing");
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
