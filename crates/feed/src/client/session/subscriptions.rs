//! SUB and UNSUB: subscriptions are added, and removed at once or after a number of messages; a large removal
//! takes several steps.

use wire::nats::{rejection::Rejection, subject};

use super::{CONNECTION_PART, SYSTEM_QUEUE};
use crate::{
    accounts::{
        foreign::NoRoomAbroad,
        identity::{AccountId, SubscribeVerdict},
        imports::UnderWay,
    },
    client::connection::ConnId,
    counters::Counter,
    delivery::work::{SUBSCRIBE, TOKENS_MAX, WALKS},
    mesh::core::{Core, Routing, SUBSCRIPTION_MEMORY, Turn},
    monitor::system::question::SystemEvent,
    routing::{
        subjects::Wish,
        trie::{SubId, tokens_of},
    },
};

impl Core {
    pub(super) fn subscribe(&mut self, id: ConnId, pattern: &[u8], queue: Option<&[u8]>, sid: &[u8]) {
        let connection = &self.outputs.connections[id];
        // Permissions are checked first, as in nats-server.
        let mut is_filtered = false;
        if let Some(permissions) = &connection.permissions {
            match permissions.subscribe_verdict(pattern, queue) {
                SubscribeVerdict::Whole => {}
                SubscribeVerdict::Filtered => is_filtered = true,
                SubscribeVerdict::Denied => {
                    self.count(Counter::PermissionsDenied);
                    self.outputs.reject(id, Rejection::SubscriptionDenied { subject: pattern, queue });
                    return;
                }
            }
        }
        if queue == Some(SYSTEM_QUEUE) {
            self.count(Counter::PermissionsDenied);
            self.outputs.reject(id, Rejection::SubscriptionDenied { subject: pattern, queue });
            return;
        }
        if !subject::is_valid_pattern(pattern) {
            self.outputs.reject(id, Rejection::InvalidSubject);
            return;
        }
        let max = self.settings.config.limits.max_subscriptions;
        let max = if max > 0 { max } else { usize::MAX };
        if connection.sids.len() >= max.min(connection.subscriptions_max) {
            self.count(Counter::SubscriptionsRefused);
            self.outputs.reject(id, Rejection::SubscriptionsExceeded);
            return;
        }
        // If the sid is in use already, the existing subscription stays.
        if self.routing.subjects.find(connection, sid).is_some() {
            self.say_ok(id);
            return;
        }
        if !self.may_remember(id, pattern, queue, sid) {
            self.count(Counter::SubscriptionMemoryRefused);
            self.outputs.reject(id, Rejection::SubscriptionsExceeded);
            return;
        }
        self.say_ok(id);
        let Self { outputs, links, routing: Routing { subjects, .. }, .. } = self;
        let connection = &mut *outputs.connections[id];
        let sub = subjects.subscribe(id, connection, Wish { pattern, queue, sid, is_filtered }, links);
        self.turn.work.pay(subjects.trie.take_steps());
        if connection.account == AccountId::SYSTEM.0 {
            // If the channel is full, an event is queued already, and its receiver will notice this
            // subscription.
            _ = self.observers.system.try_send(SystemEvent::Subscribed);
        }
        if subjects.abroad.has_streams(connection.account) {
            connection.under_way = Some(Box::new(UnderWay::Following { sub, next: 0 }));
            self.go_on_under_way(id);
        }
        self.pause_if_full(id);
    }

    /// Charges the memory of one more subscription to the client. Returns whether there was enough.
    fn may_remember(&mut self, id: ConnId, pattern: &[u8], queue: Option<&[u8]>, sid: &[u8]) -> bool {
        if tokens_of(pattern) > TOKENS_MAX {
            return false;
        }
        let bytes = self.routing.subjects.bytes_of(pattern, queue, sid);
        let connection = &mut *self.outputs.connections[id];
        let at_most = self.settings.config.limits.max_subscription_memory / CONNECTION_PART;
        match &mut connection.subscription_memory {
            Some(memory) => {
                let bytes = memory.amount() + bytes;
                bytes <= at_most && memory.resize(bytes).is_ok()
            }
            None => {
                let charge = self.memory.subscriptions.charge(connection.client, SUBSCRIPTION_MEMORY, bytes);
                connection.subscription_memory = charge.ok();
                // The connection's task must watch the charge, because other clients may need the memory.
                connection.wake();
                connection.subscription_memory.is_some()
            }
        }
    }

    /// Removes subscriptions that have received their last message, and continues adding or removing the
    /// client's unfinished subscription. Returns whether all was done within the turn's budget.
    #[cold]
    pub(super) fn finish_under_way(&mut self, id: ConnId) -> bool {
        self.end_finished();
        self.routing.subjects.a_finished().is_none() && self.go_on_under_way(id)
    }

    /// Continues to add a subscription to imported streams, or to remove it from them. Returns whether all
    /// was done within the turn's budget.
    fn go_on_under_way(&mut self, id: ConnId) -> bool {
        let connection = &mut *self.outputs.connections[id];
        match connection.under_way.as_deref_mut() {
            None => true,
            Some(UnderWay::Following { sub, next }) => {
                let (sub, memory) = (*sub, &mut connection.subscription_memory);
                let Self { routing: Routing { subjects, .. }, turn: Turn { work, .. }, links, .. } = self;
                match subjects.follow_some(sub, connection.account, next, memory, work, links) {
                    Ok(is_all) => {
                        if is_all {
                            connection.under_way = None;
                        }
                        is_all
                    }
                    Err(NoRoomAbroad) => {
                        connection.under_way = Some(Box::new(UnderWay::Ending { sub }));
                        self.count(Counter::ImportedSubscriptionsRefused);
                        self.outputs.reject(id, Rejection::SubscriptionsExceeded);
                        self.end_subscription(id, sub)
                    }
                }
            }
            Some(UnderWay::Ending { sub }) => {
                let sub = *sub;
                self.end_subscription(id, sub)
            }
        }
    }

    /// Removes a subscription, here and from imported streams. Returns whether all was done within the turn's
    /// budget.
    pub(crate) fn end_subscription(&mut self, id: ConnId, sub: SubId) -> bool {
        let Self { outputs, links, routing: Routing { subjects, .. }, turn: Turn { work, .. }, .. } = self;
        let connection = &mut *outputs.connections[id];
        if !subjects.unfollow_some(sub, &mut connection.subscription_memory, work, links) || work.lacks(WALKS)
        {
            return false;
        }
        subjects.unsubscribe(sub, connection, links);
        work.pay(SUBSCRIBE + subjects.trie.take_steps());
        true
    }

    /// Pauses a client that causes more announcements of subscriptions than other cores can accept.
    /// Announcements are bounded in the same way as messages.
    pub(crate) fn pause_if_full(&mut self, id: ConnId) {
        if self.links.has_others() && self.links.is_full_for_words() && self.outputs.wait_for_core(id) {
            self.links.pause_subscriber(id);
        }
    }

    pub(super) fn unsubscribe(&mut self, id: ConnId, sid: &[u8], max: u64) {
        let connection = &mut self.outputs.connections[id];
        let Some(sub) = self.routing.subjects.find(connection, sid) else { return };
        if self.routing.subjects.end_after(sub, max) {
            connection.under_way = Some(Box::new(UnderWay::Ending { sub }));
            self.go_on_under_way(id);
        }
        self.pause_if_full(id);
    }
}
