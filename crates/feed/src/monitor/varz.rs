//! `/varz`: the server as a whole.

use std::{collections::BTreeMap, fs, time::Duration};

use serde_json::{Value, json};

use crate::{
    Counter,
    accounts::identity::SYSTEM_ACCOUNT,
    mesh::shared::PROTOCOL_VERSION,
    monitor::{
        page::{PageRequest, head},
        times::{age, moment},
    },
};

/// Builds the page from counters alone, so that its cost does not depend on the number of clients.
pub(crate) fn page(asked: &PageRequest, requests: &BTreeMap<&'static str, u64>) -> Value {
    let snapshot = asked.looker.totals();
    let config = &asked.looker.settings.config;
    // The address is empty if only the system account serves the pages.
    let listen =
        asked.looker.shared.monitor.get().map_or((String::new(), 0), |at| (at.ip().to_string(), at.port()));
    let uptime = snapshot.now.duration_since(snapshot.started).unwrap_or_default();
    let process = Process::read();
    let limits = &config.limits;
    let slow: u64 = snapshot.slow_consumers.iter().sum();
    let configured = json!({
        "server_name": snapshot.server_name,
        "version": PROTOCOL_VERSION,
        "proto": 1,
        "go": concat!("nighttrain ", env!("CARGO_PKG_VERSION")),
        "host": snapshot.address.ip().to_string(),
        "port": snapshot.address.port(),
        "auth_required": !config.authorization.is_open(),
        "tls_required": config.tls.is_some(),
        "tls_verify": config.tls.as_ref().is_some_and(|tls| tls.verify),
        "max_connections": limits.max_connections,
        "max_subscriptions": limits.max_subscriptions,
        "ping_interval": nanoseconds(limits.ping_interval),
        "ping_max": limits.ping_max,
        "http_host": listen.0,
        "http_port": listen.1,
        "http_base_path": "",
        "https_port": 0,
        "auth_timeout": limits.auth_timeout.as_secs_f64(),
        "max_control_line": limits.max_control_line,
        "max_payload": limits.max_payload,
        "max_pending": limits.max_pending,
        "cluster": {},
        "gateway": {},
        "leaf": {},
        "mqtt": {},
        "websocket": config.websocket.as_ref().map_or_else(|| json!({}), |websocket| json!({
            "host": websocket.listen.ip().to_string(),
            "port": websocket.listen.port(),
            "no_tls": websocket.tls.is_none(),
        })),
        "jetstream": {},
        "tls_timeout": limits.auth_timeout.as_secs_f64(),
        "write_deadline": nanoseconds(limits.write_deadline),
        "system_account": config.authorization.system_account.as_deref().unwrap_or(SYSTEM_ACCOUNT),
    });
    let counted = json!({
        "start": moment(snapshot.started),
        "uptime": age(uptime),
        "mem": process.resident_bytes,
        "cores": snapshot.cores,
        "gomaxprocs": snapshot.cores,
        "cpu": process.cpu_percent(uptime),
        "connections": snapshot.connections,
        "total_connections": snapshot.total_connections,
        "routes": 0,
        "remotes": 0,
        "leafnodes": asked.looker.shared.counters.total(Counter::LeafConnected),
        "in_msgs": snapshot.messages_in,
        "out_msgs": snapshot.messages_out,
        "in_bytes": snapshot.payload_in_bytes,
        "out_bytes": snapshot.payload_out_bytes,
        "slow_consumers": slow,
        "slow_consumer_stats": {"clients": slow, "routes": 0, "gateways": 0, "leafs": 0},
        "stalled_clients": snapshot.held,
        "subscriptions": snapshot.subscriptions,
        "http_req_stats": requests,
        "tags": snapshot.server_tags,
        "config_load_time": moment(snapshot.started),
    });
    let mut page = head(&snapshot);
    for more in [configured, counted] {
        if let (Value::Object(page), Value::Object(more)) = (&mut page, more) {
            page.extend(more);
        }
    }
    page
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Resources that the process uses, read from `/proc`; all zero if it is not available.
#[derive(Default)]
pub(crate) struct Process {
    pub(crate) resident_bytes: u64,
    cpu: Duration,
}

impl Process {
    pub(crate) fn read() -> Self {
        let words = |path: &str| -> Vec<String> {
            let text = fs::read_to_string(path).unwrap_or_default();
            // The process name in parentheses may contain spaces, so the fields are counted from its end
            // (proc(5)).
            let rest = text.rsplit_once(") ").map_or(&*text, |(_, rest)| rest);
            rest.split_whitespace().map(str::to_owned).collect()
        };
        let number =
            |words: &[String], at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
        let resident_pages: u64 = number(&words("/proc/self/statm"), 1);
        let stat = words("/proc/self/stat");
        // utime and stime are fields 14 and 15; the first field after the parenthesis is number 3.
        let ticks: u64 = number(&stat, 11) + number(&stat, 12);
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Self {
            resident_bytes: resident_pages * rustix::param::page_size() as u64,
            cpu: Duration::from_millis(ticks * 1000 / per_second),
        }
    }

    /// Returns the average CPU usage since the server's start, in percent of one processor.
    pub(crate) fn cpu_percent(&self, uptime: Duration) -> f64 {
        if uptime.is_zero() {
            0.0
        } else {
            (self.cpu.as_secs_f64() / uptime.as_secs_f64() * 1000.0).round() / 10.0
        }
    }
}
