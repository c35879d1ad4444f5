//! What a reload takes away from those who are connected.
//!
//! ```text
//!   Reload ─▶ each core ─▶ each connection: who let it in, and would it be let in now?
//!                            ├─ no, or into another account ─▶ closed
//!                            └─ yes ─▶ the permissions of now; subscriptions that they do not allow end, with a word
//! ```
//! As nats-server does (2.9.10, by its answers): a user with another password is told `Authorization Violation`, a
//! subscription that is taken away is named with its sid. *When:* in one turn a core, so that nothing is delivered or
//! published by what was allowed before once a core has begun. It costs a look a connection, and one a subscription only
//! where the permissions are others.

use std::rc::Rc;

use wire::nats::rejection::Rejection;

use crate::{
    accounts::identity::{Identity, Replies, SubscribeVerdict},
    client::connection::{CloseReason, ConnId},
    counters::Counter,
    delivery::work::Work,
    mesh::core::Core,
    routing::trie::SubId,
};

impl Core {
    /// Holds a connection against the identities of now. Who is still being checked is held against them afterwards.
    pub(crate) fn judge_again(&mut self, id: ConnId) {
        let connection = &mut *self.outputs.connections[id];
        let Some(before) = connection.identity.as_deref() else { return };
        if connection.closing.is_some() {
            return;
        }
        let limits = self.settings.identities.limits(before.account);
        connection.take_limits(limits);
        let connection = &self.outputs.connections[id];
        let Some(before) = connection.identity.as_deref() else { return };
        match self.settings.identities.again(before) {
            None => {
                tracing::info!(cid = connection.cid, address = %connection.address, "client disconnected: no longer authorized");
                self.count(Counter::Revoked);
                self.outputs.reject(id, Rejection::AuthorizationViolation);
            }
            // As in nats-server without a word of error: it comes again and is let into the other one.
            Some(now) if now.account != before.account => {
                self.count(Counter::Revoked);
                self.outputs.close(id, CloseReason::ClientClosed);
            }
            Some(now) if now.permissions == before.permissions => {
                self.outputs.connections[id].identity = Some(Box::new(now));
            }
            Some(now) => self.change_permissions(id, now),
        }
    }

    fn change_permissions(&mut self, id: ConnId, now: Identity) {
        let replies_bytes = Rc::clone(&self.outputs.replies_bytes);
        let connection = &mut *self.outputs.connections[id];
        let responses = now.permissions.as_ref().and_then(|permissions| permissions.responses);
        let before = connection.permissions.as_ref().and_then(|permissions| permissions.responses);
        if responses != before {
            connection.replies =
                responses.map(|responses| Box::new(Replies::counted(responses, Rc::clone(&replies_bytes))));
        }
        connection.permissions.clone_from(&now.permissions);
        connection.identity = Some(Box::new(now));
        let subs: Vec<SubId> = connection.sids.iter().copied().collect();
        for sub in subs {
            let pattern = self.subjects.trie.pattern_of(self.subjects.subscription(sub).node);
            let allowed = match &self.outputs.connections[id].permissions {
                Some(permissions) => permissions.may_subscribe(&pattern, self.subjects.queue_of(sub)),
                None => SubscribeVerdict::Whole,
            };
            match allowed {
                SubscribeVerdict::Whole => self.subjects.set_filtered(sub, false),
                SubscribeVerdict::Filtered => self.subjects.set_filtered(sub, true),
                SubscribeVerdict::Denied => {
                    self.count(Counter::SubscriptionsRevoked);
                    let sid = &self.subjects.subscription(sub).sid;
                    self.outputs.reject(id, Rejection::SubscriptionRevoked { subject: &pattern, sid });
                    // All at once: a reload is the operator's.
                    let work = std::mem::replace(&mut self.work, Work::of(u64::MAX));
                    self.end_subscription(id, sub);
                    self.work = work;
                }
            }
        }
    }
}
