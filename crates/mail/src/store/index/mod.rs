//! The index of the stored mails in the inboxes that one core owns.
//!
//! ```text
//!   inbox's hash ─▶ table ─▶ inbox ──newest──▶ entry ⇄ entry ⇄ entry ◀──oldest── inbox     (each entry is in three
//!   ID (MailId) ─▶ table ─▶ entry                                                       such chains: of its inbox,
//!   expiry queue: (second, slot), lazily                                                 of its domain, of all mails)
//! ```
//! A mail that was delivered to several inboxes appears once in the chain of all mails, as the entry of its
//! first inbox. That entry stays, even after the first inbox has dropped the mail, until the last inbox has
//! dropped it ([`Role`]). The entries of the other inboxes are in a separate chain.
//!
//! The index is plain memory of the core. An entry is 64 bytes: its order and the location of its record in
//! the log; summaries are read from there. With tables and queue a mail takes ≤ 100 bytes, and an inbox with
//! any mail ≈ 80 more. [`IndexRules::bytes_max`] limits both together, because one mail to a hundred new
//! recipients takes twenty kilobytes. When the limit is exceeded, the oldest mails are dropped
//! ([`Index::oldest_above_limit`]).
//!
//! Invariants, checked by `invariants` in tests: every entry is in its three chains and can be found by its
//! ID, except for dropped ones, which are only in the chain of all mails; chains are in order of arrival; an
//! inbox or domain exists exactly while it holds a mail; a mail has an early expiry exactly while its entry
//! is flagged so.

mod chain;
mod entry;
mod expire_early;
mod large;
mod queue;
mod slab;
mod table;
#[cfg(test)]
mod tests;
mod walk;

use std::{collections::HashMap, sync::Arc};

use bheap::PageQueue;
use engine::log::Location;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{
    mailbox::mailboxes::{Inbox, MailId, Scope},
    store::record::Part,
};

pub(crate) use crate::store::index::expire_early::{EarlyExpiry, EarlyExpiryOutcome};
use chain::{Chain, Link, NONE};
use entry::{BY_ALL, BY_DOMAIN, BY_INBOX, DomainSlot, Entry, InboxSlot};
pub(crate) use entry::{NewEntry, Place, RemovedMail, Role};
use large::LargeMailParts;
use queue::{due_s, queue};
use slab::Slab;
use table::SlotTable;
pub(crate) use walk::{StepOutcome, WalkControl};

/// Maximum memory that an index without mails keeps for later mails.
const EMPTY_BYTES_MAX: usize = 1 << 20;

/// Largest size of an entry, including its slots in tables and queue; see the module.
const ENTRY_BYTES: usize = 100;
/// Bytes of an inbox or a domain without its name, and allocation overhead of a name.
const INBOX_BYTES: usize = 64;
const NAME_BYTES: usize = 16;
/// Additional bytes of an entry in an inbox other than the mail's first: `letters` maps the entry's ID to the
/// ID in the first inbox.
const LETTER_BYTES: usize = 24;
/// Number of oldest entries that are searched for one that can be dropped. An entry whose inbox has dropped
/// it already stays for other inboxes.
const OLDEST_LOOKED_AT: usize = 64;
/// Number of words of removed mails that the expiry queue may hold in addition to one for each mail.
const STALE_WORDS_MAX: usize = 64 << 10;

/// Capacity that `letters` keeps after its last entry is removed.
const LETTERS_SPARE_MAX: usize = 1024;

/// Limits of the index, and the segment layout of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexRules {
    pub(crate) age_ms: u64,
    pub(crate) per_inbox_max: u32,
    /// Memory that mails and inboxes may take.
    pub(crate) bytes_max: usize,
    /// Offset of the log's first segment and size of a segment, to compute the segment of a location.
    pub(crate) segments_at: u64,
    pub(crate) segment_bytes: u64,
    /// Hash seed of the name tables, so that an attacker cannot choose colliding names.
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
    /// Chain of all mails, each once.
    all: Chain,
    /// Chain of the entries with [`Role::Other`].
    others: Chain,
    /// For each entry with [`Role::Other`], the ID of its mail in the first inbox.
    letters: HashMap<u64, u64>,
    /// Number of entries that their inbox has dropped.
    let_go: usize,
    mail_bytes: u64,
    /// Number of entries per segment of the log that are still in an inbox: those in the chain of all mails,
    /// and the others.
    in_segment: HashMap<u32, [u32; 2]>,
    /// Queue of words, each with the second after which a mail is expired and the mail's slot. If the slot
    /// has been reused, the word refers to a mail that is not due.
    expiry: PageQueue<u64>,
    /// Early expiries by mail ID.
    hurried: HashMap<u64, EarlyExpiry>,
    large: LargeMailParts,
    /// Bytes of the names of inboxes and domains.
    name_bytes: usize,
}

fn hash_of_id(id: u64) -> u64 {
    // IDs are nearly consecutive, and the table uses bits from both ends of the hash.
    id.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Hash that determines the owner of an inbox; it is the same at every start.
pub(crate) fn hash_of_inbox(local: &str, domain: &str) -> u64 {
    xxh3_64(local.as_bytes()).rotate_left(17) ^ xxh3_64(domain.as_bytes())
}

/// Hash of an inbox in a table with this seed.
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

    /// Memory of the current mails and inboxes, which [`IndexRules::bytes_max`] bounds. Tables and slots that
    /// were once larger keep their memory for reuse.
    pub(crate) fn live_bytes(&self) -> usize {
        self.entries.len() * ENTRY_BYTES
            + self.letters.len() * LETTER_BYTES
            + (self.inboxes.len() + self.domains.len()) * INBOX_BYTES
            + self.name_bytes
            + self.hurried.len() * size_of::<(u64, EarlyExpiry)>()
            + self.large.bytes()
    }

    /// Returns the oldest mail that is still in an inbox, if mails and inboxes together exceed
    /// [`IndexRules::bytes_max`].
    pub(crate) fn oldest_above_limit(&self) -> Option<MailId> {
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

    /// Number of mails, each counted once for each inbox that has it.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.let_go
    }

    /// Number of inboxes with a mail.
    pub(crate) fn inboxes(&self) -> usize {
        self.inboxes.len()
    }

    /// Total size of all mails.
    pub(crate) fn mail_bytes(&self) -> u64 {
        self.mail_bytes
    }

    /// Memory that the index takes.
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

    /// Inserts a mail as the newest of its inbox. Returns the mail that must be dropped because the inbox is
    /// full.
    ///
    /// # Panics
    /// If the ID is already in use: IDs are unique.
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

    /// Rebuilds the expiry queue once stale words outnumber the mails. A mail that is removed early leaves
    /// its word in the queue: a full inbox that gets a thousand mails a second would leave 80 million words
    /// in a day.
    fn drop_stale_words(&mut self) {
        if self.expiry.len() <= 2 * self.entries.len() + STALE_WORDS_MAX {
            return;
        }
        let is_one = |entry: &&Entry| entry.id != 0 && !entry.is_let_go;
        let slots = (0..self.entries.slots()).filter(|slot| is_one(&&self.entries[*slot]));
        let mut words: Vec<u64> =
            slots.map(|slot| self.expiry_word(self.entries[slot].arrived_ms, slot)).collect();
        // A mail with an early expiry has a second word, earlier than the word for its age.
        words.extend(self.hurried.iter().filter_map(|(id, hurry)| {
            self.find(MailId(*id)).map(|slot| due_s(hurry.expires_ms) << 32 | u64::from(slot))
        }));
        words.sort_unstable();
        self.expiry = queue();
        words.into_iter().for_each(|word| self.expiry.push(word));
    }

    /// Inserts a mail that its first inbox has already dropped but other inboxes still have.
    ///
    /// # Panics
    /// If the ID is in use, or if the entry does not belong to the first inbox.
    pub(crate) fn insert_let_go(&mut self, new: &NewEntry) {
        assert!(new.role() == Role::First, "who stands for a mail among all is its first inbox's");
        let slot = self.enter(new, NONE);
        self.entries[slot].is_let_go = true;
        self.let_go += 1;
    }

    /// Adds an entry to the ID table and to the chain of all mails, or of other inboxes' entries.
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

    /// Returns the location of a mail that exists and has not expired.
    pub(crate) fn place(&self, id: MailId, now_ms: u64) -> Option<Place> {
        let entry = &self.entries[self.find(id)?];
        (self.expires_ms(entry) > now_ms).then(|| self.place_of(entry))
    }

    /// Removes a mail from its inbox. `known` is the inbox, if the caller has it by value.
    pub(crate) fn remove(&mut self, id: MailId, known: Option<Inbox>) -> Option<RemovedMail> {
        let slot = self.find(id).filter(|slot| !self.entries[*slot].is_let_go)?;
        let inbox = known.unwrap_or_else(|| self.inbox_of(&self.entries[slot]));
        Some(self.remove_slot(slot, inbox))
    }

    /// Removes a mail from the chain of all mails after its last inbox has dropped it.
    ///
    /// # Panics
    /// If its first inbox still has it.
    pub(crate) fn remove_unlinked(&mut self, letter: MailId) -> Option<(Place, Option<Arc<[Part]>>)> {
        let slot = self.find(letter)?;
        let place = self.place_of(&self.entries[slot]);
        assert!(place.is_let_go, "a mail that no inbox has was let go by its first");
        self.let_go -= 1;
        let parts = self.remove_entry(slot);
        self.shrink_if_empty();
        Some((place, parts))
    }

    /// Returns the segment in which the data of the oldest mail begins.
    pub(crate) fn oldest_segment(&self) -> Option<u32> {
        let oldest = [self.all.oldest, self.others.oldest].into_iter().filter(|slot| *slot != NONE);
        let oldest = oldest.min_by_key(|slot| (self.entries[*slot].arrived_ms, self.entries[*slot].id))?;
        let entry = &self.entries[oldest];
        // The parts of a large mail were written before its record.
        Some(self.segment_of(self.large.first(entry.id).unwrap_or(entry.location)))
    }

    /// Removes up to `most` of the mails whose record, or a part of it, is in a segment, oldest first.
    /// Segments are filled in order of arrival, so the mails of the oldest segment are near the oldest end of
    /// the chain.
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
            // A mail that its first inbox has dropped stays until the other inboxes have dropped it, too.
            let slot = self.find(MailId(id)).filter(|slot| !self.entries[*slot].is_let_go);
            if let Some(slot) = slot.filter(|_| gone.len() < most) {
                gone.push(self.remove_slot(slot, self.inbox_of(&self.entries[slot])));
            }
        }
        gone
    }

    /// Removes one expired mail.
    pub(crate) fn expire_one(&mut self, now_ms: u64) -> Option<RemovedMail> {
        loop {
            let &word = self.expiry.peek()?;
            // Words have whole seconds: a mail that is due within the current second waits for the next.
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

    /// Returns the time at which [`Index::expire_one`] may next remove a mail; `None` if there is nothing to
    /// expire.
    pub(crate) fn next_expiry_ms(&self) -> Option<u64> {
        self.expiry.peek().map(|word| (word >> 32) * 1000)
    }

    /// Returns the mails across all inboxes in up to `most` slots from `from` on, each with its time of
    /// arrival, and the slot to continue from.
    pub(crate) fn stored(&self, from: u32, most: usize) -> (Vec<(MailId, u64)>, Option<u32>) {
        let end = from.saturating_add(u32::try_from(most).unwrap_or(u32::MAX)).min(self.entries.slots());
        let is_one = |entry: &&Entry| entry.id != 0 && entry.role != Role::Other;
        let entries = (from..end).filter_map(|slot| self.entries.get(slot)).filter(is_one);
        let mails = entries.map(|entry| (MailId(entry.id), entry.arrived_ms)).collect();
        (mails, (end < self.entries.slots()).then_some(end))
    }

    /// Returns the number of mails in a scope; `None` if counting them needs a walk.
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
        let hurried_by = self.clear_early_expiry(&entry);
        debug_assert_eq!(
            self.find_inbox(&inbox.local, &inbox.domain),
            Some(entry.inbox),
            "the inbox that is given is the mail's"
        );
        let domain = self.inboxes[entry.inbox].domain;
        let entries = &mut self.entries;
        self.inboxes[entry.inbox].chain.unlink(entries, BY_INBOX, slot);
        self.domains[domain].chain.unlink(entries, BY_DOMAIN, slot);
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
            parts = self.remove_entry(slot);
            self.shrink_if_empty();
        }
        RemovedMail { place, inbox, letter, hurried_by, parts }
    }

    /// Removes an entry from the chain of all mails or of other entries, and from its slot. Returns the parts
    /// of a large mail.
    fn remove_entry(&mut self, slot: u32) -> Option<Arc<[Part]>> {
        let entry = self.entries[slot];
        let entries = &mut self.entries;
        let chain = if entry.role == Role::Other { &mut self.others } else { &mut self.all };
        chain.unlink(entries, BY_ALL, slot);
        self.by_id.remove(hash_of_id(entry.id), slot, |slot| hash_of_id(entries[slot].id));
        self.entries.remove(slot);
        let rules = self.rules;
        self.large.remove(entry.id, |location| rules.segment_of(location))
    }

    /// Removes the mapping from the ID of a [`Role::Other`] entry to the mail's ID in its first inbox, and
    /// returns the latter.
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
            // The index is created anew, because slots and tables do not shrink and the queue holds only
            // stale words.
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
