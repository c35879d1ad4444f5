//! State of the peers for `stat` and Prometheus, read at the time of the query.

use engine::meter::{Family, Point, Source, Unit, Value};

use super::{PeerSeen, PeerStanding, Peers};

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Peers({})", self.seen().len())
    }
}

impl Source for Peers {
    fn collect(&self, families: &mut Vec<Family>) {
        let others: Vec<PeerSeen> =
            self.seen().into_iter().filter(|peer| peer.standing != PeerStanding::Own).collect();
        if others.is_empty() {
            return;
        }
        let point = |peer: PeerSeen| Point {
            labels: vec![("peer", peer.name)],
            value: Value::Gauge(f64::from(u8::from(peer.standing == PeerStanding::Up))),
        };
        families.push(Family {
            name: "cache_peer_up",
            help: "Whether a peer is in use: 1, or 0 while it has failed and its keys are fetched from the origin.",
            unit: Unit::None,
            points: others.into_iter().map(point).collect(),
        });
    }
}
