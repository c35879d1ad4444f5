//! Looking at a running server from outside its loops: what its pages and its system account show.
//!
//! ```text
//!   totals                 read where the loops count: no loop is asked
//!   lists      Looker ──"from here on, at most so much"──▶ ring ─▶ a loop: one step between two turns
//!                 ▲──────────────── a piece, and where it ended ───────────┘
//! ```
//! A list of a million subscriptions is put together of pieces, so that no loop stands still for it: a step looks at
//! [`STEP_LOOKED_AT_MAX`] things and copies [`STEP_COPIED_MAX`] of them at most, and `feed_monitor_steps` and
//! `feed_monitor_looked_at` count what is done. What comes and goes between two steps may be missing or there twice:
//! pages show a server that works.

use std::{collections::HashSet, sync::Arc, time::Duration};

use engine::cores::clock;
use tokio::sync::oneshot;

use crate::{
    across::Message,
    connection::ConnId,
    core::{Core, Settings},
    counters::Counter,
    leaf::HubSnapshot,
    publisher::Outside,
    server::NoAnswer,
    shared::Shared,
    snapshot::{self, ConnectionSnapshot, SubscriptionSnapshot, Totals},
};

/// Connections or subscriptions that a loop looks at in one step.
const STEP_LOOKED_AT_MAX: u32 = 2048;
/// Of these, so many are copied: a copy costs a microsecond.
const STEP_COPIED_MAX: usize = 128;
/// How long a core may take for a step.
const STEP_TIME_MAX: Duration = Duration::from_secs(2);

/// What a core is asked for.
pub(crate) enum Look {
    /// The sizes of its tables.
    Tables(oneshot::Sender<Tables>),
    /// Open connections, from this number on.
    Open(ConnId, oneshot::Sender<Piece<(ConnId, ConnectionSnapshot)>>),
    /// Closed ones, from this place on.
    Closed(u32, oneshot::Sender<Piece<ConnectionSnapshot>>),
    /// The hubs that it joins.
    Hubs(oneshot::Sender<Vec<HubSnapshot>>),
    /// Subscriptions, from this number on.
    Subscriptions(u32, Wanted, oneshot::Sender<Piece<Seen>>),
}

/// Part of a list, and where the next begins.
pub(crate) struct Piece<T> {
    things: Vec<T>,
    /// Those that are wanted, with those that are passed over.
    matched: usize,
    next: Option<u32>,
}

/// The sizes of a core's tables.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tables {
    pub(crate) trie_nodes: usize,
    pub(crate) matches_found: u64,
    pub(crate) matches_made: u64,
}

/// A subscription with whose it is.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) cid: u64,
    pub(crate) account: String,
    pub(crate) subscription: SubscriptionSnapshot,
}

/// Which subscriptions are wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// Of these connections alone.
    pub(crate) of: Option<Arc<HashSet<ConnId>>>,
    /// Of this account alone.
    pub(crate) account: Option<Arc<str>>,
    /// Those that get a message to this subject.
    pub(crate) test: Option<Arc<[u8]>>,
    /// So many are passed over, and then so many taken; the rest is counted.
    pub(crate) skip: usize,
    pub(crate) take: usize,
}

/// Looks at a server, for as long as it runs.
#[derive(Clone)]
pub struct Looker {
    pub(crate) outside: Arc<Outside>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) loops: usize,
}

impl Looker {
    /// What all loops have counted. Asks none of them.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let total = |counter| self.shared.counters.total(counter);
        Totals {
            server_id: self.shared.server_id.clone(),
            server_name: self.settings.config.server_name.clone(),
            server_tags: self.settings.config.server_tags.clone(),
            address: self.shared.address,
            started: self.shared.started,
            now: clock::now_system(),
            cores: self.loops,
            connections: total(Counter::Connections),
            total_connections: total(Counter::Accepted),
            messages_in: total(Counter::MessagesIn),
            messages_out: total(Counter::MessagesOut),
            payload_in_bytes: total(Counter::PayloadIn),
            payload_out_bytes: total(Counter::PayloadOut),
            subscriptions: total(Counter::Subscriptions),
            slow_consumers: [Counter::SlowPending, Counter::SlowHold, Counter::SlowDeadline].map(total),
            held: total(Counter::ProducersHeld) + total(Counter::ProducersHeldForCores),
        }
    }

    /// The sizes of the tables, over all cores.
    pub(crate) async fn tables(&self) -> Result<Tables, NoAnswer> {
        let mut all = Tables::default();
        for core in 0..self.loops {
            let one = self.ask(core, Look::Tables).await?;
            all.trie_nodes += one.trie_nodes;
            all.matches_found += one.matches_found;
            all.matches_made += one.matches_made;
        }
        Ok(all)
    }

    /// The hubs of all cores; where none is configured, no core is asked.
    pub(crate) async fn hubs(&self) -> Result<Vec<HubSnapshot>, NoAnswer> {
        let mut all = Vec::new();
        let has_any =
            |core: &usize| self.settings.hubs.iter().any(|seed| usize::from(seed.hub) % self.loops == *core);
        for core in (0..self.loops).filter(has_any) {
            all.append(&mut self.ask(core, Look::Hubs).await?);
        }
        Ok(all)
    }

    /// Open connections, with their numbers on their cores.
    pub(crate) async fn open(&self) -> Result<Vec<(ConnId, ConnectionSnapshot)>, NoAnswer> {
        let mut all = Vec::new();
        for core in 0..self.loops {
            let mut from = Some(0);
            while let Some(at) = from {
                let mut piece = self.ask(core, |answer| Look::Open(at, answer)).await?;
                all.append(&mut piece.things);
                from = piece.next;
            }
        }
        all.sort_by_key(|(_, connection)| connection.cid);
        Ok(all)
    }

    /// The connections that were closed last.
    pub(crate) async fn closed(&self) -> Result<Vec<ConnectionSnapshot>, NoAnswer> {
        let mut all = Vec::new();
        for core in 0..self.loops {
            let mut from = Some(0);
            while let Some(at) = from {
                let mut piece = self.ask(core, |answer| Look::Closed(at, answer)).await?;
                all.append(&mut piece.things);
                from = piece.next;
            }
        }
        all.sort_by_key(|connection| connection.cid);
        all.dedup_by_key(|connection| connection.cid);
        Ok(all)
    }

    /// How many subscriptions are wanted on these cores, and the part of them that is.
    pub(crate) async fn subscriptions(
        &self,
        cores: impl Iterator<Item = usize>,
        mut wanted: Wanted,
    ) -> Result<(usize, Vec<Seen>), NoAnswer> {
        let (mut total, mut all) = (0, Vec::new());
        for core in cores {
            let mut from = Some(0);
            while let Some(at) = from {
                let question = wanted.clone();
                let mut piece = self.ask(core, |answer| Look::Subscriptions(at, question, answer)).await?;
                total += piece.matched;
                wanted.skip = wanted.skip.saturating_sub(piece.matched);
                wanted.take -= piece.things.len().min(wanted.take);
                all.append(&mut piece.things);
                from = piece.next;
            }
        }
        Ok((total, all))
    }

    async fn ask<T>(
        &self,
        core: usize,
        look: impl FnOnce(oneshot::Sender<T>) -> Look,
    ) -> Result<T, NoAnswer> {
        let (answer, to_come) = oneshot::channel();
        {
            let outside = self.outside.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            outside.send(core, Message::Look(look(answer))).map_err(|_| NoAnswer)?;
            outside.flush();
        }
        let answered = tokio::time::timeout(STEP_TIME_MAX, to_come).await;
        answered.map_err(|_| NoAnswer)?.map_err(|_| NoAnswer)
    }
}

/// Takes one step. Who asked may have stopped waiting.
pub(crate) fn step(core: &Core, look: Look) {
    core.count(Counter::MonitorSteps);
    match look {
        Look::Tables(answer) => {
            let matches = &core.subjects.matches;
            let tables = Tables {
                trie_nodes: core.subjects.trie.nodes(),
                matches_found: matches.found,
                matches_made: matches.made,
            };
            _ = answer.send(tables);
        }
        Look::Open(from, answer) => _ = answer.send(open(core, from)),
        Look::Closed(from, answer) => {
            let from = from as usize;
            let things: Vec<_> = core.closed.iter().skip(from).take(STEP_COPIED_MAX).cloned().collect();
            core.counters.add(Counter::MonitorLookedAt, things.len() as u64);
            let next = from + things.len();
            let next = u32::try_from(next).ok().filter(|_| next < core.closed.len());
            _ = answer.send(Piece { matched: things.len(), things, next });
        }
        Look::Hubs(answer) => _ = answer.send(core.hub_snapshots()),
        Look::Subscriptions(from, wanted, answer) => _ = answer.send(subscriptions(core, from, &wanted)),
    }
}

/// Walks numbers from `from` on, up to what one step may do; where the next step begins.
fn walk(core: &Core, from: u32, end: u32, mut one: impl FnMut(u32) -> usize) -> Option<u32> {
    let (mut at, mut copied) = (from, 0);
    while at < end && at - from < STEP_LOOKED_AT_MAX && copied < STEP_COPIED_MAX {
        copied += one(at);
        at += 1;
    }
    core.counters.add(Counter::MonitorLookedAt, u64::from(at - from));
    (at < end).then_some(at)
}

fn open(core: &Core, from: ConnId) -> Piece<(ConnId, ConnectionSnapshot)> {
    let connections = &core.outputs.connections;
    let mut things = Vec::new();
    let next = walk(core, from, connections.end(), |id| {
        let found = connections.find(id).filter(|one| one.hub.is_none());
        let copied = found.map(|one| snapshot::of_connection(one, core.index, &core.settings.identities));
        things.extend(copied.map(|copied| (id, copied)));
        usize::from(found.is_some())
    });
    Piece { matched: things.len(), things, next }
}

fn subscriptions(core: &Core, from: u32, wanted: &Wanted) -> Piece<Seen> {
    let identities = &core.settings.identities;
    let account = wanted.account.as_deref();
    let (mut things, mut matched) = (Vec::new(), 0);
    let next = walk(core, from, core.subjects.end(), |sub| {
        let Some(subscription) = core.subjects.find_subscription(sub) else { return 0 };
        if wanted.of.as_ref().is_some_and(|of| !of.contains(&subscription.conn)) {
            return 0;
        }
        let Some(connection) = core.outputs.connections.find(subscription.conn) else { return 0 };
        let name = identities.account_name(crate::identity::AccountId(connection.account));
        if account.is_some_and(|account| account != name) {
            return 0;
        }
        let copied = wanted.test.as_ref().is_none_or(|test| {
            wire::nats::subject::matches(&core.subjects.trie.pattern_of(subscription.node), test)
        });
        if !copied {
            return 0;
        }
        matched += 1;
        if matched <= wanted.skip || things.len() >= wanted.take {
            return 0;
        }
        things.push(Seen {
            cid: connection.cid,
            account: name.to_owned(),
            subscription: snapshot::of_subscription(&core.subjects, sub),
        });
        1
    });
    Piece { things, matched, next }
}
