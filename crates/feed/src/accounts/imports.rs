//! Imports on one core: which subscriptions and requests reach another account's streams and services, under
//! which subject.
//!
//! ```text
//!   SUB p.a.* in account B, which imports A's a.> as p.a.>    ┌ B's root ─ p ─ a ─ * ─▶ the client's subscription
//!                                                             └ A's root ─ a ─ * ─▶ a foreign one that represents it
//!   PUB q in account B, which imports A's service x as q      ── B's services (a root of their own) ─ q ─▶ A's x
//! ```
//! A foreign subscription is in the exporting account's part of the trie like any other: messages match it,
//! queue groups count it, other cores learn of it. So a message costs nothing extra where nothing is
//! imported, and the importer's subject is computed only on delivery. Imported services have a trie root of
//! their own for each account. Every core has all of them, but only the core of the requesting client
//! searches there.
//!
//! *Bounds:* an account has at most `AN_ACCOUNT_MAX` imports, and all cores together hold at most
//! [`IMPORTED_MAX`] foreign subscriptions. Their memory is charged to their clients' subscriptions. A SUB
//! that exceeds this bound is refused with the error for too many subscriptions
//! (`feed_imported_subscriptions_refused`).

use std::{cell::Cell, collections::HashMap, rc::Rc, sync::Arc};

use engine::accounts::Charge;
use smallvec::SmallVec;

use crate::{
    accounts::identity::{Exchange, Service, Stream, common},
    client::connection::{Connection, FOREIGN, Subscription},
    counters::Counter,
    delivery::{
        origin::Origin,
        run::Run,
        work::{SUBSCRIBE, WALKS, Work},
    },
    mesh::{core::Core, links::Links},
    routing::{
        subjects::Subjects,
        trie::{NodeId, SubId, tokens_of},
    },
};

/// Largest number of foreign subscriptions (subscriptions to imported streams) on all cores together.
const IMPORTED_MAX: usize = 1 << 20;
/// Bytes that a foreign subscription (one to an imported stream) needs in addition to an ordinary one.
const FOREIGN_BYTES: usize = 160;

/// Error: there is no room for another foreign subscription (one to an imported stream).
#[derive(Debug)]
pub(crate) struct NoRoomAbroad;

/// Imports of all accounts: the copy that belongs to one core.
#[derive(Default)]
pub(crate) struct Imports {
    exchange: Option<Arc<Exchange>>,
    /// Foreign subscriptions: entries in an exporting account that represent a client's subscription in the
    /// importing account.
    foreign: HashMap<SubId, Foreign>,
    /// Foreign subscriptions by the client's subscription that they represent.
    of: HashMap<SubId, SmallVec<[SubId; 2]>>,
    services: HashMap<u16, Services>,
    /// Subscriptions that receive answers from other cores, by account.
    answers: HashMap<u16, SubId>,
    foreign_max: usize,
}

/// A foreign subscription: the client's subscription that it represents, and the imported stream.
struct Foreign {
    of: SubId,
    stream: Arc<Stream>,
}

/// Services that an account imports, with their root in the trie.
struct Services {
    root: NodeId,
    all: Vec<Rc<ServiceImport>>,
}

/// A service import; each core has its own copy.
#[derive(Debug)]
pub(crate) struct ServiceImport {
    pub(crate) service: Arc<Service>,
    /// Index of the export among all exports; updated by reloads.
    pub(crate) export: Cell<usize>,
    /// A reload has removed the import.
    pub(crate) is_gone: Cell<bool>,
}

/// Imported streams that a pattern overlaps, each with the pattern in the exporting account.
pub(crate) type ReachedStreams = SmallVec<[(Arc<Stream>, Vec<u8>); 2]>;

/// A subscription that is added or removed over several turns, because its pattern may overlap each of an
/// account's thousand imported streams.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UnderWay {
    /// The subscription is being added to the imported streams; `next` is the next stream.
    Following { sub: SubId, next: usize },
    /// The subscription is being removed: first its foreign subscriptions, then the subscription itself.
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

    /// Returns whether an account exports or imports a service.
    #[inline]
    pub(crate) fn has_imports(&self, account: u16) -> bool {
        let deals = self.exchange.as_ref().map_or(&[][..], |exchange| exchange.deals());
        deals.get(usize::from(account)).copied().unwrap_or(false)
    }

    /// Returns whether an account imports streams.
    #[inline]
    pub(crate) fn has_streams(&self, account: u16) -> bool {
        let imports = self.exchange.as_ref().and_then(|exchange| exchange.of(account));
        imports.is_some_and(|imports| !imports.streams.is_empty())
    }

    /// Returns the imported streams that a hub's pattern overlaps, each with the pattern in the exporting
    /// account.
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

    /// Returns the streams that an account imports from another one.
    pub(crate) fn streams(&self, account: u16, exporter: u16) -> SmallVec<[Arc<Stream>; 2]> {
        let imports = self.exchange.as_ref().and_then(|exchange| exchange.of(account));
        let streams = imports.into_iter().flat_map(|imports| &imports.streams);
        streams.filter(|stream| stream.exporter == exporter).map(Arc::clone).collect()
    }

    /// Returns the patterns of the services that an account imports.
    pub(crate) fn services(&self, account: u16) -> impl Iterator<Item = &str> {
        let imports = self.exchange.as_ref().and_then(|exchange| exchange.of(account));
        imports.into_iter().flat_map(|imports| &imports.services).map(|service| &*service.local)
    }

    /// Returns the client's subscription that a foreign one represents, with the stream that translates the
    /// subjects.
    pub(crate) fn stands_for(&self, sub: SubId) -> Option<(SubId, &Stream)> {
        self.foreign.get(&sub).map(|foreign| (foreign.of, &*foreign.stream))
    }
}

impl Subjects {
    /// Adds foreign subscriptions for a client's subscription within the turn's budget, starting at the
    /// account's imported stream `next`. Returns whether all are added.
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

    /// Removes foreign subscriptions of a client's subscription within the turn's budget. Returns whether all
    /// are removed.
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

    /// Adapts a client's subscriptions to the current stream imports. This runs without a budget, because
    /// only the operator can cause reloads.
    pub(crate) fn follow_again(&mut self, connection: &mut Connection, links: &mut Links) {
        let mut work = Work::of(u64::MAX);
        // A subscription that was being added starts again at the first stream. A removal in progress
        // continues.
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

    /// Returns the imported services that a request on a subject matches.
    pub(crate) fn services_of(&mut self, account: u16, subject: &[u8]) -> SmallVec<[Rc<ServiceImport>; 2]> {
        let Some(services) = self.abroad.services.get(&account) else { return SmallVec::new() };
        // The configuration bounds the number of services, so the budget is unlimited here.
        let mut work = Work::of(u64::MAX);
        let (slot, matched) = self.matches.take(&self.trie, services.root, subject, &mut work);
        let found = matched.subscribers.iter().map(|&at| Rc::clone(&services.all[at as usize])).collect();
        self.matches.put_back(slot, matched);
        found
    }

    /// Activates the current imports; returns the old ones if they differ. `answers` is the pattern of this
    /// core's reply subjects.
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
                // An unchanged import keeps its object, because pending requests refer to it.
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

    /// Subscribes to this core's reply subjects, so that other cores forward the answers to its clients'
    /// requests.
    fn listen_for_answers(&mut self, pattern: &[u8], links: &mut Links) {
        let gone: Vec<u16> = self
            .abroad
            .answers
            .keys()
            .copied()
            .filter(|account| !self.abroad.has_imports(*account))
            .collect();
        for account in gone {
            if let Some(sub) = self.abroad.answers.remove(&account) {
                self.depart(sub, account, links);
            }
        }
        let deals = self.abroad.exchange.as_ref().map_or(0, |exchange| exchange.deals().len());
        for account in (0..=u16::MAX).take(deals) {
            if self.abroad.has_imports(account) && !self.abroad.answers.contains_key(&account) {
                let root = self.root_of(account);
                let subscription = Subscription::new(FOREIGN, b""[..].into(), false);
                let sub = self.enter((account, root), pattern, None, subscription, links);
                self.abroad.answers.insert(account, sub);
            }
        }
    }
}

impl Core {
    /// Delivers a message to the client's subscription that a foreign subscription represents, under the
    /// importer's subject.
    #[cold]
    pub(crate) fn deliver_abroad(&mut self, sub: SubId, of: &Origin, run: &Run<'_>) -> u64 {
        // A message that arrived through a service import is not delivered through a stream import as well
        // (nats-server's rule).
        if of.is_imported {
            return 0;
        }
        let mut subject = std::mem::take(&mut self.turn.buffers.imported);
        let stands_for = self.routing.subjects.abroad.stands_for(sub).map(|(of, stream)| {
            stream.path.apply(run.subject, &mut subject);
            of
        });
        let delivered = stands_for.map_or(0, |sub| self.deliver(sub, of, &Run { subject: &subject, ..*run }));
        self.turn.buffers.imported = subject;
        delivered
    }
}
