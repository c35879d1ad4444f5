//! Tests of name lookup, with a small DNS server.
#![allow(clippy::disallowed_types, reason = "a test may lock")]

use std::{
    cell::RefCell,
    net::{Ipv4Addr, UdpSocket},
    sync::Mutex,
};

use super::*;

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

#[test]
fn families_take_turns() {
    let found = ["[::1]:1", "[::2]:1", "[::3]:1", "127.0.0.1:1"].map(address).to_vec();
    assert_eq!(interleave_families(found), ["[::1]:1", "127.0.0.1:1", "[::2]:1", "[::3]:1"].map(address));
    assert_eq!(interleave_families(Vec::new()), []);
}

/// Answer of the server to a query for an IPv4 address.
#[derive(Clone)]
enum Says {
    Addresses(Vec<Ipv4Addr>, u32),
    /// SERVFAIL.
    Fails,
    /// A name without addresses.
    None,
}

/// Starts a DNS server on loopback; its thread ends with the process.
fn dns(says: Arc<Mutex<Says>>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = socket.local_addr().expect("an address");
    thread::spawn(move || {
        let mut room = [0; 1500];
        while let Ok((bytes, from)) = socket.recv_from(&mut room) {
            let says = says.lock().expect("nobody has panicked").clone();
            let _ = socket.send_to(&answer(&room[..bytes], &says), from);
        }
    });
    at
}

/// Encodes the answer: the question repeated, then the records (RFC 1035 §4).
fn answer(question: &[u8], says: &Says) -> Vec<u8> {
    let name_bytes = question[12..].iter().position(|&b| b == 0).expect("a name") + 1;
    let asked = &question[12..12 + name_bytes + 4];
    let is_of_four = asked[name_bytes..name_bytes + 2] == [0, 1];
    let (code, addresses, ttl) = match says {
        Says::Addresses(addresses, ttl) if is_of_four => (0, addresses.clone(), *ttl),
        Says::Addresses(..) | Says::None => (0, Vec::new(), 0),
        Says::Fails => (2, Vec::new(), 0),
    };
    let mut out = question[..2].to_vec();
    out.extend([0x81, 0x80 | code, 0, 1]);
    out.extend(u16::try_from(addresses.len()).expect("few").to_be_bytes());
    out.extend([0, 0, 0, 0]);
    out.extend(asked);
    for address in addresses {
        out.extend([0xc0, 12, 0, 1, 0, 1]);
        out.extend(ttl.to_be_bytes());
        out.extend([0, 4]);
        out.extend(address.octets());
    }
    out
}

struct TestResolver {
    says: Arc<Mutex<Says>>,
    resolver: Arc<Resolver>,
    counters: Arc<CounterSet<NameCounter>>,
    _names: RefCell<Names>,
}

impl TestResolver {
    fn new(says: Says) -> Self {
        let says = Arc::new(Mutex::new(says));
        let counters = CounterSet::new(1);
        let mut names = Names::new(&[dns(Arc::clone(&says))], Arc::clone(&counters));
        let resolver = names.resolver("app.example", 80).expect("a thread");
        Self { says, resolver, counters, _names: RefCell::new(names) }
    }

    fn say(&self, says: Says) {
        *self.says.lock().expect("nobody has panicked") = says;
    }

    async fn addresses(&self) -> Result<Vec<IpAddr>, OriginError> {
        let found = self.resolver.addresses(Duration::from_secs(20)).await?;
        Ok(found.iter().map(SocketAddr::ip).collect())
    }

    /// Waits until the addresses are these; each check is a use of the addresses.
    async fn until(&self, wanted: &[IpAddr]) {
        for _ in 0..400 {
            if self.addresses().await.as_deref() == Ok(wanted) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{:?} and not {wanted:?}", self.addresses().await);
    }
}

fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, last)
}

#[tokio::test(flavor = "local")]
async fn a_name_is_resolved_again_after_its_ttl() {
    let tested = TestResolver::new(Says::Addresses(vec![ip(1)], 1));
    assert_eq!(tested.addresses().await, Ok(vec![ip(1).into()]));
    tested.say(Says::Addresses(vec![ip(2), ip(3)], 3600));
    tested.until(&[ip(2).into(), ip(3).into()]).await;
    // The addresses have a time to live of an hour.
    let asked = tested.counters.total(NameCounter::LookUps);
    tested.say(Says::Addresses(vec![ip(4)], 3600));
    tokio::time::sleep(FRESH_MIN + Duration::from_millis(200)).await;
    assert_eq!(tested.addresses().await, Ok(vec![ip(2).into(), ip(3).into()]));
    assert_eq!(tested.counters.total(NameCounter::LookUps), asked);
}

#[tokio::test(flavor = "local")]
async fn old_addresses_serve_during_failed_lookups() {
    for broken in [Says::Fails, Says::None] {
        let tested = TestResolver::new(Says::Addresses(vec![ip(1)], 1));
        assert_eq!(tested.addresses().await, Ok(vec![ip(1).into()]));
        tested.say(broken);
        for _ in 0..400 {
            assert_eq!(tested.addresses().await, Ok(vec![ip(1).into()]));
            if tested.counters.total(NameCounter::Failed) > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        assert!(tested.counters.total(NameCounter::Failed) > 0);
        tested.say(Says::Addresses(vec![ip(2)], 60));
        tested.until(&[ip(2).into()]).await;
    }
}

#[tokio::test(flavor = "local")]
async fn a_name_with_many_addresses_has_a_few() {
    // The largest number of addresses that fits into a datagram without EDNS.
    let many = (1..=28).map(ip).collect();
    let tested = TestResolver::new(Says::Addresses(many, 60));
    assert_eq!(tested.addresses().await.map(|found| found.len()), Ok(ADDRESSES_MAX));
    assert_eq!(tested.counters.total(NameCounter::Dropped), 28 - ADDRESSES_MAX as u64);
}

#[tokio::test(flavor = "local")]
async fn hosts_file_is_used_and_unknown_names_fail() {
    let at_most = Duration::from_secs(20);
    let mut names = Names::new(&[], CounterSet::new(1));
    let good = names.resolver("localhost", 80).expect("a thread");
    let found = good.addresses(at_most).await.expect("found");
    assert!(found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
    let bad = names.resolver("nobody.invalid", 80).expect("a thread");
    let error = bad.addresses(at_most).await.expect_err("no such name");
    assert_eq!(error, OriginError::Unresolved("nobody.invalid".to_owned()));
    let fixed = names.resolver("::1", 81).expect("no thread");
    assert_eq!(fixed.addresses(at_most).await.expect("itself")[..], [address("[::1]:81")]);
}
