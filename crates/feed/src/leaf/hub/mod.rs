//! State of the hubs that a core has joined; joining and losing them.
//!
//! Each hub has one [`Hub`], on its own core and in that core's memory. Other cores hold only the hub's
//! interest, in their tries, and whether it is connected ([`Core::hubs_up`]).

mod interest;

use std::{collections::HashMap, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use tokio::sync::Notify;

use super::{
    LEARNT_MAX, PAYLOAD_BYTES_MAX, Seed,
    dial::Info,
    remote::{Address, Scheme},
    rules::{DIRECT_GETS, HubRules, OF_JETSTREAM},
    trouble::Trouble,
};
use crate::{
    client::connection::{ClientInfo, CloseReason, ConnId, Connection, Stage, Transport, Writer},
    counters::Counter,
    mesh::core::{Core, Observers, Routing},
    routing::trie::{HUBS_MAX, HubId, HubMask},
};

use interest::standing;

/// Number of trie nodes that are examined in one step of announcing subscriptions to a hub.
const NODES_A_STEP: u32 = 4096;
/// Bytes of interest lines (`LS+`) that one step may produce for a hub.
const STEP_BYTES_MAX: usize = 64 * 1024;

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

/// Snapshot of a hub, for the monitoring pages.
#[derive(Debug, Clone)]
pub(crate) struct HubSnapshot {
    pub(crate) account: Arc<str>,
    pub(crate) address: String,
    pub(crate) is_up: bool,
    pub(crate) server_name: String,
    pub(crate) server_id: String,
    pub(crate) version: String,
    pub(crate) cluster: String,
    pub(crate) remote_account: String,
    pub(crate) trouble: Option<String>,
    pub(crate) attempts: u64,
    pub(crate) connections: u64,
    pub(crate) learnt: usize,
    pub(crate) wants: usize,
    pub(crate) connection: Option<HubConnection>,
}

/// Snapshot of a hub's connection.
#[derive(Debug, Clone)]
pub(crate) struct HubConnection {
    pub(crate) cid: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) transport: Transport,
    pub(crate) rtt_ms: Option<u32>,
    pub(crate) messages_in: u64,
    pub(crate) messages_out: u64,
    pub(crate) payload_in_bytes: u64,
    pub(crate) payload_out_bytes: u64,
    pub(crate) pending_bytes: usize,
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

impl Core {
    /// Registers a connection to a hub, on which CONNECT has been sent.
    pub(super) fn enter_hub(
        &mut self,
        seed: &Seed,
        (writer, transport, peer): (Writer, Transport, SocketAddr),
        info: &Info,
    ) -> ConnId {
        let root = self.routing.subjects.root_of(seed.account);
        let mut connection = Connection::new(self.shared.next_cid(), peer, writer, root, self.turn.now_ms);
        connection.transport = transport;
        connection.stage = Stage::Connected;
        connection.verbose = false;
        connection.echo = false;
        connection.account = seed.account;
        connection.headers = info.headers && self.settings.config.headers;
        connection.hub = Some(seed.hub);
        let name =
            format!("hub {}", if info.server_name.is_empty() { &info.server_id } else { &info.server_name });
        let (lang, version) = (Box::default(), info.version.as_str().into());
        connection.told = Some(Box::new(ClientInfo { name: name.into(), lang, version }));
        let cid = connection.cid;
        let id = self.outputs.connections.insert(Box::new(connection));
        let hub = self.hubs.own(seed.hub);
        hub.conn = Some(id);
        hub.connections += 1;
        hub.cid = cid;
        hub.trouble = None;
        hub.max_payload = match info.max_payload {
            0 => self.settings.config.limits.max_payload,
            said => said.min(PAYLOAD_BYTES_MAX),
        };
        hub.joined = Rc::default();
        self.outputs.rounds.stir();
        self.take_info(id, seed.hub, info, !info.info_on_connect);
        id
    }

    /// Applies an INFO from the hub. `is_let_in`: the hub has accepted this server, even if this INFO does
    /// not say so.
    fn take_info(&mut self, id: ConnId, of: HubId, info: &Info, is_let_in: bool) {
        let hub = self.hubs.own(of);
        hub.learn(info);
        let keep = |now: &String, before: &mut String| {
            if !now.is_empty() {
                before.clone_from(now);
            }
        };
        keep(&info.server_name, &mut hub.info.server_name);
        keep(&info.server_id, &mut hub.info.server_id);
        keep(&info.version, &mut hub.info.version);
        keep(&info.cluster, &mut hub.info.cluster);
        keep(&info.remote_account, &mut hub.info.remote_account);
        if !is_let_in && !info.connect_info {
            return;
        }
        let rules = HubRules::new(info.import.as_ref(), info.export.as_ref(), &hub.seed.remote);
        if hub.is_up {
            if hub.rules != rules {
                self.close_hub(id, Trouble::Changed);
            }
            return;
        }
        hub.rules = rules.clone();
        hub.is_up = true;
        hub.told.clear();
        hub.joined.notify_one();
        let (account, first) = (hub.seed.account, hub.loop_subject());
        // A hub's JetStream accepts messages on its own subjects even though it does not announce interest in
        // them.
        let has_jetstream = (info.jetstream || !info.domain.is_empty()) && !hub.is_without_jetstream;
        let (name, address) = (hub.info.server_name.clone(), hub.address.clone());
        let account_name = Arc::clone(&hub.seed.account_name);
        let remote_account = hub.info.remote_account.clone();
        let standing = standing(&self.routing.subjects, self.routing.mappings.as_deref(), account);
        self.links.tellers.begin(of, account, rules, &first, standing);
        self.set_hub_up(of, true);
        self.count(Counter::LeafConnects);
        self.observers.counters.add(Counter::LeafConnected, 1);
        tracing::info!(
            %address, hub = name, account = &*account_name, remote_account, "leaf node connected to the hub"
        );
        if has_jetstream {
            for subject in OF_JETSTREAM {
                self.hear_pattern(of, subject, None);
            }
            let (subject, queue) = DIRECT_GETS;
            self.hear_pattern(of, subject, Some((queue, 1)));
        }
    }

    /// Applies an INFO that the hub sent after the first one.
    pub(super) fn hear_info(&mut self, id: ConnId, of: HubId, json: &[u8]) {
        match serde_json::from_slice::<Info>(json) {
            Ok(info) => self.take_info(id, of, &info, false),
            Err(error) => {
                self.close_hub(id, Trouble::Protocol(format!("invalid INFO: {error}")));
            }
        }
    }

    /// Records an error from the hub, which is usually the hub's last message before it closes the
    /// connection.
    pub(super) fn hear_error(&mut self, id: ConnId, of: HubId, text: &[u8]) {
        let trouble = Trouble::of_words(text);
        let hub = self.hubs.own(of);
        if let Trouble::Refused(text) = &trouble
            && text.contains("Permissions Violation for Publish")
            && (text.contains("$JS.API.") || text.contains("$KV.") || text.contains("$OBJ."))
        {
            hub.is_without_jetstream = true;
        }
        // The error is recorded only. Except after a loop error, the hub decides whether to close the
        // connection.
        hub.trouble = Some(trouble.clone());
        if matches!(trouble, Trouble::Loop(_)) {
            self.close_hub(id, trouble);
        }
    }

    fn set_hub_up(&mut self, of: HubId, is_up: bool) {
        let bit: HubMask = 1 << of;
        self.hubs.up = if is_up { self.hubs.up | bit } else { self.hubs.up & !bit };
        self.links.hubs_up(bit, self.hubs.up & bit);
    }

    /// Announces to a hub the subscriptions at the next nodes of the trie. Returns whether these were the
    /// last.
    pub(super) fn announce_some(&mut self, of: HubId) -> bool {
        let Self { links, hubs, routing: Routing { subjects, .. }, .. } = self;
        let root = subjects.root_of(hubs.own(of).seed.account);
        let Some(teller) = links.tellers.of(of) else { return true };
        let (trie, end) = (&subjects.trie, subjects.trie.end());
        let mut node = teller.told_below;
        let step_end = node.saturating_add(NODES_A_STEP).min(end);
        while node < step_end && teller.lines.len() < STEP_BYTES_MAX {
            if trie.is_held(node) && trie.root_above(node) == root {
                let pattern = trie.pattern_of(node);
                if trie.is_wanted(node) {
                    teller.wanted(&pattern, true);
                }
                for group in trie.more(node).map_or(&[][..], |more| &more.groups) {
                    let members = group.members_everywhere();
                    if members > 0 {
                        teller.members(&pattern, &group.name, members);
                    }
                }
            }
            node += 1;
        }
        let is_done = node >= end;
        teller.told_below = if is_done { u32::MAX } else { node };
        links.tellers.is_waiting = true;
        is_done
    }

    /// Appends the interest lines to the hubs' outputs.
    #[cold]
    pub(crate) fn tell_hubs(&mut self) {
        let Self { links, hubs, outputs, observers: Observers { counters, .. }, .. } = self;
        links.tellers.is_waiting = false;
        let mut slow = None;
        for teller in links.tellers.iter_mut() {
            counters.add(Counter::LeafInterestDenied, std::mem::take(&mut teller.denied));
            if teller.lines.is_empty() {
                continue;
            }
            if let Some(id) = hubs.find(teller.hub).and_then(|hub| hub.conn)
                && !outputs.tell_hub(id, &teller.lines)
            {
                slow = Some(id);
            }
            teller.lines.clear();
            teller.lines.shrink_to(STEP_BYTES_MAX);
        }
        if let Some(id) = slow {
            outputs.cut_slow(id, CloseReason::SlowConsumerPending, "");
        }
    }

    /// Closes a hub's connection and records the reason.
    pub(super) fn close_hub(&mut self, id: ConnId, trouble: Trouble) {
        let Some(of) = self.outputs.connections.find(id).and_then(|connection| connection.hub) else {
            return;
        };
        self.hubs.own(of).trouble.get_or_insert(trouble);
        self.outputs.close(id, CloseReason::ProtocolViolation);
    }

    /// Removes a hub's connection.
    pub(crate) fn lose_hub(&mut self, of: HubId, connection: &mut Connection) {
        self.observers.counters.add(Counter::LeafLost, connection.outbox.lost_bytes());
        connection.outbox.clear(&mut self.outputs.chunks);
        self.outputs.unfinished_bytes -= connection.unfinished_bytes;
        self.links.tellers.end(of);
        let hub = self.hubs.own(of);
        hub.conn = None;
        if hub.is_up {
            self.set_hub_up(of, false);
            self.observers.counters.sub(Counter::LeafConnected, 1);
            self.count(Counter::LeafLosses);
        }
        self.outputs.rounds.stir();
    }

    /// Returns whether the hub was joined when the connection was lost, and the reason for the loss.
    pub(super) fn why_lost(&mut self, of: HubId, why: CloseReason) -> (bool, Trouble) {
        let hub = self.hubs.own(of);
        let was_up = std::mem::take(&mut hub.is_up);
        (was_up, hub.trouble.take().unwrap_or(Trouble::Lost(why)))
    }

    pub(super) fn note_attempt(&mut self, of: HubId, address: &Address) {
        let hub = self.hubs.own(of);
        hub.attempts += 1;
        hub.address = address.to_string();
        self.count(Counter::LeafAttempts);
    }

    /// Logs why a hub is not joined, once for each reason, because attempts continue indefinitely.
    pub(super) fn note_trouble(&mut self, of: HubId, address: &Address, trouble: &Trouble, pause: Duration) {
        let hub = self.hubs.own(of);
        let text = trouble.text();
        let (account, pause_ms) = (Arc::clone(&hub.seed.account_name), pause.as_millis());
        if hub.told == text {
            tracing::debug!(%address, account = &*account, %text, pause_ms, "leaf node not connected to the hub");
        } else {
            hub.told.clone_from(&text);
            tracing::warn!(
                %address, account = &*account, why = %text, pause_ms,
                "leaf node not connected to the hub: local clients are served; trying again"
            );
        }
    }

    /// Returns the configured hub with this number, if there is one.
    pub(super) fn configured_hub(&self, place: HubId) -> Option<Arc<Seed>> {
        self.settings.hubs.iter().find(|seed| seed.hub == place).map(Arc::clone)
    }

    /// Returns whether a hub's configuration is unchanged since it was added.
    pub(super) fn is_configured_hub(&self, seed: &Arc<Seed>) -> bool {
        self.settings.hubs.iter().any(|now| Arc::ptr_eq(now, seed))
    }

    /// Leaves the hubs that a reload has removed from the configuration, and notifies the tasks of changed
    /// hubs.
    pub(crate) fn leave_hubs_not_configured(&mut self) {
        let mut gone = Vec::new();
        for (place, changed) in &self.hubs.changed {
            let hub = self.hubs.all.iter().find(|hub| hub.seed.hub == *place);
            let before = hub.map(|hub| Arc::as_ptr(&hub.seed));
            if before != self.configured_hub(*place).map(|seed| Arc::as_ptr(&seed)) {
                changed.notify_one();
                gone.extend(hub.and_then(|hub| hub.conn));
            }
        }
        for id in gone {
            self.close_hub(id, Trouble::NotConfigured);
        }
    }

    /// Returns whether the outputs of all hubs have been written.
    pub(super) fn nothing_waits_for_hubs(&self) -> bool {
        let conns = self.hubs.all.iter().filter_map(|hub| hub.conn);
        conns
            .into_iter()
            .all(|id| self.outputs.connections.find(id).is_none_or(|connection| connection.outbox.is_empty()))
    }

    /// Closes the connections of all hubs.
    pub(super) fn close_hubs(&mut self, why: CloseReason) {
        let conns: Vec<ConnId> = self.hubs.all.iter().filter_map(|hub| hub.conn).collect();
        for id in conns {
            self.outputs.close(id, why);
        }
    }

    /// Returns the number of clients on this core.
    pub(crate) fn clients(&self) -> usize {
        self.outputs.connections.len() - self.hubs.connections()
    }

    /// Returns snapshots of the hubs, for the monitoring pages.
    pub(crate) fn hub_snapshots(&self) -> Vec<HubSnapshot> {
        self.hubs.all.iter().map(|hub| self.hub_snapshot(hub)).collect()
    }

    fn hub_snapshot(&self, hub: &Hub) -> HubSnapshot {
        let connection = hub.conn.and_then(|id| self.outputs.connections.find(id));
        HubSnapshot {
            account: Arc::clone(&hub.seed.account_name),
            address: hub.address.clone(),
            is_up: hub.is_up,
            server_name: hub.info.server_name.clone(),
            server_id: hub.info.server_id.clone(),
            version: hub.info.version.clone(),
            cluster: hub.info.cluster.clone(),
            remote_account: hub.info.remote_account.clone(),
            trouble: (!hub.is_up && !hub.told.is_empty()).then(|| hub.told.clone()),
            attempts: hub.attempts,
            connections: hub.connections,
            learnt: hub.learnt.len(),
            wants: hub.heard.len(),
            connection: connection.map(|connection| HubConnection {
                cid: connection.cid,
                peer: connection.address,
                transport: connection.transport,
                rtt_ms: connection.rtt_ms,
                messages_in: connection.messages_in,
                messages_out: connection.messages_out,
                payload_in_bytes: connection.payload_in_bytes,
                payload_out_bytes: connection.payload_out_bytes,
                pending_bytes: connection.outbox.bytes(),
            }),
        }
    }
}
