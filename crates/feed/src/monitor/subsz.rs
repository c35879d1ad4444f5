//! `/subsz`: the subscriptions of all connections.

use serde_json::{Value, json};
use wire::nats::subject;

use super::{
    connz::subscription,
    head,
    query::{Part, Query},
};
use crate::snapshot::Snapshot;

pub(super) fn page(snapshot: &Snapshot, query: &str) -> Result<Value, String> {
    let query = Query::new(query);
    let part = Part::of(&query)?;
    let listed = query.flag("subs")?;
    let test = query.word("test");
    if let Some(test) = test
        && !subject::is_valid_literal(test.as_bytes())
    {
        return Err(format!("Invalid test subject, must be a literal subject: {test}"));
    }
    let looked_up = snapshot.matches_found + snapshot.matches_made;
    let mut page = head(snapshot);
    page["num_subscriptions"] = snapshot.subscriptions.into();
    page["num_cache"] = snapshot.trie_nodes.into();
    page["num_matches"] = looked_up.into();
    page["cache_hit_rate"] =
        json!(if looked_up == 0 { 0.0 } else { snapshot.matches_found as f64 / looked_up as f64 });
    page["offset"] = part.offset.into();
    page["limit"] = part.limit.into();
    page["total"] = 0.into();
    if listed || test.is_some() {
        let all = snapshot.connections.iter().flat_map(|connection| {
            connection.subscriptions.iter().map(move |subscription| (connection, subscription))
        });
        let wanted: Vec<_> = all
            .filter(|(connection, _)| query.word("acc").is_none_or(|account| connection.account == account))
            .filter(|(_, one)| {
                test.is_none_or(|test| subject::matches(one.subject.as_bytes(), test.as_bytes()))
            })
            .collect();
        page["total"] = wanted.len().into();
        let shown: Vec<Value> = wanted
            .into_iter()
            .skip(part.offset)
            .take(part.limit)
            .map(|(connection, one)| {
                let mut value = subscription(one, connection.cid);
                value["account"] = connection.account.as_str().into();
                value
            })
            .collect();
        page["subscriptions_list"] = shown.into();
    }
    Ok(page)
}
