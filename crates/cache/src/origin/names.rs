//! Name lookup: in the hosts file and in DNS, according to the system's configuration, with the answer's time
//! to live.
//!
//! The system's own lookup (`getaddrinfo`) returns no time to live, and blocks a thread until its servers
//! answer. So `hickory-resolver` is used, configured by `/etc/resolv.conf`; both files are read again when
//! they change. A name that DNS does not have may be known to the system in another way (`nsswitch.conf`: a
//! directory, multicast on the local network). The system is asked then, unless DNS servers are configured
//! for us.

use std::{
    cell::RefCell,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket},
    path::Path,
    time::{Duration, SystemTime},
};

use engine::cores::clock;

use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig},
    net::{NetError, runtime::TokioRuntimeProvider},
};

use super::resolve::ADDRESSES_MAX;

/// Longest time for which a negative answer is used.
const NONE_FOR_MAX: Duration = Duration::from_secs(1);
/// Time limit for a query to a DNS server that is configured for us; the server is asked twice.
const SERVER_TIME_MAX: Duration = Duration::from_secs(2);
/// Lifetime of the system's own answer, which has no time to live.
const SYSTEM_FRESH_FOR: Duration = Duration::from_secs(30);

/// Configuration files of the lookup.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Addresses found: at least one, at most [`ADDRESSES_MAX`].
    pub(super) addresses: Vec<IpAddr>,
    /// Number of addresses that were dropped because there are more than [`ADDRESSES_MAX`].
    pub(super) dropped: usize,
    pub(super) fresh_for: Duration,
}

impl Answer {
    fn of(found: impl IntoIterator<Item = IpAddr>, fresh_for: Duration) -> Result<Self, String> {
        let mut addresses = Vec::new();
        for address in found {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let dropped = addresses.len().saturating_sub(ADDRESSES_MAX);
        addresses.truncate(ADDRESSES_MAX);
        if addresses.is_empty() {
            return Err("the name has no address".to_owned());
        }
        Ok(Self { addresses, dropped, fresh_for })
    }
}

/// Modification times of the lookup's configuration files.
type Stamps = [Option<SystemTime>; FILES.len()];

fn stamps() -> Stamps {
    FILES.map(|file| Path::new(file).metadata().and_then(|meta| meta.modified()).ok())
}

/// Lookup of names, several at once.
pub(super) struct LookUps {
    servers: Vec<SocketAddr>,
    /// Resolver, and the modification times of the files that it was made from; `None` before the first
    /// lookup.
    resolver: RefCell<Option<(Stamps, TokioResolver)>>,
}

impl LookUps {
    /// Creates a lookup that uses these DNS servers, or the system's if there are none.
    pub(super) fn new(servers: Vec<SocketAddr>) -> Self {
        Self { servers, resolver: RefCell::new(None) }
    }

    /// Returns the addresses of a name, or the reason for the failure.
    pub(super) async fn look_up(&self, host: &str) -> Result<Answer, String> {
        let is_of_system = self.servers.is_empty();
        let found = match self.resolver() {
            Ok(resolver) => resolver.lookup_ip(host).await,
            Err(error) if is_of_system => return of_system(host).await.map_err(|_| error.to_string()),
            Err(error) => return Err(error.to_string()),
        };
        match found {
            Ok(found) => {
                let fresh_for = found.valid_until().saturating_duration_since(clock::now());
                let (six, four): (Vec<_>, Vec<_>) = found.iter().partition(IpAddr::is_ipv6);
                // Addresses without a route come last (RFC 6724 §5, rule 1).
                let is_six_first = six.first().is_some_and(|address| is_reachable(*address));
                let all = if is_six_first { [six, four] } else { [four, six] };
                Answer::of(all.into_iter().flatten(), fresh_for)
            }
            Err(error) if is_of_system && error.is_no_records_found() => {
                of_system(host).await.map_err(|_| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn resolver(&self) -> Result<TokioResolver, NetError> {
        let stamps = stamps();
        let mut known = self.resolver.borrow_mut();
        if let Some((of, resolver)) = &*known
            && *of == stamps
        {
            return Ok(resolver.clone());
        }
        let mut builder = if self.servers.is_empty() {
            TokioResolver::builder_tokio()?
        } else {
            let servers = self.servers.iter().map(server).collect();
            let config = ResolverConfig::from_parts(None, Vec::new(), servers);
            let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
            builder.options_mut().timeout = SERVER_TIME_MAX;
            builder.options_mut().attempts = 1;
            builder
        };
        let options = builder.options_mut();
        options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
        options.negative_max_ttl = Some(NONE_FOR_MAX);
        let resolver = builder.build()?;
        *known = Some((stamps, resolver.clone()));
        Ok(resolver)
    }
}

/// Returns the configuration of a DNS server: UDP, and TCP for answers that are too long for it.
fn server(at: &SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = at.port();
        connection
    });
    NameServerConfig::new(at.ip(), true, connections.into())
}

/// Asks the system, on a thread that may block.
async fn of_system(host: &str) -> Result<Answer, String> {
    let name = host.to_owned();
    let found = tokio::task::spawn_blocking(move || (name.as_str(), 0).to_socket_addrs()).await;
    let found = found.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    Answer::of(found.map(|address| address.ip()), SYSTEM_FRESH_FOR)
}

/// Returns whether there is a route to an address; nothing is sent.
fn is_reachable(address: IpAddr) -> bool {
    UdpSocket::bind("[::]:0").and_then(|socket| socket.connect((address, 9))).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_deduplicated_and_bounded() {
        let all = (0..1000u32).map(|number| IpAddr::from((0x7f00_0000 + number / 2).to_be_bytes()));
        let answer = Answer::of(all, Duration::from_secs(7)).expect("addresses");
        assert_eq!((answer.addresses.len(), answer.dropped), (ADDRESSES_MAX, 500 - ADDRESSES_MAX));
        assert_eq!(answer.addresses[1], IpAddr::from([127, 0, 0, 1]));
        assert!(Answer::of([], Duration::ZERO).is_err());
    }
}
