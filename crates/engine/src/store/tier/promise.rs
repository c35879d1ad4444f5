//! Promises: durability conditions that must hold before the removal of an object may be acknowledged.

use tokio::sync::oneshot;

use super::lifetimes::Tickets;
use crate::log::DurabilityError;

/// Tickets that a purge waits for if it was made before the file was read; an error if the log refused the
/// deletion.
pub(super) type PurgeTickets = Result<Tickets, ()>;

/// Condition that must hold before a deletion may be acknowledged.
#[derive(Debug)]
pub struct Promise(Wait);

#[derive(Debug)]
enum Wait {
    Nothing,
    Disk(Tickets),
    /// The file must be read before the deletion can be written.
    Start(oneshot::Receiver<PurgeTickets>),
    InVain,
}

impl Promise {
    /// Returns whether the deletion can be acknowledged without waiting.
    pub fn is_void(&self) -> bool {
        matches!(self.0, Wait::Nothing)
    }

    /// Creates the promise of a deletion in the file; `written` is `None` if there is no file.
    pub(super) fn of_file(written: Option<PurgeTickets>) -> Self {
        Self(match written {
            None => Wait::Nothing,
            Some(Ok(tickets)) if tickets.is_empty() => Wait::Nothing,
            Some(Ok(tickets)) => Wait::Disk(tickets),
            Some(Err(())) => Wait::InVain,
        })
    }

    pub(super) fn refused() -> Self {
        Self(Wait::InVain)
    }

    pub(super) fn after(start: oneshot::Receiver<PurgeTickets>) -> Self {
        Self(Wait::Start(start))
    }

    /// Waits until the deletion survives the end of the process.
    ///
    /// # Errors
    /// Returns a [`DurabilityError`] if the deletion does not, or not yet, survive;
    /// [`DurabilityError::Failing`] also if the log had no room for it.
    pub async fn kept(self) -> Result<(), DurabilityError> {
        let no_room = DurabilityError::Failing(libc::ENOSPC);
        let tickets = match self.0 {
            Wait::Nothing => return Ok(()),
            Wait::InVain => return Err(no_room),
            Wait::Disk(tickets) => tickets,
            Wait::Start(start) => match start.await {
                Ok(Ok(written)) => written,
                Ok(Err(())) => return Err(no_room),
                // The file could not be read, so the channel was closed.
                Err(_) => return Err(DurabilityError::Failing(libc::EIO)),
            },
        };
        for (progress, ticket) in tickets {
            progress.written(ticket).await?;
        }
        Ok(())
    }
}
