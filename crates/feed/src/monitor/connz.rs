//! `/connz`: the connections, sorted, filtered, in parts.

use std::cmp::Reverse;
use std::time::Duration;

use serde_json::{Value, json};

use super::{
    age, head, moment,
    query::{Part, Query},
};
use crate::snapshot::{ConnectionSnapshot, Snapshot, SubscriptionSnapshot};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Subscriptions {
    No,
    Names,
    Detail,
}

pub(super) fn page(snapshot: Snapshot, query: &str) -> Result<Value, String> {
    let query = Query::new(query);
    let part = Part::of(&query)?;
    let subscriptions = match query.word("subs") {
        Some("detail") => Subscriptions::Detail,
        _ if query.flag("subs")? => Subscriptions::Names,
        _ => Subscriptions::No,
    };
    let auth = query.flag("auth")?;
    let now = snapshot.now;
    let mut page = head(&snapshot);
    let state = query.word("state").unwrap_or("open").to_ascii_lowercase();
    let mut connections = match state.as_str() {
        "open" | "active" => snapshot.connections,
        "closed" => snapshot.closed,
        "any" | "all" | "*" => {
            let mut all = snapshot.connections;
            all.extend(snapshot.closed);
            all
        }
        other => return Err(format!("Error decoding state for {other}")),
    };
    let cid = query.number("cid")?;
    connections.retain(|connection| {
        cid.is_none_or(|cid| connection.cid == cid as u64)
            && query.word("user").is_none_or(|user| connection.user.as_deref() == Some(user))
            && query.word("acc").is_none_or(|account| connection.account == account)
    });
    sort(&mut connections, query.word("sort").unwrap_or("cid"), state == "closed")?;
    let total = connections.len();
    let shown: Vec<Value> = connections
        .iter()
        .skip(part.offset)
        .take(part.limit)
        .map(|connection| one(connection, now, subscriptions, auth))
        .collect();
    page["num_connections"] = shown.len().into();
    page["total"] = total.into();
    page["offset"] = part.offset.into();
    page["limit"] = part.limit.into();
    page["connections"] = shown.into();
    Ok(page)
}

fn sort(connections: &mut [ConnectionSnapshot], by: &str, closed: bool) -> Result<(), String> {
    match by {
        "cid" | "start" => connections.sort_by_key(|connection| connection.cid),
        "subs" => connections.sort_by_key(|connection| Reverse(connection.subscriptions.len())),
        "pending" => connections.sort_by_key(|connection| Reverse(connection.pending_bytes)),
        "msgs_to" => connections.sort_by_key(|connection| Reverse(connection.messages_out)),
        "msgs_from" => connections.sort_by_key(|connection| Reverse(connection.messages_in)),
        "bytes_to" => connections.sort_by_key(|connection| Reverse(connection.payload_out_bytes)),
        "bytes_from" => connections.sort_by_key(|connection| Reverse(connection.payload_in_bytes)),
        "last" => connections.sort_by_key(|connection| Reverse(connection.last_activity)),
        "idle" => connections.sort_by_key(|connection| connection.last_activity),
        "uptime" => connections.sort_by_key(|connection| connection.started),
        "rtt" => connections.sort_by_key(|connection| Reverse(connection.rtt_ms)),
        "stop" | "reason" if !closed => return Err(format!("sort by {by} only valid on closed connections")),
        "stop" => connections.sort_by_key(|connection| Reverse(connection.closed.map(|(when, _)| when))),
        "reason" => connections.sort_by_key(|connection| connection.closed.map(|(_, why)| why.reason())),
        other => return Err(format!("invalid sorting option: {other}")),
    }
    Ok(())
}

fn one(
    connection: &ConnectionSnapshot,
    now: std::time::SystemTime,
    subscriptions: Subscriptions,
    auth: bool,
) -> Value {
    let until = connection.closed.map_or(now, |(when, _)| when);
    let since = |time| until.duration_since(time).unwrap_or_default();
    let mut value = json!({
        "cid": connection.cid,
        "kind": "Client",
        "type": if connection.transport.websocket { "websocket" } else { "nats" },
        "ip": connection.address.ip().to_string(),
        "port": connection.address.port(),
        "start": moment(connection.started),
        "last_activity": moment(connection.last_activity),
        "uptime": age(since(connection.started)),
        "idle": age(since(connection.last_activity)),
        "pending_bytes": connection.pending_bytes,
        "in_msgs": connection.messages_in,
        "out_msgs": connection.messages_out,
        "in_bytes": connection.payload_in_bytes,
        "out_bytes": connection.payload_out_bytes,
        "subscriptions": connection.subscriptions.len(),
        // Ours: nats-server has no such fields.
        "core": connection.core,
        "held": connection.is_held,
    });
    let texts = [("name", &connection.name), ("lang", &connection.lang), ("version", &connection.version)];
    for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        value[key] = text.as_str().into();
    }
    if let Some(rtt_ms) = connection.rtt_ms {
        value["rtt"] = format!("{:?}", Duration::from_millis(rtt_ms.into())).into();
    }
    if let Some((when, why)) = connection.closed {
        value["stop"] = moment(when).into();
        value["reason"] = why.reason().into();
    }
    if let Some((version, suite)) = connection.transport.tls {
        value["tls_version"] = version.into();
        value["tls_cipher_suite"] = suite.into();
    }
    if auth {
        value["account"] = connection.account.as_str().into();
        if let Some(user) = &connection.user {
            value["authorized_user"] = user.as_str().into();
        }
    }
    match subscriptions {
        Subscriptions::No => {}
        Subscriptions::Names => {
            let names: Vec<&str> = connection.subscriptions.iter().map(|one| &*one.subject).collect();
            value["subscriptions_list"] = names.into();
        }
        Subscriptions::Detail => {
            let all: Vec<Value> =
                connection.subscriptions.iter().map(|one| subscription(one, connection.cid)).collect();
            value["subscriptions_list_detail"] = all.into();
        }
    }
    value
}

/// A subscription in detail.
pub(super) fn subscription(one: &SubscriptionSnapshot, cid: u64) -> Value {
    let mut value = json!({"subject": one.subject, "sid": one.sid, "msgs": one.messages, "cid": cid});
    if let Some(queue) = &one.queue {
        value["qgroup"] = queue.as_str().into();
    }
    if one.max > 0 {
        value["max"] = one.max.into();
    }
    value
}
