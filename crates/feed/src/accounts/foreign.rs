//! Foreign subscriptions (subscriptions to imported streams) of one core, and the search for imported
//! services: added and removed with the clients' subscriptions, and after a reload.

use std::{cell::Cell, rc::Rc, sync::Arc};

use engine::accounts::Charge;
use smallvec::SmallVec;

use crate::{
    accounts::{
        identity::{Exchange, common},
        imports::{Foreign, ServiceImport, Services, UnderWay},
    },
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
        trie::{SubId, tokens_of},
    },
};

/// Bytes that a foreign subscription (one to an imported stream) needs in addition to an ordinary one.
const FOREIGN_BYTES: usize = 160;

/// Error: there is no room for another foreign subscription (one to an imported stream).
#[derive(Debug)]
pub(crate) struct NoRoomAbroad;

impl Subjects {
    /// Adds foreign subscriptions for a client's subscription within the turn's budget, starting at the
    /// account's imported stream `next`. Returns whether all are added.
    pub(crate) fn follow_some(
        &mut self,
        sub: SubId,
        account: u16,
        next: &mut usize,
        memory: &mut Option<Charge>,
        work: &mut Work,
        links: &mut Links,
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
            let subscription = Subscription::new(FOREIGN, b""[..].into(), queue.is_some());
            let foreign = self.enter(stream.exporter, &there, queue.as_deref(), subscription, links);
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
        work: &mut Work,
        links: &mut Links,
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
            self.unfollow_some(sub, memory, &mut work, links);
            if self.follow_some(sub, *account, &mut 0, memory, &mut work, links).is_err() {
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
                let subscription = Subscription::new(FOREIGN, b""[..].into(), false);
                let sub = self.enter(account, pattern, None, subscription, links);
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
