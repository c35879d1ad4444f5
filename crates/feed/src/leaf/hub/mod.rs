//! State of the hubs that a core has joined.
//!
//! Each hub has one [`Hub`], on its own core and in that core's memory. Other cores hold only the hub's
//! interest, in their tries, and whether it is connected ([`Hubs::up`]).

mod interest;
mod joining;
mod snapshot;

use std::{collections::HashMap, rc::Rc, sync::Arc};

use tokio::sync::Notify;

pub(crate) use self::snapshot::HubSnapshot;
use super::{
    Seed,
    remote::{Address, Scheme},
    rules::HubRules,
    trouble::Trouble,
};
use crate::{
    client::connection::ConnId,
    leaf::{info::Info, limits::LEARNT_MAX},
    routing::trie::{HUBS_MAX, HubId, HubMask},
};

/// Hubs of a core.
pub(crate) struct Hubs {
    /// Hubs that are joined or being dialed, and lost hubs whose state is not completely removed yet.
    all: Vec<Hub>,
    /// For each hub number of this core: the signal that is notified when a reload configures a different
    /// hub, or none, under that number.
    changed: Vec<(HubId, Rc<Notify>)>,
    /// Mask of the connected hubs, over all cores.
    pub(crate) up: HubMask,
}

/// State of a hub that this core joins.
pub(crate) struct Hub {
    pub(crate) seed: Arc<Seed>,
    pub(crate) conn: Option<ConnId>,
    /// The hub has accepted this server as a leaf node.
    pub(crate) is_up: bool,
    /// Number of connections made to the hub so far.
    connections: u64,
    /// Number of the last connection. Each connection has its own loop-detection subject (`$LDS.…`), so that
    /// the subject of a lost connection, which the hub may still have, is not mistaken for a loop.
    cid: u64,
    pub(crate) max_payload: usize,
    pub(crate) rules: HubRules,
    /// Interest of the hub by key, with the number of members. A key is a pattern, or a pattern and a queue
    /// group with a space between them.
    pub(super) heard: HashMap<Box<[u8]>, u32>,
    /// Interest in other accounts' streams that follows from the hub's own interest (`heard`). The key is the
    /// exporting account and the pattern there; the value is the number of the hub's own patterns that lead
    /// to it.
    abroad: HashMap<(u16, Box<[u8]>), u32>,
    /// The hub does not allow this server to publish on JetStream's subjects.
    is_without_jetstream: bool,
    trouble: Option<Trouble>,
    joined: Rc<Notify>,
    learnt: Vec<Address>,
    info: Info,
    address: String,
    attempts: u64,
    /// Last status text that was logged for this hub.
    told: String,
}

impl Hubs {
    /// Builds the state without any hub.
    pub(crate) fn new(index: usize, cores: usize) -> Self {
        let changed = places_of(index, cores).map(|place| (place, Rc::default())).collect();
        Self { all: Vec::new(), changed, up: 0 }
    }

    /// Returns the signal that is notified when a reload configures a different hub, or none, under this
    /// number.
    pub(super) fn changed(&self, place: HubId) -> Rc<Notify> {
        let found = self.changed.iter().find(|(of, _)| *of == place);
        found.map_or_else(|| unreachable!("a place is its core's"), |(_, changed)| Rc::clone(changed))
    }

    pub(super) fn find(&mut self, hub: HubId) -> Option<&mut Hub> {
        self.all.iter_mut().find(|one| one.seed.hub == hub)
    }

    fn own(&mut self, hub: HubId) -> &mut Hub {
        match self.find(hub) {
            Some(found) => found,
            None => panic!("a hub is joined by its own core"),
        }
    }

    /// Adds a hub. Any state of another hub with its number is dropped.
    pub(super) fn begin(&mut self, seed: &Arc<Seed>) {
        self.end(seed.hub);
        self.all.push(Hub::new(Arc::clone(seed)));
    }

    /// Drops a hub's state.
    pub(super) fn end(&mut self, hub: HubId) {
        self.all.retain(|one| one.seed.hub != hub);
    }

    /// Returns the number of this core's connections that lead to hubs.
    pub(crate) fn connections(&self) -> usize {
        self.all.iter().filter(|hub| hub.conn.is_some()).count()
    }

    /// Returns the addresses of the other servers in the hub's cluster, as announced by the hub.
    pub(super) fn learnt(&self, hub: HubId) -> Vec<Address> {
        let found = self.all.iter().find(|one| one.seed.hub == hub);
        found.map_or_else(Vec::new, |found| found.learnt.clone())
    }

    /// Returns the signal that is notified once the hub has accepted this server.
    pub(super) fn joined(&self, hub: HubId) -> Rc<Notify> {
        let found = self.all.iter().find(|one| one.seed.hub == hub);
        found.map_or_else(Rc::default, |found| Rc::clone(&found.joined))
    }
}

/// Returns the numbers of the hubs that a core joins.
pub(crate) fn places_of(index: usize, cores: usize) -> impl Iterator<Item = HubId> {
    (0..HubId::MAX).take(HUBS_MAX).filter(move |place| usize::from(*place) % cores == index)
}

impl Hub {
    fn new(seed: Arc<Seed>) -> Self {
        Self {
            seed,
            conn: None,
            is_up: false,
            connections: 0,
            cid: 0,
            max_payload: 0,
            rules: HubRules::default(),
            heard: HashMap::new(),
            abroad: HashMap::new(),
            is_without_jetstream: false,
            trouble: None,
            joined: Rc::default(),
            learnt: Vec::new(),
            info: Info::default(),
            address: String::new(),
            attempts: 0,
            told: String::new(),
        }
    }

    fn loop_subject(&self) -> Vec<u8> {
        format!("{}{}-{}", self.seed.loop_prefix, self.seed.hub, self.cid).into_bytes()
    }

    /// Returns the connection to close when a hub subscribes to one of this server's loop subjects, which
    /// shows that messages loop. If the subject belongs to this hub's connection, that connection is closed.
    /// If it belongs to another hub of the same account, the connection to whichever of the two hubs has the
    /// higher number is closed.
    fn closed_for_loop(&self, subject: &[u8], seeds: &[Arc<Seed>]) -> Option<(HubId, u64)> {
        let rest = std::str::from_utf8(subject.strip_prefix(self.seed.loop_prefix.as_bytes())?).ok()?;
        let (of, connection) = rest.split_once('-')?;
        let (of, connection) = (of.parse::<HubId>().ok()?, connection.parse::<u64>().ok()?);
        let own = (self.seed.hub, self.cid);
        if of == self.seed.hub {
            return (connection == self.cid).then_some(own);
        }
        let is_ours = seeds.iter().any(|seed| seed.hub == of && seed.account == self.seed.account);
        is_ours.then_some(if of < self.seed.hub { own } else { (of, connection) })
    }

    /// Updates the list of other servers in the hub's cluster.
    fn learn(&mut self, info: &Info) {
        let is_web = self.seed.remote.addresses.first().is_some_and(Address::is_web);
        let scheme = self.seed.remote.addresses.first().map_or(Scheme::Plain, |address| address.scheme);
        let Some(urls) = (if is_web { &info.ws_connect_urls } else { &info.leafnode_urls }) else { return };
        let configured = &self.seed.remote.addresses;
        self.learnt.clear();
        for url in urls.iter().filter(|url| url.len() < 256) {
            let Ok(address) = url.parse::<Address>() else { continue };
            let address = Address { scheme, ..address };
            let is_known = |one: &Address| one.host == address.host && one.port == address.port;
            if self.learnt.len() < LEARNT_MAX
                && !configured.iter().any(is_known)
                && !self.learnt.iter().any(is_known)
            {
                self.learnt.push(address);
            }
        }
    }
}
