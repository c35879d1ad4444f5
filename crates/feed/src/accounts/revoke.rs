//! Effect of a reload on connected clients: identities and permissions are checked again.
//!
//! ```text
//!   Reload ─▶ each core ─▶ each connection: would its credentials be accepted now?
//!                            ├─ no, or into another account ─▶ closed
//!                            └─ yes ─▶ new permissions; subscriptions that they do not allow end, with an error
//! ```
//! The answers are those of nats-server 2.9.10: a client whose password has changed gets `Authorization
//! Violation`, and the error for a revoked subscription names its sid. *When:* each core checks all of its
//! connections in one turn, so that no message is delivered or published under the old permissions after that
//! turn begins. Each connection is looked up once, and each subscription only if the permissions have
//! changed.

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
    /// Checks a connection's identity against the current configuration. A client whose password check is
    /// still running is checked when that check ends.
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
            // The connection is closed without an error, as in nats-server: the client reconnects and enters
            // the other account.
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
            let pattern = self.routing.subjects.trie.pattern_of(self.routing.subjects.subscription(sub).node);
            let allowed = match &self.outputs.connections[id].permissions {
                Some(permissions) => {
                    permissions.subscribe_verdict(&pattern, self.routing.subjects.queue_of(sub))
                }
                None => SubscribeVerdict::Whole,
            };
            match allowed {
                SubscribeVerdict::Whole => self.routing.subjects.set_filtered(sub, false),
                SubscribeVerdict::Filtered => self.routing.subjects.set_filtered(sub, true),
                SubscribeVerdict::Denied => {
                    self.count(Counter::SubscriptionsRevoked);
                    let sid = &self.routing.subjects.subscription(sub).sid;
                    self.outputs.reject(id, Rejection::SubscriptionRevoked { subject: &pattern, sid });
                    // The budget is unlimited, because only the operator can cause reloads.
                    let work = std::mem::replace(&mut self.turn.work, Work::of(u64::MAX));
                    self.end_subscription(id, sub);
                    self.turn.work = work;
                }
            }
        }
    }
}
