//! Groups of records: a client's request, and the fetches from origins that it caused.
//!
//! The client's record is written when its response ends, and each origin's record when that fetch ends, so
//! either may arrive first. An incomplete group waits for its missing records. It is shown incomplete when
//! its time is over, or when too many groups wait.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use wire::transaction::{Kind, Record, Tag};

/// Maximum number of incomplete groups; beyond it the oldest group is shown incomplete.
const WAITING_MAX: usize = 10_000;
/// Time that a client's record waits for the record of its fetch.
const ORIGIN_WAIT: Duration = Duration::from_millis(500);
/// Time that an origin's record waits for the client's record; the client may be slow.
const CLIENT_WAIT: Duration = Duration::from_secs(60);
/// Number of shown groups that are remembered: later records of these groups are shown at once.
const SHOWN_MAX: usize = 4096;

/// A request with all its fetches.
#[derive(Debug, Default)]
pub(super) struct RequestGroup {
    pub(super) client: Option<Vec<u8>>,
    pub(super) origins: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct PendingGroup {
    group: RequestGroup,
    /// Identifier of the origin's record that the client's record names.
    fetch: u64,
    until: Instant,
}

/// Groups that are not yet complete.
#[derive(Debug, Default)]
pub(super) struct RequestGroups {
    waiting: HashMap<u64, PendingGroup>,
    /// Identifiers in the order in which the groups began.
    order: VecDeque<u64>,
    shown: VecDeque<u64>,
}

impl RequestGroups {
    /// Takes a record, and returns the groups that it completes.
    pub(super) fn take(&mut self, record: &Record<'_>, bytes: &[u8], now: Instant) -> Vec<RequestGroup> {
        let of = match record.kind {
            Kind::Client => record.id,
            Kind::Origin => record.parent,
            Kind::Mail | Kind::Consumer => {
                return vec![RequestGroup { client: Some(bytes.to_vec()), origins: Vec::new() }];
            }
        };
        if record.kind == Kind::Origin && self.shown.contains(&of) {
            return vec![RequestGroup { client: None, origins: vec![bytes.to_vec()] }];
        }
        let fetch = record.number(Tag::Fetch).unwrap_or(0);
        if record.kind == Kind::Client && fetch == 0 && !self.waiting.contains_key(&of) {
            return vec![RequestGroup { client: Some(bytes.to_vec()), origins: Vec::new() }];
        }
        let waiting = self.waiting.entry(of).or_insert_with(|| {
            self.order.push_back(of);
            PendingGroup { group: RequestGroup::default(), fetch: 0, until: now + CLIENT_WAIT }
        });
        if record.kind == Kind::Client {
            waiting.group.client = Some(bytes.to_vec());
            (waiting.fetch, waiting.until) = (fetch, now + ORIGIN_WAIT);
        } else {
            waiting.group.origins.push(bytes.to_vec());
        }
        let is_awaited =
            |bytes: &Vec<u8>| Record::read(bytes).is_some_and(|record| record.id == waiting.fetch);
        let is_whole = waiting.group.client.is_some()
            && (waiting.fetch == 0 || waiting.group.origins.iter().any(is_awaited));
        let mut whole = Vec::new();
        if is_whole {
            whole.extend(self.show(of));
        }
        if self.waiting.len() > WAITING_MAX
            && let Some(oldest) = self.order.front().copied()
        {
            whole.extend(self.show(oldest));
        }
        whole
    }

    /// Returns the groups whose wait is over; with `None`, at the end, all groups.
    pub(super) fn overdue(&mut self, now: Option<Instant>) -> Vec<RequestGroup> {
        let is_due = |waiting: &PendingGroup| now.is_none_or(|now| waiting.until <= now);
        let due: Vec<u64> =
            self.order.iter().copied().filter(|id| self.waiting.get(id).is_some_and(is_due)).collect();
        due.into_iter().filter_map(|id| self.show(id)).collect()
    }

    fn show(&mut self, id: u64) -> Option<RequestGroup> {
        let PendingGroup { group, .. } = self.waiting.remove(&id)?;
        self.order.retain(|waiting| *waiting != id);
        if group.client.is_some() {
            self.shown.push_back(id);
            if self.shown.len() > SHOWN_MAX {
                self.shown.pop_front();
            }
        }
        Some(group)
    }
}
