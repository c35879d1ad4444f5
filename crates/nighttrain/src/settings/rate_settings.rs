//! What can be set of how much each client may ask for, and each network.

use crate::settings::{
    Section, Setting, ValueAccess, ValueShape, any_count, cache_settings::LIMITS, one_or_more, plain, value,
};

const fn row(key: &'static str, help: &'static str, access: ValueAccess) -> Setting {
    Setting {
        key,
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: LIMITS,
        value_name: "N",
        help,
        access,
    }
}

/// The settings of rates.
pub(crate) const RATE_SETTINGS: &[Setting] = &[
    row(
        "connections-per-network-max",
        "Connections of one client's network (24 bits of IPv4, 64 of IPv6) over all cores; more are closed; 0: no limit",
        value!(cache.limits.connections_per_network_max, parse = any_count, show = plain),
    ),
    row(
        "client-requests-per-second-max",
        "Requests that one client address may make in a second; more are answered 429; 0: no limit",
        value!(cache.limits.client_requests_per_second_max, parse = any_count, show = plain),
    ),
    row(
        "client-requests-burst",
        "Requests that it may make at once, before that counts",
        value!(cache.limits.client_requests_burst, parse = one_or_more, show = plain),
    ),
    row(
        "network-requests-per-second-max",
        "Requests that all addresses of a client's network may make in a second; more are answered 429; 0: no limit",
        value!(cache.limits.network_requests_per_second_max, parse = any_count, show = plain),
    ),
    row(
        "network-requests-burst",
        "Requests that they may make at once, before that counts",
        value!(cache.limits.network_requests_burst, parse = one_or_more, show = plain),
    ),
];
