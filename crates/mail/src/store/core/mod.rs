//! State of one core: the index of its inboxes, its log writer, its scratch buffers.
//!
//! The state is plain memory of the core's thread, shared by its tasks through an `Rc`. Borrows are short and
//! never held across an `.await`. State of other cores is reached by [`Message`]s.

mod buffers;
mod messages;
mod owner;
mod parts;

use std::{
    cell::Cell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use engine::{
    cores::{Rounds, SteadyClock, clock, listener::Balance, mesh::Sender, watch::Watches},
    heap::HeapTrimmer,
    holding::ClientMemoryBudget,
    journal::Scribe,
    log::{
        AppendRefusal, AppendedRecord, DurabilityError, Kind, Location, NewRecord, Reader, Ticket, Writer,
    },
    meter::CoreCounters,
    share::CommonPart,
};
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::{
    abuse::Abuse,
    config::{Config, Durability},
    counters::Counter,
    mailbox::mailboxes::{Event, Inbox, MailId, RemainingName, Unavailable},
    store::{
        annotations::Note,
        backlog::Backlog,
        index::{EarlyExpiryOutcome, Place, RemovedMail, Role},
        record::Part,
        recovery::{RecoveredCore, free_parts},
        shared_bodies::RecentBodies,
        summary_cache::SummaryCache,
    },
};

pub(crate) use messages::{
    Arrival, HURRIED, InboxRemoval, ListEntry, MAIL, Message, NOTED, PART, Question, UNLINKED,
};
use owner::{CORE_BITS, EPOCH_MS, HASH_BITS, NS_A_MS, NUMBER_BITS, hash8};
pub(crate) use owner::{CORES_MAX, name_without_inbox, owner, owner_of_mail};
use parts::{Buffers, Clients, Listeners, LogPart, Mails, Observers, Rings};
pub(crate) use parts::{READ_BYTES, SCRATCH_BYTES};

/// State that all cores share.
pub(crate) struct SharedState {
    pub(crate) config: Config,
    pub(crate) reader: Reader,
    pub(crate) balance: Arc<Balance>,
    /// True once an event listener has subscribed. The flag is never cleared: a core that reads it after one
    /// listener has ended and before the next has begun would not send the second listener a mail's event.
    pub(crate) listening: Arc<AtomicBool>,
    pub(crate) events: tokio::sync::broadcast::Sender<Event>,
    pub(crate) tls: Option<tokio_rustls::TlsAcceptor>,
    /// Memory for mails being received, beyond each core's own part.
    pub(crate) receiving: Arc<CommonPart>,
    /// Memory for connections, beyond each core's own part.
    pub(crate) connections: Arc<CommonPart>,
    /// Bytes of incomplete mails that the store holds.
    pub(crate) parts_bytes: AtomicU64,
    /// Connections and rates by address, across all cores.
    pub(crate) peers: Arc<crate::abuse::PeerLimits>,
}

/// State of one core.
pub(crate) struct Core {
    pub(crate) number: usize,
    pub(crate) cores: usize,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) is_draining: Cell<bool>,
    /// Schedule of the core's housekeeping.
    pub(crate) rounds: Rounds,
    pub(crate) mails: Mails,
    pub(crate) log: LogPart,
    pub(crate) clients: Clients,
    pub(crate) buffers: Buffers,
    pub(crate) rings: Rings,
    pub(crate) listeners: Listeners,
    pub(crate) observers: Observers,
}

/// Interval of a core's housekeeping while there is something to do: deadlines, expiry, making room in
/// advance.
const HOUSEKEEPING_EVERY: Duration = Duration::from_millis(100);

/// Parts from which a core is built.
pub(crate) struct CoreParts {
    pub(crate) recovered: RecoveredCore,
    pub(crate) writer: Writer,
    pub(crate) sender: Sender<Message>,
    pub(crate) counters: CoreCounters<Counter>,
    pub(crate) last_name: u64,
    pub(crate) scribe: Option<Scribe>,
}

impl Core {
    pub(crate) fn new(number: usize, cores: usize, shared: Arc<SharedState>, owned: CoreParts) -> Self {
        let CoreParts { recovered, writer, sender, counters, last_name, scribe } = owned;
        let RecoveredCore { index, delivery_refs, notes } = recovered;
        let lists = Arc::new(shared.config.lists.clone());
        let receiving_bytes_max = shared.config.limits.receiving_bytes_max;
        Self {
            number,
            cores,
            is_draining: false.into(),
            rounds: Rounds::new(HOUSEKEEPING_EVERY),
            mails: Mails {
                index: index.into(),
                delivery_refs: delivery_refs.into(),
                notes: notes.into(),
                summaries: SummaryCache::default().into(),
                recent_bodies: RecentBodies::default().into(),
                last_name: last_name.into(),
                clock: SteadyClock::new(),
            },
            log: LogPart { progress: writer.progress(), writer: writer.into(), wants_room: Notify::new() },
            clients: Clients {
                abuse: Abuse { lists, peers: Arc::clone(&shared.peers) }.into(),
                watches: Watches::default().into(),
                turns: Rc::default(),
                receiving: ClientMemoryBudget::new(Arc::clone(&shared.receiving), receiving_bytes_max, cores),
                connection_memory: ClientMemoryBudget::new(
                    Arc::clone(&shared.connections),
                    usize::MAX / 2,
                    cores,
                ),
            },
            buffers: Buffers {
                scratch: vec![0; SCRATCH_BYTES].into(),
                meta: Vec::with_capacity(4096).into(),
                spare_mails: Vec::new().into(),
                spare_replies: Vec::new().into(),
                date: (u64::MAX, String::new()).into(),
                trimmer: HeapTrimmer::default().into(),
            },
            rings: Rings { sender, backlog: Backlog::new(cores).into() },
            listeners: Listeners { must_tell: false.into(), missed: false.into(), told: Notify::new() },
            observers: Observers { counters, scribe },
            shared,
        }
    }

    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.observers.counters.add(counter, 1);
    }

    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Returns the writer of the transaction log, if there is one.
    #[inline]
    pub(crate) fn scribe(&self) -> Option<&Scribe> {
        self.observers.scribe.as_ref()
    }

    pub(crate) fn retention_ms(&self) -> u64 {
        u64::try_from(self.config().retention.age.as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns a new, unique mail ID. IDs increase with time even if the clock is set back. The IDs of two
    /// cores follow the order of arrival to within 2 µs. The coarse clock would not suffice: it has the same
    /// value for some milliseconds, and lists would show the mails of that time in the order of the cores.
    pub(crate) fn name(&self, inbox: &Inbox) -> MailId {
        let now_ns = clock::unix_ns();
        let ms = (now_ns / NS_A_MS).saturating_sub(EPOCH_MS);
        let within = ((now_ns % NS_A_MS) << NUMBER_BITS) / NS_A_MS;
        let next = (ms << NUMBER_BITS | within).max(self.mails.last_name.get() + 1);
        self.mails.last_name.set(next);
        MailId(next << (HASH_BITS + CORE_BITS) | (self.number as u64) << HASH_BITS | hash8(inbox))
    }

    /// Appends a record to the log.
    pub(crate) fn append(
        &self,
        kind: Kind,
        tag: u64,
        parts: &[&[u8]],
    ) -> Result<AppendedRecord, AppendRefusal> {
        self.append_new(NewRecord { kind, hash: 0, tag, target: None }, parts)
    }

    fn append_new(&self, new: NewRecord, parts: &[&[u8]]) -> Result<AppendedRecord, AppendRefusal> {
        // The append may use up a free segment, which housekeeping must replace.
        self.rounds.stir();
        self.log.writer.borrow_mut().append(new, parts)
    }

    /// Waits until a record is as durable as a 250 promises. One write, or one sync, serves all waiting
    /// sessions.
    pub(crate) async fn wait_durable(&self, ticket: Ticket) -> Result<(), DurabilityError> {
        match self.config().durability {
            Durability::Process => {
                // Yielding lets sessions whose mails complete in this turn of the loop append first, so that
                // one write serves them all.
                tokio::task::yield_now().await;
                if !self.log.progress.is_written(ticket) {
                    // The write runs on this thread: waking a helper costs more than a write into the page
                    // cache.
                    self.log.writer.borrow().write_here();
                }
                self.log.progress.written(ticket).await
            }
            Durability::Power => {
                self.log.writer.borrow().make_durable();
                self.log.progress.durable(ticket).await
            }
        }
    }

    /// Sends a message to another core, now or when its ring has room again. [`Backlog`] bounds the waiting
    /// messages.
    pub(crate) fn give(&self, to: usize, message: Message) {
        let mut backlog = self.rings.backlog.borrow_mut();
        let message = if backlog.has(to) {
            message
        } else {
            match self.rings.sender.send(to, message) {
                Ok(()) => return self.rings.sender.flush(),
                Err(message) => {
                    self.count(Counter::RingFull);
                    message
                }
            }
        };
        backlog.push(to, message);
        self.rounds.stir();
    }

    /// Retries the messages for which the rings had no room.
    pub(crate) fn send_backlog(&self) {
        let mut backlog = self.rings.backlog.borrow_mut();
        if backlog.is_empty() {
            return;
        }
        backlog.give(|to, message| self.rings.sender.send(to, message));
        self.rings.sender.flush();
    }

    /// Returns whether the backlog of a core is full because the core does not read its messages.
    pub(crate) fn is_far_behind(&self, core: usize) -> bool {
        self.rings.backlog.borrow().is_full(core)
    }

    /// Enters stored mails into the indexes of the cores that own their inboxes.
    pub(crate) fn publish(&self, arrivals: SmallVec<[Arrival; 1]>) {
        if arrivals.iter().all(|arrival| owner(&arrival.summary.inbox, self.cores) == self.number) {
            return self.enter(arrivals);
        }
        let mut elsewhere: Vec<(usize, Vec<Arrival>)> = Vec::new();
        let mut here = Vec::new();
        for arrival in arrivals {
            let owner = owner(&arrival.summary.inbox, self.cores);
            if owner == self.number {
                here.push(arrival);
            } else if let Some((_, batch)) = elsewhere.iter_mut().find(|(to, _)| *to == owner) {
                batch.push(arrival);
            } else {
                elsewhere.push((owner, vec![arrival]));
            }
        }
        if !here.is_empty() {
            self.enter(here);
        }
        for (to, batch) in elsewhere {
            self.give(to, Message::Arrived(batch));
        }
    }

    /// Enters mails into the index of this core, which owns their inboxes.
    pub(crate) fn enter(&self, arrivals: impl IntoIterator<Item = Arrival>) {
        self.rounds.stir();
        for Arrival { entry, summary } in arrivals {
            if entry.role() == Role::First {
                self.mails.delivery_refs.borrow_mut().add_inboxes(entry.letter, entry.inboxes.into());
            }
            let over = self.mails.index.borrow_mut().insert(entry, &summary.inbox);
            self.send_event(Event::Arrived(Arc::clone(&summary)));
            self.mails.summaries.borrow_mut().insert(summary);
            if let Some(gone) = over.and_then(|id| self.remove(id)) {
                self.count(Counter::DroppedForCount);
                self.remove_from_inbox(gone, true);
            }
            self.drop_oldest_mails();
        }
    }

    /// Drops the oldest mails while the index is over its memory limit.
    fn drop_oldest_mails(&self) {
        loop {
            let oldest = self.mails.index.borrow().oldest_above_limit();
            let Some(gone) = oldest.and_then(|id| self.remove(id)) else { return };
            self.count(Counter::DroppedForIndex);
            self.remove_from_inbox(gone, true);
        }
    }

    /// Removes a mail from the index. The inbox name is moved out of the mail's summary if nothing else
    /// refers to the summary.
    pub(crate) fn remove(&self, id: MailId) -> Option<RemovedMail> {
        let mut recent = self.mails.summaries.borrow_mut();
        let inbox = match recent.remove(id) {
            // The list of all mails shows the summary as long as another inbox has the mail.
            Some(summary) if summary.inboxes > 1 && summary.is_letter() => {
                recent.put_back(summary);
                None
            }
            shown => shown.and_then(Arc::into_inner).map(|summary| summary.inbox),
        };
        self.mails.index.borrow_mut().remove(id, inbox)
    }

    /// Handles a mail that has left its inbox. The mail's record is deleted, too, unless other inboxes have
    /// the mail. With `for_good`, the mail does not come back after a crash once the returned ticket is
    /// durable.
    pub(crate) fn remove_from_inbox(&self, gone: RemovedMail, for_good: bool) -> Option<Ticket> {
        self.rounds.stir();
        let RemovedMail { place, inbox, letter, hurried_by, parts } = gone;
        let (ticket, remains) = match place.role {
            Role::Only => (self.end_record(place, parts.as_deref(), &[], for_good), RemainingName::Nothing),
            Role::First | Role::Other => self.release_delivery(place.id, letter, for_good),
        };
        self.free_marker(hurried_by);
        match remains {
            // The list of all mails now shows the mail until it expires in the other inboxes.
            RemainingName::ThisName => {
                let expires_ms = place.arrived_ms.saturating_add(self.retention_ms());
                self.mails.summaries.borrow_mut().expires(place.id, expires_ms);
            }
            RemainingName::Nothing | RemainingName::OtherName => {
                self.mails.summaries.borrow_mut().remove(place.id);
                self.free_note(place.id);
            }
        }
        self.send_event(Event::Deleted { inbox, id: place.id, remains });
        ticket
    }

    /// Removes a mail from one of several inboxes. The owner of the first inbox is notified; if that is this
    /// core and no other inbox has the mail, the record is deleted.
    fn release_delivery(
        &self,
        id: MailId,
        letter: MailId,
        for_good: bool,
    ) -> (Option<Ticket>, RemainingName) {
        let answers_for_it = owner_of_mail(letter, self.cores) == self.number;
        if answers_for_it && self.mails.delivery_refs.borrow().is_last(letter) {
            self.mails.delivery_refs.borrow_mut().release(letter);
            let ticket = self.delete_record(letter, for_good);
            if id == letter {
                return (ticket, RemainingName::Nothing);
            }
            self.send_event(Event::Over { letter });
            return (ticket, RemainingName::OtherName);
        }
        let written = if for_good { self.append(UNLINKED, id.0, &[]).ok() } else { None };
        let (ticket, marker) = (written.map(|of| of.ticket), written.map(|of| of.location.bits()));
        let let_go = InboxRemoval { letter, marker, for_good };
        if answers_for_it {
            self.apply_release(let_go);
        } else {
            self.give(owner_of_mail(letter, self.cores), Message::LetGo(let_go));
        }
        (ticket, if id == letter { RemainingName::ThisName } else { RemainingName::OtherName })
    }

    /// Handles the removal of a mail from an inbox of another core; this core is responsible for the mail's
    /// record.
    pub(crate) fn apply_release(&self, InboxRemoval { letter, marker, for_good }: InboxRemoval) {
        self.rounds.stir();
        let is_over = {
            let mut refs = self.mails.delivery_refs.borrow_mut();
            if let Some(marker) = marker {
                refs.let_go_by(letter, marker);
            }
            refs.release(letter)
        };
        if is_over {
            // Each inbox's deletion is recorded already, so the ticket is not needed.
            let _ = self.delete_record(letter, for_good);
            self.send_event(Event::Over { letter });
        }
    }

    /// Deletes the record of a mail after the last of several inboxes has dropped the mail.
    fn delete_record(&self, letter: MailId, for_good: bool) -> Option<Ticket> {
        let markers = self.mails.delivery_refs.borrow_mut().forget(letter);
        self.mails.summaries.borrow_mut().remove(letter);
        self.free_note(letter);
        let (place, parts) = self.mails.index.borrow_mut().remove_unlinked(letter)?;
        self.end_record(place, parts.as_deref(), &markers, for_good)
    }

    /// Deletes a record, with its parts and the markers of its deletions.
    fn end_record(
        &self,
        place: Place,
        parts: Option<&[Part]>,
        markers: &[u64],
        for_good: bool,
    ) -> Option<Ticket> {
        let Some(location) = Location::from_bits(place.location) else {
            unreachable!("a location is never zero")
        };
        let mut ticket = None;
        if for_good && let Ok(appended) = self.log.writer.borrow_mut().delete(location) {
            ticket = Some(appended.ticket);
        }
        self.shared.reader.died(location, place.record_bytes as usize);
        free_parts(&self.shared.reader, parts.unwrap_or_default());
        markers.iter().for_each(|marker| self.free_marker(Some(*marker)));
        ticket
    }

    /// Frees the record of an early expiry.
    fn free_marker(&self, marker: Option<u64>) {
        if let Some(marker) = marker.and_then(Location::from_bits) {
            self.shared.reader.died(marker, 0);
        }
    }

    /// Frees the note of a mail that is deleted.
    fn free_note(&self, id: MailId) {
        if let Some(at) = self.mails.notes.borrow_mut().forget(id)
            && let Some(location) = Location::from_bits(at.location)
        {
            self.shared.reader.died(location, at.payload_bytes as usize);
        }
    }

    /// Writes the note of a mail, which replaces the earlier note. Returns no ticket if the mail no longer
    /// exists or its note was written too often.
    pub(crate) fn write_note(&self, id: MailId, note: &Note) -> Result<Option<Ticket>, Unavailable> {
        if self.mails.index.borrow().place(id, self.now_ms()).is_none() {
            return Ok(None);
        }
        let mut notes = self.mails.notes.borrow_mut();
        let before =
            notes.find(id).and_then(|at| Some((Location::from_bits(at.location)?, at.payload_bytes)));
        let unavailable = |refused: AppendRefusal| Unavailable::Disk(refused.to_string());
        let ticket = if note.is_empty() {
            // An empty note needs no record.
            let Some((location, _)) = before else { return Ok(None) };
            let ended = self.log.writer.borrow_mut().delete(location).map_err(unavailable)?;
            notes.forget(id);
            ended.ticket
        } else {
            if !notes.may_write(id) {
                self.count(Counter::NotesNotWritten);
                return Ok(None);
            }
            let payload = note.payload();
            let target = before.map(|(location, _)| location);
            let new = NewRecord { kind: NOTED, hash: note.flags(), tag: id.0, target };
            let written = self.append_new(new, &[&payload]).map_err(unavailable)?;
            let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            notes.set_location(id, written.location.bits(), bytes);
            written.ticket
        };
        if let Some((location, payload_bytes)) = before {
            self.shared.reader.died(location, payload_bytes as usize);
        }
        Ok(Some(ticket))
    }

    /// Makes a mail expire earlier. The new expiry survives a crash once the returned ticket is durable.
    /// Returns no ticket if the mail no longer exists or expires by then anyway.
    pub(crate) fn expire_early(&self, id: MailId, expires_ms: u64) -> Result<Option<Ticket>, Unavailable> {
        let may = self.mails.index.borrow().check_early_expiry(id, expires_ms, self.now_ms());
        match may {
            EarlyExpiryOutcome::Gone | EarlyExpiryOutcome::NoNeed => return Ok(None),
            EarlyExpiryOutcome::TooOften => {
                self.count(Counter::HurriesRefused);
                return Err(Unavailable::TooOften("the end of this mail was changed too often; delete it"));
            }
            EarlyExpiryOutcome::Yes => {}
        }
        let marker = NewRecord { kind: HURRIED, hash: expires_ms, tag: id.0, target: None };
        let written =
            self.append_new(marker, &[]).map_err(|refused| Unavailable::Disk(refused.to_string()))?;
        let before = self.mails.index.borrow_mut().set_early_expiry(id, expires_ms, written.location.bits());
        self.free_marker(before);
        self.mails.summaries.borrow_mut().expires(id, expires_ms);
        self.count(Counter::Hurried);
        Ok(Some(written.ticket))
    }

    /// Sends an event to the listeners, if there are any.
    pub(crate) fn send_event(&self, event: Event) {
        if !self.shared.listening.load(Ordering::Relaxed) {
            return;
        }
        self.send_missed_event();
        // The mesh endpoint after the cores' endpoints belongs to the listeners' thread.
        if self.listeners.missed.get() || self.rings.sender.send(self.cores, Message::Told(event)).is_err() {
            self.count(Counter::EventsLost);
            self.listeners.missed.set(true);
        }
        if !self.listeners.must_tell.replace(true) {
            self.listeners.told.notify_one();
        }
    }

    /// Tells the listeners that events were lost, once the ring has room again.
    fn send_missed_event(&self) {
        if self.listeners.missed.get()
            && self.rings.sender.send(self.cores, Message::Told(Event::Missed)).is_ok()
        {
            self.listeners.missed.set(false);
        }
    }

    /// Wakes the listeners if there are events for them.
    pub(crate) fn wake_listeners(&self) {
        if !self.listeners.must_tell.replace(false) {
            return;
        }
        self.send_missed_event();
        self.rings.sender.flush();
        // Retries until the listeners know of the loss, even if no further mail arrives.
        if self.listeners.missed.get() {
            self.listeners.must_tell.set(true);
            self.listeners.told.notify_one();
        }
    }

    /// Returns the time used for arrival and expiry of mails. The clock never goes back. If the system's
    /// clock is stepped, the new time is adopted only after it has persisted for a while.
    pub(crate) fn now_ms(&self) -> u64 {
        self.mails.clock.unix_ms()
    }
}
