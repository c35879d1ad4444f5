//! Settings that all servers share.

use std::net::SocketAddr;

use crate::settings::{
    Section, Setting, ValueAccess, ValueShape, host_name, optional, parse_address, parse_path, path_text,
    truth, truth_text,
    units::{duration_text, parse_duration, parse_size, size_text},
    value,
};

/// Heading of settings that every server shares.
pub(crate) const COMMON: &str = "Common";

/// Minimum memory for clients; with less, a server's share would be too small for a mail or a page.
const CLIENT_MEMORY_MIN: u64 = 16 << 20;

fn parse_client_memory(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < CLIENT_MEMORY_MIN => Err(format!("at least {}", size_text(CLIENT_MEMORY_MIN))),
        bytes => Ok(bytes),
    }
}

/// Settings that all servers share.
pub(super) const COMMON_SETTINGS: &[Setting] = &[
    Setting {
        key: "cores",
        section: Section::Common,
        shape: ValueShape::Counts,
        heading: COMMON,
        value_name: "LIST",
        help: "Processors to run one loop on each, such as 0,1 or 0-3; unset: all that the process may use",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.cores = engine::cores::parse_list(text)
                    .map_err(|error| format!("{error}; expected cores such as 0,1 or 0-3"))?;
                settings.feed.config.cores.clone_from(&settings.cache.cores);
                settings.mail.config.cores.clone_from(&settings.cache.cores);
                Ok(())
            },
            text: |settings| {
                let cores: Vec<_> = settings.cache.cores.iter().map(usize::to_string).collect();
                (!cores.is_empty()).then(|| cores.join(","))
            },
        },
    },
    Setting {
        key: "client-memory",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "SIZE",
        help: "Memory that clients of all servers may hold: connections, unread answers and messages, mails being \
               received. Each kind has a part of its own and shares the rest; when all is used, the client that holds \
               the most is disconnected. Unset: what a store of 256MiB leaves of 512MiB",
        access: optional!(
            client_memory_bytes,
            parse = parse_client_memory,
            show = |bytes: &u64| size_text(*bytes)
        ),
    },
    Setting {
        key: "admin",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "ADDRESS",
        help: "Address of the admin server (/metrics, /healthz, /readyz, /stat), which stat and purge connect to",
        access: value!(
            admin,
            parse = |text| parse_address(text, 9180),
            show = |address: SocketAddr| address.to_string()
        ),
    },
    Setting {
        key: "admin-token-file",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "FILE",
        help: "File with the token of the admin server; unset: it listens on loopback only",
        access: optional!(admin_token_file, parse = parse_path, show = path_text),
    },
    Setting {
        key: "admin-tls",
        section: Section::Common,
        shape: ValueShape::Flag,
        heading: COMMON,
        value_name: "true|false",
        help: "Serves the admin port by https with the accelerator's certificates; stat, purge and others then use https",
        access: value!(admin_tls, parse = truth, show = truth_text),
    },
    Setting {
        key: "admin-name",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "NAME",
        help: "Name in the admin server's certificate, which stat, purge and others check; unset: its address",
        access: optional!(admin_name, parse = host_name, show = Clone::clone),
    },
    Setting {
        key: "admin-ca-file",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "FILE",
        help: "CA certificates with which stat, purge and others check the admin server (PEM); unset: the system's",
        access: optional!(admin_ca_file, parse = parse_path, show = path_text),
    },
    Setting {
        key: "state",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "DIR",
        help: "Directory for state; not used while the store is in memory only",
        access: optional!(cache.state, parse = parse_path, show = path_text),
    },
    Setting {
        key: "log",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "FILTER",
        help: "Log level: error, warn, info, debug, trace, or by part such as info,cache=debug",
        access: ValueAccess {
            set: |settings, text| {
                crate::log::parse_filter(text)?;
                text.clone_into(&mut settings.log);
                Ok(())
            },
            text: |settings| Some(settings.log.clone()),
        },
    },
    Setting {
        key: "log-file",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "FILE",
        help: "Log file in place of stderr; SIGUSR1 reopens it",
        access: optional!(log_file, parse = parse_path, show = path_text),
    },
    Setting {
        key: "pid-file",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "FILE",
        help: "File for the process id, removed at exit",
        access: optional!(pid_file, parse = parse_path, show = path_text),
    },
    Setting {
        key: "drain-time-max",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "TIME",
        help: "Time that a stop waits for responses under way",
        access: value!(drain_time_max, parse = parse_duration, show = duration_text),
    },
];
