//! A mail under way: who sent it to whom, and its bytes so far; and how it is put into the log.

use std::{io::Write, net::IpAddr, sync::Arc};

use engine::log::{Appended, Location, Refused, Ticket};
use smallvec::SmallVec;

use crate::{
    bodies::{self, SharedBody},
    core::{Arrival, Core, MAIL, owner},
    counters::Counter,
    head::{self, Fields},
    index::NewEntry,
    mailboxes::{Inbox, MailId, Summary},
    record::{self, Meta, Recipient},
    transaction::Draft,
};

/// What MAIL and RCPT said, and what came after DATA.
#[derive(Debug, Default)]
pub(crate) struct Envelope {
    pub(crate) from: Box<str>,
    /// As they were accepted. Of an inbox that was named twice the second has no name for the mail.
    pub(crate) recipients: SmallVec<[Recipient; 1]>,
    /// Our Received field, then the mail.
    pub(crate) raw: Vec<u8>,
    /// Subject and text were held against the rates.
    pub(crate) is_judged: bool,
    /// What the log will say of it.
    pub(crate) draft: Draft,
}

/// No mail.
const NO_NAME: MailId = MailId(0);

/// A mail whose record is appended but not yet as safe as 250 says.
pub(crate) struct Kept {
    pub(crate) ticket: Ticket,
    pub(crate) arrivals: SmallVec<[Arrival; 1]>,
    /// Its records, should they have to be taken back.
    pub(crate) records: SmallVec<[(Location, usize); 1]>,
    pub(crate) raw_bytes: u64,
}

/// Who speaks to us, for Received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trace<'a> {
    pub(crate) hello: &'a str,
    pub(crate) peer: IpAddr,
    pub(crate) protocol: &'a str,
}

impl Envelope {
    /// Takes a recipient.
    pub(crate) fn add(&mut self, inbox: Inbox, said: &str) {
        self.recipients.push(Recipient { id: NO_NAME, inbox, said: SmallVec::from_slice(said.as_bytes()) });
    }

    /// Names the mail in each inbox, and begins it with our Received field (RFC 5321, 4.4).
    pub(crate) fn begin(&mut self, core: &Core, trace: Trace<'_>, now_ms: u64) {
        for at in 0..self.recipients.len() {
            let (before, rest) = self.recipients.split_at_mut(at);
            let recipient = &mut rest[0];
            if before.iter().all(|other| other.inbox != recipient.inbox) {
                recipient.id = core.name(&recipient.inbox, now_ms);
            }
        }
        let id = self.recipients.first().map_or(NO_NAME, |recipient| recipient.id);
        let raw = &mut self.raw;
        let mut put = |text: &str| raw.extend_from_slice(text.as_bytes());
        put("Received: from ");
        put(if trace.hello.is_empty() { "unknown" } else { trace.hello });
        put(if trace.peer.is_ipv4() { " ([" } else { " ([IPv6:" });
        // Into memory: it cannot fail.
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

    /// Appends the mail to the log: one record for all of its inboxes that one core owns. Once it is kept, the
    /// envelope's texts have gone with it; if it is refused, they are still here for another try.
    pub(crate) fn keep(&mut self, core: &Core, now_ms: u64) -> Result<Kept, Refused> {
        let Self { from, recipients, raw, .. } = self;
        let mut kept = Kept {
            ticket: Ticket::default(),
            arrivals: SmallVec::with_capacity(recipients.len()),
            records: SmallVec::new(),
            raw_bytes: raw.len() as u64,
        };
        let whole = Whole { raw, fields: head::fields(raw), arrived_ms: now_ms };
        if core.cores == 1 || recipients.len() == 1 {
            whole.keep_group(core, from, recipients, &mut kept)?;
            return Ok(kept);
        }
        for group in 0..core.cores {
            let (mut from, mut recipients) = (from.clone(), recipients.clone());
            for recipient in &mut recipients {
                if owner(&recipient.inbox, core.cores) != group {
                    recipient.id = NO_NAME;
                }
            }
            if recipients.iter().any(|recipient| recipient.id != NO_NAME)
                && let Err(refused) = whole.keep_group(core, &mut from, &mut recipients, &mut kept)
            {
                take_back(core, &kept);
                return Err(refused);
            }
        }
        Ok(kept)
    }
}

/// A mail that has ended.
struct Whole<'a> {
    raw: &'a [u8],
    fields: Fields<'a>,
    arrived_ms: u64,
}

impl Whole<'_> {
    /// Appends one record for those of `recipients` that have a name for the mail. What lists show of it takes their
    /// inboxes, and the last the sender, instead of copies.
    fn keep_group(
        &self,
        core: &Core,
        from: &mut Box<str>,
        recipients: &mut [Recipient],
        kept: &mut Kept,
    ) -> Result<(), Refused> {
        let Self { raw, fields, arrived_ms } = *self;
        let meta = Meta { arrived_ms, envelope_from: from, from: fields.from, subject: fields.subject };
        let mut head = core.meta.borrow_mut();
        meta.encode(recipients, &mut head);
        let (appended, record_bytes) = self.append(core, &mut head)?;
        kept.ticket = kept.ticket.max(appended.ticket);
        kept.records.push((appended.location, record_bytes));
        let mut left = recipients.iter().filter(|recipient| recipient.id != NO_NAME).count();
        let shared = left > 1;
        for Recipient { id, inbox, .. } in recipients.iter_mut().filter(|recipient| recipient.id != NO_NAME) {
            left -= 1;
            let envelope_from = if left == 0 { std::mem::take(from) } else { from.clone() };
            let summary = Summary {
                id: *id,
                inbox: inbox.take(),
                envelope_from,
                from: fields.from.into(),
                subject: fields.subject.into(),
                arrived_ms,
                expires_ms: arrived_ms.saturating_add(core.retention_ms()),
                size_bytes: raw.len() as u64,
            };
            let entry = NewEntry {
                id: *id,
                location: appended.location.bits(),
                record_bytes: u32::try_from(record_bytes).unwrap_or(u32::MAX),
                mail_bytes: u32::try_from(raw.len()).unwrap_or(u32::MAX),
                arrived_ms,
                shared,
            };
            kept.arrivals.push(Arrival { entry, summary: Arc::new(summary) });
        }
        Ok(())
    }

    /// Appends the mail behind its meta, without its body where the segment has that already; the bytes of the record.
    fn append(&self, core: &Core, meta: &mut Vec<u8>) -> Result<(Appended, usize), Refused> {
        let parts = if core.config().share_bodies { bodies::split(self.raw) } else { None };
        let Some((head, body)) = parts else {
            let appended = core.append(MAIL, 0, &[meta, self.raw])?;
            return Ok((appended, meta.len() + self.raw.len()));
        };
        let hash = bodies::hash(body);
        if let Some(known) = core.bodies.borrow().find(hash, body.len())
            && let Some(location) = Location::from_bits(known.location)
        {
            let record_bytes = meta.len() + record::SHARED_BODY_BYTES + head.len();
            if core.writer.borrow().has_beside(location, known.at as usize, body, record_bytes) {
                record::share(meta, &known);
                let appended = core.append(MAIL, 0, &[meta, head])?;
                core.count(Counter::SharedBodies);
                core.counters.add(Counter::SharedBodyBytes, body.len() as u64);
                return Ok((appended, record_bytes));
            }
        }
        let appended = core.append(MAIL, 0, &[meta, self.raw])?;
        let record_bytes = meta.len() + self.raw.len();
        // None of them is larger than a segment.
        let narrow = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let stored = SharedBody {
            location: appended.location.bits(),
            record_bytes: narrow(record_bytes),
            at: narrow(meta.len() + head.len()),
            bytes: narrow(body.len()),
        };
        core.bodies.borrow_mut().remember(hash, stored);
        Ok((appended, record_bytes))
    }
}

/// Ends the records of a mail that will not get its 250, so that none is shown after a restart.
pub(crate) fn take_back(core: &Core, kept: &Kept) {
    for (location, payload_bytes) in &kept.records {
        // If even this is refused, the mail may be shown after a restart though its sender was told to try again.
        let _ = core.writer.borrow_mut().delete(*location);
        core.shared.reader.died(*location, *payload_bytes);
    }
}
