//! Registration of connections on a core and their removal; a removed connection's state is freed in steps.

use engine::{accounts::ClientKey, cores::clock};
use smallvec::SmallVec;

use super::serve::{Arrival, ENDED_IN_ONE_GO, TABLE_PLACES_A_STEP};
use crate::{
    accounts::identity::{Check, Credentials},
    client::connection::{CloseReason, ConnId, Connection, Stage, Writer},
    counters::Counter,
    mesh::{core::Core, shared::InfoOccasion},
    monitor::{capture, snapshot::CLOSED_KEPT_MAX},
    routing::trie::SubId,
};

impl Core {
    /// Registers a connection and sends it INFO.
    pub(crate) fn enter(&mut self, arrival: Arrival, writer: Writer, was_informed: bool) -> ConnId {
        let Arrival { cid, address, transport, nonce, certificate } = arrival;
        let identities = &self.settings.identities;
        let is_required = identities.is_required();
        // CONNECT is optional where clients without credentials are admitted, as in nats-server.
        let may_begin_without = identities.may_begin_without(transport.websocket) && certificate.is_none();
        let root = self.routing.subjects.root_of(0);
        let mut connection = Connection::new(cid, address, writer, root, self.turn.now_ms);
        connection.client =
            ClientKey::of_connection(address.ip(), cid, &self.settings.config.shared_networks);
        connection.transport = transport;
        connection.nonce = nonce;
        connection.certificate = certificate;
        if !may_begin_without {
            connection.stage = Stage::CredentialsNeeded;
        }
        let id = self.outputs.connections.insert(Box::new(connection));
        self.clients.balance.opened(self.index);
        self.outputs.rounds.stir();
        self.observers.counters.add(Counter::Connections, 1);
        if !is_required
            && let Check::Done(Ok(identity)) = self.settings.identities.check(&Credentials::default(), b"")
        {
            // A client without credentials is treated as the user of `no_auth_user`, or as anonymous.
            self.checked(id, Ok(identity));
            self.outputs.connections[id].stage = Stage::Fresh;
        }
        if !was_informed {
            self.say_info(id, InfoOccasion::Connection);
        }
        id
    }

    /// Sends a client INFO.
    pub(crate) fn say_info(&mut self, id: ConnId, occasion: InfoOccasion) {
        let reader = (&*self.outputs.connections[id]).into();
        let info = self.shared.info(&self.settings, &reader, occasion, self.clients.is_lame);
        self.outputs.say(id, &info);
    }

    /// Removes subscriptions of a client that has left, within the turn's budget. Returns whether none are
    /// left.
    pub(crate) fn end_some(&mut self, id: ConnId) -> bool {
        let sids = &self.outputs.connections[id].sids;
        // Each call scans the table from its start, where most slots are empty after earlier calls.
        self.turn.work.add((sids.capacity() / TABLE_PLACES_A_STEP) as u64);
        let ending: SmallVec<[SubId; ENDED_IN_ONE_GO]> = sids.iter().copied().take(ENDED_IN_ONE_GO).collect();
        for sub in ending {
            if self.links.is_full_for_words() || !self.end_subscription(id, sub) {
                return false;
            }
        }
        self.outputs.connections[id].sids.is_empty()
    }

    /// Removes the connection of a client or a hub. Returns why it was closed.
    pub(super) fn leave(&mut self, id: ConnId) -> CloseReason {
        let Self { outputs, links, .. } = self;
        outputs.release_all(id, links);
        let Some(mut connection) = outputs.connections.remove(id) else { return CloseReason::ClientClosed };
        let why = connection.closing.unwrap_or(CloseReason::ClientClosed);
        if let Some(counter) = Counter::of_closed(why) {
            self.count(counter);
        }
        if let Some(hub) = connection.hub {
            self.lose_hub(hub, &mut connection);
            return why;
        }
        self.tell_disconnected(&connection, why);
        let mut snapshot = capture::of_connection(&connection, self.index, &self.settings.identities);
        snapshot.closed = Some((clock::now_system(), why));
        if connection.is_in_account {
            self.shared.leave_account(connection.account);
        }
        connection.outbox.clear(&mut self.outputs.chunks);
        self.outputs.unfinished_bytes -= connection.unfinished_bytes;
        if self.observers.closed.len() == CLOSED_KEPT_MAX {
            self.observers.closed.pop_front();
        }
        self.observers.closed.push_back(snapshot);
        tracing::debug!(cid = connection.cid, address = %connection.address, reason = why.reason(), "client connection closed");
        self.clients.balance.closed(self.index);
        // Wakes the periodic tasks, which free memory that the connection needed.
        self.outputs.rounds.stir();
        self.observers.counters.sub(Counter::Connections, 1);
        why
    }
}
