//! Mails that are appended to the log but not yet as durable as a 250 promises, and the replies that wait for
//! them.

use std::sync::Arc;

use engine::log::{Location, Ticket};
use smallvec::SmallVec;

use super::transaction::Draft;
use crate::store::{core::Arrival, record::Part};

/// A mail whose record is appended but not yet as durable as a 250 promises.
pub(crate) struct AppendedMail {
    pub(crate) ticket: Ticket,
    pub(crate) arrivals: SmallVec<[Arrival; 1]>,
    /// Location and payload size of the mail's record, in case it has to be deleted again.
    pub(crate) record: (Location, usize),
    pub(crate) parts: Option<Arc<[Part]>>,
    pub(crate) raw_bytes: u64,
}

/// The 250 reply for a mail, which is not sent before the mail is stored.
pub(crate) struct PendingReply {
    pub(super) kept: AppendedMail,
    /// Position, length and number of lines of this reply among the replies of the turn.
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) lines: usize,
    pub(super) draft: Draft,
}
