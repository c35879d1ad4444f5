//! What a core knows of other accounts' streams and services: who of whom gets what, under which name.
//!
//! ```text
//!   SUB p.a.* in account B, which takes A's a.> as p.a.>      ┌ B's root ─ p ─ a ─ * ─▶ the client's subscription
//!                                                             └ A's root ─ a ─ * ─▶ a foreign one that stands for it
//!   PUB q in account B, which takes A's service x as q        ── B's services (a root of their own) ─ q ─▶ where it leads
//! ```
//! A foreign subscription lies in the other account's part of the trie like any other: messages find it, queue groups
//! count it, other cores are told of it. So a message costs nothing more where nobody takes anything, and who is given
//! it under another name is looked up only when it is delivered. Services have roots of their own, on each core all of
//! them; only the core of whoever asks looks there.
//!
//! *Bounds:* an account takes at most `AN_ACCOUNT_MAX` things, and all cores hold at most [`IMPORTED_MAX`] foreign
//! subscriptions, which count for the memory of their clients' subscriptions, too; a SUB that needs more is refused as
//! one too many (`feed_imported_subscriptions_refused`).

use std::{cell::Cell, collections::HashMap, rc::Rc, sync::Arc};

use engine::accounts::Charge;
use smallvec::SmallVec;

use crate::{
    accounts::identity::{Exchange, Service, Stream, common},
    client::connection::{Connection, FOREIGN, Subscription},
    counters::Counter,
    delivery::{
        publish::Origin,
        run::Run,
        work::{SUBSCRIBE, WALKS, Work},
    },
    mesh::{core::Core, links::Links},
    routing::{
        subjects::Subjects,
        trie::{NodeId, SubId, tokens_of},
    },
};

/// Foreign subscriptions of all cores.
const IMPORTED_MAX: usize = 1 << 20;
/// What one takes of memory beyond a client's own.
const FOREIGN_BYTES: usize = 160;

/// There are as many foreign subscriptions as there may be.
#[derive(Debug)]
pub(crate) struct NoRoomAbroad;

/// What is known of other accounts.
#[derive(Default)]
pub(crate) struct Imports {
    exchange: Option<Arc<Exchange>>,
    /// Subscriptions that stand for a client's in another account.
    foreign: HashMap<SubId, Foreign>,
    /// Those that stand for a client's, by this.
    of: HashMap<SubId, SmallVec<[SubId; 2]>>,
    services: HashMap<u16, Services>,
    /// By account the subscription by which answers come from other cores.
    answers: HashMap<u16, SubId>,
    foreign_max: usize,
}

/// What a foreign subscription stands for.
struct Foreign {
    of: SubId,
    stream: Arc<Stream>,
}

/// What an account takes.
struct Services {
    root: NodeId,
    all: Vec<Rc<ServiceImport>>,
}

/// A service of another account, as a core has it.
#[derive(Debug)]
pub(crate) struct ServiceImport {
    pub(crate) service: Arc<Service>,
    /// The number of the export.
    pub(crate) export: Cell<usize>,
    /// A reload has taken it away.
    pub(crate) is_gone: Cell<bool>,
}

/// Streams of other accounts that a pattern matches, each with the pattern there.
pub(crate) type ReachedStreams = SmallVec<[(Arc<Stream>, Vec<u8>); 2]>;

/// A subscription that is not done with: an account may take a thousand streams of others, each of which a pattern may
/// reach.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UnderWay {
    /// It follows the account's streams, of which this is the next.
    Following { sub: SubId, next: usize },
    /// It ends: those that stand for it in other accounts, and then itself.
    Ending { sub: SubId },
}

impl UnderWay {
    pub(crate) fn sub(self) -> SubId {
        match self {
            Self::Following { sub, .. } | Self::Ending { sub } => sub,
        }
    }
}

impl Imports {
    pub(crate) fn for_cores(cores: usize) -> Self {
        Self { foreign_max: IMPORTED_MAX / cores, ..Self::default() }
    }

    /// Whether an account has or takes a service.
    #[inline]
    pub(crate) fn deals(&self, account: u16) -> bool {
        let deals = self.exchange.as_ref().map_or(&[][..], |exchange| exchange.deals());
        deals.get(usize::from(account)).copied().unwrap_or(false)
    }

    /// Whether an account takes streams of others.
    #[inline]
    pub(crate) fn has_streams(&self, account: u16) -> bool {
        let imports = self.exchange.as_ref().and_then(|exchange| exchange.of(account));
        imports.is_some_and(|imports| !imports.streams.is_empty())
    }

    /// What a hub's pattern reaches of other accounts' streams: the stream, and the pattern there.
    pub(crate) fn reached(&self, account: u16, pattern: &[u8]) -> ReachedStreams {
        let mut reached = ReachedStreams::new();
        let imports = self.exchange.as_ref().and_then(|exchange| exchange.of(account));
        for stream in imports.into_iter().flat_map(|imports| &imports.streams) {
            if let Some(within) = common(pattern, stream.path.destination().as_bytes()) {
                let mut there = Vec::new();
                stream.back.apply(&within, &mut there);
                reached.push((Arc::clone(stream), there));
            }
        }
        reached
    }

    /// What an account takes of another one's streams.
    pub(crate) fn streams(&self, account: u16, exporter: u16) -> SmallVec<[Arc<Stream>; 2]> {
        let imports = self.exchange.as_ref().and_then(|exchange| exchange.of(account));
        let streams = imports.into_iter().flat_map(|imports| &imports.streams);
        streams.filter(|stream| stream.exporter == exporter).map(Arc::clone).collect()
    }

    /// The services that an account takes, by the patterns that they have there.
    pub(crate) fn services(&self, account: u16) -> impl Iterator<Item = &str> {
        let imports = self.exchange.as_ref().and_then(|exchange| exchange.of(account));
        imports.into_iter().flat_map(|imports| &imports.services).map(|service| &*service.local)
    }

    /// The subscription that a foreign one stands for, and what its stream's subjects are called there.
    pub(crate) fn stands_for(&self, sub: SubId) -> Option<(SubId, &Stream)> {
        self.foreign.get(&sub).map(|foreign| (foreign.of, &*foreign.stream))
    }
}

impl Subjects {
    /// Adds foreign subscriptions that stand for a client's, from the account's stream `next` on, as long as the turn's
    /// work allows; whether that was all.
    pub(crate) fn follow_some(
        &mut self,
        sub: SubId,
        account: u16,
        next: &mut usize,
        memory: &mut Option<Charge>,
        (work, links): (&mut Work, &mut Links),
    ) -> Result<bool, NoRoomAbroad> {
        let exchange = self.abroad.exchange.clone();
        let Some(imports) = exchange.as_ref().and_then(|exchange| exchange.of(account)) else {
            return Ok(true);
        };
        let pattern = self.trie.pattern_of(self.subscription(sub).node);
        let queue = self.queue_of(sub).map(<[u8]>::to_vec);
        work.pay(tokens_of(&pattern) as u64);
        while let Some(stream) = imports.streams.get(*next) {
            if work.lacks(WALKS) {
                return Ok(false);
            }
            *next += 1;
            work.pay(1 + pattern.len() as u64 / 32);
            let Some(within) = common(&pattern, stream.path.destination().as_bytes()) else { continue };
            if self.abroad.foreign.len() >= self.abroad.foreign_max {
                return Err(NoRoomAbroad);
            }
            let mut there = Vec::new();
            stream.back.apply(&within, &mut there);
            let bytes = FOREIGN_BYTES + self.bytes_of(&there, queue.as_deref(), b"");
            if let Some(memory) = memory
                && memory.resize(memory.amount() + bytes).is_err()
            {
                return Err(NoRoomAbroad);
            }
            let root = self.root_of(stream.exporter);
            let subscription = Subscription::new(FOREIGN, b""[..].into(), queue.is_some());
            let foreign = self.enter((stream.exporter, root), &there, queue.as_deref(), subscription, links);
            self.abroad.foreign.insert(foreign, Foreign { of: sub, stream: Arc::clone(stream) });
            self.abroad.of.entry(sub).or_default().push(foreign);
            self.counters.add(Counter::ImportedSubscriptions, 1);
            work.pay(SUBSCRIBE + self.trie.take_steps());
        }
        Ok(true)
    }

    /// Ends foreign subscriptions that stand for a client's, as long as the turn's work allows; whether there are no more.
    pub(crate) fn unfollow_some(
        &mut self,
        sub: SubId,
        memory: &mut Option<Charge>,
        (work, links): (&mut Work, &mut Links),
    ) -> bool {
        if self.abroad.of.is_empty() {
            return true;
        }
        while let Some(all) = self.abroad.of.get_mut(&sub) {
            let Some(&foreign) = all.last() else {
                self.abroad.of.remove(&sub);
                return true;
            };
            if work.lacks(WALKS) {
                return false;
            }
            all.pop();
            self.give_back(foreign, FOREIGN_BYTES, memory);
            if let Some(Foreign { stream, .. }) = self.abroad.foreign.remove(&foreign) {
                self.depart(foreign, stream.exporter, links);
            }
            self.counters.sub(Counter::ImportedSubscriptions, 1);
            work.pay(SUBSCRIBE + self.trie.take_steps());
        }
        true
    }

    /// Holds a client's subscriptions against the streams of now, all of them at once: a reload is the operator's.
    pub(crate) fn follow_again(&mut self, connection: &mut Connection, links: &mut Links) {
        let mut work = Work::of(u64::MAX);
        // One that was being followed is followed anew; one that was ending goes on with what there is then.
        if matches!(connection.under_way.as_deref(), Some(UnderWay::Following { .. })) {
            connection.under_way = None;
        }
        let Connection { sids, account, subscription_memory: memory, .. } = connection;
        for &sub in &*sids {
            self.unfollow_some(sub, memory, (&mut work, links));
            if self.follow_some(sub, *account, &mut 0, memory, (&mut work, links)).is_err() {
                self.counters.add(Counter::ImportedSubscriptionsRefused, 1);
            }
        }
    }

    /// The services that a request in an account meets.
    pub(crate) fn services_of(&mut self, account: u16, subject: &[u8]) -> SmallVec<[Rc<ServiceImport>; 2]> {
        let Some(services) = self.abroad.services.get(&account) else { return SmallVec::new() };
        // Bounded by the configuration.
        let mut work = Work::of(u64::MAX);
        let (slot, matched) = self.matches.take(&self.trie, services.root, subject, &mut work);
        let found = matched.subscribers.iter().map(|&at| Rc::clone(&services.all[at as usize])).collect();
        self.matches.put_back(slot, matched);
        found
    }

    /// Takes over what goes from account to account now; what was before, if it is something else. `answers` is the
    /// pattern of this core's subjects for answers.
    pub(crate) fn take_exchange(
        &mut self,
        now: Option<&Arc<Exchange>>,
        answers: &[u8],
        links: &mut Links,
    ) -> Option<Option<Arc<Exchange>>> {
        if self.abroad.exchange.as_ref() == now {
            return None;
        }
        let before = std::mem::replace(&mut self.abroad.exchange, now.cloned());
        self.take_services();
        self.listen_for_answers(answers, links);
        Some(before)
    }

    fn take_services(&mut self) {
        let mut before = std::mem::take(&mut self.abroad.services);
        for Services { root, all } in before.values() {
            for taken in all {
                taken.is_gone.set(true);
                let Some(node) = self.trie.find(*root, taken.service.local.as_bytes()) else { continue };
                while !self.trie.subscribers(node).is_empty() {
                    self.trie.remove_subscriber(node, 0);
                }
                self.trie.prune(node);
            }
        }
        let Some(exchange) = self.abroad.exchange.clone() else { return };
        for (account, imports) in exchange.all() {
            let before = before.remove(&account);
            let root = before.as_ref().map_or_else(|| self.trie.add_root(), |before| before.root);
            let before = before.map_or_else(Vec::new, |before| before.all);
            let mut all: Vec<Rc<ServiceImport>> = Vec::new();
            for service in &imports.services {
                // Requests that wait for an answer go on to.
                let same = before.iter().find(|taken| taken.service.is_like(service)).cloned();
                let taken = same.unwrap_or_else(|| {
                    let (export, is_gone) = (Cell::new(0), Cell::new(false));
                    Rc::new(ServiceImport { service: Arc::clone(service), export, is_gone })
                });
                taken.export.set(service.export);
                taken.is_gone.set(false);
                let node = self.trie.insert(root, service.local.as_bytes());
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "an account takes a thousand things at most"
                )]
                self.trie.add_subscriber(node, all.len() as SubId);
                all.push(taken);
            }
            self.abroad.services.insert(account, Services { root, all });
        }
    }

    /// Has other cores send on to here what is published as an answer to who asked on this core.
    fn listen_for_answers(&mut self, pattern: &[u8], links: &mut Links) {
        let gone: Vec<u16> =
            self.abroad.answers.keys().copied().filter(|account| !self.abroad.deals(*account)).collect();
        for account in gone {
            if let Some(sub) = self.abroad.answers.remove(&account) {
                self.depart(sub, account, links);
            }
        }
        let deals = self.abroad.exchange.as_ref().map_or(0, |exchange| exchange.deals().len());
        for account in (0..=u16::MAX).take(deals) {
            if self.abroad.deals(account) && !self.abroad.answers.contains_key(&account) {
                let root = self.root_of(account);
                let subscription = Subscription::new(FOREIGN, b""[..].into(), false);
                let sub = self.enter((account, root), pattern, None, subscription, links);
                self.abroad.answers.insert(account, sub);
            }
        }
    }
}

impl Core {
    /// Delivers to whom a foreign subscription stands for, by the subject's name there.
    #[cold]
    pub(crate) fn deliver_abroad(&mut self, sub: SubId, of: &Origin, run: &Run<'_>) -> u64 {
        // A message that came by a service is not had again by a stream (nats-server's rule).
        if of.is_imported {
            return 0;
        }
        let mut subject = std::mem::take(&mut self.buffers.imported);
        let stands_for = self.subjects.abroad.stands_for(sub).map(|(of, stream)| {
            stream.path.apply(run.subject, &mut subject);
            of
        });
        let delivered = stands_for.map_or(0, |sub| self.deliver(sub, of, &Run { subject: &subject, ..*run }));
        self.buffers.imported = subject;
        delivered
    }
}
