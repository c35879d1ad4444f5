//! An SMTP or LMTP session: replies to commands and stores mails. Sessions do not use sockets.

use std::{io::Write, net::IpAddr};

use wire::smtp::{
    command::{Hello, HelloKind, MailFrom},
    dialog::{Dialog, DialogStep, Terms},
    reply::{self, Reply},
};

use super::{
    ListenerKind,
    envelope::{AppendFault, Envelope, Trace, revoke_record},
    pending::{AppendedMail, PendingReply},
    tail::PartFault,
};
use crate::{
    abuse::Judgement,
    config::Config,
    counters::Counter,
    mailbox::mailboxes::{Inbox, MailId},
    smtp::{
        address::NAME_LETTERS,
        transaction::{Draft, Sender},
    },
    store::{core::Core, list_head},
};

/// 250 after a mail was stored as durably as configured. The mail's ID precedes this text.
const KEPT: Reply = Reply::new(250, "2.0.0", "kept");
const NO_ROOM: Reply = Reply::new(452, "4.3.1", "The store has no room now; later");
const BEHIND: Reply = Reply::new(451, "4.3.2", "A part of the server does not keep up; later");
const RECEIVING_FULL: Reply = Reply::new(452, "4.3.1", "Too many mails are being received; later");
const ADDRESS_RECEIVING_FULL: Reply =
    Reply::new(452, "4.3.1", "Too many mails of your network are being received; later");
const STORE_FAILED: Reply = Reply::new(451, "4.3.0", "The mail could not be stored; later");
const FOREIGN_DOMAIN: Reply =
    Reply::new(550, "5.7.1", "No mail is taken for this domain, and none is relayed");
/// 421 to a session that was silent for too long.
pub(crate) const TIMEOUT: Reply = Reply::new(421, "4.4.2", "Silent for too long; closing");
/// 421 to a session whose mail took too long.
pub(crate) const SLOW_MAIL: Reply = Reply::new(421, "4.4.2", "The mail took too long; closing");
/// 421 to a session that has reached its limit of time, commands, or bytes.
pub(crate) const SESSION_OVER: Reply =
    Reply::new(421, "4.7.0", "This session has lasted long enough; closing, come again");
/// 421 while the server stops.
pub(crate) const STOPPING: Reply = Reply::new(421, "4.3.2", "The server is stopping; later");
/// 421 to a connection over the limit.
pub(crate) const TOO_MANY_CONNECTIONS: Reply = Reply::new(421, "4.3.2", "Too many connections; later");

/// Reason why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    /// All bytes are consumed: read more.
    Read,
    /// The connection closes after the replies.
    Close,
    /// The peer sent QUIT: the connection closes after the replies, and no more input is expected.
    Quit,
    /// TLS begins after the replies.
    StartTls,
    /// A mail is complete, but there is no room for it: [`Session::end_mail`] is to be called again a little
    /// later.
    Room,
}

/// Result of a turn.
#[derive(Default)]
pub(crate) struct TurnOutcome {
    /// Replies, in order.
    pub(crate) out: Vec<u8>,
    pub(crate) waiting: Vec<PendingReply>,
    /// True if the peer is near a rate limit: its replies are delayed.
    pub(crate) slow: bool,
}

/// State of an SMTP or LMTP session.
pub(crate) struct Session {
    pub(crate) dialog: Dialog,
    peer: IpAddr,
    hello: Box<str>,
    /// The current mail, from MAIL to the end of its content.
    envelope: Option<Envelope>,
    /// Commands (or pieces of mails) and bytes received so far.
    commands: usize,
    bytes: usize,
    /// True once the session has reached its maximum duration.
    pub(crate) is_late: bool,
    /// Bytes charged for the current mail.
    receiving: usize,
}

impl Session {
    pub(crate) fn new(core: &Core, peer: IpAddr, kind: ListenerKind) -> Self {
        let terms = Terms {
            lmtp: kind == ListenerKind::Lmtp,
            offers_tls: core.shared.tls.is_some(),
            tls: kind == ListenerKind::Smtps,
            mail_bytes_max: core.config().limits.mail_bytes_max,
        };
        Self {
            dialog: Dialog::new(terms),
            peer,
            hello: Box::default(),
            envelope: None,
            commands: 0,
            bytes: 0,
            is_late: false,
            receiving: 0,
        }
    }

    /// Writes the greeting.
    pub(crate) fn greet(&self, config: &Config, out: &mut Vec<u8>) {
        out.extend_from_slice(b"220 ");
        out.extend_from_slice(config.name.as_bytes());
        out.extend_from_slice(if self.dialog.is_lmtp() {
            b" LMTP Nighttrain: anyone can read what is sent here\r\n"
        } else {
            b" ESMTP Nighttrain: anyone can read what is sent here\r\n"
        });
    }

    /// Processes `bytes`; returns how many were consumed, and why the turn ended.
    pub(crate) fn handle_input(
        &mut self,
        core: &Core,
        bytes: &[u8],
        now_ms: u64,
        turn: &mut TurnOutcome,
    ) -> (usize, TurnEnd) {
        let mut at = 0;
        loop {
            // The check is skipped within a mail, which has limits of its own.
            if at < bytes.len() && self.is_over(core) && !self.dialog.is_receiving() {
                core.count(Counter::LongSessions);
                SESSION_OVER.write(&mut turn.out);
                return (at, TurnEnd::Close);
            }
            let most = core.config().limits.mail_bytes_max;
            let mut over = false;
            let (used, ask) = match &mut self.envelope {
                None => self.dialog.step(&bytes[at..], |_| ()),
                Some(envelope) => self.dialog.step(&bytes[at..], |piece| {
                    // Our own Received field is not counted towards the limit announced by SIZE.
                    over = over || envelope.bytes() + piece.len() as u64 > most + RECEIVED_BYTES_MAX;
                    if !over {
                        envelope.take(piece);
                    }
                }),
            };
            at += used;
            self.bytes += used;
            self.commands += usize::from(ask != DialogStep::NeedMore);
            if used > 0
                && self.dialog.is_receiving()
                && let Err(counter) = self.charge_envelope(core)
            {
                // The rest of the input is part of the mail for as long as the peer sends, so only closing
                // ends it.
                core.count(counter);
                self.refuse(core, budget_reply(counter), turn);
                return (at, TurnEnd::Close);
            }
            if over {
                // Reading the rest of a mail that is too large would only waste resources.
                core.count(Counter::TooLarge);
                self.refuse(core, reply::TOO_LARGE, turn);
                return (at, TurnEnd::Close);
            }
            let stop = match ask {
                DialogStep::NeedMore => return (at, self.write_part(core, turn).unwrap_or(TurnEnd::Read)),
                DialogStep::GoOn => None,
                DialogStep::Reply(reply) => {
                    if reply.is_refusal() {
                        core.count(Counter::Faults);
                    }
                    reply.write(&mut turn.out);
                    None
                }
                DialogStep::Close(reply) => {
                    match reply {
                        reply::NOT_HTTP => core.count(Counter::HttpRequests),
                        reply::TOO_MANY_FAULTS => core.count(Counter::TooManyFaults),
                        reply::TOO_LARGE => core.count(Counter::TooLarge),
                        _ => {}
                    }
                    reply.write(&mut turn.out);
                    Some(if reply == reply::BYE { TurnEnd::Quit } else { TurnEnd::Close })
                }
                DialogStep::Hello(hello) => {
                    self.forget(core);
                    self.hello(core.config(), &hello, &mut turn.out);
                    None
                }
                DialogStep::Mail(from) => self.mail(core, &from, now_ms, turn),
                DialogStep::Rcpt(to) => self.recipient(core, to, now_ms, turn),
                DialogStep::MailBegins { send_first } => self.begin(core, send_first, now_ms, turn),
                DialogStep::ChunkEnds => {
                    reply::CHUNK_OK.write(&mut turn.out);
                    None
                }
                DialogStep::MailEnds => self.end_mail(core, now_ms, turn),
                DialogStep::Forget(reply) => {
                    self.forget(core);
                    reply.write(&mut turn.out);
                    None
                }
                DialogStep::StartTls => {
                    reply::START_TLS.write(&mut turn.out);
                    Some(TurnEnd::StartTls)
                }
            };
            if let Some(stop) = stop {
                return (at, stop);
            }
        }
    }

    /// Returns whether the session has reached one of its limits.
    fn is_over(&self, core: &Core) -> bool {
        let limits = &core.config().limits;
        self.is_late || self.commands > limits.session_commands_max || self.bytes > limits.session_bytes_max
    }

    fn hello(&mut self, config: &Config, hello: &Hello<'_>, out: &mut Vec<u8>) {
        self.hello = hello.name.into();
        let mut put = |text: &str| out.extend_from_slice(text.as_bytes());
        if hello.kind == HelloKind::Helo {
            put("250 ");
            put(&config.name);
            put("\r\n");
            return;
        }
        put("250-");
        put(&config.name);
        put("\r\n250-PIPELINING\r\n250-SIZE ");
        put(itoa::Buffer::new().format(config.limits.mail_bytes_max));
        put("\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-CHUNKING\r\n250-ENHANCEDSTATUSCODES\r\n");
        if self.dialog.may_start_tls() {
            put("250-STARTTLS\r\n");
        }
        put("250 AUTH PLAIN LOGIN\r\n");
    }

    fn mail(
        &mut self,
        core: &Core,
        from: &MailFrom<'_>,
        now_ms: u64,
        turn: &mut TurnOutcome,
    ) -> Option<TurnEnd> {
        let draft = self.draft(core, 0, from.address);
        if from.size_bytes > core.config().limits.mail_bytes_max {
            core.count(Counter::TooLarge);
            draft.log_refused(core.scribe(), reply::TOO_LARGE);
            return self.refuse(core, reply::TOO_LARGE, turn);
        }
        match core.clients.abuse.borrow().sender(from.address, self.peer, now_ms) {
            Judgement::Fine => {}
            Judgement::Slow => turn.slow = true,
            Judgement::Refuse(reply, counter) => {
                core.count(counter);
                draft.log_refused(core.scribe(), reply);
                return self.refuse(core, reply, turn);
            }
        }
        self.dialog.sender_accepted(from.smtputf8);
        let envelope =
            Envelope { from: from.address.into(), raw: core.buffer(), draft, ..Envelope::default() };
        self.envelope = Some(envelope);
        reply::SENDER_OK.write(&mut turn.out);
        None
    }

    fn recipient(&mut self, core: &Core, to: &str, now_ms: u64, turn: &mut TurnOutcome) -> Option<TurnEnd> {
        let Some(envelope) = &mut self.envelope else { unreachable!("a recipient comes after the sender") };
        let config = core.config();
        if envelope.recipients.len() >= config.limits.recipients_max {
            // The refusal is not the sender's fault: the sender submits the mail again for these recipients
            // (RFC 5321, 4.5.3.1.10).
            core.count(Counter::TooManyRecipients);
            self.note_refused(core, to, reply::TOO_MANY_RECIPIENTS);
            reply::TOO_MANY_RECIPIENTS.write(&mut turn.out);
            return None;
        }
        let Ok(inbox) = Inbox::of(to, &config.default_domain) else {
            core.count(Counter::BadRecipients);
            return self.refuse_recipient(core, to, reply::RECIPIENT_SYNTAX, turn);
        };
        if !config.domains.is_empty() && config.domains.iter().all(|domain| **domain != *inbox.domain) {
            core.count(Counter::ForeignDomains);
            return self.refuse_recipient(core, to, FOREIGN_DOMAIN, turn);
        }
        match core.clients.abuse.borrow().recipient(&inbox, now_ms) {
            Judgement::Fine => {}
            Judgement::Slow => turn.slow = true,
            Judgement::Refuse(reply, counter) => {
                core.count(counter);
                return self.refuse_recipient(core, to, reply, turn);
            }
        }
        envelope.draft.recipient(to);
        envelope.add(inbox, to);
        self.dialog.recipient_accepted();
        if let Err(counter) = self.charge_envelope(core) {
            // Recipients take memory that a peer can hold indefinitely, just like the bytes of a mail.
            core.count(counter);
            self.refuse(core, budget_reply(counter), turn);
            return Some(TurnEnd::Close);
        }
        reply::RECIPIENT_OK.write(&mut turn.out);
        None
    }

    fn begin(
        &mut self,
        core: &Core,
        send_first: Option<Reply>,
        now_ms: u64,
        turn: &mut TurnOutcome,
    ) -> Option<TurnEnd> {
        if let Err(counter) = core.check_budget() {
            core.count(counter);
            self.refuse(core, RECEIVING_FULL, turn);
            // A peer sends BDAT chunks without waiting for a reply.
            return send_first.is_none().then_some(TurnEnd::Close);
        }
        let Some(envelope) = &mut self.envelope else { unreachable!("a mail comes after its recipients") };
        let trace = Trace { hello: &self.hello, peer: self.peer, protocol: self.dialog.protocol() };
        envelope.begin(core, trace, now_ms);
        if let Some(reply) = send_first {
            reply.write(&mut turn.out);
        }
        None
    }

    /// Retries the write that waited for room: of a complete mail, or of a part of a mail being received.
    pub(crate) fn resume_mail(
        &mut self,
        core: &Core,
        now_ms: u64,
        turn: &mut TurnOutcome,
    ) -> Option<TurnEnd> {
        match self.is_whole() {
            true => self.end_mail(core, now_ms, turn),
            false => self.write_part(core, turn),
        }
    }

    /// Returns whether the current mail is complete.
    pub(crate) fn is_whole(&self) -> bool {
        self.envelope.as_ref().is_some_and(|envelope| envelope.is_judged)
    }

    /// Writes the gathered bytes of a large mail to the log once they fill a part.
    fn write_part(&mut self, core: &Core, turn: &mut TurnOutcome) -> Option<TurnEnd> {
        match self.envelope.as_mut()?.write_part(core, self.peer) {
            Ok(()) => None,
            Err(PartFault::Room) => Some(TurnEnd::Room),
            Err(PartFault::Full(counter)) => {
                // The rest of the input is part of the mail for as long as the peer sends, so only closing
                // ends it.
                core.count(counter);
                self.refuse(core, budget_reply(counter), turn);
                Some(TurnEnd::Close)
            }
        }
    }

    /// Stores a complete mail and writes its reply, which is sent once the mail is durable.
    pub(crate) fn end_mail(&mut self, core: &Core, now_ms: u64, turn: &mut TurnOutcome) -> Option<TurnEnd> {
        let Some(envelope) = &mut self.envelope else { unreachable!("a mail that ends has begun") };
        let lines = if self.dialog.is_lmtp() { envelope.recipients.len() } else { 1 };
        let subject = list_head::fields(&envelope.raw).subject;
        // Rates are checked only once, although a mail that waits for room is retried here.
        let judgement = match std::mem::replace(&mut envelope.is_judged, true) {
            true => Judgement::Fine,
            false => core.clients.abuse.borrow().mail(subject, &envelope.raw, now_ms),
        };
        match judgement {
            Judgement::Fine => {}
            Judgement::Slow => turn.slow = true,
            Judgement::Refuse(reply, counter) => {
                core.count(counter);
                (1..lines).for_each(|_| reply.write(&mut turn.out));
                return self.refuse(core, reply, turn);
            }
        }
        let bytes = usize::try_from(envelope.bytes()).unwrap_or(usize::MAX);
        let kept = match envelope.append_to_log(core, self.peer, now_ms) {
            Ok(kept) => kept,
            Err(AppendFault::TooLarge) => {
                core.count(Counter::TooLarge);
                (1..lines).for_each(|_| reply::TOO_LARGE.write(&mut turn.out));
                return self.refuse(core, reply::TOO_LARGE, turn);
            }
            Err(AppendFault::Full(counter)) => {
                core.count(counter);
                let reply = budget_reply(counter);
                (1..lines).for_each(|_| reply.write(&mut turn.out));
                return self.refuse(core, reply, turn);
            }
            Err(AppendFault::Room | AppendFault::Behind) => return Some(TurnEnd::Room),
        };
        if self.dialog.had_bare_line_ends() {
            core.count(Counter::BareLineEnds);
        }
        let at = turn.out.len();
        let id = envelope.recipients.first().map_or(MailId(0), |recipient| recipient.id);
        // Buffer of the fixed length of a mail ID.
        let mut name = [b' '; NAME_LETTERS];
        let _ = write!(&mut name[..], "{id}");
        (0..lines).for_each(|_| KEPT.write_about(&mut turn.out, &name));
        let mut draft = std::mem::take(&mut envelope.draft);
        draft.log_data_end(bytes, &name);
        turn.waiting.push(PendingReply { kept, at, len: turn.out.len() - at, lines, draft });
        self.forget(core);
        self.dialog.mail_done();
        None
    }

    /// Refuses a mail for which no room was found in time. The rest of an incomplete mail must not be read as
    /// commands, so the session ends.
    pub(crate) fn give_up_mail(&mut self, core: &Core, turn: &mut TurnOutcome) -> TurnEnd {
        let waits_for_core = self.envelope.as_ref().is_some_and(|envelope| envelope.waits_for_core);
        let reply = if waits_for_core {
            // The mail was counted when it began to wait.
            BEHIND
        } else {
            core.count(Counter::StoreFull);
            NO_ROOM
        };
        if !self.is_whole() {
            self.refuse(core, reply, turn);
            return TurnEnd::Close;
        }
        let recipients = self.envelope.as_ref().map_or(1, |envelope| envelope.recipients.len());
        let lines = if self.dialog.is_lmtp() { recipients } else { 1 };
        (1..lines).for_each(|_| reply.write(&mut turn.out));
        self.refuse(core, reply, turn);
        TurnEnd::Read
    }

    /// Returns the ID of the mail being received, from DATA or the first BDAT to its end.
    pub(crate) fn incoming_mail(&self) -> Option<MailId> {
        let envelope = self.envelope.as_ref().filter(|envelope| !envelope.raw.is_empty())?;
        envelope.recipients.first().map(|recipient| recipient.id)
    }

    /// Drops the current mail. Returns whether there was a mail.
    pub(crate) fn forget(&mut self, core: &Core) -> bool {
        let envelope = self.envelope.take();
        let was_one = envelope.is_some();
        if let Some(mut envelope) = envelope {
            envelope.tail.give_up(core, self.peer);
            envelope.draft.log_aborted(core.scribe());
            core.recycle_buffer(envelope.raw);
        }
        let booked = std::mem::take(&mut self.receiving);
        if booked > 0 {
            // Releasing memory never fails.
            let _ = core.book_receiving(self.peer, booked, 0);
        }
        was_one
    }

    /// Charges the growth of the mail's buffer and recipients.
    ///
    /// # Errors
    /// Returns the counter of the limit that was hit.
    fn charge_envelope(&mut self, core: &Core) -> Result<(), Counter> {
        let Some(envelope) = &self.envelope else { return Ok(()) };
        let bytes = envelope.memory_bytes();
        if bytes == self.receiving {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.receiving, bytes);
        core.book_receiving(self.peer, before, bytes)
    }

    /// Refuses the current mail, which ends it.
    fn refuse(&mut self, core: &Core, reply: Reply, turn: &mut TurnOutcome) -> Option<TurnEnd> {
        core.count(Counter::Refused);
        if let Some(envelope) = &mut self.envelope {
            std::mem::take(&mut envelope.draft).log_refused(core.scribe(), reply);
        }
        self.forget(core);
        self.dialog.mail_done();
        reply.write(&mut turn.out);
        None
    }

    fn draft(&self, core: &Core, parent: u64, from: &str) -> Draft {
        let sender = Sender { peer: self.peer, hello: &self.hello, protocol: self.dialog.protocol(), from };
        Draft::begin(core.scribe(), parent, sender)
    }

    /// Writes a transaction record about a refused recipient.
    fn note_refused(&self, core: &Core, to: &str, reply: Reply) {
        if let Some(envelope) = &self.envelope {
            let mut draft = self.draft(core, envelope.draft.id(), &envelope.from);
            draft.recipient(to);
            draft.log_refused(core.scribe(), reply);
        }
    }

    /// Refuses a recipient; the mail continues with the other recipients.
    fn refuse_recipient(
        &mut self,
        core: &Core,
        to: &str,
        reply: Reply,
        turn: &mut TurnOutcome,
    ) -> Option<TurnEnd> {
        self.note_refused(core, to, reply);
        if self.dialog.refused() {
            reply::TOO_MANY_FAULTS.write(&mut turn.out);
            return Some(TurnEnd::Close);
        }
        reply.write(&mut turn.out);
        None
    }
}

/// Returns the reply when the memory for mails being received is exhausted.
fn budget_reply(counter: Counter) -> Reply {
    match counter {
        Counter::AddressReceivingFull | Counter::AddressPartsFull => ADDRESS_RECEIVING_FULL,
        _ => RECEIVING_FULL,
    }
}

/// Adds a mail to those that a turn waits for. The mail did not arrive by SMTP, so there is no reply to send.
pub(crate) fn push_pending(kept: AppendedMail, turn: &mut TurnOutcome) {
    turn.waiting.push(PendingReply { kept, at: 0, len: 0, lines: 0, draft: Draft::default() });
}

/// Upper bound for the size of our Received field.
const RECEIVED_BYTES_MAX: u64 = 1024;
impl TurnOutcome {
    /// Creates an outcome from spare buffers of earlier turns.
    pub(crate) fn begin(core: &Core) -> Self {
        let waiting = core.buffers.spare_replies.borrow_mut().pop().unwrap_or_default();
        Self { out: core.buffer(), waiting, slow: false }
    }

    /// Returns the buffers for reuse after the replies were sent.
    pub(crate) fn end(self, core: &Core) {
        core.recycle_buffer(self.out);
        core.recycle_waiting(self.waiting);
    }

    /// Waits until every mail of the turn is stored, then publishes the mails. If a mail could not be stored,
    /// its record is deleted and its reply becomes 451. Returns whether all were stored.
    pub(crate) async fn settle(&mut self, core: &Core) -> bool {
        let Some(ticket) = self.waiting.iter().map(|waiting| waiting.kept.ticket).max() else { return true };
        let kept = core.wait_durable(ticket).await;
        if let Err(error) = kept {
            tracing::error!(%error, "cannot store a mail");
        }
        for PendingReply { kept: mail, at, len, lines, draft } in self.waiting.drain(..).rev() {
            if kept.is_err() {
                draft.log_refused(core.scribe(), STORE_FAILED);
                revoke_record(core, &mail);
                core.count(Counter::StoreFailed);
                core.count(Counter::Refused);
                let mut instead = Vec::new();
                (0..lines).for_each(|_| STORE_FAILED.write(&mut instead));
                self.out.splice(at..at + len, instead);
            } else {
                draft.log_accepted(core.scribe());
                core.count(Counter::Received);
                core.observers.counters.add(Counter::ReceivedBytes, mail.raw_bytes);
                core.observers.counters.add(Counter::Deliveries, mail.arrivals.len() as u64);
                core.publish(mail.arrivals);
            }
        }
        kept.is_ok()
    }
}
