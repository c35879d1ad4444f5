//! Inspection of a running server from threads other than its loops, for the monitoring pages and the system
//! account.
//!
//! ```text
//!   totals                 read from the loops' counters, without asking any loop
//!   lists      Looker ──"start here, return at most this much"──▶ ring ─▶ a loop: one step between two turns
//!                 ▲──────────────── a piece, and where it ended ───────────────┘
//! ```
//! A list of a million subscriptions is assembled from pieces, so that no loop stops for it. A step examines
//! at most [`STEP_LOOKED_AT_MAX`] items and [`STEP_TOKENS_MAX`] tokens of their patterns, and copies at most
//! [`STEP_COPIED_MAX`] items; `feed_monitor_steps` and `feed_monitor_looked_at` count them. Items that are
//! added or removed between two steps may be missing or occur twice: the pages show a server in operation.

use std::{sync::Arc, time::Duration};

use engine::cores::clock;
use tokio::sync::oneshot;

use crate::{
    client::connection::ConnId,
    counters::Counter,
    delivery::publisher::Outside,
    leaf::HubSnapshot,
    mesh::{core::Core, links::Message, settings::Settings, shared::SharedState},
    monitor::{
        capture,
        look::{ListedSubscription, Look, NoAnswer, Piece, SubscriptionFilter, Tables},
        snapshot::{ConnectionSnapshot, Totals},
    },
    routing::trie::tokens_of,
};

/// Largest number of connections or subscriptions that a loop examines in one step.
const STEP_LOOKED_AT_MAX: u32 = 2048;
/// Largest number of items that are copied in one step; a copy costs a microsecond.
const STEP_COPIED_MAX: usize = 128;
/// Largest number of pattern tokens that are assembled and compared in one step; the last pattern may exceed
/// it.
const STEP_TOKENS_MAX: usize = 4 * STEP_LOOKED_AT_MAX as usize;
/// Time limit for a core's answer to a monitoring step.
const STEP_TIME_MAX: Duration = Duration::from_secs(2);

/// Source of monitoring data about a server, for as long as it runs.
#[derive(Clone)]
pub struct Looker {
    pub(crate) outside: Arc<Outside>,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) loops: usize,
}

impl Looker {
    /// Returns the sums of all loops' counters, without waiting for any loop.
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

    /// Returns the sizes of the tables, summed over all cores.
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

    /// Returns the hubs of all cores. Only cores with configured hubs are queried.
    pub(crate) async fn hubs(&self) -> Result<Vec<HubSnapshot>, NoAnswer> {
        let mut all = Vec::new();
        let has_any =
            |core: &usize| self.settings.hubs.iter().any(|seed| usize::from(seed.hub) % self.loops == *core);
        for core in (0..self.loops).filter(has_any) {
            all.append(&mut self.ask(core, Look::Hubs).await?);
        }
        Ok(all)
    }

    /// Returns the open connections, each with its number on its core.
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

    /// Returns the most recently closed connections.
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

    /// Returns the number of matching subscriptions on these cores, and the requested part of them.
    pub(crate) async fn subscriptions(
        &self,
        cores: impl Iterator<Item = usize>,
        mut wanted: SubscriptionFilter,
    ) -> Result<(usize, Vec<ListedSubscription>), NoAnswer> {
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
            let outside = self.outside.lock();
            outside.send(core, Message::Look(look(answer))).map_err(|_| NoAnswer)?;
            outside.flush();
        }
        let answered = tokio::time::timeout(STEP_TIME_MAX, to_come).await;
        answered.map_err(|_| NoAnswer)?.map_err(|_| NoAnswer)
    }
}

/// Executes one step of a monitoring request. The requester may have given up waiting.
pub(crate) fn step(core: &Core, look: Look) {
    core.count(Counter::MonitorSteps);
    match look {
        Look::Tables(answer) => {
            let matches = &core.routing.subjects.matches;
            let tables = Tables {
                trie_nodes: core.routing.subjects.trie.nodes(),
                matches_found: matches.found,
                matches_made: matches.made,
            };
            _ = answer.send(tables);
        }
        Look::Open(from, answer) => _ = answer.send(open(core, from)),
        Look::Closed(from, answer) => {
            let from = from as usize;
            let things: Vec<_> =
                core.observers.closed.iter().skip(from).take(STEP_COPIED_MAX).cloned().collect();
            core.observers.counters.add(Counter::MonitorLookedAt, things.len() as u64);
            let next = from + things.len();
            let next = u32::try_from(next).ok().filter(|_| next < core.observers.closed.len());
            _ = answer.send(Piece { matched: things.len(), things, next });
        }
        Look::Hubs(answer) => _ = answer.send(core.hub_snapshots()),
        Look::Subscriptions(from, wanted, answer) => _ = answer.send(subscriptions(core, from, &wanted)),
    }
}

/// Cost of examining one item: items copied and tokens compared.
#[derive(Debug, Clone, Copy, Default)]
struct LookCost {
    copied: usize,
    tokens: usize,
}

/// Examines items, starting at number `from`, within the bounds of one step. Returns the number at which the
/// next step begins.
fn walk(core: &Core, from: u32, end: u32, mut one: impl FnMut(u32) -> LookCost) -> Option<u32> {
    let (mut at, mut sum) = (from, LookCost::default());
    while at < end
        && at - from < STEP_LOOKED_AT_MAX
        && sum.copied < STEP_COPIED_MAX
        && sum.tokens < STEP_TOKENS_MAX
    {
        let LookCost { copied, tokens } = one(at);
        sum.copied += copied;
        sum.tokens += tokens;
        at += 1;
    }
    core.observers.counters.add(Counter::MonitorLookedAt, u64::from(at - from));
    (at < end).then_some(at)
}

fn open(core: &Core, from: ConnId) -> Piece<(ConnId, ConnectionSnapshot)> {
    let connections = &core.outputs.connections;
    let mut things = Vec::new();
    let next = walk(core, from, connections.end(), |id| {
        let found = connections.find(id).filter(|one| one.hub.is_none());
        let copied = found.map(|one| capture::of_connection(one, core.index, &core.settings.identities));
        things.extend(copied.map(|copied| (id, copied)));
        LookCost { copied: usize::from(found.is_some()), tokens: 0 }
    });
    Piece { matched: things.len(), things, next }
}

fn subscriptions(core: &Core, from: u32, wanted: &SubscriptionFilter) -> Piece<ListedSubscription> {
    let identities = &core.settings.identities;
    let account = wanted.account.as_deref();
    let (mut things, mut matched) = (Vec::new(), 0);
    let mut pattern = Vec::new();
    let next = walk(core, from, core.routing.subjects.end(), |sub| {
        let mut cost = LookCost::default();
        let Some(subscription) = core.routing.subjects.find_subscription(sub) else { return cost };
        if wanted.of.as_ref().is_some_and(|of| !of.contains(&subscription.conn)) {
            return cost;
        }
        let Some(connection) = core.outputs.connections.find(subscription.conn) else { return cost };
        let name = identities.account_name(crate::accounts::identity::AccountId(connection.account));
        if account.is_some_and(|account| account != name) {
            return cost;
        }
        if let Some(test) = &wanted.test {
            pattern.clear();
            core.routing.subjects.trie.append_pattern(subscription.node, &mut pattern);
            cost.tokens = tokens_of(&pattern);
            if !wire::nats::subject::matches_valid(&pattern, test) {
                return cost;
            }
        }
        matched += 1;
        if matched <= wanted.skip || things.len() >= wanted.take {
            return cost;
        }
        let copy = capture::of_subscription(&core.routing.subjects, sub);
        cost.copied = 1;
        cost.tokens += tokens_of(copy.subject.as_bytes());
        things.push(ListedSubscription { cid: connection.cid, account: name.to_owned(), subscription: copy });
        cost
    });
    Piece { things, matched, next }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::{
        client::{
            connection::{Transport, Writer},
            serve::Arrival,
        },
        delivery::{hot_path_tests::cores, work::Work},
    };

    /// Collects all pieces of a filtered list. Returns the number of matches and of steps.
    fn pieces(core: &Core, wanted: &SubscriptionFilter) -> (usize, usize) {
        let (mut from, mut matched, mut steps) = (Some(0), 0, 0);
        while let Some(at) = from {
            let (answer, mut to_come) = oneshot::channel();
            step(core, Look::Subscriptions(at, wanted.clone(), answer));
            let piece = to_come.try_recv().expect("a step answers at once");
            (from, matched, steps) = (piece.next, matched + piece.matched, steps + 1);
        }
        (matched, steps)
    }

    /// A hundred patterns as long as a control line take several steps, whether they are compared with a long
    /// subject or copied.
    #[test]
    fn long_patterns_are_looked_at_in_more_steps() {
        const PATTERNS: usize = 100;
        const TOKENS: usize = 1900;
        let local = cores(1).remove(0);
        let core = &mut *local.core.borrow_mut();
        let arrival = Arrival::new(core, SocketAddr::from(([127, 0, 0, 1], 1)), Transport::default());
        let id = core.enter(arrival, Writer::Task, true);
        core.process(id, b"CONNECT {\"verbose\":false}\r\n");
        let stars = "*.".repeat(TOKENS - 1);
        for number in 0..PATTERNS {
            core.turn.work = Work::of(u64::MAX);
            core.process(id, format!("SUB {stars}{} {number}\r\n", ["*", "b"][number % 2]).as_bytes());
        }
        let test = vec!["a"; TOKENS].join(".").into_bytes();
        let steps_min = PATTERNS * TOKENS / (STEP_TOKENS_MAX + TOKENS);
        let counted = SubscriptionFilter { test: Some(test.into()), ..SubscriptionFilter::default() };
        let (matched, steps) = pieces(core, &counted);
        assert!(matched == PATTERNS / 2 && steps >= steps_min, "{matched} in {steps} steps");
        let (matched, steps) =
            pieces(core, &SubscriptionFilter { take: PATTERNS, ..SubscriptionFilter::default() });
        assert!(matched == PATTERNS && steps >= steps_min, "{matched} in {steps} steps");
    }
}
