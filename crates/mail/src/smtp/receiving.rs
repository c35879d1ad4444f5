//! Memory of mails that are being received: bounded over all cores, and for each address.
//!
//! ```text
//!   a mail's buffer grows ─▶ the core's part of `receiving_bytes_max`, then steps of the common half ─▶ or 452
//!                        └─▶ beyond UNCOUNTED_BYTES: its address's bytes, at most half of all ───────▶ or 452
//! ```
//! A buffer grows by doubling: a mail of some kilobytes books once and writes to no line that other cores write to.

use std::{net::IpAddr, sync::Arc};

use engine::share::{CommonPart, Share};

use crate::{counters::Counter, store::core::Core};

/// So much of each mail is not counted for its address. An address that has all the connections that it may have comes
/// to 40 MiB with it.
const UNCOUNTED_BYTES: usize = 32 << 10;
/// The part of all that one address may have.
const ADDRESS_SHARE: usize = 2;
/// While less than this is left no mail begins: what was let in has the rest.
const BEGIN_BYTES: usize = 1 << 20;
const BEGIN_SHARE: usize = 8;

/// What a core has received of mails that are not whole.
#[derive(Debug)]
pub(crate) struct ReceiveBudget {
    share: Share,
    bytes: usize,
}

impl ReceiveBudget {
    pub(crate) fn new(common: &Arc<CommonPart>, total: usize, cores: usize) -> Self {
        Self { share: Share::new(Arc::clone(common), total, cores), bytes: 0 }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Core {
    /// Whether another mail may begin.
    pub(crate) fn may_receive(&self) -> Result<(), Counter> {
        let most = self.config().limits.receiving_bytes_max;
        let ReceiveBudget { share, bytes } = &mut *self.receiving.borrow_mut();
        // Where all servers' clients have little, a core's own part is enough to begin.
        let begin_bytes = BEGIN_BYTES.min(most / BEGIN_SHARE).min(share.own());
        let is_room = share.allows(*bytes + begin_bytes);
        if is_room { Ok(()) } else { Err(Counter::ReceivingFull) }
    }

    /// Books that a mail of `peer` takes `after` bytes and not `before` any more. What is refused is booked all the
    /// same: who ends the mail for it books it back.
    pub(crate) fn book_receiving(&self, peer: IpAddr, before: usize, after: usize) -> Result<(), Counter> {
        let is_room = {
            let ReceiveBudget { share, bytes } = &mut *self.receiving.borrow_mut();
            *bytes = *bytes - before + after;
            share.allows(*bytes)
        };
        let counted = |bytes: usize| bytes.saturating_sub(UNCOUNTED_BYTES);
        let is_fair = counted(before) == counted(after) || {
            let most = self.config().limits.receiving_bytes_max / ADDRESS_SHARE;
            self.shared.peers.hold(peer, counted(before), counted(after)) <= most
        };
        self.note_memory();
        match () {
            () if after <= before || (is_room && is_fair) => Ok(()),
            () if is_fair => Err(Counter::ReceivingFull),
            () => Err(Counter::AddressReceivingFull),
        }
    }
}
