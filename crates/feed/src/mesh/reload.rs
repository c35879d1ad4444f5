//! Activation of a new configuration on a core.

use std::sync::{Arc, atomic::Ordering};

use wire::nats::rejection::Rejection;

use crate::{
    accounts::identity::Exchange,
    client::connection::ConnId,
    delivery::backlog::Marks,
    mesh::{
        core::{Core, Routing, SUBSCRIPTION_MEMORY},
        settings::Settings,
        shared::InfoOccasion,
    },
};

impl Core {
    /// Activates a new configuration: limits and permissions, also for connected clients.
    pub(crate) fn reload(&mut self, settings: Arc<Settings>) {
        self.settings = settings;
        self.routing.mappings = self.settings.identities.all_mappings();
        self.take_exchange();
        self.leave_hubs_not_configured();
        self.tell_hubs_what_stands();
        self.outputs.rounds.stir();
        let limits = &self.settings.config.limits;
        self.outputs.marks = Marks::of(limits.max_pending);
        self.memory.pending.resize(self.settings.config.limits.max_pending_total, self.cores);
        self.memory.subscriptions.resize(
            SUBSCRIPTION_MEMORY,
            self.settings.config.limits.max_subscription_memory,
            self.cores,
        );
        self.close_surplus();
        for id in 0..self.outputs.connections.end() {
            if self.outputs.connections.find(id).is_none() {
                continue;
            }
            self.judge_again(id);
            let connection = &self.outputs.connections[id];
            if connection.takes_info && connection.closing.is_none() {
                self.say_info(id, InfoOccasion::Change);
                // Output is written after each connection, so that all of it takes one chunk instead of one
                // per connection.
                self.end_turn();
            }
        }
    }

    /// Activates the current imports: services, and the streams that the connected clients' subscriptions
    /// match.
    pub(super) fn take_exchange(&mut self) {
        let Self { outputs, links, settings, routing: Routing { subjects, requests, .. }, .. } = self;
        let now = settings.identities.exchange().map(Arc::clone);
        let Some(before) = subjects.take_exchange(now.as_ref(), &requests.pattern(), links) else { return };
        requests.close_gone();
        let streams = |exchange: Option<&Exchange>, account| {
            exchange
                .and_then(|exchange| exchange.of(account))
                .map_or(&[][..], |imports| &imports.streams)
                .to_vec()
        };
        let is_changed = |account| streams(before.as_deref(), account) != streams(now.as_deref(), account);
        for (_, connection) in outputs.connections.iter_mut() {
            connection.deals = subjects.abroad.has_imports(connection.account);
            if is_changed(connection.account) {
                subjects.follow_again(connection, links);
            }
        }
        self.refresh_hub_imports(is_changed);
        // Only the operator can cause a reload, so no client is charged for these steps.
        _ = self.routing.subjects.trie.take_steps();
    }

    /// Closes this core's share of the connections that exceed a lowered limit, the newest first.
    /// (nats-server closes arbitrary ones.)
    fn close_surplus(&mut self) {
        let surplus = self.shared.surplus.load(Ordering::Acquire);
        if surplus == 0 {
            return;
        }
        let own = self.clients();
        let share = (surplus * own).div_ceil(self.clients.balance.total().max(own).max(1));
        let open = self.outputs.connections.iter();
        let open = open.filter(|(_, connection)| connection.closing.is_none() && connection.hub.is_none());
        let mut open: Vec<(u64, ConnId)> = open.map(|(id, connection)| (connection.cid, id)).collect();
        open.sort_unstable_by(|one, other| other.cmp(one));
        for (_, id) in open.into_iter().take(share) {
            let taken = self
                .shared
                .surplus
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |surplus| surplus.checked_sub(1));
            if taken.is_err() {
                break;
            }
            self.outputs.reject(id, Rejection::ConnectionsExceeded);
            self.end_turn();
        }
    }
}
