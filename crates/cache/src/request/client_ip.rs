//! Address of a request's client, and its scheme: those of the connection, or those that a trusted proxy
//! names.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    net::{IpAddr, SocketAddr},
};

use engine::{accounts::ClientKey, network::Network};
use wire::http1::{forwarded, head::RequestHead, url::Scheme};

const X_FORWARDED_FOR: &str = "x-forwarded-for";
const X_FORWARDED_PROTO: &str = "x-forwarded-proto";
const FORWARDED: &str = "forwarded";

/// The other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    address: IpAddr,
    /// Number of the connection, a hash of its address and port.
    connection: u64,
    /// Scheme of requests on the connection.
    scheme: Scheme,
    /// The other end is one of the operator's proxies, and is trusted to name its own clients.
    is_believed: bool,
}

/// Client of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Visitor {
    pub(crate) address: IpAddr,
    /// The proxy that forwarded the request and names the client.
    pub(crate) through: Option<IpAddr>,
    /// Number of the connection that carries the request.
    pub(crate) connection: u64,
}

impl Peer {
    /// Returns the other end of a connection, given the operator's proxies.
    pub(crate) fn new(address: SocketAddr, is_secured: bool, proxies: &[Network]) -> Self {
        let (address, connection) = (address.ip().to_canonical(), number_of(address));
        let scheme = if is_secured { Scheme::Https } else { Scheme::Http };
        let is_believed = proxies.iter().any(|network| network.contains(address));
        Self { address, connection, scheme, is_believed }
    }

    /// Returns the other end of a connection from a peer accelerator, which is trusted to name its clients.
    pub(crate) fn of_ours(address: SocketAddr) -> Self {
        let connection = number_of(address);
        Self { address: address.ip().to_canonical(), connection, scheme: Scheme::Http, is_believed: true }
    }

    /// Returns the address of the other end.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the request's head with its scheme, and the client of the request.
    #[inline]
    pub(crate) fn asks<'b, 'h>(
        &self,
        head: RequestHead<'b, 'h>,
        proxies: &[Network],
    ) -> (RequestHead<'b, 'h>, Visitor) {
        if self.is_believed {
            return self.asks_for_another(head, proxies);
        }
        let visitor = Visitor { connection: self.connection, ..Visitor::alone(self.address) };
        (RequestHead { scheme: Some(self.scheme), ..head }, visitor)
    }

    #[cold]
    fn asks_for_another<'b, 'h>(
        &self,
        head: RequestHead<'b, 'h>,
        proxies: &[Network],
    ) -> (RequestHead<'b, 'h>, Visitor) {
        let is_believed = |address| proxies.iter().any(|network| network.contains(address));
        let forwarded = || head.headers(FORWARDED);
        let address =
            forwarded::client(self.address, head.headers(X_FORWARDED_FOR), forwarded(), is_believed);
        let said = forwarded::scheme(head.headers(X_FORWARDED_PROTO), forwarded());
        let scheme = said.unwrap_or(self.scheme);
        let head = RequestHead { scheme: Some(scheme), ..head };
        (head, Visitor { address, through: Some(self.address), connection: self.connection })
    }
}

impl Visitor {
    /// Returns a client without a proxy in between.
    pub(crate) fn alone(address: IpAddr) -> Self {
        Self { address, through: None, connection: 0 }
    }

    /// Returns the client whose account the request is charged to. Each connection from this machine and from
    /// a `shared` network counts as a client of its own.
    pub(crate) fn client(&self, shared: &[Network]) -> ClientKey {
        ClientKey::of_connection(self.address, self.connection, shared)
    }
}

/// Returns the number of a connection. A client's address and port name one connection at a time.
pub(crate) fn number_of(address: SocketAddr) -> u64 {
    let mut hasher = DefaultHasher::new();
    address.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use wire::http1::head::{HeadLimits, HeaderSlots, Progress, parse_request};

    use super::*;

    fn asked(peer: &str, is_secured: bool, fields: &str) -> (String, Option<String>, Scheme) {
        let proxies = ["10.0.0.0/8", "::1"].map(|text| text.parse().expect("a network"));
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut slots = HeaderSlots::new();
        let Ok(Progress::Complete((head, _))) =
            parse_request(bytes.as_bytes(), &mut slots, &HeadLimits::default())
        else {
            panic!("a valid head: {bytes}");
        };
        let address = SocketAddr::new(peer.parse().expect("an address"), 4711);
        let (head, visitor) = Peer::new(address, is_secured, &proxies).asks(head, &proxies);
        let text = |address: IpAddr| address.to_string();
        (text(visitor.address), visitor.through.map(text), head.scheme.expect("it is said"))
    }

    #[test]
    fn strangers_are_not_believed() {
        let claims =
            "X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\nForwarded: for=1.2.3.4;proto=https\r\n";
        for (is_secured, scheme) in [(false, Scheme::Http), (true, Scheme::Https)] {
            assert_eq!(asked("192.0.2.9", is_secured, claims), ("192.0.2.9".to_owned(), None, scheme));
        }
    }

    #[test]
    fn connections_of_shared_networks_are_clients_each() {
        let shared: Vec<Network> = vec!["198.51.100.0/24".parse().expect("a network")];
        let client = |address: &str| {
            let peer = Peer::new(address.parse().expect("an address and a port"), false, &[]);
            Visitor { connection: peer.connection, ..Visitor::alone(peer.address) }.client(&shared)
        };
        assert_ne!(client("198.51.100.7:1000"), client("198.51.100.7:1001"));
        assert_ne!(client("198.51.100.7:1000"), client("198.51.100.8:1000"));
        assert_ne!(client("127.0.0.1:1000"), client("127.0.0.1:1001"), "anybody may come from this machine");
        assert_eq!(client("192.0.2.1:1000"), client("192.0.2.1:1001"));
        assert_eq!(client("[2001:db8::1]:1000"), client("[2001:db8::2]:1001"), "a /64 is one client");
    }

    #[test]
    fn the_operators_proxies_are_believed() {
        for (is_secured, fields, who, scheme) in [
            (
                false,
                "X-Forwarded-For: 8.8.8.8, 192.0.2.7\r\nX-Forwarded-Proto: https\r\n",
                "192.0.2.7",
                Scheme::Https,
            ),
            (
                true,
                "X-Forwarded-For: 192.0.2.7, 10.1.1.1\r\nX-Forwarded-Proto: http\r\n",
                "192.0.2.7",
                Scheme::Http,
            ),
            (false, "Forwarded: for=192.0.2.7;proto=https\r\n", "192.0.2.7", Scheme::Https),
            (true, "", "10.0.0.1", Scheme::Https),
            (true, "X-Forwarded-Proto: gopher\r\n", "10.0.0.1", Scheme::Https),
        ] {
            let through = Some("10.0.0.1".to_owned());
            assert_eq!(asked("10.0.0.1", is_secured, fields), (who.to_owned(), through, scheme), "{fields}");
        }
        // An IPv4 address on an IPv6 socket.
        let (who, through, _) = asked("::ffff:10.0.0.1", false, "X-Forwarded-For: 192.0.2.7\r\n");
        assert_eq!((who.as_str(), through.as_deref()), ("192.0.2.7", Some("10.0.0.1")));
    }
}
