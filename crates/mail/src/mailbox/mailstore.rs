//! The stored mail as pages and APIs see it. Questions go to the cores that own the inboxes; data that is not
//! in memory is read from the log by helper threads of the caller's runtime.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use engine::{
    cold_mutex::ColdMutex,
    cores::mesh::Sender,
    log::{Location, ReadError, Reader},
    meter::{CoreCounters, CounterSet},
};
use tokio::sync::{broadcast, oneshot, watch};

use crate::{
    counters::Counter,
    mailbox::mailboxes::{
        Event, Mail, MailId, Mailboxes, PieceLocation, ReadBudget, Scope, Source, StoredPage, Summary,
        Totals, Unavailable,
    },
    render::PARSED_BYTES_MAX,
    store::{
        annotations::{Note, RecoveredNote},
        core::{ListEntry, Message, Question, SharedState, owner, owner_of_mail},
        index::{Place, Role},
        record::{self, DecodeOutcome},
        recovery::{self, read_meta},
    },
};

/// Addresses of recipients, as given in RCPT TO.
type Recipients = Arc<[Box<str>]>;

/// Handle to the stored mail. All clones query the same cores.
#[derive(Clone)]
pub struct Mailstore {
    inner: Arc<Inner>,
}

struct Inner {
    /// State of the server. The reference is weak, so that a handle does not keep the server's file open.
    shared: Weak<SharedState>,
    events: broadcast::Sender<Event>,
    listening: Arc<AtomicBool>,
    cores: usize,
    /// Locked by those who ask a core, to push one message into its ring; arriving mails do not pass here.
    outside: ColdMutex<(Sender<Message>, CoreCounters<Counter>)>,
    counters: Arc<CounterSet<Counter>>,
    next: std::sync::atomic::AtomicUsize,
    noted: ColdMutex<Vec<RecoveredNote>>,
    stopping: watch::Sender<bool>,
}

impl Mailstore {
    pub(crate) fn new(
        shared: &Arc<SharedState>,
        cores: usize,
        sender: Sender<Message>,
        counters: Arc<CounterSet<Counter>>,
        noted: Vec<RecoveredNote>,
    ) -> Self {
        // Events in this handle are counted in an extra row after those of the cores.
        let outside = ColdMutex::new((sender, counters.core(cores)));
        let inner = Inner {
            shared: Arc::downgrade(shared),
            events: shared.events.clone(),
            listening: Arc::clone(&shared.listening),
            cores,
            outside,
            counters,
            next: std::sync::atomic::AtomicUsize::new(0),
            noted: ColdMutex::new(noted),
            stopping: watch::Sender::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Answers all questions from now on with `Unavailable::Stopping`, including those that wait for an
    /// unresponsive loop.
    pub(crate) fn stop(&self) {
        self.inner.stopping.send_replace(true);
    }

    /// Sends a message to a core; returns false if its ring is full.
    pub(crate) fn send_to_core(&self, core: usize, message: Message) -> bool {
        let outside = self.inner.outside.lock();
        let given = outside.0.send(core, message).is_ok();
        outside.0.flush();
        if !given {
            outside.1.add(Counter::QuestionsRefused, 1);
        }
        given
    }

    fn count_damaged(&self) {
        let outside = self.inner.outside.lock();
        outside.1.add(Counter::DamagedRecords, 1);
    }

    async fn ask<T>(
        &self,
        core: usize,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, Unavailable> {
        let mut stopping = self.inner.stopping.subscribe();
        if *stopping.borrow() {
            return Err(Unavailable::Stopping);
        }
        let (sender, answer) = oneshot::channel();
        if !self.send_to_core(core, Message::Ask(question(sender))) {
            return Err(Unavailable::Disk("too many requests are queued".to_owned()));
        }
        tokio::select! {
            biased;
            // A loop that ends drops its pending questions.
            answer = answer => answer.map_err(|_| Unavailable::Stopping),
            _ = stopping.wait_for(|stop| *stop) => Err(Unavailable::Stopping),
        }
    }

    /// Returns the cores that may have mails within a scope.
    fn owners(&self, scope: &Scope) -> std::ops::Range<usize> {
        match scope {
            Scope::Inbox(inbox) => {
                let owner = owner(inbox, self.inner.cores);
                owner..owner + 1
            }
            Scope::Prefix { .. } | Scope::All => 0..self.inner.cores,
        }
    }

    /// Runs blocking disk access on a helper thread.
    async fn on_helper<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let me = self.clone();
        tokio::task::spawn_blocking(move || work(&me)).await.map_err(|_| Unavailable::Stopping)
    }

    /// Reads the summary of a mail from the log; `None` if the mail was deleted or is damaged.
    fn read_summary(&self, place: Place, out: &mut Vec<u8>) -> Result<Option<Summary>, Unavailable> {
        let Some(location) = Location::from_bits(place.location) else { return Ok(None) };
        let reader = self.reader()?;
        let read = read_meta(&reader, location, place.record_bytes as usize, out);
        match (self.found_or_gone(read)?, record::decode(out)) {
            (Some(()), DecodeOutcome::Whole(stored)) => {
                Ok(summary_at(&stored, place, place.record_bytes.into()))
            }
            _ => Ok(None),
        }
    }

    /// Returns the summaries of list entries. Those not in memory are read from the log and added to the
    /// cores' caches.
    async fn summaries(&self, found: Vec<ListEntry>) -> Result<Vec<Arc<Summary>>, Unavailable> {
        if found.iter().all(|found| found.summary.is_some()) {
            return Ok(found.into_iter().filter_map(|found| found.summary).collect());
        }
        let read = self.on_helper(move |me| {
            let mut out = Vec::new();
            let mut fresh = Vec::new();
            let mut summaries = Vec::with_capacity(found.len());
            for ListEntry { place, summary } in found {
                match summary {
                    Some(known) => summaries.push(known),
                    None => {
                        if let Some(summary) = me.read_summary(place, &mut out)?.map(Arc::new) {
                            fresh.push(Arc::clone(&summary));
                            summaries.push(summary);
                        }
                    }
                }
            }
            Ok((summaries, fresh))
        });
        let (summaries, fresh) = read.await??;
        for core in 0..self.inner.cores {
            let of_core = fresh.iter().filter(|summary| owner_of_mail(summary.id, self.inner.cores) == core);
            let of_core: Vec<Arc<Summary>> = of_core.cloned().collect();
            if !of_core.is_empty() {
                // If the ring is full, the summaries are read again next time.
                self.send_to_core(core, Message::Remember(of_core));
            }
        }
        Ok(summaries)
    }

    fn read_mail(
        &self,
        scope: &Scope,
        place: Place,
        room: &mut impl ReadBudget,
    ) -> Result<Option<Mail>, Unavailable> {
        let Some((source, recipients)) = self.read_source(scope, place, room)? else { return Ok(None) };
        let Source { summary, front: mut raw, pieces } = source;
        if !pieces.is_empty() {
            // One byte more than the parser's limit is read, so that a cut mail can be recognized.
            let most = PARSED_BYTES_MAX + 1;
            let wanted = most.min(usize::try_from(summary.size_bytes).unwrap_or(usize::MAX));
            let rest = wanted.saturating_sub(raw.len());
            if !room.reserve(rest as u64) {
                return Err(Unavailable::NoRoom);
            }
            raw.reserve_exact(rest);
            for at in pieces {
                let room_left = wanted.saturating_sub(raw.len());
                if room_left == 0 {
                    break;
                }
                let Some(piece) = self.read_piece(at)? else { return Ok(None) };
                raw.extend_from_slice(&piece[..piece.len().min(room_left)]);
            }
        }
        Ok(Some(Mail { summary, recipients, raw: raw.into() }))
    }

    /// Reads the beginning of a mail, the locations of its further pieces, and the recipients within the
    /// scope.
    fn read_source(
        &self,
        scope: &Scope,
        place: Place,
        room: &mut impl ReadBudget,
    ) -> Result<Option<(Source, Recipients)>, Unavailable> {
        let Some(location) = Location::from_bits(place.location) else { return Ok(None) };
        if !room.reserve(place.record_bytes.into()) {
            return Err(Unavailable::NoRoom);
        }
        let Some(read) = self.found_or_gone(self.reader()?.read(location, place.record_bytes as usize))?
        else {
            return Ok(None);
        };
        let payload = read.payload();
        let DecodeOutcome::Whole(stored) = record::decode(payload) else { return Ok(None) };
        let Some(summary) = summary_at(&stored, place, payload.len() as u64) else {
            return Ok(None);
        };
        if !scope.contains(&summary.inbox) {
            return Ok(None);
        }
        let mut front = payload[stored.meta_bytes..].to_vec();
        if let Some(body) = stored.body {
            if !room.reserve(body.bytes.into()) {
                return Err(Unavailable::NoRoom);
            }
            let Some(body) = self.found_or_gone(recovery::read_body(&self.reader()?, &body))? else {
                return Ok(None);
            };
            front.extend_from_slice(&body);
        }
        let within =
            stored.recipients.iter().filter(|(_, local, domain, _)| scope.contains_address(local, domain));
        let recipients = within.map(|(.., said)| (*said).into()).collect();
        let pieces =
            stored.parts.iter().map(|part| PieceLocation { location: part.location, bytes: part.bytes });
        Ok(Some((Source { summary, front, pieces: pieces.collect() }, recipients)))
    }

    fn read_piece(&self, at: PieceLocation) -> Result<Option<Vec<u8>>, Unavailable> {
        let Some(location) = Location::from_bits(at.location) else { return Ok(None) };
        let bytes = at.bytes as usize;
        let mut piece = Vec::new();
        Ok(self
            .found_or_gone(self.reader()?.read_range(location, bytes, 0..bytes, &mut piece))?
            .map(|()| piece))
    }

    /// Returns the location of a mail that a scope shows.
    async fn place_in(&self, scope: &Scope, id: MailId) -> Result<Option<Place>, Unavailable> {
        let owner = owner_of_mail(id, self.inner.cores);
        let found = self.ask(owner, |answer| Question::Mail { id, answer }).await?;
        Ok(found.and_then(|found| shown_place(scope, found)))
    }

    /// Returns all IDs of a mail, one for each inbox that it was delivered to.
    async fn names(&self, id: MailId) -> Result<Vec<MailId>, Unavailable> {
        let owner = owner_of_mail(id, self.inner.cores);
        let Some(ListEntry { place, .. }) = self.ask(owner, |answer| Question::Mail { id, answer }).await?
        else {
            return Ok(Vec::new());
        };
        if place.role == Role::Only {
            return Ok(vec![id]);
        }
        self.on_helper(move |me| {
            let Some(location) = Location::from_bits(place.location) else { return Ok(Vec::new()) };
            let (reader, mut meta) = (me.reader()?, Vec::new());
            let read = read_meta(&reader, location, place.record_bytes as usize, &mut meta);
            match (me.found_or_gone(read)?, record::decode(&meta)) {
                (Some(()), DecodeOutcome::Whole(stored)) => Ok(stored.names().collect()),
                // Damaged record: the mail can still be deleted under the known ID.
                _ => Ok(vec![id]),
            }
        })
        .await?
    }

    /// Maps read errors. A missing mail is not an error, as it was deleted after it was looked up. A damaged
    /// mail is counted, and treated as missing.
    fn found_or_gone<T>(&self, read: Result<T, ReadError>) -> Result<Option<T>, Unavailable> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(ReadError::Gone(_)) => Ok(None),
            Err(error @ ReadError::Damaged(_)) => {
                tracing::error!(%error, "stored mail is damaged: treated as missing");
                self.count_damaged();
                Ok(None)
            }
            Err(error) => Err(Unavailable::Disk(error.to_string())),
        }
    }

    fn reader(&self) -> Result<Reader, Unavailable> {
        self.inner.shared.upgrade().map(|shared| shared.reader.clone()).ok_or(Unavailable::Stopping)
    }
}

/// Returns the location of a mail that the scope shows. [`Scope::All`] also shows mails that their own inbox
/// has dropped.
fn shown_place(scope: &Scope, found: ListEntry) -> Option<Place> {
    Some(found.place).filter(|place| *scope == Scope::All || !place.is_let_go)
}

impl Mailboxes for Mailstore {
    async fn list(&self, scope: &Scope, skip: usize, limit: usize) -> Result<Vec<Arc<Summary>>, Unavailable> {
        let owners = self.owners(scope);
        if owners.len() == 1 {
            let (core, scope) = (owners.start, scope.clone());
            let found = self.ask(core, |answer| Question::List { scope, skip, limit, answer }).await?;
            return self.summaries(found).await;
        }
        let mut found: Vec<ListEntry> = Vec::new();
        for core in owners {
            // All of the wanted mails may be on one core.
            let (scope, limit) = (scope.clone(), skip.saturating_add(limit));
            let question = |answer| Question::List { scope, skip: 0, limit, answer };
            found.append(&mut self.ask(core, question).await?);
        }
        found.sort_by_key(|found| std::cmp::Reverse((found.place.arrived_ms, found.place.id)));
        self.summaries(found.into_iter().skip(skip).take(limit).collect()).await
    }

    async fn find(&self, scope: &Scope, ids: &[MailId]) -> Result<Vec<Arc<Summary>>, Unavailable> {
        let mut found: Vec<ListEntry> = Vec::new();
        for core in 0..self.inner.cores {
            let of_core = ids.iter().filter(|id| owner_of_mail(**id, self.inner.cores) == core);
            let ids: Vec<MailId> = of_core.copied().collect();
            if !ids.is_empty() {
                found.append(&mut self.ask(core, |answer| Question::Mails { ids, answer }).await?);
            }
        }
        found.retain(|found| *scope == Scope::All || !found.place.is_let_go);
        let mut summaries = self.summaries(found).await?;
        summaries.retain(|summary| scope.contains(&summary.inbox));
        Ok(summaries)
    }

    async fn count(&self, scope: &Scope) -> Result<u64, Unavailable> {
        let mut count = 0;
        for core in self.owners(scope) {
            let scope = scope.clone();
            count += self.ask(core, |answer| Question::Count { scope, answer }).await?;
        }
        Ok(count)
    }

    async fn mail_into<R: ReadBudget>(
        &self,
        scope: &Scope,
        id: MailId,
        mut room: R,
    ) -> Result<Option<(Mail, R)>, Unavailable> {
        let Some(place) = self.place_in(scope, id).await? else { return Ok(None) };
        let scope = scope.clone();
        self.on_helper(move |me| Ok(me.read_mail(&scope, place, &mut room)?.map(|mail| (mail, room)))).await?
    }

    /// Sends one question to each core and uses one helper for all mails: for a mail of 4 KiB these steps
    /// cost several times as much as reading it.
    async fn mails_into<R: ReadBudget>(
        &self,
        scope: &Scope,
        wanted: Vec<(MailId, R)>,
    ) -> Result<Vec<Option<(Mail, R)>>, Unavailable> {
        let mut places = HashMap::with_capacity(wanted.len());
        for core in 0..self.inner.cores {
            let of_core = wanted.iter().filter(|(id, _)| owner_of_mail(*id, self.inner.cores) == core);
            let ids: Vec<MailId> = of_core.map(|(id, _)| *id).collect();
            if !ids.is_empty() {
                let found = self.ask(core, |answer| Question::Mails { ids, answer }).await?;
                let shown = found.into_iter().filter_map(|found| shown_place(scope, found));
                places.extend(shown.map(|place| (place.id, place)));
            }
        }
        let scope = scope.clone();
        self.on_helper(move |me| {
            let read = |(id, mut room)| match places.get(&id) {
                Some(place) => Ok(me.read_mail(&scope, *place, &mut room)?.map(|mail| (mail, room))),
                None => Ok(None),
            };
            wanted.into_iter().map(read).collect()
        })
        .await?
    }

    async fn source_into<R: ReadBudget>(
        &self,
        scope: &Scope,
        id: MailId,
        mut room: R,
    ) -> Result<Option<(Source, R)>, Unavailable> {
        let Some(place) = self.place_in(scope, id).await? else { return Ok(None) };
        let scope = scope.clone();
        self.on_helper(move |me| {
            Ok(me.read_source(&scope, place, &mut room)?.map(|(source, _)| (source, room)))
        })
        .await?
    }

    async fn list_stored(&self, from: u64, most: usize) -> Result<StoredPage<u64>, Unavailable> {
        // A position is a core and a slot of its index.
        let (core, slot) = ((from >> 32) as usize, from as u32);
        if core >= self.inner.cores {
            return Ok((Vec::new(), None));
        }
        let (mails, next) = self.ask(core, |answer| Question::Stored { from: slot, most, answer }).await?;
        let next = match next {
            Some(slot) => (core as u64) << 32 | u64::from(slot),
            None => (core as u64 + 1) << 32,
        };
        Ok((mails, Some(next)))
    }

    async fn check_existence(&self, ids: &[MailId]) -> Result<Vec<bool>, Unavailable> {
        let mut found: Vec<MailId> = Vec::new();
        for core in 0..self.inner.cores {
            let of_core = ids.iter().filter(|id| owner_of_mail(**id, self.inner.cores) == core);
            let ids: Vec<MailId> = of_core.copied().collect();
            if !ids.is_empty() {
                let places = self.ask(core, |answer| Question::Mails { ids, answer }).await?;
                found.extend(places.iter().map(|found| found.place.id));
            }
        }
        found.sort_unstable();
        Ok(ids.iter().map(|id| found.binary_search(id).is_ok()).collect())
    }

    async fn names_of(&self, letter: MailId) -> Result<Vec<MailId>, Unavailable> {
        self.names(letter).await
    }

    async fn piece(&self, at: PieceLocation) -> Result<Option<Vec<u8>>, Unavailable> {
        self.on_helper(move |me| me.read_piece(at)).await?
    }

    async fn delete(&self, scope: &Scope, id: MailId) -> Result<bool, Unavailable> {
        let names = match scope {
            Scope::All => self.names(id).await?,
            Scope::Inbox(_) | Scope::Prefix { .. } => vec![id],
        };
        let mut count = 0;
        for core in 0..self.inner.cores {
            let of_core = names.iter().filter(|id| owner_of_mail(**id, self.inner.cores) == core);
            let ids: Vec<MailId> = of_core.copied().collect();
            if !ids.is_empty() {
                let deleted = self.ask(core, |answer| Question::Delete { ids, answer }).await?;
                count += deleted.map_err(Unavailable::Disk)?;
            }
        }
        Ok(count > 0)
    }

    async fn delete_all(&self, scope: &Scope) -> Result<u64, Unavailable> {
        let mut count = 0;
        for core in self.owners(scope) {
            let scope = scope.clone();
            let deleted = self.ask(core, |answer| Question::DeleteAll { scope, answer }).await?;
            count += deleted.map_err(Unavailable::Disk)?;
        }
        Ok(count)
    }

    async fn expire_early(&self, ids: &[MailId], expires_ms: u64) -> Result<(), Unavailable> {
        for core in 0..self.inner.cores {
            let of_core = ids.iter().filter(|id| owner_of_mail(**id, self.inner.cores) == core);
            let ids: Vec<MailId> = of_core.copied().collect();
            if !ids.is_empty() {
                self.ask(core, |answer| Question::Hurry { ids, expires_ms, answer }).await??;
            }
        }
        Ok(())
    }

    async fn write_note(&self, notes: Vec<(MailId, Note)>) -> Result<(), Unavailable> {
        for core in 0..self.inner.cores {
            let of_core = notes.iter().filter(|(id, _)| owner_of_mail(*id, self.inner.cores) == core);
            let notes: Vec<(MailId, Note)> = of_core.cloned().collect();
            if !notes.is_empty() {
                self.ask(core, |answer| Question::Note { notes, answer }).await??;
            }
        }
        Ok(())
    }

    fn take_recovered_notes(&self) -> Vec<RecoveredNote> {
        std::mem::take(&mut self.inner.noted.lock())
    }

    async fn deliver(
        &self,
        peer: IpAddr,
        envelope_from: &str,
        recipients: &[String],
        raw: &[u8],
    ) -> Result<Vec<MailId>, Unavailable> {
        let core = self.inner.next.fetch_add(1, Ordering::Relaxed) % self.inner.cores;
        let (from, recipients, raw) = (envelope_from.to_owned(), recipients.to_vec(), raw.to_vec());
        let question = |answer| Question::Deliver { peer, from, recipients, raw, answer };
        self.ask(core, question).await?
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        let receiver = self.inner.events.subscribe();
        self.inner.listening.store(true, Ordering::Release);
        receiver
    }

    fn totals(&self) -> Totals {
        let of = |counter| self.inner.counters.total(counter);
        Totals {
            stored: of(Counter::Stored),
            stored_bytes: of(Counter::StoredBytes),
            inboxes: of(Counter::Inboxes),
            accepted: of(Counter::Received),
            refused: of(Counter::Refused),
        }
    }
}

/// Decodes the summary of a stored mail. The arrival time comes from the index, which is correct even if the
/// clock was set back.
fn summary_at(stored: &record::StoredMeta<'_>, place: Place, record_bytes: u64) -> Option<Summary> {
    let summary = stored.summary(place.id, record_bytes, place.expires_ms)?;
    Some(Summary { arrived_ms: place.arrived_ms, ..summary })
}
