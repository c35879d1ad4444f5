//! `mappings { source: destination, … }`: a destination is a subject, a block with a weight, or a list of
//! these.

use super::{
    text::{Fault, LocatedValue, Value},
    values::{Outcome, block, string, unknown},
};
use crate::accounts::identity::{Mapping, WeightedDestination};

pub(super) fn mappings(value: &LocatedValue) -> Outcome<Vec<Mapping>> {
    let one = |entry: &super::text::Entry| {
        let destinations = match &entry.value.value {
            Value::Text(subject) => vec![Some(WeightedDestination { subject: subject.clone(), weight: 100 })],
            Value::Block(_) => vec![weighted(&entry.value)?],
            Value::List(list) => list.iter().map(weighted).collect::<Outcome<_>>()?,
        };
        Ok(Mapping { source: entry.key.clone(), destinations: destinations.into_iter().flatten().collect() })
    };
    block(value)?.iter().map(one).collect()
}

/// Reads a weighted destination; `None` if it is for servers of a cluster, because the feed is not in a
/// cluster.
fn weighted(value: &LocatedValue) -> Outcome<Option<WeightedDestination>> {
    let (mut subject, mut weight, mut is_ours) = (None, None, true);
    for entry in block(value)? {
        match entry.key.to_ascii_lowercase().as_str() {
            "dest" | "destination" => subject = Some(string(&entry.value)?),
            "weight" => {
                let text = string(&entry.value)?;
                let number =
                    text.strip_suffix('%').unwrap_or(&text).parse().ok().filter(|weight| *weight <= 100);
                weight = Some(number.ok_or_else(|| {
                    Fault::new(entry.line, format!("invalid weight `{text}`; expected 30 or 30%"))
                })?);
            }
            "cluster" => is_ours = false,
            other => unknown(entry, other, "a mapping")?,
        }
    }
    match (subject, weight) {
        (Some(subject), Some(weight)) => Ok(is_ours.then_some(WeightedDestination { subject, weight })),
        _ => Err(Fault::new(value.line, "a destination needs `destination` and `weight`")),
    }
}
