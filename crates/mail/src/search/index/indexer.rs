//! The indexer: the thread that reads mails, at a limited rate, and fills and writes the segments of the
//! index.

use std::{collections::BTreeMap, io, sync::Arc, thread, time::Duration};

use engine::cores::clock;
use tokio::sync::{
    broadcast::{Receiver, error::RecvError},
    watch,
};

use crate::search::index::{
    Index, PENDING_MAX,
    columns::{Columns, columns_of, height_for},
    grams::Finder,
    segment::IndexSegment,
};
use crate::{
    background::{self, Pace},
    mailbox::mailboxes::{Event, Mail, MailId, Mailboxes, Scope},
    search::{self, mail_key::MailKey},
    web::serve::counters::Counter,
};

/// Number of mails indexed before the thread checks for other work.
const BATCH: usize = 32;
/// Number of mails that the store is asked for at a time.
const ASKED_AT_ONCE: usize = 512;
/// Interval at which the idle thread looks for something to do.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pause after a failed attempt to write a segment to the disk.
const REST: Duration = Duration::from_secs(60);
/// Columns of deleted mails are cleaned up once at least this many mails, and at least 1/`DEATHS_SHARE` of
/// the indexed mails, are deleted.
const DEATHS_MIN: u64 = 256;
const DEATHS_SHARE: u64 = 10;
/// A segment is rewritten if fewer than this many eighths of its mails still exist.
const LIVE_EIGHTHS: usize = 7;

/// Starts the thread. It ends when the server stops, and then writes what it has indexed.
pub(crate) fn start<M: Mailboxes>(
    index: Arc<Index>,
    mailboxes: M,
    stopping: watch::Receiver<bool>,
) -> io::Result<thread::JoinHandle<()>> {
    background::start("mail-index", "the indexer", || Indexer::new(index, mailboxes, stopping).run())
}

/// A segment to be merged, with its live columns: it has too few live columns, or it is small.
type SparseSegment = (Arc<IndexSegment>, Vec<(usize, MailKey)>);

struct Indexer<M> {
    index: Arc<Index>,
    mailboxes: M,
    stopping: watch::Receiver<bool>,
    /// Receiver that wakes the thread; [`super::State::apply_events`] processes the events themselves.
    waking: Receiver<Event>,
    finder: Finder,
    pace: Pace,
    rests_until_ms: u64,
}

impl<M: Mailboxes> Indexer<M> {
    fn new(index: Arc<Index>, mailboxes: M, stopping: watch::Receiver<bool>) -> Self {
        index.state.lock().events = Some(mailboxes.events());
        let waking = mailboxes.events();
        Self {
            index,
            mailboxes,
            stopping,
            waking,
            finder: Finder::new(),
            pace: Pace::new(),
            rests_until_ms: 0,
        }
    }

    /// Indexes until the server stops; the stop ends any wait.
    async fn run(mut self) {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            biased;
            // An error means that the server is gone.
            _ = stopping.wait_for(|stop| *stop) => {}
            () = self.work() => {}
        }
        self.write_all_segments();
    }

    async fn work(&mut self) {
        // Since the last stop, mails may have been deleted, and segments may have become sparse.
        let mut is_to_be_swept = true;
        while !*self.stopping.borrow() {
            self.apply_events();
            if !self.index.state.lock().is_complete && !self.go_through().await {
                self.pause(LOOK_EVERY).await;
                continue;
            }
            if is_to_be_swept || self.needs_merge() {
                is_to_be_swept = !self.sweep().await;
            }
            self.pace.begin();
            if self.is_backing_off()
                || self.mailboxes.totals().stored < self.index.at.mails_min
                || !self.index_batch().await
            {
                self.listen().await;
                continue;
            }
            if let Some(rest) = self.pace.rest() {
                self.pause(rest).await;
            }
        }
    }

    fn is_backing_off(&self) -> bool {
        self.rests_until_ms > clock::monotonic_ms()
    }

    async fn pause(&mut self, time: Duration) {
        let stopped = async {
            // An error means that the server is gone.
            let _ = self.stopping.wait_for(|stop| *stop).await;
        };
        let _ = tokio::time::timeout(time, stopped).await;
    }

    /// Waits for something to do.
    async fn listen(&mut self) {
        let mut stopping = self.stopping.clone();
        let woken = tokio::select! {
            woken = tokio::time::timeout(LOOK_EVERY, self.waking.recv()) => woken,
            _ = stopping.wait_for(|stop| *stop) => return,
        };
        // The server is gone, as the stop signal will also report.
        if let Ok(Err(RecvError::Closed)) = woken {
            self.pause(LOOK_EVERY).await;
        }
    }

    /// Processes all events.
    fn apply_events(&mut self) {
        // The only purpose of these events was to wake the thread.
        while self.waking.try_recv().is_ok() {}
        let mut state = self.index.state.lock();
        state.apply_events();
        self.pace.note_arrivals(std::mem::take(&mut state.arrivals));
        self.index.update_gauges(&state);
    }

    /// Compares the stored mails with the index and queues those that it lacks. Returns false if the store
    /// failed.
    async fn go_through(&mut self) -> bool {
        let sheets = self.index.state.lock().sheets.clone();
        let mut known: Vec<MailId> = Vec::new();
        let mut outdated: Vec<MailKey> = Vec::new();
        for sheet in sheets {
            match sheet.reading().and_then(|reading| reading.names()) {
                Ok(names) if sheet.is_outdated() => outdated.extend(names),
                Ok(names) => known.extend(names.iter().map(|name| name.id)),
                Err(error) => _ = self.index.set_aside(&sheet, &error),
            }
        }
        {
            let state = self.index.state.lock();
            let filling = state.filling.values().flat_map(|columns| &columns.names);
            known.extend(filling.chain(&state.pending).chain(&state.working).map(|name| name.id));
        }
        known.sort_unstable();
        // Some outdated mails may have been indexed again before the last stop.
        outdated.retain(|name| known.binary_search(&name.id).is_err());
        outdated.sort_unstable();
        outdated.dedup();
        known.extend(outdated.iter().map(|name| name.id));
        known.sort_unstable();
        let mut from = Some(0);
        while let Some(at) = from {
            // Mails that arrive during the comparison are reported as events.
            self.apply_events();
            let Ok((stored, next)) = self.mailboxes.list_stored(at, ASKED_AT_ONCE).await else {
                return false;
            };
            let mut state = self.index.state.lock();
            for (id, arrived_ms) in stored {
                if known.binary_search(&id).is_err() {
                    state.queue_mail(MailKey { arrived_ms, id });
                }
            }
            from = next;
        }
        let mut state = self.index.state.lock();
        // Removes the duplicates of mails that were both reported and found.
        let mut pending: Vec<MailKey> = std::mem::take(&mut state.pending).into();
        pending.sort_unstable();
        pending.dedup();
        state.pending = pending.into();
        state.is_complete = state.pending.len() < PENDING_MAX;
        // The newest mails are searched most often, so they are queued first. If not all fit, a later
        // comparison with the store finds the rest.
        let room = PENDING_MAX - state.pending.len().min(PENDING_MAX);
        state.is_outdated_cut = outdated.len() > room;
        state.outdated = outdated.into_iter().rev().take(room).collect();
        self.index.update_gauges(&state);
        true
    }

    /// Indexes the next mails; returns `false` if there are none.
    async fn index_batch(&mut self) -> bool {
        let batch: Vec<MailKey> = {
            let mut state = self.index.state.lock();
            let state = &mut *state;
            let queue = if state.pending.is_empty() { &mut state.outdated } else { &mut state.pending };
            let batch = queue.len().min(BATCH);
            state.working = queue.drain(..batch).collect();
            state.working.clone()
        };
        if batch.is_empty() {
            return self.drop_outdated();
        }
        for name in batch {
            let read = self.mailboxes.mail_into(&Scope::All, name.id, ()).await;
            match read {
                Ok(Some((mail, ()))) => self.index_mail(name, &mail),
                // The mail has been deleted, or is damaged; a search could not read it either.
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "cannot read a mail for the search index");
                    let mut state = self.index.state.lock();
                    let left = std::mem::take(&mut state.working);
                    state.pending.extend(left);
                    return false;
                }
            }
            let mut state = self.index.state.lock();
            state.working.retain(|own| *own != name);
            self.index.update_gauges(&state);
        }
        true
    }

    /// Removes the segments of the previous version once all their mails are indexed again; returns whether
    /// there were any. The new segments are written first, so that each mail is always in a segment on the
    /// disk.
    fn drop_outdated(&mut self) -> bool {
        if !self.index.state.lock().sheets.iter().any(|sheet| sheet.is_outdated()) {
            return false;
        }
        self.write_all_segments();
        let mut state = self.index.state.lock();
        if !state.pending.is_empty() {
            // The new segments could not be written.
            return false;
        }
        if state.is_outdated_cut {
            // The next comparison with the store finds the remaining outdated mails.
            state.is_complete = false;
            return true;
        }
        let (outdated, current) =
            std::mem::take(&mut state.sheets).into_iter().partition::<Vec<_>, _>(|sheet| sheet.is_outdated());
        state.sheets = current;
        for sheet in outdated {
            // If a segment cannot be removed, the next start finds that its mails are indexed.
            let _ = sheet.remove();
        }
        self.index.update_gauges(&state);
        true
    }

    fn index_mail(&mut self, name: MailKey, mail: &Mail) {
        let text = search::text_of(mail);
        let grams = self.finder.grams(&text);
        let height = height_for(grams.len(), mail.summary.size_bytes);
        let is_full = {
            let mut state = self.index.state.lock();
            let columns = state.filling.entry(height).or_insert_with(|| Columns::new(height));
            columns.add(name, grams);
            columns.is_full()
        };
        if is_full {
            self.write_segment(height);
        }
    }

    /// Writes a filled segment; if the disk fails, its mails are queued again.
    fn write_segment(&mut self, height: u32) {
        let (full, path) = {
            let mut state = self.index.state.lock();
            let Some(columns) = state.filling.remove(&height).filter(|columns| !columns.names.is_empty())
            else {
                return;
            };
            let full = Arc::new(columns);
            state.full = Some(Arc::clone(&full));
            (full, self.index.next_path(&mut state))
        };
        let written = IndexSegment::write(path, &full, self.index.at.store);
        let mut state = self.index.state.lock();
        state.full = None;
        match written {
            Ok(sheet) => state.sheets.push(Arc::new(sheet)),
            Err(error) => {
                self.index.counters.add(Counter::IndexNotWritten, 1);
                tracing::warn!(%error, "cannot write the search index: searches scan the mails instead");
                state.pending.extend(&full.names);
                self.rests_until_ms =
                    clock::monotonic_ms().saturating_add(u64::try_from(REST.as_millis()).unwrap_or(u64::MAX));
            }
        }
        self.index.update_gauges(&state);
    }

    fn write_all_segments(&mut self) {
        let heights: Vec<u32> = self.index.state.lock().filling.keys().copied().collect();
        for height in heights {
            self.write_segment(height);
        }
    }

    fn needs_merge(&self) -> bool {
        let indexed = self.index.state.lock().sheets.iter().map(|sheet| sheet.mails() as u64).sum::<u64>();
        self.index.state.lock().deaths >= DEATHS_MIN.max(indexed / DEATHS_SHARE)
    }

    /// Cleans up after deleted mails: removes segments without live mails and merges sparse ones. Returns
    /// whether it finished.
    async fn sweep(&mut self) -> bool {
        let sheets = {
            let mut state = self.index.state.lock();
            state.deaths = 0;
            state.sheets.clone()
        };
        let mut sparse: BTreeMap<u32, Vec<SparseSegment>> = BTreeMap::new();
        for sheet in sheets.into_iter().filter(|sheet| !sheet.is_outdated()) {
            let names = match sheet.reading().and_then(|reading| reading.names()) {
                Ok(names) => names,
                Err(error) => {
                    self.index.set_aside(&sheet, &error);
                    continue;
                }
            };
            let mut living = Vec::new();
            for (at, some) in names.chunks(ASKED_AT_ONCE).enumerate() {
                let ids: Vec<MailId> = some.iter().map(|name| name.id).collect();
                let Ok(are_there) = self.mailboxes.check_existence(&ids).await else { return false };
                let there = some.iter().enumerate().zip(are_there).filter(|(_, is_there)| *is_there);
                living.extend(there.map(|((within, name), _)| (at * ASKED_AT_ONCE + within, *name)));
            }
            let is_small = sheet.mails() * 2 < columns_of(sheet.height());
            if living.len() * 8 < sheet.mails() * LIVE_EIGHTHS || is_small {
                sparse.entry(sheet.height()).or_default().push((sheet, living));
            }
        }
        for (height, group) in sparse {
            // Rewriting a segment that is small only because it has few mails gains nothing.
            let all_live = group.iter().all(|(sheet, living)| sheet.mails() == living.len());
            if group.len() > 1 || !all_live {
                self.merge_segments(height, group);
            }
        }
        let state = self.index.state.lock();
        self.index.update_gauges(&state);
        true
    }

    /// Merges the live columns of several segments into new ones.
    fn merge_segments(&mut self, height: u32, group: Vec<SparseSegment>) {
        let mut columns = Columns::new(height);
        let mut replaced: Vec<Arc<IndexSegment>> = Vec::new();
        for (sheet, living) in group {
            if columns.names.len() + living.len() > columns_of(height) {
                self.replace(&std::mem::replace(&mut columns, Columns::new(height)), &replaced);
                replaced.clear();
            }
            if let Err(error) = copy(&sheet, &living, &mut columns) {
                self.index.set_aside(&sheet, &error);
                // Columns already begun for this segment would stay empty, so the merge starts over.
                columns = Columns::new(height);
                replaced.clear();
                continue;
            }
            replaced.push(sheet);
        }
        self.replace(&columns, &replaced);
    }

    /// Writes a new segment and removes those that it replaces.
    fn replace(&mut self, columns: &Columns, replaced: &[Arc<IndexSegment>]) {
        if replaced.is_empty() {
            return;
        }
        let fresh = if columns.names.is_empty() {
            None
        } else {
            let path = self.index.next_path(&mut self.index.state.lock());
            match IndexSegment::write(path, columns, self.index.at.store) {
                Ok(sheet) => Some(Arc::new(sheet)),
                Err(error) => {
                    tracing::warn!(%error, "cannot merge the search index: keeping the unmerged segments");
                    return;
                }
            }
        };
        let mut state = self.index.state.lock();
        state.sheets.retain(|own| !replaced.iter().any(|old| Arc::ptr_eq(own, old)));
        state.sheets.extend(fresh);
        for old in replaced {
            // If a segment cannot be removed, the next start finds its mails twice and merges again.
            let _ = old.remove();
        }
    }
}

/// Copies live columns.
fn copy(sheet: &IndexSegment, living: &[(usize, MailKey)], columns: &mut Columns) -> io::Result<()> {
    let reading = sheet.reading()?;
    let first = columns.names.len();
    for (_, name) in living {
        columns.push(*name);
    }
    let mut words = Vec::new();
    for row in 0..sheet.height() {
        reading.row(row, &mut words)?;
        for (at, (column, _)) in living.iter().enumerate() {
            if words[column / 64] >> (column % 64) & 1 == 1 {
                columns.set(row, first + at);
            }
        }
    }
    Ok(())
}
