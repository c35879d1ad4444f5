//! What a large mail has beyond its beginning: put into the log while it comes, in parts.
//!
//! ```text
//!  bytes ─▶ Envelope::raw, up to FRONT_BYTES ─▶ then `gathered` ─┬─ PART_BYTES ─▶ record of kind PART ─▶ `parts`
//!                                                               └─ no room ─▶ the peer waits (Stop::Room)
//!  whole ─▶ the record of the mail: its beginning, and where the parts are; only that makes it a mail
//! ```
//! So a mail of any size takes as much memory as one of [`FRONT_BYTES`] and a part. Parts that no record names are
//! nobody's: they count no more when the mail is given up, and a start gives up those that a crash left behind.
//!
//! *Bounds:* parts of mails that are not whole take half of the store at most, those of one address half of that; beyond,
//! 452.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use engine::log::AppendRefusal;

use super::connection::SCRATCH_BYTES;
use crate::{
    counters::Counter,
    mailbox::mailboxes::MailId,
    store::{
        core::{Core, PART},
        record::Part,
        recovery,
    },
};

/// So much of a mail is in its record, and in memory while it comes.
pub(crate) const FRONT_BYTES: usize = 256 << 10;
/// What comes behind it is written when it comes to so much.
pub(crate) const PART_BYTES: usize = 256 << 10;
/// The part of the store that parts of mails that are not whole may take.
const STORE_SHARE: u64 = 2;
/// And of that the part of one address.
const ADDRESS_SHARE: u64 = 2;

/// The rest of a mail under way.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Not in the log yet.
    gathered: Vec<u8>,
    /// In the log, in order.
    parts: Vec<Part>,
    parts_bytes: u64,
}

/// Why a part is not in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartFault {
    /// Later there may be room.
    Room,
    /// Mails that are not whole take all that they may.
    Full(Counter),
}

impl Tail {
    pub(crate) fn gather(&mut self, bytes: &[u8]) {
        if self.gathered.capacity() == 0 {
            // What one look at the connection brings comes on top.
            self.gathered.reserve_exact(PART_BYTES + SCRATCH_BYTES);
        }
        self.gathered.extend_from_slice(bytes);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.parts_bytes + self.gathered.len() as u64
    }

    /// What it takes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.gathered.capacity() + self.parts.capacity() * size_of::<Part>()
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Writes what there is if it is a part, or, at the end of the mail, whatever it is.
    pub(crate) fn write(
        &mut self,
        core: &Core,
        (peer, letter): (IpAddr, MailId),
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

    /// The mail is one: its record has been appended. Its parts, if it has any.
    pub(crate) fn becomes_mail(&mut self, core: &Core, peer: IpAddr) -> Option<Arc<[Part]>> {
        if self.parts.is_empty() {
            return None;
        }
        core.parts_over(peer, std::mem::take(&mut self.parts_bytes));
        Some(std::mem::take(&mut self.parts).into())
    }

    /// The mail is given up.
    pub(crate) fn give_up(&mut self, core: &Core, peer: IpAddr) {
        if !self.parts.is_empty() {
            recovery::parts_died(&core.shared.reader, &self.parts);
            core.parts_over(peer, self.parts_bytes);
        }
        *self = Self::default();
    }
}

impl Core {
    /// Appends a part of a mail, unless mails of one record would be refused for it.
    fn append_part(
        &self,
        letter: MailId,
        bytes: &[u8],
    ) -> Result<engine::log::AppendedRecord, AppendRefusal> {
        self.rounds.stir();
        let mut writer = self.writer.borrow_mut();
        let new = engine::log::NewRecord { kind: PART, hash: 0, tag: letter.0, target: None };
        let mut filling = writer.begin_if_spare(new, bytes.len())?;
        filling.write(bytes);
        let appended = writer.finish(filling);
        // A helper writes it: at the end little is left for the loop.
        writer.flush();
        Ok(appended)
    }

    /// So many bytes more of mails that are not whole are to be in the store.
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

    /// These are of a mail now, or given up.
    fn parts_over(&self, peer: IpAddr, bytes: u64) {
        self.shared.parts_bytes.fetch_sub(bytes, Relaxed);
        self.shared.peers.parts(peer).fetch_sub(bytes, Relaxed);
    }
}
