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

use smallvec::SmallVec;

use crate::{
    accounts::identity::{Exchange, Service, Stream, common},
    routing::trie::{NodeId, SubId},
};

/// Largest number of foreign subscriptions (subscriptions to imported streams) on all cores together.
const IMPORTED_MAX: usize = 1 << 20;

/// Imports of all accounts: the copy that belongs to one core.
#[derive(Default)]
pub(crate) struct Imports {
    pub(super) exchange: Option<Arc<Exchange>>,
    /// Foreign subscriptions: entries in an exporting account that represent a client's subscription in the
    /// importing account.
    pub(super) foreign: HashMap<SubId, Foreign>,
    /// Foreign subscriptions by the client's subscription that they represent.
    pub(super) of: HashMap<SubId, SmallVec<[SubId; 2]>>,
    pub(super) services: HashMap<u16, Services>,
    /// Subscriptions that receive answers from other cores, by account.
    pub(super) answers: HashMap<u16, SubId>,
    pub(super) foreign_max: usize,
}

/// A foreign subscription: the client's subscription that it represents, and the imported stream.
pub(super) struct Foreign {
    pub(super) of: SubId,
    pub(super) stream: Arc<Stream>,
}

/// Services that an account imports, with their root in the trie.
pub(super) struct Services {
    pub(super) root: NodeId,
    pub(super) all: Vec<Rc<ServiceImport>>,
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
    #[inline]
    pub(crate) fn stands_for(&self, sub: SubId) -> Option<(SubId, &Stream)> {
        self.foreign.get(&sub).map(|foreign| (foreign.of, &*foreign.stream))
    }
}
