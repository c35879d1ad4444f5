//! Settings of the request rates of each client, and of each network.

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

/// Settings table of rates.
pub(crate) const RATE_SETTINGS: &[Setting] = &[
    row(
        "connections-per-network-max",
        "Connections per client network (24 bits of IPv4, 64 of IPv6) over all cores; further ones are closed; 0: no \
         limit",
        value!(cache.limits.connections_per_network_max, parse = any_count, show = plain),
    ),
    row(
        "client-requests-per-second-max",
        "Requests per second and client address; further ones are answered 429; 0: no limit",
        value!(cache.limits.client_requests_per_second_max, parse = any_count, show = plain),
    ),
    row(
        "client-requests-burst",
        "Burst of requests per client address before the rate applies",
        value!(cache.limits.client_requests_burst, parse = one_or_more, show = plain),
    ),
    row(
        "network-requests-per-second-max",
        "Requests per second and client network; further ones are answered 429; 0: no limit",
        value!(cache.limits.network_requests_per_second_max, parse = any_count, show = plain),
    ),
    row(
        "network-requests-burst",
        "Burst of requests per client network before the rate applies",
        value!(cache.limits.network_requests_burst, parse = one_or_more, show = plain),
    ),
];
