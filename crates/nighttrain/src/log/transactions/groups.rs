//! Records that belong together: a client's request, and what origins were asked for it.
//!
//! The client's record comes when its answer has ended, those of origins when theirs have; either may be first. What waits
//! for the other is bounded in number and in time, and then shown by itself.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use wire::transaction::{Kind, Record, Tag};

/// RequestGroups that wait; with more of them the oldest is shown as it is.
const WAITING_MAX: usize = 10_000;
/// How long a client's record waits for the end of what it waited for.
const ORIGIN_WAIT: Duration = Duration::from_millis(500);
/// How long an origin's waits for its client's, which may be slow.
const CLIENT_WAIT: Duration = Duration::from_secs(60);
/// RequestGroups that were shown: what comes later for them is shown at once.
const SHOWN_MAX: usize = 4096;

/// A request with all that was done for it.
#[derive(Debug, Default)]
pub(super) struct RequestGroup {
    pub(super) client: Option<Vec<u8>>,
    pub(super) origins: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct PendingGroup {
    group: RequestGroup,
    /// The record of an origin that the client's names.
    fetch: u64,
    until: Instant,
}

/// Those that are not whole.
#[derive(Debug, Default)]
pub(super) struct RequestGroups {
    waiting: HashMap<u64, PendingGroup>,
    /// In the order in which they began.
    order: VecDeque<u64>,
    shown: VecDeque<u64>,
}

impl RequestGroups {
    /// Takes a record; what is whole by it.
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

    /// Those that have waited for long enough; all of them, at the end.
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
