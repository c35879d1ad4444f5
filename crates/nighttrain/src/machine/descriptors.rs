//! The limit on open files (`RLIMIT_NOFILE`), and the share of it that is available for connections to
//! origins.

use cache::config::{Config, ORIGIN_CONNECTIONS_MAX};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Minimum number of exchanges per origin server and core, even if the limit on open files is low.
const EXCHANGES_MIN: u64 = 256;

/// Raises the limit on open files as far as the process is allowed to, and returns the new limit.
pub(crate) fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // If the system refuses, the lower limit remains in force.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Lowers the default limit on connections to origins, so that half of the file descriptors remain for
/// clients and for the store. Logs a warning when it does.
pub(crate) fn fit(config: &mut Config, files: u64, cores: u64) {
    let asked = config.limits.origin_connections_max;
    let fits = fitting(asked, files, cores);
    if fits < asked {
        config.limits.origin_connections_max = fits;
        tracing::warn!(
            "origin-connections-max lowered to {fits} per server and core, from {asked}: the process may open {files} \
             files (raise LimitNOFILE, or ulimit -n)"
        );
    }
}

fn fitting(asked: usize, files: u64, cores: u64) -> usize {
    // A value set in the configuration is not changed.
    if asked != ORIGIN_CONNECTIONS_MAX {
        return asked;
    }
    let each = (files / 2 / cores.max(1)).max(EXCHANGES_MIN);
    usize::try_from(each).map_or(asked, |each| each.min(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_files_leave_few_exchanges() {
        for (asked, files, cores, want) in [
            (ORIGIN_CONNECTIONS_MAX, 1 << 20, 2, ORIGIN_CONNECTIONS_MAX),
            (ORIGIN_CONNECTIONS_MAX, u64::MAX, 64, ORIGIN_CONNECTIONS_MAX),
            (ORIGIN_CONNECTIONS_MAX, 4096, 2, 1024),
            (ORIGIN_CONNECTIONS_MAX, 1024, 1, 512),
            (ORIGIN_CONNECTIONS_MAX, 256, 8, 256),
            (9000, 1024, 1, 9000),
            (1, 1024, 1, 1),
        ] {
            assert_eq!(fitting(asked, files, cores), want, "{asked} {files} {cores}");
        }
    }
}
