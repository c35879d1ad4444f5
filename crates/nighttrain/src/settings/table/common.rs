//! Settings that all servers share.

use crate::settings::{
    Group, Section, Setting, ValueAccess, flag, host_name, list_text, optional, optional_path, parse_address,
    plain,
    units::{duration_text, parse_duration, parse_size, size_text},
    value,
};

/// Group of the settings that every server shares.
pub(crate) const COMMON: Group = Group { section: Section::Common, heading: "Common" };

/// Minimum memory for clients; with less, a server's share would be too small for a mail or a page.
const CLIENT_MEMORY_MIN: u64 = 16 << 20;

fn parse_client_memory(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < CLIENT_MEMORY_MIN => Err(format!("at least {}", size_text(CLIENT_MEMORY_MIN))),
        bytes => Ok(bytes),
    }
}

fn log_filter(text: &str) -> Result<String, String> {
    crate::log::parse_filter(text)?;
    Ok(text.to_owned())
}

/// Settings that all servers share.
pub(super) const COMMON_SETTINGS: &[Setting] = &[
    COMMON.counts(
        "cores",
        "LIST",
        "Processors to run one loop on each, such as 0,1 or 0-3; unset: all that the process may use",
        ValueAccess {
            set: |settings, text| {
                settings.cache.cores = engine::cores::parse_list(text)
                    .map_err(|error| format!("{error}; expected cores such as 0,1 or 0-3"))?;
                settings.feed.config.cores.clone_from(&settings.cache.cores);
                settings.mail.config.cores.clone_from(&settings.cache.cores);
                Ok(())
            },
            text: |settings| list_text(&settings.cache.cores),
        },
    ),
    COMMON.text(
        "client-memory",
        "SIZE",
        "Memory that clients of all servers may hold: connections, unread answers and messages, mails being \
         received. Each kind has a part of its own and shares the rest; when all is used, the client that \
         holds the most is disconnected. Unset: what a store of 256MiB leaves of 512MiB",
        optional!(client_memory_bytes, parse = parse_client_memory, show = |bytes: &u64| size_text(*bytes)),
    ),
    COMMON.text(
        "admin",
        "ADDRESS",
        "Address of the admin server (/metrics, /healthz, /readyz, /stat), which stat and purge connect to",
        value!(admin, parse = |text| parse_address(text, 9180), show = plain),
    ),
    COMMON.text(
        "admin-token-file",
        "FILE",
        "File with the token of the admin server; unset: it listens on loopback only",
        optional_path!(admin_token_file),
    ),
    COMMON.flag(
        "admin-tls",
        "Serves the admin port by https with the accelerator's certificates; stat, purge and others then use \
         https",
        flag!(admin_tls),
    ),
    COMMON.text(
        "admin-name",
        "NAME",
        "Name in the admin server's certificate, which stat, purge and others check; unset: its address",
        optional!(admin_name, parse = host_name, show = Clone::clone),
    ),
    COMMON.text(
        "admin-ca-file",
        "FILE",
        "CA certificates with which stat, purge and others check the admin server (PEM); unset: the system's",
        optional_path!(admin_ca_file),
    ),
    COMMON.text(
        "state",
        "DIR",
        "Directory for state; not used while the store is in memory only",
        optional_path!(cache.state),
    ),
    COMMON.text(
        "log",
        "FILTER",
        "Log level: error, warn, info, debug, trace, or by part such as info,cache=debug",
        value!(log, parse = log_filter, show = plain),
    ),
    COMMON.text(
        "log-file",
        "FILE",
        "Log file in place of stderr; SIGUSR1 reopens it",
        optional_path!(log_file),
    ),
    COMMON.text("pid-file", "FILE", "File for the process id, removed at exit", optional_path!(pid_file)),
    COMMON.text(
        "drain-time-max",
        "TIME",
        "Time that a stop waits for responses under way",
        value!(drain_time_max, parse = parse_duration, show = duration_text),
    ),
];
