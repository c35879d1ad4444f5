//! `/leafz`: the joined hubs in nats-server's fields, and the state of each configured hub in additional
//! fields.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    leaf::HubSnapshot,
    monitor::page::{PageError, PageRequest, head},
};

pub(crate) async fn page(asked: &PageRequest) -> Result<Value, PageError> {
    let mut hubs = asked.looker.hubs().await?;
    hubs.sort_by(|one, other| (&one.account, &one.address).cmp(&(&other.account, &other.address)));
    let joined: Vec<Value> = hubs.iter().filter(|hub| hub.is_up).filter_map(leaf).collect();
    let mut page = head(&asked.looker.totals());
    page["leafnodes"] = joined.len().into();
    page["leafs"] = joined.into();
    if !hubs.is_empty() {
        page["hubs"] = hubs.iter().map(hub).collect();
    }
    Ok(page)
}

/// Returns a joined hub as JSON with nats-server's fields; `None` if it is not connected.
fn leaf(hub: &HubSnapshot) -> Option<Value> {
    let connection = hub.connection.as_ref()?;
    let rtt =
        connection.rtt_ms.map_or_else(String::new, |rtt| format!("{:?}", Duration::from_millis(rtt.into())));
    Some(json!({
        "id": connection.cid,
        "name": hub.server_name,
        "is_spoke": true,
        "account": &*hub.account,
        "ip": connection.peer.ip().to_string(),
        "port": connection.peer.port(),
        "rtt": rtt,
        "in_msgs": connection.messages_in,
        "out_msgs": connection.messages_out,
        "in_bytes": connection.payload_in_bytes,
        "out_bytes": connection.payload_out_bytes,
        "pending_bytes": connection.pending_bytes,
        "subscriptions": hub.wants,
        "remote_account": hub.remote_account,
        "tls": connection.transport.tls.is_some(),
        "websocket": connection.transport.websocket,
    }))
}

/// Returns a configured hub with its state, as JSON.
fn hub(hub: &HubSnapshot) -> Value {
    json!({
        "account": &*hub.account,
        "address": hub.address,
        "is_joined": hub.is_up,
        "why_not": hub.trouble,
        "attempts": hub.attempts,
        "connections": hub.connections,
        "learnt_addresses": hub.learnt,
        "server_name": hub.server_name,
        "server_id": hub.server_id,
        "version": hub.version,
        "cluster": hub.cluster,
    })
}
