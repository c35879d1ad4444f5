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
//! subscriptions; a SUB that needs more is refused as one too many (`feed_imported_subscriptions_refused`).

use std::{cell::Cell, collections::HashMap, rc::Rc, sync::Arc};

use smallvec::SmallVec;

use crate::{
    across::Links,
    connection::{Connection, FOREIGN, Subscription},
    core::Core,
    counters::Counter,
    identity::{Exchange, Service, Stream, common},
    publish::{Origin, Run},
    subjects::Subjects,
    trie::{NodeId, SubId},
    work::Work,
};

/// Foreign subscriptions of all cores: some 200 bytes each.
const IMPORTED_MAX: usize = 1 << 20;

/// There are as many foreign subscriptions as there may be.
#[derive(Debug)]
pub(crate) struct NoRoomAbroad;

/// What is known of other accounts.
#[derive(Default)]
pub(crate) struct Abroad {
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
    all: Vec<Rc<Taken>>,
}

/// A service of another account, as a core has it.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) service: Arc<Service>,
    /// The number of the export.
    pub(crate) export: Cell<usize>,
    /// A reload has taken it away.
    pub(crate) is_gone: Cell<bool>,
}

/// What a subscription is to have of another account.
pub(crate) type Wanted = SmallVec<[(Arc<Stream>, Vec<u8>); 2]>;

impl Abroad {
    pub(crate) fn for_cores(cores: usize) -> Self {
        Self { foreign_max: IMPORTED_MAX / cores, ..Self::default() }
    }

    /// Whether an account has or takes a service.
    #[inline]
    pub(crate) fn deals(&self, account: u16) -> bool {
        let deals = self.exchange.as_ref().map_or(&[][..], |exchange| exchange.deals());
        deals.get(usize::from(account)).copied().unwrap_or(false)
    }

    /// What of other accounts' streams a pattern of a client's asks for.
    pub(crate) fn wanted(&self, account: u16, pattern: &[u8]) -> Result<Wanted, NoRoomAbroad> {
        let wanted = self.reached(account, pattern);
        let has_room = wanted.is_empty() || self.foreign.len() + wanted.len() <= self.foreign_max;
        has_room.then_some(wanted).ok_or(NoRoomAbroad)
    }

    /// What a pattern reaches of other accounts' streams: the stream, and the pattern there.
    pub(crate) fn reached(&self, account: u16, pattern: &[u8]) -> Wanted {
        let mut wanted = Wanted::new();
        let imports = self.exchange.as_ref().and_then(|exchange| exchange.of(account));
        for stream in imports.into_iter().flat_map(|imports| &imports.streams) {
            if let Some(within) = common(pattern, stream.path.destination().as_bytes()) {
                let mut there = Vec::new();
                stream.back.apply(&within, &mut there);
                wanted.push((Arc::clone(stream), there));
            }
        }
        wanted
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
    /// Adds the foreign subscriptions that stand for a client's; how many.
    pub(crate) fn follow(
        &mut self,
        sub: SubId,
        queue: Option<&[u8]>,
        wanted: Wanted,
        links: &mut Links,
    ) -> usize {
        if wanted.is_empty() {
            return 0;
        }
        let mut all = SmallVec::new();
        for (stream, pattern) in wanted {
            let root = self.root_of(stream.exporter);
            let subscription = Subscription::new(FOREIGN, b""[..].into(), queue.is_some());
            let foreign = self.enter((stream.exporter, root), &pattern, queue, subscription, links);
            self.abroad.foreign.insert(foreign, Foreign { of: sub, stream });
            all.push(foreign);
        }
        let count = all.len();
        self.counters.add(Counter::ImportedSubscriptions, count as u64);
        self.abroad.of.insert(sub, all);
        count
    }

    /// Ends the foreign subscriptions that stand for a client's; how many.
    pub(crate) fn unfollow(&mut self, sub: SubId, links: &mut Links) -> usize {
        if self.abroad.of.is_empty() {
            return 0;
        }
        let all = self.abroad.of.remove(&sub).unwrap_or_default();
        for &foreign in &all {
            if let Some(Foreign { stream, .. }) = self.abroad.foreign.remove(&foreign) {
                self.depart(foreign, stream.exporter, links);
            }
        }
        self.counters.sub(Counter::ImportedSubscriptions, all.len() as u64);
        all.len()
    }

    /// Holds a client's subscriptions against the streams of now.
    pub(crate) fn follow_again(&mut self, connection: &Connection, links: &mut Links) {
        for &sub in &connection.sids {
            self.unfollow(sub, links);
            let pattern = self.trie.pattern_of(self.subscription(sub).node);
            let queue = self.queue_of(sub).map(<[u8]>::to_vec);
            match self.abroad.wanted(connection.account, &pattern) {
                Ok(wanted) => _ = self.follow(sub, queue.as_deref(), wanted, links),
                Err(NoRoomAbroad) => self.counters.add(Counter::ImportedSubscriptionsRefused, 1),
            }
        }
    }

    /// The services that a request in an account meets.
    pub(crate) fn services_of(&mut self, account: u16, subject: &[u8]) -> SmallVec<[Rc<Taken>; 2]> {
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
            let mut all: Vec<Rc<Taken>> = Vec::new();
            for service in &imports.services {
                // Requests that wait for an answer go on to.
                let same = before.iter().find(|taken| taken.service.is_like(service)).cloned();
                let taken = same.unwrap_or_else(|| {
                    let (export, is_gone) = (Cell::new(0), Cell::new(false));
                    Rc::new(Taken { service: Arc::clone(service), export, is_gone })
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
