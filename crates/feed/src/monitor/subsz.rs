//! `/subsz`: the subscriptions of all connections.

use serde_json::{Value, json};
use wire::nats::subject;

use super::{
    connz::subscription,
    query::{Part, Query},
};
use crate::monitor::{
    look::{SubscriptionFilter, Tables},
    page::{PageError, PageRequest, head},
};

pub(crate) async fn page(asked: &PageRequest, query: &Query<'_>) -> Result<Value, PageError> {
    let part = Part::of(query)?;
    let listed = query.flag("subs")?;
    let test = query.word("test");
    let bytes_max = asked.looker.settings.config.limits.max_control_line;
    if test.is_some_and(|test| test.len() > bytes_max) {
        return Err(format!("Invalid test subject, must have at most {bytes_max} bytes").into());
    }
    if let Some(test) = test
        && !subject::is_valid_literal(test.as_bytes())
    {
        return Err(format!("Invalid test subject, must be a literal subject: {test}").into());
    }
    let totals = asked.looker.totals();
    let Tables { trie_nodes, matches_found, matches_made } = asked.looker.tables().await?;
    let looked_up = matches_found + matches_made;
    let mut page = head(&totals);
    page["num_subscriptions"] = totals.subscriptions.into();
    page["num_cache"] = trie_nodes.into();
    page["num_matches"] = looked_up.into();
    page["cache_hit_rate"] =
        json!(if looked_up == 0 { 0.0 } else { matches_found as f64 / looked_up as f64 });
    page["offset"] = part.offset.into();
    page["limit"] = part.limit.into();
    page["total"] = 0.into();
    if listed || test.is_some() {
        let wanted = SubscriptionFilter {
            of: None,
            account: query.word("acc").map(Into::into),
            test: test.map(|test| test.as_bytes().into()),
            skip: part.offset,
            take: part.limit,
        };
        let (total, seen) = asked.looker.subscriptions(0..asked.looker.loops, wanted).await?;
        page["total"] = total.into();
        let shown: Vec<Value> = seen
            .into_iter()
            .map(|one| {
                let mut value = subscription(&one.subscription, one.cid);
                value["account"] = one.account.into();
                value
            })
            .collect();
        page["subscriptions_list"] = shown.into();
    }
    Ok(page)
}
