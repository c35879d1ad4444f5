//! Taking of snapshots, of a connection and of a subscription, on their core.

use std::time::{Duration, SystemTime};

use crate::{
    accounts::identity::Identities,
    client::connection::Connection,
    monitor::snapshot::{ConnectionSnapshot, SubscriptionSnapshot},
    routing::{subjects::Subjects, trie::SubId},
};

/// Takes the snapshot of a connection, with the number of its subscriptions.
pub(crate) fn of_connection(
    connection: &Connection,
    core: usize,
    identities: &Identities,
) -> ConnectionSnapshot {
    let started = SystemTime::UNIX_EPOCH + Duration::from_millis(connection.started_unix_ms);
    let active_ms = connection.last_in_ms.saturating_sub(connection.started_ms);
    let told = connection.told.as_deref();
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    ConnectionSnapshot {
        cid: connection.cid,
        core,
        transport: connection.transport,
        address: connection.address,
        started,
        last_activity: started + Duration::from_millis(active_ms),
        closed: None,
        rtt_ms: connection.rtt_ms,
        messages_in: connection.messages_in,
        messages_out: connection.messages_out,
        payload_in_bytes: connection.payload_in_bytes,
        payload_out_bytes: connection.payload_out_bytes,
        pending_bytes: connection.outbox.bytes(),
        is_held: connection.is_held(),
        name: text(told.map(|told| &*told.name)),
        lang: text(told.map(|told| &*told.lang)),
        version: text(told.map(|told| &*told.version)),
        account: connection
            .identity
            .as_ref()
            .map_or(String::new(), |identity| identities.account_name(identity.account).to_owned()),
        user: connection.identity.as_ref().and_then(|identity| identity.name.as_deref()).map(str::to_owned),
        subscriptions: connection.sids.len(),
    }
}

/// Takes the snapshot of a subscription.
pub(crate) fn of_subscription(subjects: &Subjects, sub: SubId) -> SubscriptionSnapshot {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let subscription = subjects.subscription(sub);
    SubscriptionSnapshot {
        subject: text(&subjects.trie.pattern_of(subscription.node)),
        queue: subjects.queue_of(sub).map(text),
        sid: text(&subscription.sid),
        messages: subscription.delivered,
        max: subjects.ends_after(sub).unwrap_or(0),
    }
}
