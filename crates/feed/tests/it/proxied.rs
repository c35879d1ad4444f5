//! Behind a proxy: the client's address is the one in the PROXY header, on every listener.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use crate::common::{PATIENCE, start, wait_until};
use feed::{Config, Counter, Server, WebSocket};

const V1: &[u8] = b"PROXY TCP4 192.0.2.7 127.0.0.1 4000 4222\r\n";

fn v2() -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    bytes.extend_from_slice(&[192, 0, 2, 7, 127, 0, 0, 1, 0x0f, 0xa0, 0x10, 0x7e]);
    bytes
}

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn proxied(config: &mut Config) {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config.proxy_protocol = true;
    config.websocket = Some(WebSocket { listen, tls: None, allowed_origins: Vec::new(), same_origin: false });
}

fn connected(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).expect("a connection");
    socket.set_nodelay(true).expect("an option");
    socket.set_read_timeout(Some(PATIENCE)).expect("an option");
    socket
}

/// Reads until `end` has arrived.
fn read_until(socket: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut byte = [0];
    while !all.windows(end.len()).any(|window| window == end) {
        socket.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {}", all.escape_ascii()));
        all.push(byte[0]);
    }
    all
}

fn addresses(server: &Server) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let snapshot = runtime.block_on(server.snapshot()).expect("an answer");
    snapshot.connections.iter().map(|connection| connection.address.to_string()).collect()
}

#[test]
fn the_proxy_header_gives_the_client_address() {
    let server = start(2, proxied);
    let (nats, web) = (server.addresses()[0], server.addresses()[1]);
    let mut clients = Vec::new();
    for header in [V1.to_vec(), v2()] {
        // CONNECT arrives in one piece with the PROXY header, as from a client that does not wait for INFO.
        let mut client = connected(nats);
        client.write_all(&[&header, &b"CONNECT {}\r\nPING\r\n"[..]].concat()).expect("it listens");
        read_until(&mut client, b"PONG\r\n");
        clients.push(client);
        // The header arrives byte by byte.
        let mut client = connected(nats);
        header.iter().for_each(|byte| client.write_all(&[*byte]).expect("it listens"));
        let info = read_until(&mut client, b"\r\n");
        assert!(String::from_utf8_lossy(&info).contains("\"client_ip\":\"192.0.2.7\""));
        clients.push(client);
        let mut browser = connected(web);
        browser.write_all(&[&header, UPGRADE].concat()).expect("it listens");
        assert!(read_until(&mut browser, b"\r\n\r\n").starts_with(b"HTTP/1.1 101 "));
        read_until(&mut browser, b"INFO");
        clients.push(browser);
    }
    assert_eq!(addresses(&server), ["192.0.2.7:4000"; 6]);
    // A health check by the proxy itself (`PROXY UNKNOWN`).
    let mut probe = connected(nats);
    probe.write_all(b"PROXY UNKNOWN\r\n").expect("it listens");
    read_until(&mut probe, b"INFO");
    assert!(addresses(&server).contains(&probe.local_addr().expect("an address").to_string()));
}

#[test]
fn who_brings_no_header_is_not_served() {
    let server = start(1, proxied);
    for address in server.addresses() {
        for said in [&b"CONNECT {}\r\n"[..], UPGRADE, b"PROXY TCP4 x y 1 2\r\n"] {
            let mut client = connected(address);
            client.write_all(said).expect("it listens");
            assert_eq!(client.read(&mut [0]).unwrap_or(0), 0, "{}", said.escape_ascii());
        }
    }
    wait_until("they are counted", || server.counted(Counter::BadProxyHeaders) == 6);
}

/// A client that sends half a PROXY header, or nothing, is cut after a timeout.
#[test]
fn a_header_has_a_time() {
    let server = start(1, |config| {
        proxied(config);
        config.limits.auth_timeout = std::time::Duration::from_millis(100);
    });
    for said in [&b""[..], b"PROXY TCP4 192.0.2.7"] {
        let mut client = connected(server.addresses()[0]);
        client.write_all(said).expect("it listens");
        assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    }
    assert_eq!(server.counted(Counter::BadProxyHeaders), 2);
}
