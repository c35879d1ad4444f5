//! Bans: conditions on stored objects. Objects that match are purged, if their fetch began before the ban.
//!
//! ```text
//!  req.url ~ ^/news && obj.status == 200 ──parse──▶ Ban, one for all cores ──enter──▶ each core's list, by number
//!                                                     │ how many cores are done          its own clone
//!                                                     │
//!  a lookup ───▶ the bans with a greater number than the answer's, newest first ──▶ hard: a miss · soft: stale
//!  the lurker ──▶ all objects in memory, for some bans at once ──▶ unlinked; after that the ban is *done* here, and
//!                 dropped from all lists when it is done on all cores
//! ```
//! The language is that of [`wire::filter`]: Varnish's, with additions (`docs/decisions/032-bans.md`).
//! `req.url` and `req.http.host` are those of the stored object, from its key, so that the lurker knows them.
//! Other fields of a request are those of the requesting client; a ban that names one is evaluated at each
//! lookup and never done.
//!
//! *Memory:* plain memory of each core; the compiled patterns are shared and never written. *Bounds:*
//! [`BANS_MAX`], [`BANS_BYTES_MAX`]. When a list is full, its oldest ban becomes a purge of all objects up to
//! its number.

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

/// Maximum number of bans of a core.
pub(crate) const BANS_MAX: usize = 256;
/// Maximum total size of a core's bans in bytes: their texts, their patterns, and the patterns' working
/// memory.
pub(crate) const BANS_BYTES_MAX: usize = 4 << 20;
/// Maximum number of bans in one walk of the lurker.
const BANS_A_WALK: usize = 16;
/// Seconds for which a walk for a ban waits for the fetches that began before it. Answers that arrive later
/// are not stored.
const FETCHES_WAIT_S: u64 = 60;
/// Microseconds per unit of a purge's number.
const NUMBER_US: i64 = 10_000;

/// Effect of purges on an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// Not purged.
    Valid,
    /// Its content has changed a moment ago: may be shown while it is renewed.
    Outdated,
    /// Stale since the purge with this number.
    Soft(u64),
    /// Purged: counts as a miss.
    Hard,
}

/// Fields that a ban can name.
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
    // Usual spelling of the field `req.http.host`.
    field("req.http.Host", BanField::Host, Kind::Text),
    field("req.http.*", BanField::OfRequest, Kind::Text),
    field("obj.status", BanField::Status, Kind::Number),
    field("obj.http.*", BanField::OfObject, Kind::Text),
    field("obj.age", BanField::Age, Kind::Duration),
    field("obj.ttl", BanField::Ttl, Kind::Duration),
];

/// A ban's condition, shared by all cores.
#[derive(Debug)]
pub(crate) struct Ban {
    text: Box<str>,
    expression: Expression<BanField>,
    cores_done: AtomicUsize,
}

/// Bans with the same text are equal.
impl PartialEq for Ban {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Ban {}

impl Ban {
    /// Parses a ban. `tag_fields` are the fields that carry tags, of which only hashes are stored.
    ///
    /// # Errors
    /// [`Fault`] says where the mistake is, and what was expected there.
    pub(crate) fn parse(text: &[u8], tag_fields: &[Box<str>]) -> Result<Arc<Self>, Fault> {
        let expression = Expression::parse(text, &FIELDS)?;
        let of_tags = tag_fields.iter().find(|tags| {
            expression.asks_for(|named, name| named == BanField::OfObject && tags.eq_ignore_ascii_case(name))
        });
        if let Some(tags) = of_tags {
            let found = format!("`obj.http.{tags}`, of which only hashes are stored");
            return Err(Fault { at: 0, found, expected: "a purge by tags".to_owned() });
        }
        let ban = Self { text: expression.to_string().into(), expression, cores_done: AtomicUsize::new(0) };
        if ban.bytes() > BANS_BYTES_MAX {
            let found = format!("a ban that takes {} bytes compiled", ban.bytes());
            return Err(Fault { at: 0, found, expected: format!("{BANS_BYTES_MAX} at most") });
        }
        Ok(Arc::new(ban))
    }

    /// Returns the text of the ban in its normal form.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether the ban names a field of the requesting client.
    pub(crate) fn is_about_who_asks(&self) -> bool {
        self.expression.needs_request()
    }

    /// Returns whether a ban made now would match an object with this key.
    pub(crate) fn holds_now(&self, key: &[u8], head: &[u8], meta: &StoredMeta, now_s: u64) -> bool {
        let subject = Subject { key, head, meta, asker: None };
        let at_us = i64::try_from(now_s).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        self.expression.matches(&BanTime { subject: &subject, at_us })
    }

    fn bytes(&self) -> usize {
        2 * self.text.len() + self.expression.automata_bytes() + self.expression.working_bytes_max()
    }

    /// Returns whether the result of the ban depends on the time at which it was entered.
    fn is_of_its_time(&self) -> bool {
        self.expression.asks_for(|named, _| matches!(named, BanField::Age | BanField::Ttl))
    }
}

/// Object for which a ban is evaluated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// Key of the object, or of its address.
    pub(crate) key: &'a [u8],
    /// Status line and fields of the object.
    pub(crate) head: &'a [u8],
    pub(crate) meta: &'a StoredMeta,
    /// Fields of the request for the object, if there is one.
    pub(crate) asker: Option<&'a Headers<'a, 'a>>,
}

/// An object, with its age and ttl computed for the time of a ban.
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

/// State of the lurker's walk for a ban.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// The lurker never searches for the ban: it is soft, or names a field of the requesting client.
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
    /// This core's clone of the expression, whose working memory needs no lock.
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

/// A ban, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BanSeen {
    /// Number of the ban: the time in units of 10 ms since 1970, or the previous purge's number plus one if
    /// that is greater.
    pub number: u64,
    /// Matching objects become stale, and are not removed.
    pub is_soft: bool,
    /// Expression of the ban.
    pub text: String,
    /// Number of cores that have no matching object left in memory; `None` if the lurker does not search for
    /// it.
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

    /// Returns the greatest number of a ban that names a field of the requesting client; 0 if there is none.
    pub(crate) fn youngest_of_askers(&self) -> u64 {
        self.list.iter().rev().find(|listed| listed.needs_asker).map_or(0, |listed| listed.number)
    }

    pub(crate) fn youngest(&self) -> u64 {
        self.list.last().map_or(0, |listed| listed.number)
    }

    pub(crate) fn texts_bytes(&self) -> usize {
        self.list.iter().map(|listed| listed.ban.text.len()).sum()
    }

    /// Returns each ban with its number, and whether it is soft.
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

    /// Adds a ban. Returns the numbers of the oldest bans that were removed for it, and whether each was
    /// soft; objects up to those numbers are to be purged.
    pub(crate) fn enter(&mut self, number: u64, is_soft: bool, ban: &Arc<Ban>) -> Vec<(u64, bool)> {
        // A later ban with the same text replaces an earlier one, unless its result depends on its time.
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
        // Cores may receive neighbouring numbers in either order.
        let place = self.list.partition_point(|listed| listed.number < number);
        self.list.insert(place, BanEntry { number, is_soft, ban, expression, needs_asker, walk });
        gone
    }

    fn keep_those(&mut self, is_kept: impl Fn(&BanEntry) -> bool) {
        self.list.retain(is_kept);
        self.bytes = self.list.iter().map(|listed| listed.ban.bytes()).sum();
    }

    /// Drops the bans up to these numbers, because all objects up to there were purged.
    pub(crate) fn forget_until(&mut self, hard: u64, soft: u64) {
        if self.list.first().is_some_and(|oldest| oldest.number <= hard.max(soft)) {
            self.keep_those(|listed| listed.number > if listed.is_soft { hard.max(soft) } else { hard });
        }
    }

    /// Returns the effect of the bans after `since` on an object: of those that name a field of the
    /// requesting client, or of the others.
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

    /// Returns whether the lurker has something to do, now or later.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.list.iter().any(|listed| listed.walk != Walk::Never)
    }

    /// Begins a walk for some of the waiting bans, the oldest first. Returns the greatest of their numbers,
    /// or `None` if there is nothing to do. `oldest_fetch` is the lowest number of a fetch under way.
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

    /// Returns whether a ban of the walk matches an object.
    pub(crate) fn is_walked_down(&self, since: u64, subject: &Subject<'_>) -> bool {
        let later = self.list.iter().rev().take_while(|listed| listed.number > since);
        later.filter(|listed| listed.walk == Walk::UnderWay).any(|listed| listed.holds_of(subject))
    }

    /// Ends a walk that has seen all objects in this core's memory. `is_all` means that no objects are stored
    /// elsewhere.
    pub(crate) fn end_walk(&mut self, is_all: bool) {
        for listed in self.list.iter_mut().filter(|listed| listed.walk == Walk::UnderWay) {
            listed.walk = Walk::Done;
            if is_all {
                listed.ban.cores_done.fetch_add(1, Relaxed);
            }
        }
    }

    /// Drops the bans that are done on all `cores`, and returns how many.
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
