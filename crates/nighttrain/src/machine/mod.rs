//! The machine's memory and file descriptors, compared with the needs of the servers.
//!
//! ```text
//!  settings ──▶ rows: memory of stores, memory that clients can take ──────▶ a sum ──┬─ refused: stores alone exceed the limit
//!  cgroup, memory-limit, the machine's memory ───────────────────────────────────────┴─ warned: with clients it exceeds the limit
//!  soft limit of descriptors, raised to the hard one ──▶ connections, less a quarter for origins, files and the admin port
//! ```
//! A process that needs more memory than its container allows is killed days after its start, when its stores
//! have filled. The server therefore reports this at startup, with a limit that would suffice.

pub(crate) mod descriptors;
pub(crate) mod residency;
pub(crate) mod store_check;

use std::{fmt::Write as _, sync::Arc};

use crate::{
    failure::{Failure, fault},
    settings::{Settings, units::size_text},
};
use cache::memory_limit;
use engine::share::ClientBudget;
use mail::config::Store;

const MIB: u64 = 1 << 20;
/// Memory of the program itself, its stacks and buffers.
const OWN_BYTES: u64 = 20 * MIB;
/// Memory of the mail index for a store of the default size.
const MAIL_INDEX_BYTES: u64 = 48 * MIB;
/// Memory of rendered mail pages and of previews (`mail::web::rendered`, `gists`).
const MAIL_PAGES_BYTES: u64 = 24 * MIB;
/// Memory of the segments of mail's search index that are being filled (`mail::web::index`).
const MAIL_SEARCH_BYTES: u64 = 34 * MIB;
/// Memory of messages between two of the feed's loops (`feed::links_bytes_max`).
const FEED_LINKS_BYTES: u64 = 16 * MIB;
/// Maximum memory of a process with all servers, by default and with two loops.
const SUM_BYTES: u64 = 512 * MIB;
/// Size of the accelerator's store that [`SUM_BYTES`] assumes.
const STORE_BYTES: u64 = 256 * MIB;
/// Sixteenths of the client memory, each reserved for one purpose: answers that are passed through, HTTP/2
/// data that origins have sent and that no client has read yet, and requests that wait for a reply from
/// another account.
const PASSING_SIXTEENTHS: usize = 2;
const ORIGIN_STREAMS_SIXTEENTHS: usize = 4;
const WAITING_REQUESTS_SIXTEENTHS: usize = 1;
/// Minimum number of HTTP/2 windows that a core has for origins.
const ORIGIN_STREAMS_MIN: usize = 16;
/// Divisor for the reserved descriptors: a quarter is reserved for origins, files, pages and the admin port.
const KEPT_ONE_IN: u64 = 4;

/// Servers that a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerSet {
    pub cache: bool,
    pub feed: bool,
    pub mail: bool,
}

impl ServerSet {
    pub(crate) const ALL: Self = Self { cache: true, feed: true, mail: true };
    pub(crate) const CACHE: Self = Self { feed: false, mail: false, ..Self::ALL };
    pub(crate) const FEED: Self = Self { cache: false, mail: false, ..Self::ALL };
    pub(crate) const MAIL: Self = Self { cache: false, feed: false, ..Self::ALL };
}

/// Memory that one component of the servers needs.
struct MemoryRow {
    bytes: u64,
    what: &'static str,
    /// True if the memory fills up in normal operation; false if only clients can fill it.
    is_filled: bool,
}

/// Memory that the servers need, by part.
pub(crate) struct MemorySum(Vec<MemoryRow>);

impl MemorySum {
    pub(crate) fn of(settings: &Settings, servers: ServerSet) -> Self {
        let mut rows = vec![MemoryRow { bytes: OWN_BYTES, what: "the program itself", is_filled: true }];
        let mut add = |bytes: u64, what, is_filled| rows.push(MemoryRow { bytes, what, is_filled });
        if servers.cache {
            add(settings.cache.memory_bytes, "stored objects ([cache] memory)", true);
        }
        if servers.mail {
            if settings.mail.store == Some(Store::Anonymous) {
                add(settings.mail.config.store_bytes, "mails ([mail] store-size, in memory)", true);
            }
            add(
                settings.mail.config.index_bytes(),
                "the index of mails and inboxes ([mail] index-memory)",
                false,
            );
            add(MAIL_PAGES_BYTES, "pages and lists of mail", false);
            if settings.mail.search_index {
                add(MAIL_SEARCH_BYTES, "the search index while it is written", false);
            }
        }
        if servers.feed {
            let loops = usize::try_from(cores(&settings.feed.config.cores)).unwrap_or(usize::MAX);
            add(feed::links_bytes_max(loops) as u64, "messages between the feed's loops", false);
        }
        add(client_bytes(settings, servers), CLIENTS, false);
        Self(rows)
    }

    fn bytes(&self, is_counted: impl Fn(&MemoryRow) -> bool) -> u64 {
        self.0.iter().filter(|row| is_counted(row)).fold(0, |sum, row| sum.saturating_add(row.bytes))
    }

    /// Returns the memory of the stores and of the program.
    fn filled_bytes(&self) -> u64 {
        self.bytes(|row| row.is_filled)
    }

    /// Returns the maximum memory, including everything that clients can make the servers hold.
    fn most_bytes(&self) -> u64 {
        self.bytes(|_| true)
    }

    /// Returns the sum and its parts as lines.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("memory at most: {}\n", rounded(self.most_bytes()));
        for row in &self.0 {
            _ = writeln!(text, "  {:>9}  {}", rounded(row.bytes), row.what);
        }
        text
    }

    /// Compares the sum with the process's limit. Returns a warning if clients could make the process need
    /// more.
    ///
    /// # Errors
    /// Returns a sentence if the stores alone need more than the limit.
    pub(crate) fn within(&self, limit_bytes: u64) -> Result<Option<String>, String> {
        let (filled_bytes, most_bytes) = (self.filled_bytes(), self.most_bytes());
        let (limit, filled, most) = (rounded(limit_bytes), rounded(filled_bytes), rounded(most_bytes));
        if filled_bytes > limit_bytes {
            let parts: Vec<String> = self
                .0
                .iter()
                .filter(|row| row.is_filled)
                .map(|row| format!("{} for {}", rounded(row.bytes), row.what))
                .collect();
            return Err(format!(
                "not enough memory: the process may use {limit}, and needs {filled} when its stores are full: {}; \
                 raise the limit to at least {filled}, or lower the stores' sizes",
                parts.join(", ")
            ));
        }
        Ok((most_bytes > limit_bytes).then(|| {
            format!(
                "the process may use {limit} of memory; stores take {filled}, and with all that clients may hold it \
                 would need {most}: `nighttrain check` shows the parts"
            )
        }))
    }
}

/// Label of the clients' memory in the sum.
const CLIENTS: &str = "memory that clients may hold: connections, unread answers and messages, mails being received (client-memory)";

/// Returns the memory that clients can make the servers hold.
fn client_bytes(settings: &Settings, servers: ServerSet) -> u64 {
    let of_mail = if servers.mail { MAIL_INDEX_BYTES + MAIL_PAGES_BYTES + MAIL_SEARCH_BYTES } else { 0 };
    let of_feed = if servers.feed { FEED_LINKS_BYTES } else { 0 };
    settings.client_memory_bytes.unwrap_or(SUM_BYTES - STORE_BYTES - OWN_BYTES - of_mail - of_feed)
}

/// Gives the servers a common memory budget for their clients.
pub(crate) fn share_client_memory(settings: &mut Settings, servers: ServerSet) {
    let bytes = usize::try_from(client_bytes(settings, servers)).unwrap_or(usize::MAX);
    let sixteenth = bytes / 16;
    let of_cache = PASSING_SIXTEENTHS + ORIGIN_STREAMS_SIXTEENTHS;
    let parts = [
        (servers.cache, cache::config::BUDGET_KINDS, of_cache),
        (servers.feed, feed::config::BUDGET_KINDS, WAITING_REQUESTS_SIXTEENTHS),
        (servers.mail, mail::config::BUDGET_KINDS, 0),
    ];
    let running = parts.iter().filter(|(runs, ..)| *runs);
    let (kinds, fixed) = running.fold((0, 0), |(kinds, fixed), (_, of, more)| (kinds + of, fixed + more));
    let budget = ClientBudget::new(bytes - fixed * sixteenth, kinds);
    let cache_cores = usize::try_from(cores(&settings.cache.cores)).unwrap_or(1).max(1);
    let cache = &mut settings.cache;
    cache.client_budget = Some(Arc::clone(&budget));
    cache.passing_bytes_max = cache.limits.client_bytes_max.min(PASSING_SIXTEENTHS * sixteenth);
    let streams_bytes = (ORIGIN_STREAMS_SIXTEENTHS * sixteenth / cache_cores)
        .max(ORIGIN_STREAMS_MIN * cache.limits.origin_stream_bytes_max);
    cache.limits.origin_streams_bytes_max = cache.limits.origin_streams_bytes_max.min(streams_bytes);
    let feed = &mut settings.feed.config;
    feed.client_budget = Some(Arc::clone(&budget));
    feed.waiting_requests_bytes_max =
        feed.waiting_requests_bytes_max.min(WAITING_REQUESTS_SIXTEENTHS * sixteenth);
    settings.mail.config.client_budget = Some(budget);
}

/// Checks that there is memory for all servers. Returns a warning if it may not suffice.
///
/// # Errors
/// Returns `Failure::Configuration` if the stores alone need more memory than is available.
pub(crate) fn check_memory(settings: &Settings, servers: ServerSet) -> Result<Option<String>, Failure> {
    // A file-backed store needs additional memory in proportion to its size. An accelerator that runs alone
    // makes this check itself.
    if settings.cache.store.is_some() && servers.cache && !servers.feed && !servers.mail {
        return Ok(None);
    }
    let said = settings.cache.memory_limit_bytes.filter(|_| servers.cache);
    let Some(limit_bytes) = said.or_else(memory_limit) else { return Ok(None) };
    MemorySum::of(settings, servers).within(limit_bytes).map_err(|message| fault("memory", message))
}

/// Raises the limit on open files, and lowers the servers' connection limits so that descriptors remain for
/// the rest. Returns a warning if the limits are lower than configured.
pub(crate) fn fit_descriptors(settings: &mut Settings, servers: ServerSet) -> Option<String> {
    fit_connections(settings, servers, descriptors::raise())
}

fn fit_connections(settings: &mut Settings, servers: ServerSet, limit: u64) -> Option<String> {
    let cores_of = [cores(&settings.cache.cores), 1, cores(&settings.mail.config.cores)];
    let runs = [servers.cache, servers.feed, servers.mail];
    let mut most = [
        &mut settings.cache.limits.connections_max,
        &mut settings.feed.config.limits.max_connections,
        &mut settings.mail.config.limits.connections_max,
    ];
    let there_are = limit - limit / KEPT_ONE_IN;
    // "No limit" (`max_connections: -1` in a nats.conf) becomes the number of available descriptors, so that
    // it does not shrink the other servers' shares.
    for most in most.iter_mut().filter(|most| ***most == usize::MAX) {
        **most = usize::try_from(there_are).unwrap_or(usize::MAX);
    }
    let parts = runs.iter().zip(cores_of).map(|(runs, cores)| if *runs { cores } else { 0 });
    let wanted: u64 = most
        .iter()
        .zip(parts)
        .fold(0, |sum, (most, cores)| sum.saturating_add((**most as u64).saturating_mul(cores)));
    if wanted <= there_are {
        return None;
    }
    for (most, _) in most.iter_mut().zip(runs).filter(|(_, runs)| *runs) {
        let share = u128::from(**most as u64) * u128::from(there_are) / u128::from(wanted);
        **most = usize::try_from(share).unwrap_or(usize::MAX).max(1);
    }
    let would_do = wanted.saturating_add(wanted / (KEPT_ONE_IN - 1)).saturating_add(1);
    Some(format!(
        "the process may open {limit} files: its servers accept {there_are} connections instead of the configured \
         {wanted}, and the rest is for origins, files and the admin port; for all of them raise the limit \
         (LimitNOFILE, ulimit -n) to {would_do}"
    ))
}

/// Returns the number of loops of a server from its setting `cores`; an empty list means every core that the
/// process may use.
pub(crate) fn cores(said: &[usize]) -> u64 {
    match said.len() {
        0 => engine::cores::available().map_or(1, |cores| cores.len() as u64),
        cores => cores as u64,
    }
}

/// Formats a size for messages, rounded up to the MiB.
fn rounded(bytes: u64) -> String {
    if bytes < MIB { size_text(bytes) } else { size_text(bytes.div_ceil(MIB).saturating_mul(MIB)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let mut settings = Settings::default();
        settings.cache.cores = vec![0, 1];
        settings.feed.config.cores = vec![0, 1];
        settings.mail.config.cores = vec![0, 1];
        settings
    }

    #[test]
    fn all_servers_stay_within_half_a_gibibyte() {
        for servers in [ServerSet::ALL, ServerSet::CACHE, ServerSet::FEED] {
            let sum = MemorySum::of(&settings(), servers);
            assert!(sum.most_bytes() <= SUM_BYTES, "{}", sum.text());
        }
    }

    #[test]
    fn stores_beyond_the_limit_are_refused() {
        let sum = MemorySum::of(&settings(), ServerSet::CACHE);
        let refused = sum.within(128 * MIB).expect_err("256 MiB in 128");
        assert!(
            refused.contains("128MiB") && refused.contains("raise the limit to at least 276MiB"),
            "{refused}"
        );
        let warned = sum.within(276 * MIB).expect("the stores fit").expect("clients may not");
        assert!(warned.contains("stores take 276MiB"), "{warned}");
        assert_eq!(sum.within(sum.most_bytes()), Ok(None));
        assert!(sum.within(sum.most_bytes() - 1).is_ok_and(|warning| warning.is_some()));
    }

    #[test]
    fn a_process_needs_what_its_servers_need() {
        let mut settings = settings();
        settings.mail.store = Some(Store::Anonymous);
        let filled = |servers| MemorySum::of(&settings, servers).filled_bytes() / MIB;
        assert_eq!(filled(ServerSet::CACHE), 276);
        assert_eq!(filled(ServerSet::FEED), 20);
        assert_eq!(filled(ServerSet::MAIL), 1044);
        assert_eq!(filled(ServerSet::ALL), 1300);
        let most = |servers| MemorySum::of(&settings, servers).most_bytes();
        let alone = [ServerSet::CACHE, ServerSet::FEED, ServerSet::MAIL].map(most);
        let clients = |servers| client_bytes(&settings, servers);
        let of_clients = [ServerSet::CACHE, ServerSet::FEED, ServerSet::MAIL].map(clients);
        assert_eq!(
            most(ServerSet::ALL) - clients(ServerSet::ALL),
            alone.iter().sum::<u64>() - of_clients.iter().sum::<u64>() - 2 * OWN_BYTES
        );
    }

    #[test]
    fn few_descriptors_are_shared_by_size() {
        let mut few = settings();
        let wanted = (2 * 10_000 + 65_536 + 2 * 20_000) as u64;
        let said = fit_connections(&mut few, ServerSet::ALL, 20_000).expect("too few");
        let most = |settings: &Settings| {
            let mail = settings.mail.config.limits.connections_max;
            2 * settings.cache.limits.connections_max + settings.feed.config.limits.max_connections + 2 * mail
        };
        assert!((14_990..=15_000).contains(&most(&few)), "{}", most(&few));
        let would_do: u64 = said.rsplit(' ').next().and_then(|last| last.parse().ok()).expect("a number");
        let mut enough = settings();
        assert_eq!(fit_connections(&mut enough, ServerSet::ALL, would_do), None);
        assert_eq!(most(&enough) as u64, wanted);
        let mut unlimited = settings();
        unlimited.feed.config.limits.max_connections = usize::MAX;
        assert!(fit_connections(&mut unlimited, ServerSet::ALL, 20_000).is_some());
        assert!(unlimited.cache.limits.connections_max > 1000, "no limit for one server starves no other");
        // Servers that do not run are neither counted nor changed.
        let mut alone = settings();
        assert_eq!(fit_connections(&mut alone, ServerSet::CACHE, 30_000), None);
        assert!(fit_connections(&mut alone, ServerSet::CACHE, 1024).is_some());
        assert_eq!(alone.cache.limits.connections_max, 384);
        assert_eq!(alone.feed.config.limits.max_connections, 65_536);
    }
}
