//! Bans: conditions on what is stored. What one holds of is purged, if its fetch began before.
//!
//! ```text
//!  req.url ~ ^/news && obj.status == 200 ──parse──▶ Ban, one for all cores ──enter──▶ each core's list, by number
//!                                                     │ how many cores are done          its own clone
//!                                                     │
//!  a look-up ──▶ the bans with a greater number than the answer's, newest first ──▶ hard: not there · soft: stale
//!  the lurker ──▶ all that is in memory, for some bans at once ──▶ unlinked; after that the ban is *done* here, and
//!                 dropped from all lists when it is done on all cores
//! ```
//! The language is [`wire::filter`]'s, which is Varnish's and some more (`docs/decisions/032-bans.md`). `req.url` and
//! `req.http.host` are those of the stored object, out of its key, so that who lurks knows them; other fields of a
//! request are those of the client that asks, and a ban that names one is asked about at each look-up and never done.
//!
//! *Where the data live:* plain memory of each core; the compiled patterns are shared and not written. *Bounds:*
//! [`BANS_MAX`], [`BANS_BYTES_MAX`]. For one more the oldest becomes a purge of everything that is as old.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use wire::{
    filter::{Expression, Fault, Field, Kind, Record},
    http1::head::Headers,
};

use crate::{
    head::response_head::{StoredMeta, stored_values},
    request::key,
};

/// Bans that a core keeps.
pub(crate) const BANS_MAX: usize = 256;
/// What they may take together on one core, in bytes: their texts, their patterns, and what these work with.
pub(crate) const BANS_BYTES_MAX: usize = 4 << 20;
/// Bans that one walk of the lurker is about.
const BANS_A_WALK: usize = 16;
/// How long a walk for a ban waits for the fetches that began before it. What they bring later is not stored.
const FETCHES_WAIT_S: u64 = 60;
/// Microseconds of a number.
const NUMBER_US: i64 = 10_000;

/// What purges made of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// Nothing.
    Valid,
    /// It is stale since the purge of this number.
    Soft(u64),
    /// It is not there.
    Hard,
}

/// What a ban can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BanField {
    Url,
    Host,
    OfRequest,
    Status,
    OfObject,
    Age,
    Ttl,
}

const fn field(name: &'static str, id: BanField, kind: Kind) -> Field<BanField> {
    Field { name, id, kind, of_request: matches!(id, BanField::OfRequest) }
}

const FIELDS: [Field<BanField>; 8] = [
    field("req.url", BanField::Url, Kind::Text),
    field("req.http.host", BanField::Host, Kind::Text),
    // As everybody writes it.
    field("req.http.Host", BanField::Host, Kind::Text),
    field("req.http.*", BanField::OfRequest, Kind::Text),
    field("obj.status", BanField::Status, Kind::Number),
    field("obj.http.*", BanField::OfObject, Kind::Text),
    field("obj.age", BanField::Age, Kind::Duration),
    field("obj.ttl", BanField::Ttl, Kind::Duration),
];

/// A condition, as all cores share it.
#[derive(Debug)]
pub(crate) struct Ban {
    text: Box<str>,
    expression: Expression<BanField>,
    cores_done: AtomicUsize,
}

/// Two that are written the same are the same.
impl PartialEq for Ban {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Ban {}

impl Ban {
    /// Reads one. `tag_fields` are those that carry tags, of which only hashes are kept.
    ///
    /// # Errors
    /// Where the mistake is, and what was expected there.
    pub(crate) fn parse(text: &[u8], tag_fields: &[Box<str>]) -> Result<Arc<Self>, Fault> {
        let expression = Expression::parse(text, &FIELDS)?;
        let of_tags = tag_fields.iter().find(|tags| {
            expression.asks_for(|named, name| named == BanField::OfObject && tags.eq_ignore_ascii_case(name))
        });
        if let Some(tags) = of_tags {
            let found = format!("`obj.http.{tags}`, of which only hashes are kept");
            return Err(Fault { at: 0, found, expected: "a purge by tags".to_owned() });
        }
        let ban = Self { text: expression.to_string().into(), expression, cores_done: AtomicUsize::new(0) };
        if ban.bytes() > BANS_BYTES_MAX {
            let found = format!("a ban that takes {} bytes compiled", ban.bytes());
            return Err(Fault { at: 0, found, expected: format!("{BANS_BYTES_MAX} at most") });
        }
        Ok(Arc::new(ban))
    }

    /// As it is kept and shown: one way of writing it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it names a field of who asks.
    pub(crate) fn is_about_who_asks(&self) -> bool {
        self.expression.needs_request()
    }

    /// Whether it holds of what is stored under a key, were it said now.
    pub(crate) fn holds_now(&self, key: &[u8], head: &[u8], meta: &StoredMeta, now_s: u64) -> bool {
        let subject = Subject { key, head, meta, asker: None };
        let at_us = i64::try_from(now_s).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        self.expression.matches(&BanTime { subject: &subject, at_us })
    }

    fn bytes(&self) -> usize {
        2 * self.text.len() + self.expression.automata_bytes() + self.expression.working_bytes_max()
    }

    /// Whether it depends on when it was said.
    fn is_of_its_time(&self) -> bool {
        self.expression.asks_for(|named, _| matches!(named, BanField::Age | BanField::Ttl))
    }
}

/// What a ban is asked of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// Its key, or its address's.
    pub(crate) key: &'a [u8],
    /// Its status line and fields.
    pub(crate) head: &'a [u8],
    pub(crate) meta: &'a StoredMeta,
    /// The fields of who asks for it, where somebody does.
    pub(crate) asker: Option<&'a Headers<'a, 'a>>,
}

/// At the time of a ban.
struct BanTime<'a> {
    subject: &'a Subject<'a>,
    at_us: i64,
}

impl Record<BanField> for BanTime<'_> {
    fn texts(&self, field: BanField, name: &str) -> impl Iterator<Item = &[u8]> {
        let Subject { key, head, asker, .. } = *self.subject;
        let of_key = match field {
            BanField::Url => Some(key::url(key)),
            BanField::Host => Some(key::authority(key)),
            BanField::OfRequest if name == "host" => Some(key::authority(key)),
            _ => None,
        };
        let of_asker = asker.filter(|_| field == BanField::OfRequest && name != "host");
        let of_asker = of_asker.into_iter().flat_map(Headers::iter);
        let of_object =
            (field == BanField::OfObject).then(|| stored_values(head, name)).into_iter().flatten();
        let of_asker =
            of_asker.filter_map(move |(named, value)| named.eq_ignore_ascii_case(name).then_some(value));
        of_key.into_iter().chain(of_asker).chain(of_object)
    }

    fn number(&self, field: BanField) -> Option<i64> {
        let meta = self.subject.meta;
        let us = |at_s: u64| i64::try_from(at_s).ok()?.checked_mul(1_000_000);
        if !meta.is_response() {
            return None;
        }
        match field {
            BanField::Status => Some(i64::from(meta.status)),
            BanField::Age => self.at_us.checked_sub(us(meta.born_s)?),
            BanField::Ttl => us(meta.fresh_until_s())?.checked_sub(self.at_us),
            _ => None,
        }
    }
}

/// How far the lurker is with a ban.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// It cannot do it: the ban is soft, or about who asks.
    Never,
    Waiting,
    UnderWay,
    Done,
}

#[derive(Debug, Clone)]
struct BanEntry {
    number: u64,
    is_soft: bool,
    ban: Arc<Ban>,
    /// A clone of this core's own: its working memory is behind no lock.
    expression: Expression<BanField>,
    needs_asker: bool,
    walk: Walk,
}

impl BanEntry {
    fn holds_of(&self, subject: &Subject<'_>) -> bool {
        let at_us = i64::try_from(self.number).unwrap_or(i64::MAX).saturating_mul(NUMBER_US);
        self.expression.matches(&BanTime { subject, at_us })
    }
}

/// A ban as the operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BanSeen {
    /// Its number: the time in units of 10 ms since 1970, or one more than that of the purge before.
    pub number: u64,
    /// It makes stale.
    pub is_soft: bool,
    /// The expression.
    pub text: String,
    /// How many cores have nothing left in memory that it holds of; `None`: it is not looked for.
    pub cores_done: Option<usize>,
}

/// The bans of one core, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bans {
    list: Vec<BanEntry>,
    bytes: usize,
}

impl Bans {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The greatest number of one that is about who asks; 0: none is.
    pub(crate) fn youngest_of_askers(&self) -> u64 {
        self.list.iter().rev().find(|listed| listed.needs_asker).map_or(0, |listed| listed.number)
    }

    pub(crate) fn youngest(&self) -> u64 {
        self.list.last().map_or(0, |listed| listed.number)
    }

    pub(crate) fn texts_bytes(&self) -> usize {
        self.list.iter().map(|listed| listed.ban.text.len()).sum()
    }

    /// Each with its number, and whether it is soft.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, bool, &Arc<Ban>)> {
        self.list.iter().map(|listed| (listed.number, listed.is_soft, &listed.ban))
    }

    pub(crate) fn seen(&self) -> Vec<BanSeen> {
        let seen = |listed: &BanEntry| BanSeen {
            number: listed.number,
            is_soft: listed.is_soft,
            text: listed.ban.text().to_owned(),
            cores_done: (listed.walk != Walk::Never).then(|| listed.ban.cores_done.load(Relaxed)),
        };
        self.list.iter().map(seen).collect()
    }

    /// Takes in a ban. The answer has those that had to go for it, the oldest, with whether they are soft: what is as
    /// old is purged from now on.
    pub(crate) fn enter(&mut self, number: u64, is_soft: bool, ban: &Arc<Ban>) -> Vec<(u64, bool)> {
        // What an equal one was about, a younger one is about, too; unless it is about a time.
        let same = |listed: &BanEntry| *listed.ban == **ban && !ban.is_of_its_time();
        if self
            .list
            .iter()
            .any(|listed| same(listed) && listed.number >= number && (is_soft || !listed.is_soft))
        {
            return Vec::new();
        }
        self.keep_those(|listed| !same(listed) || listed.number > number || (is_soft && !listed.is_soft));
        let mut gone = Vec::new();
        while self.list.len() >= BANS_MAX || self.bytes + ban.bytes() > BANS_BYTES_MAX {
            let oldest = self.list.remove(0);
            self.bytes -= oldest.ban.bytes();
            gone.push((oldest.number, oldest.is_soft));
        }
        let needs_asker = ban.is_about_who_asks();
        let walk = if is_soft || needs_asker { Walk::Never } else { Walk::Waiting };
        let (expression, ban) = (ban.expression.clone(), Arc::clone(ban));
        self.bytes += ban.bytes();
        // Cores may hear of neighbours in either order.
        let place = self.list.partition_point(|listed| listed.number < number);
        self.list.insert(place, BanEntry { number, is_soft, ban, expression, needs_asker, walk });
        gone
    }

    fn keep_those(&mut self, is_kept: impl Fn(&BanEntry) -> bool) {
        self.list.retain(is_kept);
        self.bytes = self.list.iter().map(|listed| listed.ban.bytes()).sum();
    }

    /// Everything up to these numbers was purged: bans up to there say nothing more.
    pub(crate) fn forget_until(&mut self, hard: u64, soft: u64) {
        if self.list.first().is_some_and(|oldest| oldest.number <= hard.max(soft)) {
            self.keep_those(|listed| listed.number > if listed.is_soft { hard.max(soft) } else { hard });
        }
    }

    /// What the bans after `since` make of something: those about who asks, or the others.
    pub(crate) fn verdict(&self, since: u64, subject: &Subject<'_>, are_about_askers: bool) -> Verdict {
        let mut verdict = Verdict::Valid;
        for listed in self.list.iter().rev().take_while(|listed| listed.number > since) {
            let is_asked =
                listed.needs_asker == are_about_askers && !(listed.is_soft && verdict != Verdict::Valid);
            if is_asked && listed.holds_of(subject) {
                if !listed.is_soft {
                    return Verdict::Hard;
                }
                verdict = Verdict::Soft(listed.number);
            }
        }
        verdict
    }

    /// Whether somebody who lurks has something to do now or later.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.list.iter().any(|listed| listed.walk != Walk::Never)
    }

    /// Begins a walk for some that wait, the oldest first; the greatest of their numbers, or `None` if there is nothing
    /// to do. `oldest_fetch`: the least number that a fetch under way has.
    pub(crate) fn begin_walk(&mut self, oldest_fetch: Option<u64>, now: u64) -> Option<u64> {
        let is_ripe = |number| {
            oldest_fetch.is_none_or(|oldest| oldest >= number)
                || number.saturating_add(FETCHES_WAIT_S * 1_000_000 / NUMBER_US.unsigned_abs()) < now
        };
        let waiting =
            self.list.iter_mut().filter(|listed| listed.walk == Walk::Waiting && is_ripe(listed.number));
        let mut youngest = None;
        for listed in waiting.take(BANS_A_WALK) {
            listed.walk = Walk::UnderWay;
            youngest = youngest.max(Some(listed.number));
        }
        youngest
    }

    /// Whether one that the walk is about holds of something.
    pub(crate) fn is_walked_down(&self, since: u64, subject: &Subject<'_>) -> bool {
        let later = self.list.iter().rev().take_while(|listed| listed.number > since);
        later.filter(|listed| listed.walk == Walk::UnderWay).any(|listed| listed.holds_of(subject))
    }

    /// Ends a walk that has seen all that is in this core's memory. `is_all`: and there is nothing elsewhere.
    pub(crate) fn end_walk(&mut self, is_all: bool) {
        for listed in self.list.iter_mut().filter(|listed| listed.walk == Walk::UnderWay) {
            listed.walk = Walk::Done;
            if is_all {
                listed.ban.cores_done.fetch_add(1, Relaxed);
            }
        }
    }

    /// Drops those that are done on so many cores; how many.
    pub(crate) fn drop_done(&mut self, cores: usize) -> usize {
        let before = self.list.len();
        if before > 0 {
            self.keep_those(|listed| {
                listed.walk != Walk::Done || listed.ban.cores_done.load(Relaxed) < cores
            });
        }
        before - self.list.len()
    }
}

#[cfg(test)]
mod tests;
