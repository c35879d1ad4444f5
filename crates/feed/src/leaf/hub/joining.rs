//! Joining and losing hubs, and the announcements to them.

use std::{net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use crate::{
    client::connection::{ClientInfo, CloseReason, ConnId, Connection, Stage, Transport, Writer},
    counters::Counter,
    leaf::{
        Seed,
        hub::{
            Hub,
            interest::standing,
            snapshot::{HubConnection, HubSnapshot},
        },
        info::Info,
        limits::PAYLOAD_BYTES_MAX,
        remote::Address,
        rules::{DIRECT_GETS, HubRules, OF_JETSTREAM},
        trouble::Trouble,
    },
    mesh::core::{Core, Observers, Routing},
    routing::trie::{HubId, HubMask},
};

/// Number of trie nodes that are examined in one step of announcing subscriptions to a hub.
const NODES_A_STEP: u32 = 4096;
/// Bytes of interest lines (`LS+`) that one step may produce for a hub.
const STEP_BYTES_MAX: usize = 64 * 1024;

impl Core {
    /// Registers a connection to a hub, on which CONNECT has been sent.
    pub(in crate::leaf) fn enter_hub(
        &mut self,
        seed: &Seed,
        writer: Writer,
        transport: Transport,
        peer: SocketAddr,
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
    pub(in crate::leaf) fn hear_info(&mut self, id: ConnId, of: HubId, json: &[u8]) {
        match serde_json::from_slice::<Info>(json) {
            Ok(info) => self.take_info(id, of, &info, false),
            Err(error) => {
                self.close_hub(id, Trouble::Protocol(format!("invalid INFO: {error}")));
            }
        }
    }

    /// Records an error from the hub, which is usually the hub's last message before it closes the
    /// connection.
    pub(in crate::leaf) fn hear_error(&mut self, id: ConnId, of: HubId, text: &[u8]) {
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
    pub(in crate::leaf) fn announce_some(&mut self, of: HubId) -> bool {
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
    pub(in crate::leaf) fn close_hub(&mut self, id: ConnId, trouble: Trouble) {
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
    pub(in crate::leaf) fn why_lost(&mut self, of: HubId, why: CloseReason) -> (bool, Trouble) {
        let hub = self.hubs.own(of);
        let was_up = std::mem::take(&mut hub.is_up);
        (was_up, hub.trouble.take().unwrap_or(Trouble::Lost(why)))
    }

    pub(in crate::leaf) fn note_attempt(&mut self, of: HubId, address: &Address) {
        let hub = self.hubs.own(of);
        hub.attempts += 1;
        hub.address = address.to_string();
        self.count(Counter::LeafAttempts);
    }

    /// Logs why a hub is not joined, once for each reason, because attempts continue indefinitely.
    pub(in crate::leaf) fn note_trouble(
        &mut self,
        of: HubId,
        address: &Address,
        trouble: &Trouble,
        pause: Duration,
    ) {
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
    pub(in crate::leaf) fn configured_hub(&self, place: HubId) -> Option<Arc<Seed>> {
        self.settings.hubs.iter().find(|seed| seed.hub == place).map(Arc::clone)
    }

    /// Returns whether a hub's configuration is unchanged since it was added.
    pub(in crate::leaf) fn is_configured_hub(&self, seed: &Arc<Seed>) -> bool {
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
    pub(in crate::leaf) fn nothing_waits_for_hubs(&self) -> bool {
        let conns = self.hubs.all.iter().filter_map(|hub| hub.conn);
        conns
            .into_iter()
            .all(|id| self.outputs.connections.find(id).is_none_or(|connection| connection.outbox.is_empty()))
    }

    /// Closes the connections of all hubs.
    pub(in crate::leaf) fn close_hubs(&mut self, why: CloseReason) {
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
