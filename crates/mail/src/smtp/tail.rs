//! The rest of a large mail beyond its beginning: written to the log in parts while the mail is being
//! received.
//!
//! ```text
//!  bytes ─▶ Envelope::raw, up to FRONT_BYTES ─▶ then `gathered` ─┬─ PART_BYTES ─▶ record of kind PART ─▶ `parts`
//!                                                               └─ no room ─▶ the peer waits (TurnEnd::Room)
//!  whole ─▶ the record of the mail: its beginning, and where the parts are; only that makes it a mail
//! ```
//! A mail of any size therefore takes no more memory than [`FRONT_BYTES`] and one part. Parts that no record
//! names are garbage: they are freed when the mail is abandoned, and a start frees those that a crash left
//! behind.
//!
//! *Bounds:* parts of incomplete mails take at most half of the store, and those of one address at most half
//! of that; further mails get 452.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use engine::log::AppendRefusal;

use crate::{
    counters::Counter,
    mailbox::mailboxes::MailId,
    store::{
        core::{Core, PART, SCRATCH_BYTES},
        record::Part,
        recovery,
    },
};

/// Bytes of a mail that are in its record, and in memory while it is received.
pub(crate) const FRONT_BYTES: usize = 256 << 10;
/// Bytes gathered after the beginning before they are written as a part.
pub(crate) const PART_BYTES: usize = 256 << 10;
/// Parts of incomplete mails may take 1/`STORE_SHARE` of the store.
const STORE_SHARE: u64 = 2;
/// One address may use 1/`ADDRESS_SHARE` of the store space for incomplete mails.
const ADDRESS_SHARE: u64 = 2;

/// The rest of a mail being received.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Bytes that are not in the log yet.
    gathered: Vec<u8>,
    /// Parts in the log, in order.
    parts: Vec<Part>,
    parts_bytes: u64,
}

/// Reason why a part was not written to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartFault {
    /// The log has no room now, and may have room later.
    Room,
    /// Parts of incomplete mails have reached their limit of store space.
    Full(Counter),
}

impl Tail {
    pub(crate) fn gather(&mut self, bytes: &[u8]) {
        if self.gathered.capacity() == 0 {
            // Capacity for a part, and for a read from the connection that goes beyond the part.
            self.gathered.reserve_exact(PART_BYTES + SCRATCH_BYTES);
        }
        self.gathered.extend_from_slice(bytes);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.parts_bytes + self.gathered.len() as u64
    }

    /// Returns the memory that the tail takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.gathered.capacity() + self.parts.capacity() * size_of::<Part>()
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Writes the gathered bytes once they fill a part, or any number of bytes at the end of the mail.
    pub(crate) fn write(
        &mut self,
        core: &Core,
        peer: IpAddr,
        letter: MailId,
        is_end: bool,
    ) -> Result<(), PartFault> {
        let enough = if is_end { 1 } else { PART_BYTES };
        if self.gathered.len() < enough {
            return Ok(());
        }
        let bytes = self.gathered.len() as u64;
        core.arrive_in_parts(peer, bytes).map_err(PartFault::Full)?;
        let appended = match core.append_part(letter, &self.gathered) {
            Ok(appended) => appended,
            Err(AppendRefusal::Busy | AppendRefusal::Full) => {
                core.parts_over(peer, bytes);
                return Err(PartFault::Room);
            }
            Err(AppendRefusal::TooLarge) => unreachable!("a part is far smaller than a segment"),
        };
        self.parts.push(Part { location: appended.location.bits(), bytes: self.gathered.len() as u32 });
        self.parts_bytes += bytes;
        self.gathered.clear();
        core.count(Counter::Parts);
        Ok(())
    }

    /// Returns the parts, if any, for the mail whose record has been appended; they no longer count as
    /// incomplete.
    pub(crate) fn take_parts(&mut self, core: &Core, peer: IpAddr) -> Option<Arc<[Part]>> {
        if self.parts.is_empty() {
            return None;
        }
        core.parts_over(peer, std::mem::take(&mut self.parts_bytes));
        Some(std::mem::take(&mut self.parts).into())
    }

    /// Frees the parts of an abandoned mail.
    pub(crate) fn give_up(&mut self, core: &Core, peer: IpAddr) {
        if !self.parts.is_empty() {
            recovery::free_parts(&core.shared.reader, &self.parts);
            core.parts_over(peer, self.parts_bytes);
        }
        *self = Self::default();
    }
}

impl Core {
    /// Appends a part of a mail, unless the part would take space that mails with a single record need.
    fn append_part(
        &self,
        letter: MailId,
        bytes: &[u8],
    ) -> Result<engine::log::AppendedRecord, AppendRefusal> {
        self.rounds.stir();
        let mut writer = self.log.writer.borrow_mut();
        let new = engine::log::NewRecord { kind: PART, hash: 0, tag: letter.0, target: None };
        let mut filling = writer.begin_if_spare(new, bytes.len())?;
        filling.write(bytes);
        let appended = writer.finish(filling);
        // A helper writes the part now, so that little is left to write at the end of the mail.
        writer.flush();
        Ok(appended)
    }

    /// Adds bytes to the count of incomplete mails in the store, or returns the counter of the limit that
    /// they exceed.
    fn arrive_in_parts(&self, peer: IpAddr, bytes: u64) -> Result<(), Counter> {
        let most = self.config().store_bytes / STORE_SHARE;
        let in_all = self.shared.parts_bytes.fetch_add(bytes, Relaxed) + bytes;
        let of_peer = self.shared.peers.parts(peer).fetch_add(bytes, Relaxed) + bytes;
        let fault = match () {
            () if in_all > most => Counter::PartsFull,
            () if of_peer > most / ADDRESS_SHARE => Counter::AddressPartsFull,
            () => return Ok(()),
        };
        self.parts_over(peer, bytes);
        Err(fault)
    }

    /// Subtracts bytes from the count of incomplete mails because their mail is complete or abandoned.
    fn parts_over(&self, peer: IpAddr, bytes: u64) {
        self.shared.parts_bytes.fetch_sub(bytes, Relaxed);
        self.shared.peers.parts(peer).fetch_sub(bytes, Relaxed);
    }
}
