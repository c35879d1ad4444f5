//! Listeners share a port among the cores of a process and with no other process.

use std::{
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
};

use engine::cores::listener::{Balance, bind_all};

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

#[test]
fn all_listeners_share_one_port() {
    let listeners = bind_all(any_port(), 4).unwrap();
    let ports: Vec<u16> = listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    assert_ne!(ports[0], 0);
    assert_eq!(ports, [ports[0]; 4]);
}

#[test]
fn connections_spread_over_all_sockets() {
    const CONNECTIONS: usize = 400;
    let listeners = bind_all(any_port(), 2).unwrap();
    let address = listeners[0].local_addr().unwrap();
    let clients: Vec<TcpStream> = (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut accepted = [0; 2];
    for (listener, accepted) in listeners.iter().zip(&mut accepted) {
        loop {
            match listener.accept() {
                Ok((connection, _)) => {
                    assert!(connection.nodelay().unwrap(), "TCP_NODELAY is inherited from the listener");
                    *accepted += 1;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    drop(clients);
    assert_eq!(accepted.iter().sum::<usize>(), CONNECTIONS);
    // A fair distribution gives less than a quarter to one side once in 10^25 runs.
    assert!(accepted.iter().all(|&accepted| accepted > CONNECTIONS / 4), "{accepted:?}");
}

fn must_be_in_use(outcome: io::Result<Vec<TcpListener>>, address: SocketAddr) {
    let error = outcome.expect_err("the port is taken");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert_eq!(error.to_string(), format!("cannot listen on {address}: another process listens there"));
}

#[test]
fn a_second_instance_cannot_share_the_port() {
    for (cores, others) in [(1, 1), (2, 2), (1, 3), (3, 1)] {
        let ours = bind_all(any_port(), cores).unwrap();
        let address = ours[0].local_addr().unwrap();
        must_be_in_use(bind_all(address, others), address);
        let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
        must_be_in_use(bind_all(everywhere, others), everywhere);
        drop(ours);
        bind_all(address, others).expect("free again");
    }
}

#[test]
fn a_foreign_listener_blocks_the_port() {
    let theirs = TcpListener::bind(any_port()).unwrap();
    let address = theirs.local_addr().unwrap();
    must_be_in_use(bind_all(address, 2), address);
}

#[test]
fn time_wait_connections_do_not_block_the_port() {
    let listeners = bind_all(any_port(), 2).unwrap();
    let address = listeners[0].local_addr().unwrap();
    let client = TcpStream::connect(address).unwrap();
    // The server's end closes first, so that TIME_WAIT is on the server's side of the port.
    let accepted = listeners.iter().find_map(|listener| listener.accept().ok()).unwrap();
    drop(accepted);
    drop(client);
    drop(listeners);
    bind_all(address, 2).unwrap();
}

#[test]
fn an_address_of_another_machine_is_explained() {
    let address = "192.0.2.1:0".parse().unwrap();
    let error = bind_all(address, 1).unwrap_err();
    assert_eq!(error.to_string(), "cannot listen on 192.0.2.1:0: this machine does not have this address");
}

#[test]
fn ipv6_works_where_there_is_any() {
    match bind_all("[::1]:0".parse().unwrap(), 2) {
        Ok(listeners) => assert!(listeners[1].local_addr().unwrap().is_ipv6()),
        Err(error) => assert!(
            matches!(error.kind(), ErrorKind::AddrNotAvailable) || error.raw_os_error().is_some(),
            "{error}"
        ),
    }
}

#[test]
fn hands_off_only_when_far_above_the_least() {
    let balance = Balance::new(3);
    assert_eq!(balance.hand_off_to(0), None);
    let open = |core: usize, count: usize| (0..count).for_each(|_| balance.opened(core));
    open(0, 8);
    assert_eq!(balance.hand_off_to(0), None, "8 are within the slack");
    open(0, 1);
    assert_eq!(balance.hand_off_to(0), Some(1), "9 above 0");
    open(1, 1);
    assert_eq!(balance.hand_off_to(0), Some(2), "to the least");
    open(2, 1);
    assert_eq!(balance.hand_off_to(0), None, "8 above 1");
    assert_eq!(balance.hand_off_to(1), None, "the least keeps its own");
    open(0, 791);
    open(1, 699);
    open(2, 709);
    assert_eq!([0, 1, 2].map(|core| balance.held(core)), [800, 700, 710]);
    assert_eq!(balance.hand_off_to(0), None, "100 above is an eighth of 800, not more");
    open(0, 16);
    assert_eq!(balance.hand_off_to(0), Some(1), "116 above, of 816");
    balance.closed(0);
    assert_eq!(balance.held(0), 815);
}

#[test]
#[should_panic(expected = "core 1 closed a connection that it does not hold")]
fn closing_what_is_not_held_is_our_mistake() {
    let balance = Balance::new(2);
    balance.opened(0);
    balance.closed(1);
}

/// Returns the core of each connection, if the kernel gives connections to the cores in turn.
fn gathered(balance: &Balance, cores: usize, connections: usize) -> Vec<usize> {
    let place = |n: usize| {
        let me = n % cores;
        let to = balance.gather(me, 8).unwrap_or(me);
        balance.opened(to);
        to
    };
    (0..connections).map(place).collect()
}

#[test]
fn who_comes_together_is_together() {
    let balance = Balance::new(3);
    let places = gathered(&balance, 3, 32);
    let eight_each = [[0; 8], [1; 8], [2; 8], [0; 8]].concat();
    assert_eq!(places, eight_each);
    balance.closed(1);
    assert_eq!(balance.gather(2, 8), Some(1), "a gap is filled first");
    assert_eq!(balance.gather(1, 8), None);
    assert_eq!(balance.gather(0, 1), Some(1), "the least has it if none are gathered");
}

#[test]
fn connections_are_spread_evenly_and_stay() {
    let balance = Balance::new(2);
    gathered(&balance, 2, 128);
    assert_eq!((balance.held(0), balance.held(1)), (64, 64));
    assert_eq!((balance.gather(0, 8), balance.gather(1, 8)), (None, None));
}
