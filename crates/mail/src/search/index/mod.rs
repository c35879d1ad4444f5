//! Search index: tells which stored mails may contain a word, in files next to the store.
//!
//! ```text
//!  events ─▶ pending ─▶ thread "mail-index": reads the mail, its text folded, its grams ─▶ filling (memory)
//!                                                                     full, or at the end ─▶ segments (disk)
//!  search ─▶ grams of its words ─▶ rows of filling and segments ─┐
//!            pending: not indexed yet ───────────────────────────┴▶ candidates, newest first ─▶ opened and searched
//! ```
//! A candidate may contain the word; any other mail does not. So a search opens few mails and misses none:
//! the index is trusted only about words that a mail does *not* have. Mails that are not indexed yet are
//! candidates. Without an index, or if it cannot answer, a search walks all mails, as in a small store.
//!
//! Segments of the previous version, for which text was extracted in another way, are used until their mails
//! are indexed again, after all pending mails; then they are removed. Meanwhile a search may miss what the
//! previous version missed.
//!
//! *Memory:* at most [`columns::HEIGHTS`] segments of [`columns::SHEET_BYTES`], 16 bytes for each pending or
//! outdated mail (at most [`PENDING_MAX`] of both), and the mail being read. *Writer:* the indexer's thread,
//! which has low priority and holds the lock only briefly. *Disk space:* at most 15% of the size of the mails
//! ([`columns::height_for`]). The format is described in `docs/formats/mail-index.md`, the reasons in
//! `docs/decisions/055-search-index.md`.

mod columns;
mod grams;
mod indexer;
mod segment;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use engine::cold_mutex::ColdMutex;
use tokio::sync::broadcast::{Receiver, error::TryRecvError};

pub(crate) use crate::search::index::indexer::start;
use crate::search::index::{
    columns::Columns,
    segment::{IndexSegment, SegmentFault},
};
use crate::web::serve::counters::{Counter, Counters};
use crate::{
    mailbox::mailboxes::{Event, RemainingName},
    search::{self, Candidates, mail_key::MailKey},
};

/// Maximum number of mails that wait to be indexed. If there are more, the indexer compares the index with
/// the store later, and searches walk all mails until then.
const PENDING_MAX: usize = 1 << 21;
/// File extension of segments.
const SHEET: &str = "sheet";

/// Location of the index of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexLocation {
    /// Directory used only by the index; created if missing.
    pub directory: PathBuf,
    /// Number that identifies the store: segments of another store are rejected.
    pub store: u32,
    /// Number of stored mails below which nothing is indexed: a search then opens all of them.
    pub mails_min: u64,
}

impl IndexLocation {
    /// Creates the location of an index that is used once there are more mails than one search may open.
    #[must_use]
    pub fn new(directory: PathBuf, store: u32) -> Self {
        Self { directory, store, mails_min: search::OPENED_MAX as u64 }
    }
}

/// The search index of a store.
#[derive(Debug)]
pub(crate) struct Index {
    at: IndexLocation,
    /// Locked by the indexer's thread and by helpers that search; no loop takes it.
    state: ColdMutex<State>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct State {
    /// True if each stored mail is in one of the fields below: only then does a mail that is not a candidate
    /// not match.
    is_complete: bool,
    /// Mails to be indexed, oldest first.
    pending: VecDeque<MailKey>,
    /// Mails to be indexed again; until then searches use their outdated segments.
    outdated: VecDeque<MailKey>,
    /// True if `outdated` has no room for all outdated mails.
    is_outdated_cut: bool,
    /// Mails that the indexer is reading.
    working: Vec<MailKey>,
    filling: BTreeMap<u32, Columns>,
    /// Segment being written.
    full: Option<Arc<Columns>>,
    sheets: Vec<Arc<IndexSegment>>,
    last_number: u64,
    /// Receiver of arrivals and deletions, read by the indexer, and by each search before it answers.
    events: Option<Receiver<Event>>,
    /// Arrivals since the indexer last counted.
    arrivals: u64,
    deaths: u64,
}

impl State {
    /// Processes all pending events.
    fn apply_events(&mut self) {
        let Some(mut events) = self.events.take() else { return };
        loop {
            match events.try_recv() {
                Ok(Event::Arrived(summary)) if summary.is_letter() => {
                    self.arrivals += 1;
                    self.queue_mail(MailKey::of(&summary));
                }
                Ok(Event::Deleted { remains: RemainingName::Nothing, .. } | Event::Over { .. }) => {
                    self.deaths += 1
                }
                Ok(Event::Arrived(_) | Event::Deleted { .. }) => {}
                Ok(Event::Missed) | Err(TryRecvError::Lagged(_)) => self.is_complete = false,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        self.events = Some(events);
    }

    /// Queues a mail to be indexed.
    fn queue_mail(&mut self, name: MailKey) {
        if self.pending.len() < PENDING_MAX {
            self.pending.push_back(name);
        } else {
            self.is_complete = false;
        }
    }
}

impl Index {
    /// Opens the existing segments; the index is not complete until it has been compared with the store.
    pub(crate) fn open(at: IndexLocation, counters: Arc<Counters>) -> io::Result<Self> {
        fs::create_dir_all(&at.directory)?;
        let mut state = State::default();
        for entry in fs::read_dir(&at.directory)? {
            let path = entry?.path();
            let number = number_of(&path);
            let is_sheet = path.extension().is_some_and(|end| end == SHEET);
            state.last_number = state.last_number.max(number.unwrap_or(0));
            match IndexSegment::open(path.clone(), at.store) {
                Ok(sheet) if is_sheet && number.is_some() => {
                    if sheet.is_outdated() {
                        let file = path.display();
                        tracing::info!(%file, mails = sheet.mails(), "search index segment has the previous format: in use until rebuilt");
                    }
                    state.sheets.push(Arc::new(sheet));
                }
                // Unfinished files left by a crash.
                _ if number.is_some() && !is_sheet => _ = fs::remove_file(&path),
                _ if number.is_none() => {}
                Err(SegmentFault::Io(error)) => return Err(error),
                Err(why) => {
                    counters.add(Counter::IndexDamaged, 1);
                    tracing::warn!(file = %path.display(), "rebuilding a search index segment: {why}");
                    fs::remove_file(&path)?;
                }
                Ok(_) => {}
            }
        }
        let index = Self { at, state: ColdMutex::new(state), counters };
        index.update_gauges(&index.state.lock());
        Ok(index)
    }

    fn update_gauges(&self, state: &State) {
        let filling = state.filling.values().map(|columns| columns.names.len()).sum::<usize>();
        let current = state.sheets.iter().filter(|sheet| !sheet.is_outdated());
        let in_sheets: usize = current.map(|sheet| sheet.mails()).sum();
        let waiting = state.pending.len() + state.outdated.len() + state.working.len();
        self.counters.set(Counter::IndexMails, (filling + in_sheets) as u64);
        self.counters.set(Counter::IndexPending, waiting as u64);
        self.counters.set(Counter::IndexBytes, state.sheets.iter().map(|sheet| sheet.bytes).sum());
    }

    /// Returns up to `most` mails that may have all of these folded words, after the mail `after` if that is
    /// given; `None` if the index cannot answer. `fresh` are mails that arrived a moment ago and whose events
    /// may not have been received yet. The function reads from the disk.
    pub(crate) fn candidates<'a>(
        &self,
        words: impl Iterator<Item = &'a str>,
        fresh: &[MailKey],
        after: Option<MailKey>,
        most: usize,
    ) -> Option<Candidates> {
        let grams = grams::query_grams(words);
        if grams.is_empty() {
            return None;
        }
        let mut found = NewestMatches { after, most, names: Vec::new(), is_more: false };
        let mut set = Vec::new();
        let sheets = {
            let mut state = self.state.lock();
            state.apply_events();
            if !state.is_complete {
                return None;
            }
            found.take(fresh.iter().copied());
            found.take(state.pending.iter().chain(&state.working).copied());
            for columns in state.filling.values().chain(state.full.as_deref()) {
                // Reading memory cannot fail.
                if columns::ask(columns, &grams, &mut set).unwrap_or(true) {
                    found.take_columns(&set, &columns.names);
                }
            }
            state.sheets.clone()
        };
        for sheet in sheets {
            let asked = sheet.reading().and_then(|reading| {
                let has_any = columns::ask(&reading, &grams, &mut set)?;
                if has_any { reading.names() } else { Ok(Vec::new()) }
            });
            match asked {
                Ok(names) => found.take_columns(&set, &names),
                // The segment has been merged with others, and the merged file may not have been read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
                Err(error) => found.take(self.set_aside(&sheet, &error)?.into_iter()),
            }
        }
        Some(found.finish())
    }

    /// Drops a segment that cannot be read, and queues its mails to be indexed again. Returns `None` if the
    /// keys in the segment cannot be read either; the indexer then compares the index with the store.
    fn set_aside(&self, sheet: &Arc<IndexSegment>, why: &io::Error) -> Option<Vec<MailKey>> {
        self.counters.add(Counter::IndexDamaged, 1);
        tracing::warn!(file = %sheet.path().display(), "rebuilding a search index segment: {why}");
        let names = sheet.reading().and_then(|reading| reading.names());
        let mut state = self.state.lock();
        let before = state.sheets.len();
        state.sheets.retain(|own| !Arc::ptr_eq(own, sheet));
        if state.sheets.len() < before {
            // If the file cannot be removed, the next start finds it damaged.
            let _ = sheet.remove();
            match &names {
                Ok(names) => state.pending.extend(names),
                Err(_) => state.is_complete = false,
            }
            self.update_gauges(&state);
        }
        names.ok()
    }

    fn next_path(&self, state: &mut State) -> PathBuf {
        state.last_number += 1;
        self.at.directory.join(format!("{}.{SHEET}", state.last_number))
    }
}

/// Returns the number in the name of one of our files.
fn number_of(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.parse().ok()
}

/// Collects the newest matches after a mail.
struct NewestMatches {
    after: Option<MailKey>,
    most: usize,
    names: Vec<MailKey>,
    is_more: bool,
}

impl NewestMatches {
    fn take_columns(&mut self, set: &[u64], names: &[MailKey]) {
        self.take(columns::set_columns(set).filter_map(|column| names.get(column).copied()));
    }

    fn take(&mut self, names: impl Iterator<Item = MailKey>) {
        for name in names {
            if self.after.is_none_or(|after| name < after) {
                self.names.push(name);
            }
            if self.names.len() >= 4 * self.most {
                self.cut();
            }
        }
    }

    fn cut(&mut self) {
        self.names.sort_unstable_by_key(|name| std::cmp::Reverse(*name));
        self.names.dedup();
        self.is_more |= self.names.len() > self.most;
        self.names.truncate(self.most);
    }

    fn finish(mut self) -> Candidates {
        self.cut();
        Candidates { mails: self.names, is_more: self.is_more }
    }
}
