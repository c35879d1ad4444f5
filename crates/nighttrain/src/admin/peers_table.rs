//! The peers, which share cache keys with this accelerator, as JSON and as a readable table.

use cache::PeerSeen;
use serde_json::{Value, json};

use crate::admin::{explained::plain, numbers::thousands};

/// Returns the peers as the JSON of `/cluster` or `/stat`.
pub(crate) fn said(peers: &[PeerSeen]) -> Value {
    let peer = |peer: &PeerSeen| {
        json!({
            "name": peer.name,
            "address": peer.address,
            "standing": peer.standing.name(),
            "asks": peer.asks,
            "hits": peer.hits,
            "failures": peer.failures,
        })
    };
    peers.iter().map(peer).collect()
}

/// Formats the JSON of the peers as a table.
pub(crate) fn text(said: &Value) -> String {
    let rows = said.as_array().map(Vec::as_slice).unwrap_or_default();
    let heading = ["standing", "asked", "hits", "failures", "peer"].map(str::to_owned);
    let lines: Vec<[String; 5]> = std::iter::once(heading).chain(rows.iter().map(row)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let [standings, asks, hits, failures] = std::array::from_fn(width);
    let mut text = String::new();
    for [standing, asked, hit, failed, name] in &lines {
        text.push_str(&format!(
            "{standing:<standings$}  {asked:>asks$}  {hit:>hits$}  {failed:>failures$}  {name}\n"
        ));
    }
    text
}

fn row(peer: &Value) -> [String; 5] {
    let number = |name: &str| thousands(peer[name].as_u64().unwrap_or_default());
    let text = |name: &str| plain(peer[name].as_str().unwrap_or_default());
    let name = format!("{} at {}", text("name"), text("address"));
    let name = if peer["standing"] == "own" { format!("{name} (this one)") } else { name };
    [text("standing"), number("asks"), number("hits"), number("failures"), name]
}

#[cfg(test)]
mod tests {
    use cache::PeerStanding;

    use super::*;

    #[test]
    fn a38_a_line_for_each_peer() {
        let peer = |name: &str, standing, asks| PeerSeen {
            name: name.into(),
            address: format!("{name}:6080"),
            standing,
            asks,
            hits: asks / 2,
            failures: 0,
        };
        let peers = [
            peer("a", PeerStanding::Own, 0),
            peer("b", PeerStanding::Up, 2_468),
            peer("c", PeerStanding::Out, 7),
        ];
        assert_eq!(
            text(&said(&peers)),
            "standing  asked   hits  failures  peer\n\
             own           0      0         0  a at a:6080 (this one)\n\
             up        2,468  1,234         0  b at b:6080\n\
             out           7      3         0  c at c:6080\n"
        );
    }
}
