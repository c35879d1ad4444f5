//! State of all origins' servers for `stat` and Prometheus, read at the time of the query.

use std::{collections::BTreeMap, sync::Arc};

use engine::{
    cold_mutex::ColdMutex,
    cores::clock,
    meter::{Family, Point, Source, Unit, Value},
};

use super::health::HealthState;
use crate::site::Sites;

/// Servers of all origins in the active configuration. Locked for a query of the counters and at a reload.
pub(crate) struct Servers(ColdMutex<Arc<Sites>>);

impl Servers {
    pub(crate) fn of(sites: Arc<Sites>) -> Self {
        Self(ColdMutex::new(sites))
    }

    /// Replaces the servers after a reload.
    pub(crate) fn replace_sites(&self, sites: Arc<Sites>) {
        *self.0.lock() = sites;
    }

    fn sites(&self) -> Arc<Sites> {
        Arc::clone(&self.0.lock())
    }
}

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Servers({})", self.sites().members.all.len())
    }
}

impl Source for Servers {
    fn collect(&self, families: &mut Vec<Family>) {
        let now_ms = clock::monotonic_ms();
        // A server that two sites use with different rules counts as up if it is up for both.
        let mut servers: BTreeMap<String, (bool, usize)> = BTreeMap::new();
        for member in &self.sites().members.all {
            let is_up = matches!(member.standing(now_ms), HealthState::Up | HealthState::Warming(_));
            let server = servers.entry(member.server.to_string()).or_insert((true, 0));
            *server = (server.0 && is_up, server.1 + member.busy());
        }
        let family = |name, help, of: fn(&(bool, usize)) -> f64| {
            let points = servers.iter().map(|(server, said)| Point {
                labels: vec![("origin", server.clone())],
                value: Value::Gauge(of(said)),
            });
            Family { name, help, unit: Unit::None, points: points.collect() }
        };
        if servers.is_empty() {
            return;
        }
        families.extend([
            family(
                "cache_origin_up",
                "Whether a server of an origin is in rotation: 1, or 0 while it is ejected.",
                |said| f64::from(u8::from(said.0)),
            ),
            family("cache_origin_exchanges", "Exchanges under way with a server of an origin.", |said| {
                f64::from(u32::try_from(said.1).unwrap_or(u32::MAX))
            }),
        ]);
    }
}
