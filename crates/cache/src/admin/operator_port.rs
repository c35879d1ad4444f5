//! Access to the cores from threads outside of the event loops, such as the operator's thread, for purges and
//! queries.

use std::time::Duration;

use engine::{cold_mutex::ColdMutex, cores::mesh::Sender};
use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::core::{CoreBusy, Message, RING_PAUSE, RING_WAIT_MAX};

/// Sends messages to the cores from outside of the event loops.
pub(crate) struct Outside(ColdMutex<Sender<Message>>);

impl Outside {
    pub(crate) fn new(sender: Sender<Message>) -> Self {
        Self(ColdMutex::new(sender))
    }

    /// Sends a message to a core. Blocks while the ring to that core is full.
    ///
    /// # Errors
    /// [`CoreBusy`] if the ring stayed full for [`RING_WAIT_MAX`].
    pub(crate) fn give(&self, to: usize, message: Message) -> Result<(), CoreBusy> {
        let (mut unsent, mut waited) = (message, Duration::ZERO);
        loop {
            let sent = {
                let sender = self.0.lock();
                let sent = sender.send(to, unsent);
                sender.flush();
                sent
            };
            match sent {
                Ok(()) => return Ok(()),
                Err(message) if waited < RING_WAIT_MAX => unsent = message,
                Err(_) => return Err(CoreBusy),
            }
            waited += pause();
        }
    }

    /// Asks a core a question that it answers at once.
    ///
    /// # Errors
    /// [`CoreBusy`] if the ring stayed full, the core did not answer within [`RING_WAIT_MAX`], or the core
    /// has ended.
    pub(crate) fn ask<T>(
        &self,
        to: usize,
        message: impl FnOnce(oneshot::Sender<T>) -> Message,
    ) -> Result<T, CoreBusy> {
        let (reply, mut answer) = oneshot::channel();
        self.give(to, message(reply))?;
        let mut waited = Duration::ZERO;
        loop {
            match answer.try_recv() {
                Ok(answer) => return Ok(answer),
                Err(TryRecvError::Empty) if waited < RING_WAIT_MAX => waited += pause(),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return Err(CoreBusy),
            }
        }
    }
}

/// Sleeps for [`RING_PAUSE`] and returns it.
#[expect(clippy::disallowed_methods, reason = "a thread of the operator's, on no loop")]
fn pause() -> Duration {
    std::thread::sleep(RING_PAUSE);
    RING_PAUSE
}
