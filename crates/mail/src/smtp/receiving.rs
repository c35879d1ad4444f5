//! Memory of mails being received: bounded across all cores, and for each address.
//!
//! ```text
//!   a mail's buffer grows ─▶ the core's part of `receiving_bytes_max`, then steps of the common half ─▶ or 452
//!                        └─▶ beyond UNCOUNTED_BYTES: its address's bytes, at most half of all ───────▶ or 452
//! ```
//! A buffer grows by doubling: a mail of some kilobytes is charged once and writes to no cache line that
//! other cores write to.

use std::net::IpAddr;

use crate::{counters::Counter, store::core::Core};

/// Bytes of each mail that are not charged to its address. An address with the maximum number of connections
/// holds 40 MiB this way.
const UNCOUNTED_BYTES: usize = 32 << 10;
/// One address may hold 1/`ADDRESS_SHARE` of the memory for mails being received.
const ADDRESS_SHARE: usize = 2;
/// A mail may only begin if this much memory is free: the rest is reserved for mails that have already begun.
const BEGIN_BYTES: usize = 1 << 20;
const BEGIN_SHARE: usize = 8;

impl Core {
    /// Checks that there is memory for another mail; otherwise returns the counter of the refusal.
    pub(crate) fn check_budget(&self) -> Result<(), Counter> {
        let most = self.config().limits.receiving_bytes_max;
        let receiving = &self.clients.receiving;
        // If the total for all servers' clients is small, the core's own part is enough to begin.
        let is_room = receiving.has_room(BEGIN_BYTES.min(most / BEGIN_SHARE).min(receiving.own()));
        if is_room { Ok(()) } else { Err(Counter::ReceivingFull) }
    }

    /// Changes the charge of a mail of `peer` from `before` to `after` bytes. The charge is made even if it
    /// is refused: the caller then ends the mail and releases the charge.
    pub(crate) fn book_receiving(&self, peer: IpAddr, before: usize, after: usize) -> Result<(), Counter> {
        let is_room = self.clients.receiving.rebook(before, after);
        let counted = |bytes: usize| bytes.saturating_sub(UNCOUNTED_BYTES);
        let is_fair = counted(before) == counted(after) || {
            let most = self.config().limits.receiving_bytes_max / ADDRESS_SHARE;
            self.shared.peers.update_receiving(peer, counted(before), counted(after)) <= most
        };
        self.note_memory();
        match () {
            () if after <= before || (is_room && is_fair) => Ok(()),
            () if is_fair => Err(Counter::ReceivingFull),
            () => Err(Counter::AddressReceivingFull),
        }
    }
}
