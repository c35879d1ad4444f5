//! What one core knows of the stored mails whose inboxes it owns.
//!
//! ```text
//!   inbox's hash ─▶ table ─▶ inbox ──newest──▶ entry ⇄ entry ⇄ entry ◀──oldest── inbox     (each entry is in three
//!   name (MailId) ─▶ table ─▶ entry                                                     such chains: of its inbox,
//!   expiry queue: (second, slot), lazily                                                 of its domain, of all mails)
//! ```
//! A mail that came into several inboxes is one among all mails: there its first inbox's entry stands for it, also when
//! that inbox has let it go, until the last one has ([`Role`]). The others' entries are in a chain beside.
//!
//! All of it is plain memory of the core. An entry is 64 bytes: what it takes to order it and to find the record in the
//! log; what lists show is read from there. With tables and queue a mail costs ≤ 100 bytes, an inbox that holds any ≈
//! 80 more. [`IndexRules::bytes_max`] bounds them together, because one mail to a hundred new recipients takes twenty
//! kilobytes: beyond the bound the oldest mails go ([`Index::oldest_over`]).
//!
//! Invariants, checked by `invariants` in tests: every entry is in the three chains of its inbox and under its name, but
//! for those let go, which are among all mails alone; chains are ordered as mails arrived; an inbox or domain exists exactly while it holds a mail; a mail is among the
//! hurried exactly while its entry says so.

mod chain;
mod expire_early;
mod large;
mod slab;
mod table;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use bheap::PageQueue;
use engine::log::Location;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub(crate) use crate::store::index::expire_early::{EarlyExpiry, EarlyExpiryOutcome};
use crate::{
    mailbox::mailboxes::{Inbox, MailId, Scope},
    store::record::Part,
};
use chain::{Chain, Link, NONE};
use large::LargeMailParts;
use slab::Slab;
use table::SlotTable;

/// Bytes of a page of the expiry queue.
const QUEUE_PAGE_BYTES: usize = 4096;

/// Memory that an index without a mail keeps for the next ones.
const EMPTY_BYTES_MAX: usize = 1 << 20;

/// Bytes of an entry at most, with its slots in tables and queue; see the module.
const ENTRY_BYTES: usize = 100;
/// Bytes of an inbox or a domain without its name, and bytes of a name's allocation beside the name.
const INBOX_BYTES: usize = 64;
const NAME_BYTES: usize = 16;
/// Bytes of an entry whose first inbox is another: `letters` maps it to the mail's name there.
const LETTER_BYTES: usize = 24;
/// Oldest entries that are searched for one that can go: some were let go by their inbox, and stay for others.
const OLDEST_LOOKED_AT: usize = 64;
/// Stale words of the expiry queue, whose mails are gone: at most as many as there are mails, and this many more.
const STALE_WORDS_MAX: usize = 64 << 10;

/// Room for names of mails whose first inbox is another, that is kept when the last of them has gone.
const LETTERS_SPARE_MAX: usize = 1024;

/// The three chains that an entry is in.
const BY_INBOX: usize = 0;
const BY_DOMAIN: usize = 1;
/// Of all mails, or of those beside them.
const BY_ALL: usize = 2;

/// What an inbox's entry is to the mail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// It came into this inbox alone.
    #[default]
    Only,
    /// This is the first of several inboxes: by its name there the mail is known among all.
    First,
    /// It is another of several.
    Other,
}

/// One mail in one inbox.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// 0: the slot is vacant.
    id: u64,
    location: u64,
    arrived_ms: u64,
    links: [Link; 3],
    record_bytes: u32,
    mail_bytes: u32,
    /// [`NONE`] of one that is let go.
    inbox: u32,
    role: Role,
    /// Its inbox has it no more; other inboxes have.
    is_let_go: bool,
    /// It goes before its age, as [`EarlyExpiry`] says.
    is_hurried: bool,
}

const _: () = assert!(size_of::<Entry>() <= 64);

#[derive(Debug, Default)]
struct InboxSlot {
    local: Box<str>,
    domain: u32,
    chain: Chain,
}

#[derive(Debug, Default)]
struct DomainSlot {
    name: Box<str>,
    chain: Chain,
    inboxes: u32,
}

/// A mail to be entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewEntry {
    pub(crate) id: MailId,
    /// Its name in its first inbox, and how many inboxes it came into.
    pub(crate) letter: MailId,
    pub(crate) inboxes: u16,
    /// Of its record in the log.
    pub(crate) location: u64,
    pub(crate) record_bytes: u32,
    pub(crate) mail_bytes: u32,
    pub(crate) arrived_ms: u64,
    /// Of a large mail: where what its record does not have is.
    pub(crate) parts: Option<Arc<[Part]>>,
}

impl NewEntry {
    pub(crate) fn role(&self) -> Role {
        match () {
            () if self.inboxes <= 1 => Role::Only,
            () if self.id == self.letter => Role::First,
            () => Role::Other,
        }
    }
}

/// Where a mail lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) id: MailId,
    pub(crate) location: u64,
    pub(crate) record_bytes: u32,
    pub(crate) arrived_ms: u64,
    /// When it is forgotten.
    pub(crate) expires_ms: u64,
    pub(crate) role: Role,
    /// Its own inbox has it no more.
    pub(crate) is_let_go: bool,
}

/// A mail that an inbox has no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemovedMail {
    pub(crate) place: Place,
    pub(crate) inbox: Inbox,
    /// Its name in its first inbox.
    pub(crate) letter: MailId,
    /// Where it is written that it was to go before its age, if it was.
    pub(crate) hurried_by: Option<u64>,
    /// Of a large mail that nobody else has under this name: its parts.
    pub(crate) parts: Option<Arc<[Part]>>,
}

/// What is kept and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexRules {
    pub(crate) age_ms: u64,
    pub(crate) per_inbox_max: u32,
    /// Bytes of memory that mails and inboxes may take.
    pub(crate) bytes_max: usize,
    /// Where the log's segments begin, and their size: which one a location is in.
    pub(crate) segments_at: u64,
    pub(crate) segment_bytes: u64,
    /// Of the tables of names, so that nobody can choose names that all fall into one place.
    pub(crate) seed: u64,
}

impl IndexRules {
    fn segment_of(&self, location: u64) -> u32 {
        let offset = Location::from_bits(location).map_or(0, Location::offset);
        (offset.saturating_sub(self.segments_at) / self.segment_bytes) as u32
    }
}

/// The index of one core.
#[derive(Debug)]
pub(crate) struct Index {
    rules: IndexRules,
    entries: Slab<Entry>,
    by_id: SlotTable,
    inboxes: Slab<InboxSlot>,
    by_name: SlotTable,
    domains: Slab<DomainSlot>,
    by_domain: SlotTable,
    /// All mails, each once.
    all: Chain,
    /// Entries of mails whose first inbox is another.
    others: Chain,
    /// The name of those mails in their first inbox.
    letters: HashMap<u64, u64>,
    /// How many entries are let go.
    let_go: usize,
    mail_bytes: u64,
    /// Entries of inboxes whose record lies in a segment of the log: of the chain of all mails, and of the others.
    in_segment: HashMap<u32, [u32; 2]>,
    /// The second after which it is over age, and the slot: an entry that finds another mail there finds it not due.
    expiry: PageQueue<u64>,
    /// Those that go before their age, by name.
    hurried: HashMap<u64, EarlyExpiry>,
    large: LargeMailParts,
    /// Bytes of the names of inboxes and domains.
    name_bytes: usize,
}

fn hash_of_id(id: u64) -> u64 {
    // Names are nearly consecutive; the table takes its bits from both ends.
    id.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The hash by which an inbox finds its owner; it is the same at every start.
pub(crate) fn hash_of_inbox(local: &str, domain: &str) -> u64 {
    xxh3_64(local.as_bytes()).rotate_left(17) ^ xxh3_64(domain.as_bytes())
}

/// The hash by which an inbox finds its place in a table of this seed.
fn place_of_inbox(local: &str, domain: &str, seed: u64) -> u64 {
    xxh3_64_with_seed(local.as_bytes(), seed).rotate_left(17) ^ place_of_domain(domain, seed)
}

fn place_of_domain(domain: &str, seed: u64) -> u64 {
    xxh3_64_with_seed(domain.as_bytes(), seed)
}

impl Index {
    pub(crate) fn new(rules: IndexRules) -> Self {
        Self {
            rules,
            entries: Slab::new(),
            by_id: SlotTable::new(),
            inboxes: Slab::new(),
            by_name: SlotTable::new(),
            domains: Slab::new(),
            by_domain: SlotTable::new(),
            all: Chain::default(),
            others: Chain::default(),
            letters: HashMap::new(),
            let_go: 0,
            mail_bytes: 0,
            in_segment: HashMap::new(),
            expiry: queue(),
            hurried: HashMap::new(),
            large: LargeMailParts::default(),
            name_bytes: 0,
        }
    }

    /// Bytes of memory of the mails and inboxes that are here now, which [`IndexRules::bytes_max`] bounds. Tables and slots
    /// that once held more keep their memory for the next ones.
    pub(crate) fn live_bytes(&self) -> usize {
        self.entries.len() * ENTRY_BYTES
            + self.letters.len() * LETTER_BYTES
            + (self.inboxes.len() + self.domains.len()) * INBOX_BYTES
            + self.name_bytes
            + self.hurried.len() * size_of::<(u64, EarlyExpiry)>()
            + self.large.bytes()
    }

    /// The oldest mail that an inbox still has, if mails and inboxes together exceed [`IndexRules::bytes_max`].
    pub(crate) fn oldest_over(&self) -> Option<MailId> {
        if self.live_bytes() <= self.rules.bytes_max {
            return None;
        }
        let oldest = |chain: &Chain| {
            let first = (chain.oldest != NONE).then_some(chain.oldest);
            let newer =
                |slot: &u32| Some(self.entries[*slot].links[BY_ALL].newer).filter(|slot| *slot != NONE);
            let mut entries = std::iter::successors(first, newer).take(OLDEST_LOOKED_AT);
            entries.find(|slot| !self.entries[*slot].is_let_go)
        };
        let of_chains = [oldest(&self.all), oldest(&self.others)].into_iter().flatten();
        let slot = of_chains.min_by_key(|slot| (self.entries[*slot].arrived_ms, self.entries[*slot].id))?;
        Some(MailId(self.entries[slot].id))
    }

    /// How many mails, counted once for each inbox that has them.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.let_go
    }

    /// How many inboxes hold one.
    pub(crate) fn inboxes(&self) -> usize {
        self.inboxes.len()
    }

    /// Bytes of all mails.
    pub(crate) fn mail_bytes(&self) -> u64 {
        self.mail_bytes
    }

    /// Bytes of memory that the index takes.
    pub(crate) fn bytes(&self) -> usize {
        self.name_bytes
            + self.entries.bytes()
            + self.by_id.bytes()
            + self.inboxes.bytes()
            + self.by_name.bytes()
            + self.domains.bytes()
            + self.by_domain.bytes()
            + self.expiry.bytes()
            + self.hurried.capacity() * size_of::<(u64, EarlyExpiry)>()
            + self.letters.capacity() * size_of::<(u64, u64)>()
            + self.large.bytes()
    }

    /// Enters a mail as the newest of its inbox. Names the mail that has to go because the inbox has no room for more.
    ///
    /// # Panics
    /// If there is a mail of that name: names are given once.
    pub(crate) fn insert(&mut self, new: NewEntry, inbox: &Inbox) -> Option<MailId> {
        let inbox = self.inbox_slot(inbox);
        let domain = self.inboxes[inbox].domain;
        let slot = self.enter(&new, inbox);
        let entries = &mut self.entries;
        self.inboxes[inbox].chain.push(entries, BY_INBOX, slot);
        self.domains[domain].chain.push(entries, BY_DOMAIN, slot);
        self.mail_bytes += u64::from(new.mail_bytes);
        let segment = self.segment_of(new.location);
        self.in_segment.entry(segment).or_default()[usize::from(new.role() == Role::Other)] += 1;
        self.expiry.push(self.expiry_word(new.arrived_ms, slot));
        self.drop_stale_words();
        let chain = self.inboxes[inbox].chain;
        (chain.count > self.rules.per_inbox_max).then(|| MailId(self.entries[chain.oldest].id))
    }

    fn expiry_word(&self, arrived_ms: u64, slot: u32) -> u64 {
        due_s(arrived_ms.saturating_add(self.rules.age_ms)) << 32 | u64::from(slot)
    }

    /// Rebuilds the expiry queue once stale words outnumber the mails. A mail that goes before its age leaves its word
    /// in the queue: a full inbox that gets a thousand mails a second would leave 80 million words in a day.
    fn drop_stale_words(&mut self) {
        if self.expiry.len() <= 2 * self.entries.len() + STALE_WORDS_MAX {
            return;
        }
        let is_one = |entry: &&Entry| entry.id != 0 && !entry.is_let_go;
        let slots = (0..self.entries.slots()).filter(|slot| is_one(&&self.entries[*slot]));
        let mut words: Vec<u64> =
            slots.map(|slot| self.expiry_word(self.entries[slot].arrived_ms, slot)).collect();
        // A hurried mail has a second word, earlier than that of its age.
        words.extend(self.hurried.iter().filter_map(|(id, hurry)| {
            self.find(MailId(*id)).map(|slot| due_s(hurry.expires_ms) << 32 | u64::from(slot))
        }));
        words.sort_unstable();
        self.expiry = queue();
        words.into_iter().for_each(|word| self.expiry.push(word));
    }

    /// Enters a mail that its first inbox has let go already, and others have not.
    ///
    /// # Panics
    /// If there is a mail of that name, or if it is not its first inbox's.
    pub(crate) fn insert_let_go(&mut self, new: &NewEntry) {
        assert!(new.role() == Role::First, "who stands for a mail among all is its first inbox's");
        let slot = self.enter(new, NONE);
        self.entries[slot].is_let_go = true;
        self.let_go += 1;
    }

    /// An entry under its name and among all mails, or beside them.
    fn enter(&mut self, new: &NewEntry, inbox: u32) -> u32 {
        let &NewEntry { id, letter, location, record_bytes, mail_bytes, arrived_ms, ref parts, .. } = new;
        if let Some(parts) = parts {
            let rules = self.rules;
            self.large.insert(id.0, Arc::clone(parts), |location| rules.segment_of(location));
        }
        assert!(id.0 != 0 && self.find(id).is_none(), "the name of a mail is given once");
        let role = new.role();
        let entry = Entry {
            id: id.0,
            location,
            arrived_ms,
            links: [Link::default(); 3],
            record_bytes,
            mail_bytes,
            inbox,
            role,
            is_let_go: false,
            is_hurried: false,
        };
        let slot = self.entries.insert(entry);
        let entries = &mut self.entries;
        self.by_id.insert(hash_of_id(id.0), slot, |slot| hash_of_id(entries[slot].id));
        if role == Role::Other {
            self.others.push(entries, BY_ALL, slot);
            self.letters.insert(id.0, letter.0);
        } else {
            self.all.push(entries, BY_ALL, slot);
        }
        slot
    }

    /// Where a mail lies, if it is here and not over age.
    pub(crate) fn place(&self, id: MailId, now_ms: u64) -> Option<Place> {
        let entry = &self.entries[self.find(id)?];
        (self.expires_ms(entry) > now_ms).then(|| self.place_of(entry))
    }

    /// Takes a mail out of its inbox. `known`: its inbox, if whoever asks has it to give away.
    pub(crate) fn remove(&mut self, id: MailId, known: Option<Inbox>) -> Option<RemovedMail> {
        let slot = self.find(id).filter(|slot| !self.entries[*slot].is_let_go)?;
        let inbox = known.unwrap_or_else(|| self.inbox_of(&self.entries[slot]));
        Some(self.remove_slot(slot, inbox))
    }

    /// Takes a mail out from among all, which its last inbox has let go.
    ///
    /// # Panics
    /// If its first inbox still has it.
    pub(crate) fn forget(&mut self, letter: MailId) -> Option<(Place, Option<Arc<[Part]>>)> {
        let slot = self.find(letter)?;
        let place = self.place_of(&self.entries[slot]);
        assert!(place.is_let_go, "a mail that no inbox has was let go by its first");
        self.let_go -= 1;
        let parts = self.cut(slot);
        self.shrink_if_empty();
        Some((place, parts))
    }

    /// The segment in which the oldest mail begins to lie.
    pub(crate) fn oldest_segment(&self) -> Option<u32> {
        let oldest = [self.all.oldest, self.others.oldest].into_iter().filter(|slot| *slot != NONE);
        let oldest = oldest.min_by_key(|slot| (self.entries[*slot].arrived_ms, self.entries[*slot].id))?;
        let entry = &self.entries[oldest];
        // The parts of a large one were written before its record.
        Some(self.segment_of(self.large.first(entry.id).unwrap_or(entry.location)))
    }

    /// Takes out up to `most` of the mails whose record, or a part of it, lies in a segment, the oldest first. A segment is filled in the
    /// order of arrival, so that of the oldest they are near the oldest end of the chain.
    pub(crate) fn drain_segment(&mut self, segment: u32, most: usize) -> Vec<RemovedMail> {
        let mut gone = Vec::new();
        for (beside, chain) in [self.all, self.others].into_iter().enumerate() {
            let mut slot = chain.oldest;
            let has_more = |index: &Self| index.in_segment.get(&segment).is_some_and(|of| of[beside] > 0);
            while gone.len() < most && slot != NONE && has_more(self) {
                let entry = &self.entries[slot];
                let newer = entry.links[BY_ALL].newer;
                if !entry.is_let_go && self.segment_of(entry.location) == segment {
                    gone.push(self.remove_slot(slot, self.inbox_of(entry)));
                }
                slot = newer;
            }
        }
        for id in self.large.within(segment) {
            // One that its first inbox has let go stays until the others have.
            let slot = self.find(MailId(id)).filter(|slot| !self.entries[*slot].is_let_go);
            if let Some(slot) = slot.filter(|_| gone.len() < most) {
                gone.push(self.remove_slot(slot, self.inbox_of(&self.entries[slot])));
            }
        }
        gone
    }

    /// Takes out one mail that is over age.
    pub(crate) fn expire_one(&mut self, now_ms: u64) -> Option<RemovedMail> {
        loop {
            let &word = self.expiry.peek()?;
            // A second begun is not over: what is due in it waits for the next.
            if (word >> 32) * 1000 > now_ms {
                return None;
            }
            self.expiry.pop();
            let slot = word as u32;
            let entry = &self.entries[slot];
            if entry.id != 0 && !entry.is_let_go && self.expires_ms(entry) <= now_ms {
                return Some(self.remove_slot(slot, self.inbox_of(entry)));
            }
        }
    }

    /// When [`Index::expire_one`] may have something to take out; `None`: not before a mail is entered.
    pub(crate) fn next_expiry_ms(&self) -> Option<u64> {
        self.expiry.peek().map(|word| (word >> 32) * 1000)
    }

    /// The mails over all inboxes in up to `most` slots from one on, each with its arrival; and the slot to go on from.
    pub(crate) fn stored(&self, from: u32, most: usize) -> (Vec<(MailId, u64)>, Option<u32>) {
        let end = from.saturating_add(u32::try_from(most).unwrap_or(u32::MAX)).min(self.entries.slots());
        let is_one = |entry: &&Entry| entry.id != 0 && entry.role != Role::Other;
        let entries = (from..end).filter_map(|slot| self.entries.get(slot)).filter(is_one);
        let mails = entries.map(|entry| (MailId(entry.id), entry.arrived_ms)).collect();
        (mails, (end < self.entries.slots()).then_some(end))
    }

    /// How many mails a scope has; `None` where only a walk can tell.
    pub(crate) fn count(&self, scope: &Scope) -> Option<u64> {
        match scope {
            Scope::All => Some(self.all.count.into()),
            Scope::Inbox(inbox) => {
                let slot = self.find_inbox(&inbox.local, &inbox.domain);
                Some(slot.map_or(0, |slot| self.inboxes[slot].chain.count.into()))
            }
            Scope::Prefix { local, domain } if local.is_empty() => {
                let slot = self.find_domain(domain);
                Some(slot.map_or(0, |slot| self.domains[slot].chain.count.into()))
            }
            Scope::Prefix { .. } => None,
        }
    }

    /// Begins a walk over the entries of mails whose first inbox is another.
    pub(crate) fn walk_others(&self) -> Walk {
        let at = self.others.newest;
        let id = if at == NONE { 0 } else { self.entries[at].id };
        Walk { chain: BY_ALL, at, id, prefix: Box::default() }
    }

    /// Begins a walk over a scope, newest first.
    pub(crate) fn walk(&self, scope: &Scope) -> Walk {
        let (chain, at) = match scope {
            Scope::All => (BY_ALL, self.all.newest),
            Scope::Inbox(inbox) => {
                let slot = self.find_inbox(&inbox.local, &inbox.domain);
                (BY_INBOX, slot.map_or(NONE, |slot| self.inboxes[slot].chain.newest))
            }
            Scope::Prefix { domain, .. } => {
                let slot = self.find_domain(domain);
                (BY_DOMAIN, slot.map_or(NONE, |slot| self.domains[slot].chain.newest))
            }
        };
        let prefix = match scope {
            Scope::Prefix { local, .. } => local.clone(),
            _ => Box::default(),
        };
        let id = if at == NONE { 0 } else { self.entries[at].id };
        Walk { chain, at, id, prefix }
    }

    /// Looks at up to `steps` mails of a walk, handing those of the scope that are not over age to `found` until it
    /// says that it has enough.
    pub(crate) fn step(
        &self,
        walk: &mut Walk,
        steps: usize,
        now_ms: u64,
        mut found: impl FnMut(Place) -> WalkControl,
    ) -> StepOutcome {
        for _ in 0..steps {
            if walk.at == NONE {
                return StepOutcome::End;
            }
            // The slot may have gone with all others.
            let Some(entry) = self.entries.get(walk.at).filter(|entry| entry.id == walk.id) else {
                return StepOutcome::Lost;
            };
            walk.at = entry.links[walk.chain].older;
            walk.id = if walk.at == NONE { 0 } else { self.entries[walk.at].id };
            let wanted = walk.prefix.is_empty() || self.inboxes[entry.inbox].local.starts_with(&*walk.prefix);
            let expires_ms = match entry.role {
                // Among all it stays for the others, when its first inbox lets it go.
                Role::First if walk.chain == BY_ALL => self.of_age_ms(entry),
                _ => self.expires_ms(entry),
            };
            if expires_ms <= now_ms {
                if !entry.is_hurried {
                    // Older ones are over age too.
                    walk.at = NONE;
                }
            } else if wanted && found(self.place_of(entry)) == WalkControl::Yes {
                return StepOutcome::End;
            }
        }
        StepOutcome::More
    }

    fn of_age_ms(&self, entry: &Entry) -> u64 {
        entry.arrived_ms.saturating_add(self.rules.age_ms)
    }

    fn expires_ms(&self, entry: &Entry) -> u64 {
        let of_age_ms = self.of_age_ms(entry);
        if !entry.is_hurried {
            return of_age_ms;
        }
        let hurried_ms = self.hurried.get(&entry.id).map_or(u64::MAX, |hurried| hurried.expires_ms);
        of_age_ms.min(hurried_ms)
    }

    fn place_of(&self, entry: &Entry) -> Place {
        Place {
            id: MailId(entry.id),
            location: entry.location,
            record_bytes: entry.record_bytes,
            arrived_ms: entry.arrived_ms,
            expires_ms: self.expires_ms(entry),
            role: entry.role,
            is_let_go: entry.is_let_go,
        }
    }

    fn segment_of(&self, location: u64) -> u32 {
        self.rules.segment_of(location)
    }

    fn find(&self, id: MailId) -> Option<u32> {
        self.by_id.find(hash_of_id(id.0), |slot| self.entries[slot].id == id.0)
    }

    fn find_inbox(&self, local: &str, domain: &str) -> Option<u32> {
        self.by_name.find(place_of_inbox(local, domain, self.rules.seed), |slot| {
            let inbox = &self.inboxes[slot];
            *inbox.local == *local && *self.domains[inbox.domain].name == *domain
        })
    }

    fn find_domain(&self, domain: &str) -> Option<u32> {
        let hash = place_of_domain(domain, self.rules.seed);
        self.by_domain.find(hash, |slot| *self.domains[slot].name == *domain)
    }

    fn inbox_slot(&mut self, inbox: &Inbox) -> u32 {
        if let Some(slot) = self.find_inbox(&inbox.local, &inbox.domain) {
            return slot;
        }
        let seed = self.rules.seed;
        let domain = self.find_domain(&inbox.domain).unwrap_or_else(|| {
            let name = inbox.domain.clone();
            self.name_bytes += NAME_BYTES + name.len();
            let domain = self.domains.insert(DomainSlot { name, chain: Chain::default(), inboxes: 0 });
            let domains = &self.domains;
            let hash = place_of_domain(&inbox.domain, seed);
            self.by_domain.insert(hash, domain, |slot| place_of_domain(&domains[slot].name, seed));
            domain
        });
        self.domains[domain].inboxes += 1;
        let local = inbox.local.clone();
        self.name_bytes += NAME_BYTES + local.len();
        let slot = self.inboxes.insert(InboxSlot { local, domain, chain: Chain::default() });
        let (inboxes, domains) = (&self.inboxes, &self.domains);
        self.by_name.insert(place_of_inbox(&inbox.local, &inbox.domain, seed), slot, |slot| {
            place_of_inbox(&inboxes[slot].local, &domains[inboxes[slot].domain].name, seed)
        });
        slot
    }

    fn inbox_of(&self, entry: &Entry) -> Inbox {
        let inbox = &self.inboxes[entry.inbox];
        Inbox { local: inbox.local.clone(), domain: self.domains[inbox.domain].name.clone() }
    }

    fn remove_slot(&mut self, slot: u32, inbox: Inbox) -> RemovedMail {
        let entry = self.entries[slot];
        let place = self.place_of(&entry);
        let hurried_by = self.forget_hurry(&entry);
        debug_assert_eq!(
            self.find_inbox(&inbox.local, &inbox.domain),
            Some(entry.inbox),
            "the inbox that is given is the mail's"
        );
        let domain = self.inboxes[entry.inbox].domain;
        let entries = &mut self.entries;
        self.inboxes[entry.inbox].chain.cut(entries, BY_INBOX, slot);
        self.domains[domain].chain.cut(entries, BY_DOMAIN, slot);
        self.mail_bytes -= u64::from(entry.mail_bytes);
        let segment = self.segment_of(entry.location);
        let Some(counts) = self.in_segment.get_mut(&segment) else {
            unreachable!("an entry is counted in its segment")
        };
        counts[usize::from(entry.role == Role::Other)] -= 1;
        if *counts == [0, 0] {
            self.in_segment.remove(&segment);
        }
        if self.inboxes[entry.inbox].chain.count == 0 {
            self.remove_inbox(entry.inbox, &inbox);
        }
        let letter = match entry.role {
            Role::Only | Role::First => MailId(entry.id),
            Role::Other => MailId(self.forget_letter(entry.id)),
        };
        let mut parts = None;
        if entry.role == Role::First {
            self.let_go += 1;
            let entry = &mut self.entries[slot];
            (entry.is_let_go, entry.is_hurried, entry.inbox) = (true, false, NONE);
        } else {
            parts = self.cut(slot);
            self.shrink_if_empty();
        }
        RemovedMail { place, inbox, letter, hurried_by, parts }
    }

    /// Takes an entry out from among all mails, or from beside them, and from its slot; the parts of a large one.
    fn cut(&mut self, slot: u32) -> Option<Arc<[Part]>> {
        let entry = self.entries[slot];
        let entries = &mut self.entries;
        let chain = if entry.role == Role::Other { &mut self.others } else { &mut self.all };
        chain.cut(entries, BY_ALL, slot);
        self.by_id.remove(hash_of_id(entry.id), slot, |slot| hash_of_id(entries[slot].id));
        self.entries.remove(slot);
        let rules = self.rules;
        self.large.remove(entry.id, |location| rules.segment_of(location))
    }

    /// Gives the name that a mail has in its first inbox, which is another.
    fn forget_letter(&mut self, id: u64) -> u64 {
        let letter = self.letters.remove(&id);
        if self.letters.is_empty() && self.letters.capacity() > LETTERS_SPARE_MAX {
            self.letters.shrink_to(LETTERS_SPARE_MAX);
        }
        let Some(letter) = letter else {
            unreachable!("an entry of another inbox knows the first one's name")
        };
        letter
    }

    fn shrink_if_empty(&mut self) {
        if self.entries.len() == 0 && self.bytes() > EMPTY_BYTES_MAX {
            // Slots and tables do not shrink, and the queue has nothing but words of those that are gone.
            *self = Self::new(self.rules);
        }
    }

    fn remove_inbox(&mut self, slot: u32, inbox: &Inbox) {
        let (inboxes, domains, seed) = (&self.inboxes, &self.domains, self.rules.seed);
        self.by_name.remove(place_of_inbox(&inbox.local, &inbox.domain, seed), slot, |slot| {
            place_of_inbox(&inboxes[slot].local, &domains[inboxes[slot].domain].name, seed)
        });
        self.name_bytes -= NAME_BYTES + inbox.local.len();
        let domain = self.inboxes.remove(slot).domain;
        self.domains[domain].inboxes -= 1;
        if self.domains[domain].inboxes == 0 {
            let domains = &self.domains;
            let hash = place_of_domain(&inbox.domain, seed);
            self.by_domain.remove(hash, domain, |slot| place_of_domain(&domains[slot].name, seed));
            self.name_bytes -= NAME_BYTES + self.domains.remove(domain).name.len();
        }
    }
}

fn queue() -> PageQueue<u64> {
    match PageQueue::new(QUEUE_PAGE_BYTES) {
        Ok(queue) => queue,
        Err(error) => unreachable!("a page of 4 KiB is one: {error}"),
    }
}

/// The second in which what expires then is due.
fn due_s(expires_ms: u64) -> u64 {
    expires_ms.div_ceil(1000).min(u32::MAX.into())
}

/// How far a walk has come: the next mail to look at, and its name to see that it is still there.
#[derive(Debug)]
pub(crate) struct Walk {
    chain: usize,
    at: u32,
    id: u64,
    prefix: Box<str>,
}

/// Whether a walk found all that was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkControl {
    Yes,
    No,
}

/// How a step of a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// There is more to look at.
    More,
    /// All was looked at, or enough was found.
    End,
    /// The mail at which to go on was taken out meanwhile: begin anew.
    Lost,
}
