//! Buffers shared by a core's connections. Buffers are cleared and reused, and bounded in number and size.

use engine::cores::clock;

use super::Core;
use crate::smtp::pending::PendingReply;

/// Memory that the heap trimmer counts for a connection without its mail. What a client is charged is in
/// `smtp::connection`.
const TRIMMED_CONNECTION_BYTES: usize = 16 << 10;
/// Maximum number of spare buffers that a core keeps, and maximum size of such a buffer.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 64 << 10;
/// Maximum capacity of a spare list that is kept.
const SPARE_WAITING_MAX: usize = 64;

impl Core {
    /// Writes the current date in the form of the Received field.
    pub(crate) fn write_date(&self, now_ms: u64, out: &mut Vec<u8>) {
        let now_s = now_ms / 1000;
        let mut date = self.buffers.date.borrow_mut();
        if date.0 != now_s {
            *date = (now_s, mail_builder::headers::date::Date::new(now_s.cast_signed()).to_rfc822());
        }
        out.extend_from_slice(date.1.as_bytes());
    }

    /// Returns an empty buffer for a mail.
    pub(crate) fn buffer(&self) -> Vec<u8> {
        self.buffers.spare_mails.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes a buffer back for reuse; a large one is freed.
    pub(crate) fn recycle_buffer(&self, mut buffer: Vec<u8>) {
        let mut spare = self.buffers.spare_mails.borrow_mut();
        if buffer.capacity() <= SPARE_BYTES_MAX && spare.len() < SPARE_MAX {
            buffer.clear();
            spare.push(buffer);
        }
    }

    /// Reports the memory of connections and received mails to the heap trimmer.
    pub(crate) fn note_memory(&self) {
        let connections = self.shared.balance.held(self.number) * TRIMMED_CONNECTION_BYTES;
        self.buffers
            .trimmer
            .borrow_mut()
            .uses(connections + self.clients.receiving.bytes(), clock::monotonic_ms());
    }

    /// Takes back a turn's list of pending replies for reuse; a long list is freed.
    pub(crate) fn recycle_waiting(&self, mut waiting: Vec<PendingReply>) {
        let mut spare = self.buffers.spare_replies.borrow_mut();
        if (1..=SPARE_WAITING_MAX).contains(&waiting.capacity()) && spare.len() < SPARE_MAX {
            waiting.clear();
            spare.push(waiting);
        }
    }
}
