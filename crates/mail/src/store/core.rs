//! What one core owns: its inboxes' index, its way into the log, its scratch.
//!
//! Plain memory of the core's thread, shared by its tasks through an `Rc`. Borrows are short and never held across an
//! `.await`. What other cores own is reached by [`Message`]s.

use std::{
    cell::{Cell, RefCell},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use engine::{
    cores::{
        Rounds, SteadyClock, clock, fair::TurnScheduler, listener::Balance, mesh::Sender, watch::Watches,
    },
    heap::HeapTrimmer,
    holding::ClientMemoryBudget,
    journal::Scribe,
    log::{
        AppendRefusal, AppendedRecord, DurabilityError, Kind, Location, NewRecord, Progress, Reader, Ticket,
        Writer,
    },
    meter::CoreCounters,
    share::CommonPart,
};
use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};

use crate::{
    abuse::Abuse,
    config::{Config, Durability},
    counters::Counter,
    mailbox::mailboxes::{Event, Inbox, MailId, RemainingName, Scope, StoredPage, Summary, Unavailable},
    smtp::{
        ListenerKind as Listening, connection::SCRATCH_BYTES, receiving::ReceiveBudget, session::PendingReply,
    },
    store::{
        annotations::{Note, Notes},
        backlog::Backlog,
        delivery_refs::DeliveryRefs,
        index::{EarlyExpiryOutcome, Index, NewEntry, Place, RemovedMail, Role, hash_of_inbox},
        record::Part,
        recovery::parts_died,
        shared_bodies::RecentBodies,
        summary_cache::SummaryCache,
    },
};

/// A mail with its recipients.
pub(crate) const MAIL: Kind = Kind(1);
/// One inbox of several deleted the mail; the tag is the mail's name there.
pub(crate) const UNLINKED: Kind = Kind(2);
/// A mail goes before its age; the tag is its name, the hash the millisecond.
pub(crate) const HURRIED: Kind = Kind(3);

/// What is said about a mail; the tag is its name, the hash and the payload as [`crate::store::annotations::Note`] has them.
pub(crate) const NOTED: Kind = Kind(4);

/// A part of a large mail; the tag is the mail's name over all inboxes. Without a record that names it, it is nobody's.
pub(crate) const PART: Kind = Kind(5);

/// A mail that can be read from now on.
pub(crate) struct Arrival {
    pub(crate) entry: NewEntry,
    pub(crate) summary: Arc<Summary>,
}

/// What cores and askers say to each other.
pub(crate) enum Message {
    /// To the owner of an inbox: these can be read.
    Arrived(Vec<Arrival>),
    /// To the owner of a mail's first inbox: another inbox has let it go.
    LetGo(InboxRemoval),
    /// Somebody asks.
    Ask(Question),
    /// Summaries that were read from the log, for the next who asks.
    Remember(Vec<Arc<Summary>>),
    /// To all: forget what lies in this segment of the log.
    Reclaim(u32),
    /// To the listeners.
    Told(Event),
    /// A connection that another core had too many of.
    Accept(std::net::TcpStream, SocketAddr, Listening),
    /// The lists were read again.
    Lists(Arc<crate::abuse::Lists>),
}

/// An inbox of several has let a mail go.
pub(crate) struct InboxRemoval {
    /// The mail's name in its first inbox.
    pub(crate) letter: MailId,
    /// Where that is written, if it is.
    pub(crate) marker: Option<u64>,
    /// It must not come back after a crash.
    pub(crate) for_good: bool,
}

/// Where a mail lies, and what lists show of it if that is in memory.
pub(crate) struct ListEntry {
    pub(crate) place: Place,
    pub(crate) summary: Option<Arc<Summary>>,
}

/// What pages and APIs ask of a core.
pub(crate) enum Question {
    List {
        scope: Scope,
        skip: usize,
        limit: usize,
        answer: oneshot::Sender<Vec<ListEntry>>,
    },
    Count {
        scope: Scope,
        answer: oneshot::Sender<u64>,
    },
    Mail {
        id: MailId,
        answer: oneshot::Sender<Option<ListEntry>>,
    },
    /// Those of them that are there.
    Mails {
        ids: Vec<MailId>,
        answer: oneshot::Sender<Vec<ListEntry>>,
    },
    Delete {
        ids: Vec<MailId>,
        answer: oneshot::Sender<Result<u64, String>>,
    },
    DeleteAll {
        scope: Scope,
        answer: oneshot::Sender<Result<u64, String>>,
    },
    Hurry {
        ids: Vec<MailId>,
        expires_ms: u64,
        answer: oneshot::Sender<Result<(), Unavailable>>,
    },
    /// Mails over all inboxes, by their slots from one on; and where to go on.
    Stored {
        from: u32,
        most: usize,
        answer: oneshot::Sender<StoredPage<u32>>,
    },
    /// What is said about mails from now on.
    Note {
        notes: Vec<(MailId, Note)>,
        answer: oneshot::Sender<Result<(), Unavailable>>,
    },
    Deliver {
        /// Who handed it over.
        peer: IpAddr,
        from: String,
        recipients: Vec<String>,
        raw: Vec<u8>,
        answer: oneshot::Sender<Result<Vec<MailId>, Unavailable>>,
    },
}

/// What all cores share.
pub(crate) struct SharedState {
    pub(crate) config: Config,
    pub(crate) reader: Reader,
    pub(crate) balance: Arc<Balance>,
    /// Somebody has listened to events since the start, and may do so still. It is never taken back: a core that looked
    /// between the end of one listener and the beginning of the next would lose that one's mail.
    pub(crate) listening: Arc<AtomicBool>,
    pub(crate) events: tokio::sync::broadcast::Sender<Event>,
    pub(crate) tls: Option<tokio_rustls::TlsAcceptor>,
    /// Memory of mails being received, beyond the cores' own parts.
    pub(crate) receiving: Arc<CommonPart>,
    /// The memory of connections beyond the cores' own parts.
    pub(crate) connections: Arc<CommonPart>,
    /// Bytes in the store of mails that are not whole.
    pub(crate) parts_bytes: AtomicU64,
    /// Connections by address, over all cores.
    pub(crate) peers: Arc<crate::abuse::PeerLimits>,
}

/// One core.
pub(crate) struct Core {
    pub(crate) number: usize,
    pub(crate) cores: usize,
    pub(crate) shared: Arc<SharedState>,
    clock: SteadyClock,
    pub(crate) index: RefCell<Index>,
    pub(crate) letters: RefCell<DeliveryRefs>,
    pub(crate) notes: RefCell<Notes>,
    pub(crate) writer: RefCell<Writer>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) recent: RefCell<SummaryCache>,
    pub(crate) abuse: RefCell<Abuse>,
    pub(crate) sender: Sender<Message>,
    pub(crate) counters: CoreCounters<Counter>,
    pub(crate) watches: RefCell<Watches>,
    /// Who of those with much to do has a turn.
    pub(crate) fair: Arc<TurnScheduler>,
    pub(crate) draining: Cell<bool>,
    /// What is read from sockets before it is looked at.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// The begin of a record being put together.
    pub(crate) meta: RefCell<Vec<u8>>,
    /// RecentBodies of mails that the log has.
    pub(crate) bodies: RefCell<RecentBodies>,
    /// Buffers of mails being received, not in use.
    pub(crate) spare: RefCell<Vec<Vec<u8>>>,
    /// What connections and mails being received take of memory.
    pub(crate) tide: RefCell<HeapTrimmer>,
    /// Lists of mails that wait until they are kept, not in use.
    pub(crate) spare_waiting: RefCell<Vec<Vec<PendingReply>>>,
    /// Memory of mails being received.
    pub(crate) receiving: RefCell<ReceiveBudget>,
    /// The memory of its connections.
    pub(crate) connection_memory: ClientMemoryBudget,
    /// The greatest name given, without the bits that tell the inbox.
    pub(crate) last_name: Cell<u64>,
    /// The date as Received has it, and its second.
    pub(crate) date: RefCell<(u64, String)>,
    /// Messages to other cores that wait for room in their rings.
    pub(crate) backlog: RefCell<Backlog>,
    pub(crate) must_tell: Cell<bool>,
    /// Events were lost, and the listeners do not know it yet.
    missed: Cell<bool>,
    /// An event waits for its listeners to be woken.
    pub(crate) told: Notify,
    /// When housekeeping comes by.
    pub(crate) rounds: Rounds,
    /// The store gets full.
    pub(crate) wants_room: Notify,
    /// By which it says what becomes of mails.
    pub(crate) scribe: Option<Scribe>,
}

/// Bits of a mail's name, from the highest: milliseconds since 2025, what part of one has passed (so that names grow as
/// mails arrive), the core that received it, a hash of its inbox.
const HASH_BITS: u32 = 8;
const CORE_BITS: u32 = 6;
const NUMBER_BITS: u32 = 9;
const NS_A_MS: u64 = 1_000_000;
/// 2025-01-01, in milliseconds since 1970.
const EPOCH_MS: u64 = 1_735_689_600_000;
/// Cores that names can tell apart.
pub(crate) const CORES_MAX: usize = 1 << CORE_BITS;

/// The core that owns an inbox, from the hash of either its name or one of its mails' names.
pub(crate) fn owner_of_hash(hash8: u64, cores: usize) -> usize {
    (hash8 as usize * cores) >> HASH_BITS
}

/// The core that owns an inbox.
pub(crate) fn owner(inbox: &Inbox, cores: usize) -> usize {
    owner_of_hash(hash8(inbox), cores)
}

/// The core that owns the inbox of a mail.
pub(crate) fn owner_of_mail(id: MailId, cores: usize) -> usize {
    owner_of_hash(id.0 & ((1 << HASH_BITS) - 1), cores)
}

fn hash8(inbox: &Inbox) -> u64 {
    hash_of_inbox(&inbox.local, &inbox.domain) >> (64 - HASH_BITS)
}

/// The greatest part of a name that a core has given, for one that starts after it.
pub(crate) fn name_without_inbox(id: MailId) -> u64 {
    id.0 >> (HASH_BITS + CORE_BITS)
}

/// How often a core's housekeeping runs while there is something to look after: deadlines, expiries, room ahead of
/// need.
const HOUSEKEEPING_EVERY: Duration = Duration::from_millis(100);

/// What a core is given when it starts.
pub(crate) struct CoreParts {
    pub(crate) index: Index,
    pub(crate) letters: DeliveryRefs,
    pub(crate) notes: Notes,
    pub(crate) writer: Writer,
    pub(crate) sender: Sender<Message>,
    pub(crate) counters: CoreCounters<Counter>,
    pub(crate) last_name: u64,
    pub(crate) scribe: Option<Scribe>,
}

impl Core {
    pub(crate) fn new(number: usize, cores: usize, shared: Arc<SharedState>, owned: CoreParts) -> Self {
        let CoreParts { index, letters, notes, writer, sender, counters, last_name, scribe } = owned;
        let lists = Arc::new(shared.config.lists.clone());
        let receiving =
            ReceiveBudget::new(&shared.receiving, shared.config.limits.receiving_bytes_max, cores);
        Self {
            number,
            cores,
            clock: SteadyClock::new(),
            index: index.into(),
            letters: letters.into(),
            notes: notes.into(),
            progress: writer.progress(),
            writer: writer.into(),
            recent: SummaryCache::default().into(),
            abuse: Abuse { lists, peers: Arc::clone(&shared.peers) }.into(),
            sender,
            counters,
            watches: Watches::default().into(),
            fair: Arc::default(),
            draining: false.into(),
            scratch: vec![0; SCRATCH_BYTES].into(),
            meta: Vec::with_capacity(4096).into(),
            bodies: RecentBodies::default().into(),
            spare: Vec::new().into(),
            tide: HeapTrimmer::default().into(),
            spare_waiting: Vec::new().into(),
            receiving: receiving.into(),
            connection_memory: ClientMemoryBudget::new(
                Arc::clone(&shared.connections),
                usize::MAX / 2,
                cores,
            ),
            last_name: last_name.into(),
            date: (u64::MAX, String::new()).into(),
            backlog: Backlog::new(cores).into(),
            must_tell: false.into(),
            missed: false.into(),
            told: Notify::new(),
            rounds: Rounds::new(HOUSEKEEPING_EVERY),
            wants_room: Notify::new(),
            scribe,
            shared,
        }
    }

    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.counters.add(counter, 1);
    }

    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    pub(crate) fn retention_ms(&self) -> u64 {
        u64::try_from(self.config().retention.age.as_millis()).unwrap_or(u64::MAX)
    }

    /// A name that no mail has had: it grows with time, also where the clock is set back. Two cores name mails in the order
    /// in which they came, to 2 µs: the coarse clock would call some milliseconds one moment, and lists would show those
    /// mails in the order of the cores.
    pub(crate) fn name(&self, inbox: &Inbox) -> MailId {
        let now_ns = clock::unix_ns();
        let ms = (now_ns / NS_A_MS).saturating_sub(EPOCH_MS);
        let within = ((now_ns % NS_A_MS) << NUMBER_BITS) / NS_A_MS;
        let next = (ms << NUMBER_BITS | within).max(self.last_name.get() + 1);
        self.last_name.set(next);
        MailId(next << (HASH_BITS + CORE_BITS) | (self.number as u64) << HASH_BITS | hash8(inbox))
    }

    /// Appends to the log.
    pub(crate) fn append(
        &self,
        kind: Kind,
        tag: u64,
        parts: &[&[u8]],
    ) -> Result<AppendedRecord, AppendRefusal> {
        self.append_new(NewRecord { kind, hash: 0, tag, target: None }, parts)
    }

    fn append_new(&self, new: NewRecord, parts: &[&[u8]]) -> Result<AppendedRecord, AppendRefusal> {
        // Which may take a segment.
        self.rounds.stir();
        self.writer.borrow_mut().append(new, parts)
    }

    /// Waits until what was appended is as safe as 250 says. One write, or one sync, serves all who wait.
    pub(crate) async fn kept(&self, ticket: Ticket) -> Result<(), DurabilityError> {
        match self.config().durability {
            Durability::Process => {
                // Whose mails are whole in this turn of the loop append first: one write for all of them.
                tokio::task::yield_now().await;
                if !self.progress.is_written(ticket) {
                    // On this thread: a helper's wake-up costs more than the write into the page cache.
                    self.writer.borrow().write_here();
                }
                self.progress.written(ticket).await
            }
            Durability::Power => {
                self.writer.borrow().make_durable();
                self.progress.durable(ticket).await
            }
        }
    }

    /// Gives a message to another core, now or when its ring has room again. [`Backlog`] says what bounds the messages that
    /// wait.
    pub(crate) fn give(&self, to: usize, message: Message) {
        let mut backlog = self.backlog.borrow_mut();
        let message = if backlog.has(to) {
            message
        } else {
            match self.sender.send(to, message) {
                Ok(()) => return self.sender.flush(),
                Err(message) => {
                    self.count(Counter::RingFull);
                    message
                }
            }
        };
        backlog.push(to, message);
        self.rounds.stir();
    }

    /// Tries again what rings have refused.
    pub(crate) fn give_backlog(&self) {
        let mut backlog = self.backlog.borrow_mut();
        if backlog.is_empty() {
            return;
        }
        backlog.give(|to, message| self.sender.send(to, message));
        self.sender.flush();
    }

    /// Returns whether as many messages wait for a core as may, because the core does not take what it is sent.
    pub(crate) fn is_far_behind(&self, core: usize) -> bool {
        self.backlog.borrow().is_full(core)
    }

    /// Makes mails readable whose record is kept: here, or at the cores that own their inboxes.
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
                self.letters.borrow_mut().link(entry.letter, entry.inboxes.into());
            }
            let over = self.index.borrow_mut().insert(entry, &summary.inbox);
            self.tell(Event::Arrived(Arc::clone(&summary)));
            self.recent.borrow_mut().insert(summary);
            if let Some(gone) = over.and_then(|id| self.remove(id)) {
                self.count(Counter::DroppedForCount);
                self.end(gone, true);
            }
            self.fit_index();
        }
    }

    /// Drops the oldest mails while the index takes more than it may.
    fn fit_index(&self) {
        loop {
            let oldest = self.index.borrow().oldest_over();
            let Some(gone) = oldest.and_then(|id| self.remove(id)) else { return };
            self.count(Counter::DroppedForIndex);
            self.end(gone, true);
        }
    }

    /// Takes a mail out of the index. What lists show of it names its inbox, and is used up if nobody else has it.
    pub(crate) fn remove(&self, id: MailId) -> Option<RemovedMail> {
        let mut recent = self.recent.borrow_mut();
        let inbox = match recent.remove(id) {
            // It is shown among all for as long as another inbox has it.
            Some(summary) if summary.inboxes > 1 && summary.is_letter() => {
                recent.put_back(summary);
                None
            }
            shown => shown.and_then(Arc::into_inner).map(|summary| summary.inbox),
        };
        self.index.borrow_mut().remove(id, inbox)
    }

    /// A mail has left its inbox: its record goes too, unless other inboxes have it. `for_good`: it must not come back
    /// after a crash; the promise is kept once what this gives is kept.
    pub(crate) fn end(&self, gone: RemovedMail, for_good: bool) -> Option<Ticket> {
        self.rounds.stir();
        let RemovedMail { place, inbox, letter, hurried_by, parts } = gone;
        let (ticket, remains) = match place.role {
            Role::Only => (self.end_record((place, parts.as_deref()), &[], for_good), RemainingName::Nothing),
            Role::First | Role::Other => self.let_go(place.id, letter, for_good),
        };
        self.marker_died(hurried_by);
        match remains {
            // Over all it has the time now that the others have.
            RemainingName::ThisName => {
                let expires_ms = place.arrived_ms.saturating_add(self.retention_ms());
                self.recent.borrow_mut().expires(place.id, expires_ms);
            }
            RemainingName::Nothing | RemainingName::OtherName => {
                self.recent.borrow_mut().remove(place.id);
                self.note_died(place.id);
            }
        }
        self.tell(Event::Deleted { inbox, id: place.id, remains });
        ticket
    }

    /// One inbox of several has let a mail go. The owner of the first inbox is told; if that is this core and no other
    /// inbox has the mail, its record goes.
    fn let_go(&self, id: MailId, letter: MailId, for_good: bool) -> (Option<Ticket>, RemainingName) {
        let answers_for_it = owner_of_mail(letter, self.cores) == self.number;
        if answers_for_it && self.letters.borrow().is_last(letter) {
            self.letters.borrow_mut().let_go(letter);
            let ticket = self.end_letter(letter, for_good);
            if id == letter {
                return (ticket, RemainingName::Nothing);
            }
            self.tell(Event::Over { letter });
            return (ticket, RemainingName::OtherName);
        }
        let written = if for_good { self.append(UNLINKED, id.0, &[]).ok() } else { None };
        let (ticket, marker) = (written.map(|of| of.ticket), written.map(|of| of.location.bits()));
        let let_go = InboxRemoval { letter, marker, for_good };
        if answers_for_it {
            self.hear_let_go(let_go);
        } else {
            self.give(owner_of_mail(letter, self.cores), Message::LetGo(let_go));
        }
        (ticket, if id == letter { RemainingName::ThisName } else { RemainingName::OtherName })
    }

    /// Another inbox has let a mail go for whose record this core answers.
    pub(crate) fn hear_let_go(&self, InboxRemoval { letter, marker, for_good }: InboxRemoval) {
        self.rounds.stir();
        let is_over = {
            let mut letters = self.letters.borrow_mut();
            if let Some(marker) = marker {
                letters.let_go_by(letter, marker);
            }
            letters.let_go(letter)
        };
        if is_over {
            // What each inbox was promised is written already.
            let _ = self.end_letter(letter, for_good);
            self.tell(Event::Over { letter });
        }
    }

    /// No inbox has a mail any more that came into several: its record goes.
    fn end_letter(&self, letter: MailId, for_good: bool) -> Option<Ticket> {
        let markers = self.letters.borrow_mut().forget(letter);
        self.recent.borrow_mut().remove(letter);
        self.note_died(letter);
        let (place, parts) = self.index.borrow_mut().forget(letter)?;
        self.end_record((place, parts.as_deref()), &markers, for_good)
    }

    /// A record goes, with its parts and what was written about it.
    fn end_record(
        &self,
        (place, parts): (Place, Option<&[Part]>),
        markers: &[u64],
        for_good: bool,
    ) -> Option<Ticket> {
        let Some(location) = Location::from_bits(place.location) else {
            unreachable!("a location is never zero")
        };
        let mut ticket = None;
        if for_good && let Ok(appended) = self.writer.borrow_mut().delete(location) {
            ticket = Some(appended.ticket);
        }
        self.shared.reader.died(location, place.record_bytes as usize);
        parts_died(&self.shared.reader, parts.unwrap_or_default());
        markers.iter().for_each(|marker| self.marker_died(Some(*marker)));
        ticket
    }

    /// What was written about a mail counts no more.
    fn marker_died(&self, marker: Option<u64>) {
        if let Some(marker) = marker.and_then(Location::from_bits) {
            self.shared.reader.died(marker, 0);
        }
    }

    /// What was said about a mail goes with it.
    fn note_died(&self, id: MailId) {
        if let Some(at) = self.notes.borrow_mut().forget(id)
            && let Some(location) = Location::from_bits(at.location)
        {
            self.shared.reader.died(location, at.payload_bytes as usize);
        }
    }

    /// Writes down what is said about a mail, in the place of what was said before. Nothing is to be kept of a mail that is
    /// gone, or whose note was written too often.
    pub(crate) fn note(&self, id: MailId, note: &Note) -> Result<Option<Ticket>, Unavailable> {
        if self.index.borrow().place(id, self.now_ms()).is_none() {
            return Ok(None);
        }
        let mut notes = self.notes.borrow_mut();
        let before =
            notes.find(id).and_then(|at| Some((Location::from_bits(at.location)?, at.payload_bytes)));
        let unavailable = |refused: AppendRefusal| Unavailable::Disk(refused.to_string());
        let ticket = if note.is_empty() {
            // What is said by default needs no record.
            let Some((location, _)) = before else { return Ok(None) };
            let ended = self.writer.borrow_mut().delete(location).map_err(unavailable)?;
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
            notes.written(id, written.location.bits(), bytes);
            written.ticket
        };
        if let Some((location, payload_bytes)) = before {
            self.shared.reader.died(location, payload_bytes as usize);
        }
        Ok(Some(ticket))
    }

    /// Brings a mail's end forward; the promise is kept once what this gives is kept. Where the mail goes by then
    /// anyway, or is gone, there is nothing to be kept.
    pub(crate) fn hurry(&self, id: MailId, expires_ms: u64) -> Result<Option<Ticket>, Unavailable> {
        let may = self.index.borrow().may_hurry(id, expires_ms, self.now_ms());
        match may {
            EarlyExpiryOutcome::Gone | EarlyExpiryOutcome::NoNeed => return Ok(None),
            EarlyExpiryOutcome::TooOften => {
                self.count(Counter::HurriesRefused);
                return Err(Unavailable::TooOften("the time of this mail was changed too often; delete it"));
            }
            EarlyExpiryOutcome::Yes => {}
        }
        let marker = NewRecord { kind: HURRIED, hash: expires_ms, tag: id.0, target: None };
        let written =
            self.append_new(marker, &[]).map_err(|refused| Unavailable::Disk(refused.to_string()))?;
        let before = self.index.borrow_mut().hurry(id, expires_ms, written.location.bits());
        self.marker_died(before);
        self.recent.borrow_mut().expires(id, expires_ms);
        self.count(Counter::Hurried);
        Ok(Some(written.ticket))
    }

    /// Puts an event on its way, if anybody listens.
    pub(crate) fn tell(&self, event: Event) {
        if !self.shared.listening.load(Ordering::Relaxed) {
            return;
        }
        self.tell_missed();
        // The listeners' thread is the endpoint behind the cores.
        if self.missed.get() || self.sender.send(self.cores, Message::Told(event)).is_err() {
            self.count(Counter::EventsLost);
            self.missed.set(true);
        }
        if !self.must_tell.replace(true) {
            self.told.notify_one();
        }
    }

    /// Tells the listeners that events were lost, if so and if the ring has room again.
    fn tell_missed(&self) {
        if self.missed.get() && self.sender.send(self.cores, Message::Told(Event::Missed)).is_ok() {
            self.missed.set(false);
        }
    }

    /// Wakes the listeners if there is something for them.
    pub(crate) fn wake_listeners(&self) {
        if !self.must_tell.replace(false) {
            return;
        }
        self.tell_missed();
        self.sender.flush();
        // Until it is told, however long no mail comes.
        if self.missed.get() {
            self.must_tell.set(true);
            self.told.notify_one();
        }
    }

    /// The date of now, for Received.
    pub(crate) fn write_date(&self, now_ms: u64, out: &mut Vec<u8>) {
        let now_s = now_ms / 1000;
        let mut date = self.date.borrow_mut();
        if date.0 != now_s {
            *date = (now_s, mail_builder::headers::date::Date::new(now_s.cast_signed()).to_rfc822());
        }
        out.extend_from_slice(date.1.as_bytes());
    }

    /// A buffer for a mail.
    pub(crate) fn buffer(&self) -> Vec<u8> {
        self.spare.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes a buffer back; those that grew large are let go.
    pub(crate) fn give_back(&self, mut buffer: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        if buffer.capacity() <= SPARE_BYTES_MAX && spare.len() < SPARE_MAX {
            buffer.clear();
            spare.push(buffer);
        }
    }

    /// Connections or mails have come or gone: what they take now.
    pub(crate) fn note_memory(&self) {
        let connections = self.shared.balance.held(self.number) * CONNECTION_BYTES;
        self.tide.borrow_mut().uses(connections + self.receiving.borrow().bytes(), clock::monotonic_ms());
    }

    /// Takes the list of a turn back; of one that grew long the memory is let go.
    pub(crate) fn give_back_waiting(&self, mut waiting: Vec<PendingReply>) {
        let mut spare = self.spare_waiting.borrow_mut();
        if (1..=SPARE_WAITING_MAX).contains(&waiting.capacity()) && spare.len() < SPARE_MAX {
            waiting.clear();
            spare.push(waiting);
        }
    }

    /// The time by which mails arrive and end. The clock never goes back, and a step of the system's clock counts once
    /// it has lasted.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.unix_ms()
    }
}

/// What a connection takes of memory, about, without its mail.
const CONNECTION_BYTES: usize = 16 << 10;
/// Spare buffers kept by a core, and how large one may be.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 64 << 10;
/// Mails that a spare list has room for.
const SPARE_WAITING_MAX: usize = 64;
