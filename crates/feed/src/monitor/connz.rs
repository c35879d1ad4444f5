//! `/connz`: the connections, with sorting, filters and pages.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};

use super::query::{Part, Query};
use crate::{
    client::connection::ConnId,
    monitor::{
        look::SubscriptionFilter,
        page::{PageError, PageRequest, head},
        snapshot::{ConnectionSnapshot, SubscriptionSnapshot},
        times::{age, moment},
    },
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Subscriptions {
    No,
    Names,
    Detail,
}

pub(crate) async fn page(asked: &PageRequest, query: &Query<'_>) -> Result<Value, PageError> {
    let part = Part::of(query)?;
    let subscriptions = match query.word("subs") {
        Some("detail") => Subscriptions::Detail,
        _ if query.flag("detail")? => Subscriptions::Detail,
        _ if query.flag("subs")? => Subscriptions::Names,
        _ => Subscriptions::No,
    };
    let auth = query.flag("auth")?;
    let looker = &asked.looker;
    let totals = looker.totals();
    let now = totals.now;
    let mut page = head(&totals);
    let state = query.word("state").unwrap_or("open").to_ascii_lowercase();
    let closed = |connection| (None, connection);
    let open = |(id, connection)| (Some(id), connection);
    let is_closed = matches!(state.as_str(), "closed" | "1");
    // Requests in the system account use numbers for the state (`ConnState`).
    let mut connections: Vec<(Option<ConnId>, ConnectionSnapshot)> = match state.as_str() {
        "open" | "active" | "0" => looker.open().await?.into_iter().map(open).collect(),
        "closed" | "1" => looker.closed().await?.into_iter().map(closed).collect(),
        "any" | "all" | "*" | "2" => {
            let mut all: Vec<_> = looker.open().await?.into_iter().map(open).collect();
            all.extend(looker.closed().await?.into_iter().map(closed));
            all
        }
        other => return Err(format!("Error decoding state for {other}").into()),
    };
    let cid = query.unsigned("cid")?.filter(|cid| *cid > 0);
    connections.retain(|(_, connection)| {
        cid.is_none_or(|cid| connection.cid == cid)
            && query.word("user").is_none_or(|user| connection.user.as_deref() == Some(user))
            && query.word("acc").is_none_or(|account| connection.account == account)
    });
    sort(&mut connections, query.word("sort").unwrap_or("cid"), is_closed)?;
    let total = connections.len();
    let shown: Vec<_> = connections.into_iter().skip(part.offset).take(part.limit).collect();
    let mut listed = match subscriptions {
        Subscriptions::No => HashMap::new(),
        _ => subscriptions_of(asked, &shown).await?,
    };
    let shown: Vec<Value> = shown
        .iter()
        .map(|(_, connection)| {
            let listed = listed.remove(&connection.cid).unwrap_or_default();
            one(connection, now, subscriptions, &listed, auth)
        })
        .collect();
    page["num_connections"] = shown.len().into();
    page["total"] = total.into();
    page["offset"] = part.offset.into();
    page["limit"] = part.limit.into();
    page["connections"] = shown.into();
    Ok(page)
}

/// Maximum number of subscriptions on one page, over all of its connections, because the page is built in
/// memory.
const SUBSCRIPTIONS_MAX: usize = 64 * 1024;

/// Returns the subscriptions of the listed connections, by cid.
async fn subscriptions_of(
    asked: &PageRequest,
    shown: &[(Option<ConnId>, ConnectionSnapshot)],
) -> Result<HashMap<u64, Vec<SubscriptionSnapshot>>, PageError> {
    let mut by_cid: HashMap<u64, Vec<SubscriptionSnapshot>> = HashMap::new();
    let mut left = SUBSCRIPTIONS_MAX;
    for core in 0..asked.looker.loops {
        let on_core = shown.iter().filter(|(_, connection)| connection.core == core);
        let of: HashSet<ConnId> = on_core.filter_map(|(id, _)| *id).collect();
        if of.is_empty() {
            continue;
        }
        let wanted =
            SubscriptionFilter { of: Some(Arc::new(of)), take: left, ..SubscriptionFilter::default() };
        let (_, seen) = asked.looker.subscriptions(std::iter::once(core), wanted).await?;
        left -= seen.len();
        for one in seen {
            by_cid.entry(one.cid).or_default().push(one.subscription);
        }
    }
    Ok(by_cid)
}

fn sort(
    connections: &mut [(Option<ConnId>, ConnectionSnapshot)],
    by: &str,
    closed: bool,
) -> Result<(), String> {
    match by {
        "cid" | "start" => connections.sort_by_key(|(_, connection)| connection.cid),
        "subs" => connections.sort_by_key(|(_, connection)| Reverse(connection.subscriptions)),
        "pending" => connections.sort_by_key(|(_, connection)| Reverse(connection.pending_bytes)),
        "msgs_to" => connections.sort_by_key(|(_, connection)| Reverse(connection.messages_out)),
        "msgs_from" => connections.sort_by_key(|(_, connection)| Reverse(connection.messages_in)),
        "bytes_to" => connections.sort_by_key(|(_, connection)| Reverse(connection.payload_out_bytes)),
        "bytes_from" => connections.sort_by_key(|(_, connection)| Reverse(connection.payload_in_bytes)),
        "last" => connections.sort_by_key(|(_, connection)| Reverse(connection.last_activity)),
        "idle" => connections.sort_by_key(|(_, connection)| connection.last_activity),
        "uptime" => connections.sort_by_key(|(_, connection)| connection.started),
        "rtt" => connections.sort_by_key(|(_, connection)| Reverse(connection.rtt_ms)),
        "stop" | "reason" if !closed => return Err(format!("sort by {by} only valid on closed connections")),
        "stop" => connections.sort_by_key(|(_, connection)| Reverse(connection.closed.map(|(when, _)| when))),
        "reason" => connections.sort_by_key(|(_, connection)| connection.closed.map(|(_, why)| why.reason())),
        other => return Err(format!("invalid sorting option: {other}")),
    }
    Ok(())
}

fn one(
    connection: &ConnectionSnapshot,
    now: std::time::SystemTime,
    subscriptions: Subscriptions,
    listed: &[SubscriptionSnapshot],
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
        "subscriptions": connection.subscriptions,
        // These fields are additions to nats-server's.
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
            let names: Vec<&str> = listed.iter().map(|one| &*one.subject).collect();
            value["subscriptions_list"] = names.into();
        }
        Subscriptions::Detail => {
            let all: Vec<Value> = listed.iter().map(|one| subscription(one, connection.cid)).collect();
            value["subscriptions_list_detail"] = all.into();
        }
    }
    value
}

/// Returns a subscription in detail, as JSON.
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
