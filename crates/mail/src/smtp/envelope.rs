//! A mail being received, with its sender and recipients, and how it is appended to the log.

use std::{collections::HashSet, io::Write, net::IpAddr, sync::Arc};

use engine::log::{AppendRefusal, AppendedRecord, Location};
use smallvec::SmallVec;

use super::{
    pending::AppendedMail,
    tail::{FRONT_BYTES, PartFault, Tail},
};
use crate::{
    counters::Counter,
    mailbox::mailboxes::{Inbox, MailId, Summary},
    smtp::transaction::Draft,
    store::{
        core::{Arrival, Core, MAIL, owner_of_mail},
        index::NewEntry,
        list_head::{self, Fields},
        record::{self, Meta, Part, Recipient},
        recovery::free_parts,
        shared_bodies::{self, SharedBody},
    },
};

/// The sender and recipients of MAIL and RCPT, and the content received after DATA.
#[derive(Debug, Default)]
pub(crate) struct Envelope {
    pub(crate) from: Box<str>,
    /// Recipients in the order accepted. If an inbox is named twice, the second recipient has no mail ID.
    pub(crate) recipients: SmallVec<[Recipient; 1]>,
    /// Our Received field, then the mail; of a large mail only its beginning.
    pub(crate) raw: Vec<u8>,
    /// The rest of a large mail.
    pub(crate) tail: Tail,
    /// True once the mail is complete and its subject and text have been checked against the rates.
    pub(crate) is_judged: bool,
    /// True while the mail waits for the core of one of its inboxes.
    pub(crate) waits_for_core: bool,
    /// Draft of the mail's transaction record.
    pub(crate) draft: Draft,
}

/// Number of recipients of a mail that are not charged to the memory of mails being received.
const RECIPIENTS_UNCOUNTED: usize = 16;
/// Approximate size of a recipient's texts: its inbox in two parts.
const RECIPIENT_TEXTS_BYTES: usize = 64;
/// Maximum number of recipients whose inboxes are compared pairwise to find duplicates.
const COMPARED_MAX: usize = 16;
/// Largest metadata buffer that a core keeps for reuse; a mail to a thousand recipients needs more.
const META_SPARE_MAX: usize = 64 << 10;

/// Null mail ID.
const NO_NAME: MailId = MailId(0);

/// Reason why a mail is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppendFault {
    TooLarge,
    /// The log is full or busy now, and may have room later.
    Room,
    /// The core of one of the inboxes is far behind, and may catch up later.
    Behind,
    /// Incomplete mails use all the memory or store space that they are allowed.
    Full(Counter),
}

impl From<AppendRefusal> for AppendFault {
    fn from(refused: AppendRefusal) -> Self {
        match refused {
            AppendRefusal::TooLarge => Self::TooLarge,
            AppendRefusal::Busy | AppendRefusal::Full => Self::Room,
        }
    }
}

impl From<PartFault> for AppendFault {
    fn from(not_taken: PartFault) -> Self {
        match not_taken {
            PartFault::Room => Self::Room,
            PartFault::Full(counter) => Self::Full(counter),
        }
    }
}

/// Data about the peer for the Received field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trace<'a> {
    pub(crate) hello: &'a str,
    pub(crate) peer: IpAddr,
    pub(crate) protocol: &'a str,
}

impl Envelope {
    /// Adds a recipient.
    pub(crate) fn add(&mut self, inbox: Inbox, said: &str) {
        self.recipients.push(Recipient { id: NO_NAME, inbox, said: SmallVec::from_slice(said.as_bytes()) });
    }

    /// Adds bytes of the mail's content.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let room = FRONT_BYTES.saturating_sub(self.raw.len());
        match bytes.split_at_checked(room) {
            // Most mails fit into `raw`.
            None => self.raw.extend_from_slice(bytes),
            Some((front, rest)) => {
                self.raw.extend_from_slice(front);
                if !rest.is_empty() {
                    self.tail.gather(rest);
                }
            }
        }
    }

    /// Returns the size of the mail so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.raw.len() as u64 + self.tail.bytes()
    }

    /// Returns the memory of the envelope, not counting its first few recipients.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.raw.capacity() + self.tail.memory_bytes() + self.recipient_bytes()
    }

    /// Writes the gathered bytes of a large mail to the log once they fill a part.
    pub(crate) fn write_part(&mut self, core: &Core, peer: IpAddr) -> Result<(), PartFault> {
        self.tail.write(core, peer, self.letter(), false)
    }

    /// Returns the mail's ID in its first inbox, which identifies it across all inboxes.
    fn letter(&self) -> MailId {
        self.recipients.first().map_or(NO_NAME, |recipient| recipient.id)
    }

    /// Returns the memory of all recipients but the first few, which are part of the memory that every
    /// session has.
    fn recipient_bytes(&self) -> usize {
        let beyond = self.recipients.capacity().saturating_sub(RECIPIENTS_UNCOUNTED);
        beyond * (size_of::<Recipient>() + RECIPIENT_TEXTS_BYTES)
    }

    /// Gives the mail an ID in each inbox, and puts our Received field at the beginning of its content (RFC
    /// 5321, 4.4).
    pub(crate) fn begin(&mut self, core: &Core, trace: Trace<'_>, now_ms: u64) {
        if let [only] = &mut *self.recipients {
            only.id = core.name(&only.inbox);
        } else {
            let is_first = first_of_their_inbox(&self.recipients);
            for (recipient, _) in self.recipients.iter_mut().zip(is_first).filter(|(_, is_first)| *is_first) {
                recipient.id = core.name(&recipient.inbox);
            }
        }
        let id = self.letter();
        let raw = &mut self.raw;
        let mut put = |text: &str| raw.extend_from_slice(text.as_bytes());
        put("Received: from ");
        put(if trace.hello.is_empty() { "unknown" } else { trace.hello });
        put(if trace.peer.is_ipv4() { " ([" } else { " ([IPv6:" });
        // Writing into memory cannot fail.
        let _ = write!(
            raw,
            "{}])\r\n\tby {} with {} id {id};\r\n\t",
            trace.peer,
            core.config().name,
            trace.protocol
        );
        core.write_date(now_ms, raw);
        raw.extend_from_slice(b"\r\n");
    }

    /// Appends the mail to the log: the rest of a large mail as parts, then one record, no matter how many
    /// cores own its inboxes. If the mail is stored, the envelope's texts are moved out of it; if the mail is
    /// refused, the texts stay here for another attempt.
    pub(crate) fn append_to_log(
        &mut self,
        core: &Core,
        peer: IpAddr,
        now_ms: u64,
    ) -> Result<AppendedMail, AppendFault> {
        let is_behind = self.is_for_core_behind(core);
        if std::mem::replace(&mut self.waits_for_core, is_behind) != is_behind && is_behind {
            core.count(Counter::CoreBehind);
        }
        if is_behind {
            return Err(AppendFault::Behind);
        }
        self.tail.write(core, peer, self.letter(), true)?;
        let raw_bytes = self.bytes();
        let Self { from, recipients, raw, tail, .. } = self;
        let fields = list_head::fields(raw);
        let meta =
            Meta { arrived_ms: now_ms, envelope_from: from, from: fields.from, subject: fields.subject };
        let mut head = core.buffers.meta.borrow_mut();
        meta.encode(recipients, &mut head);
        let (appended, record_bytes) = if tail.parts().is_empty() {
            append(core, &mut head, raw)?
        } else {
            record::chain(&mut head, tail.parts());
            (core.append(MAIL, 0, &[&head, raw])?, head.len() + raw.len())
        };
        if head.capacity() > META_SPARE_MAX {
            *head = Vec::with_capacity(META_SPARE_MAX);
        }
        let parts = tail.take_parts(core, peer);
        let record = Record { appended, record_bytes, raw_bytes, parts: &parts, fields, now_ms };
        let arrivals = arrivals(core, from, recipients, &record);
        let record = (appended.location, record_bytes);
        Ok(AppendedMail { ticket: appended.ticket, arrivals, record, parts, raw_bytes })
    }
}

impl Envelope {
    /// Returns whether too many messages wait for the core of one of the inboxes.
    fn is_for_core_behind(&self, core: &Core) -> bool {
        let named = self.recipients.iter().filter(|recipient| recipient.id != NO_NAME);
        named.map(|recipient| owner_of_mail(recipient.id, core.cores)).any(|owner| core.is_far_behind(owner))
    }
}

/// Returns which recipients are the first to name their inbox. Only a few recipients are compared pairwise,
/// as a thousand would take milliseconds.
fn first_of_their_inbox(recipients: &[Recipient]) -> SmallVec<[bool; COMPARED_MAX]> {
    if recipients.len() <= COMPARED_MAX {
        let is_first = |at: usize| recipients[..at].iter().all(|other| other.inbox != recipients[at].inbox);
        return (0..recipients.len()).map(is_first).collect();
    }
    let mut seen = HashSet::with_capacity(recipients.len());
    recipients.iter().map(|recipient| seen.insert(&recipient.inbox)).collect()
}

/// A mail that has been appended to the log.
struct Record<'a> {
    appended: AppendedRecord,
    record_bytes: usize,
    raw_bytes: u64,
    parts: &'a Option<Arc<[Part]>>,
    fields: Fields<'a>,
    now_ms: u64,
}

/// Builds the index entries for the cores that own a mail's inboxes. Nothing is copied: the summaries take
/// over the inbox names from `recipients`, and the last summary takes over the sender.
fn arrivals(
    core: &Core,
    from: &mut Box<str>,
    recipients: &mut [Recipient],
    record: &Record<'_>,
) -> SmallVec<[Arrival; 1]> {
    let &Record { appended, record_bytes, raw_bytes, parts, fields, now_ms: arrived_ms } = record;
    let named = || recipients.iter().filter(|recipient| recipient.id != NO_NAME);
    let mut left = named().count();
    let letter = named().next().map_or(NO_NAME, |recipient| recipient.id);
    let inboxes = u16::try_from(left).unwrap_or(u16::MAX);
    let mut arrivals = SmallVec::with_capacity(left);
    for Recipient { id, inbox, .. } in recipients.iter_mut().filter(|recipient| recipient.id != NO_NAME) {
        left -= 1;
        let envelope_from = if left == 0 { std::mem::take(from) } else { from.clone() };
        let summary = Summary {
            id: *id,
            letter,
            inboxes,
            inbox: inbox.take(),
            envelope_from,
            from: fields.from.into(),
            subject: fields.subject.into(),
            arrived_ms,
            expires_ms: arrived_ms.saturating_add(core.retention_ms()),
            size_bytes: raw_bytes,
        };
        let entry = NewEntry {
            id: *id,
            letter,
            inboxes,
            location: appended.location.bits(),
            record_bytes: u32::try_from(record_bytes).unwrap_or(u32::MAX),
            mail_bytes: u32::try_from(raw_bytes).unwrap_or(u32::MAX),
            arrived_ms,
            parts: parts.clone(),
        };
        arrivals.push(Arrival { entry, summary: Arc::new(summary) });
    }
    arrivals
}

/// Appends the mail after its metadata, without its body if the segment has an equal body already. Returns
/// the size of the record.
fn append(core: &Core, meta: &mut Vec<u8>, raw: &[u8]) -> Result<(AppendedRecord, usize), AppendRefusal> {
    let parts = if core.config().share_bodies { shared_bodies::split(raw) } else { None };
    let Some((head, body)) = parts else {
        let appended = core.append(MAIL, 0, &[meta, raw])?;
        return Ok((appended, meta.len() + raw.len()));
    };
    let hash = shared_bodies::hash(body);
    if let Some(known) = core.mails.recent_bodies.borrow().find(hash, body.len())
        && let Some(location) = Location::from_bits(known.location)
    {
        let record_bytes = meta.len() + record::SHARED_BODY_BYTES + head.len();
        if core.log.writer.borrow().has_beside(location, known.at as usize, body, record_bytes) {
            record::share(meta, &known);
            let appended = core.append(MAIL, 0, &[meta, head])?;
            core.count(Counter::SharedBodies);
            core.observers.counters.add(Counter::SharedBodyBytes, body.len() as u64);
            return Ok((appended, record_bytes));
        }
    }
    let appended = core.append(MAIL, 0, &[meta, raw])?;
    let record_bytes = meta.len() + raw.len();
    // All of these are smaller than a segment, so they fit.
    let narrow = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let stored = SharedBody {
        location: appended.location.bits(),
        record_bytes: narrow(record_bytes),
        at: narrow(meta.len() + head.len()),
        bytes: narrow(body.len()),
    };
    core.mails.recent_bodies.borrow_mut().remember(hash, stored);
    Ok((appended, record_bytes))
}

/// Deletes the record of a mail that gets no 250, so that the mail does not appear after a restart.
pub(crate) fn revoke_record(core: &Core, kept: &AppendedMail) {
    let (location, payload_bytes) = kept.record;
    // If the delete is refused as well, the mail may appear after a restart although its sender was told to
    // try again.
    let _ = core.log.writer.borrow_mut().delete(location);
    core.shared.reader.died(location, payload_bytes);
    free_parts(&core.shared.reader, kept.parts.as_deref().unwrap_or_default());
}
