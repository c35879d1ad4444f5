//! Memory that all clients together make the server hold is bounded, whatever the limits of each client.

use std::{
    io::{Read, Write},
    thread,
    time::Duration,
};

use feed::{
    Config, Counter, Server,
    identity::{Secret, User},
};

use crate::common::{Client, Got, HELLO, expect_cut, start, wait_until, web_client, web_head, with_web};

const TOTAL: usize = 16 << 20;
const FLOODERS: usize = 16;

/// Runs a client whose answers are two hundred times as long as its requests, and which reads none of them.
/// The thread ends when the client is cut.
fn flood(server: &Server) -> thread::JoinHandle<()> {
    flood_by(Client::silent(server).socket)
}

fn flood_by(mut socket: std::net::TcpStream) -> thread::JoinHandle<()> {
    socket.write_all(HELLO).expect("sent");
    socket.write_all(format!("SUB reply {}\r\n", "9".repeat(4000)).as_bytes()).expect("sent");
    let batch = b"PUB nobody reply 0\r\n\r\n".repeat(200);
    thread::spawn(move || while socket.write_all(&batch).is_ok() {})
}

#[test]
fn outputs_of_all_clients_together() {
    for loops in [1, 2] {
        let server = start(loops, |config| {
            config.limits.max_pending_total = TOTAL;
            // A single client's limits are too high to matter: `max_pending` is four times the total, and the
            // write deadline is long.
            config.limits.max_pending = 4 * TOTAL;
            config.limits.write_deadline = Duration::from_secs(600);
        });
        let mut honest = Client::new(&server);
        honest.subscribe("honest", "1");
        let flooding: Vec<_> = (0..FLOODERS).map(|_| flood(&server)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        wait_until("some are cut", || {
            honest.publish("honest", b"x");
            assert_eq!(honest.payload(), b"x");
            // A machine that is too busy to answer in time is asked again.
            let pending: usize = runtime
                .block_on(server.snapshot())
                .iter()
                .flat_map(|snapshot| snapshot.connections.iter().map(|connection| connection.pending_bytes))
                .sum();
            assert!(pending <= TOTAL, "{pending} bytes wait for all");
            server.counted(Counter::SlowTotal) >= 2
        });
        honest.ping();
        drop(server);
        flooding.into_iter().for_each(|flooding| flooding.join().expect("no panic"));
    }
}

/// Each client has begun a message within its limits, and never ends it.
#[test]
fn unfinished_messages_count_towards_the_total_limit() {
    const PAYLOAD: usize = 1 << 20;
    let server = start(1, |config| {
        config.limits.max_pending_total = TOTAL;
        config.limits.max_payload = PAYLOAD;
    });
    let mut honest = Client::new(&server);
    honest.subscribe("honest", "1");
    let mut begun = format!("PUB begun {PAYLOAD}\r\n").into_bytes();
    begun.resize(begun.len() + PAYLOAD - 1, b'x');
    // Half of the total is reserved for other cores.
    let _held: Vec<_> = (0..2 * TOTAL / PAYLOAD)
        .map(|_| {
            let mut socket = Client::silent(&server).socket;
            socket.write_all(HELLO).expect("sent");
            // The client may be cut while it writes.
            let _ = socket.write_all(&begun);
            socket
        })
        .collect();
    expect_cut(&server, &mut honest, TOTAL / PAYLOAD);
}

/// Resident memory of this process, which holds the server and its clients.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    pages.split(' ').nth(1).expect("a number").parse::<usize>().expect("a number")
        * rustix::param::page_size()
}

/// Memory of clients with large backlogs is returned once they are gone, although later allocations remain.
#[test]
fn memory_that_was_needed_once_is_given_back() {
    const WAITS: usize = 100 << 20;
    let server = start(1, |config| {
        // A client with a sixteenth of `max_pending` in unread answers is no longer read from.
        config.limits.max_pending = 16 * WAITS / 4;
        config.limits.max_pending_total = 16 * WAITS;
        config.limits.write_deadline = Duration::from_secs(600);
    });
    let mut honest = Client::new(&server);
    honest.subscribe("honest", "1");
    let before = resident_bytes();
    let flooders: Vec<std::net::TcpStream> = (0..5).map(|_| Client::silent(&server).socket).collect();
    let flooding: Vec<_> =
        flooders.iter().map(|socket| flood_by(socket.try_clone().expect("a handle"))).collect();
    wait_until("much waits", || resident_bytes() > before + WAITS);
    // Allocations that lie after the backlogs in the allocator's memory.
    let words: String = (0..20_000).map(|sid| format!("SUB later.{sid}.{sid:0>40} {sid:0>30}\r\n")).collect();
    honest.send(words.as_bytes());
    honest.ping();
    flooders.iter().for_each(|socket| socket.shutdown(std::net::Shutdown::Both).expect("open"));
    flooding.into_iter().for_each(|flooding| flooding.join().expect("no panic"));
    drop(flooders);
    wait_until("they are gone", || server.counted(Counter::Connections) == 1);
    wait_until("it is given back", || resident_bytes() < before + (64 << 20));
    honest.ping();
}

fn with_hash(cost: u32) -> impl FnOnce(&mut Config) {
    let hash = bcrypt::hash("right", cost).expect("a hash");
    move |config| {
        let (user, password) = (Some("ann".to_owned()), Some(Secret::new(&hash)));
        config.authorization.users = vec![User { user, password, ..User::default() }];
    }
}

fn connect(password: &str) -> String {
    format!("CONNECT {{\"verbose\":false,\"user\":\"ann\",\"pass\":\"{password}\"}}\r\nPING\r\n")
}

/// The queue of password checks is bounded: clients beyond it are refused, clients that leave are not
/// checked, and a later client is let in.
#[test]
fn the_password_check_queue_is_bounded() {
    const CLIENTS: usize = 320;
    let server = start(1, |config| {
        with_hash(11)(config);
        config.limits.auth_timeout = Duration::from_secs(600);
    });
    let flood: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::silent(&server);
            client.send(connect("wrong").as_bytes());
            client
        })
        .collect();
    wait_until("some are refused", || server.counted(Counter::ChecksRefused) > 0);
    drop(flood);
    // The queue is full until the server has noticed that the flood has left.
    wait_until("she is let in", || {
        let mut ann = Client::silent(&server);
        ann.send(connect("right").as_bytes());
        ann.next() == Got::Pong
    });
    let checks = server.counted(Counter::Checks);
    assert!(checks < CLIENTS as u64 / 2, "{checks} passwords were compared");
}

#[test]
fn a_password_check_has_its_deadline() {
    let server = start(1, |config| {
        with_hash(12)(config);
        config.limits.auth_timeout = Duration::from_millis(50);
    });
    let mut clients: Vec<Client> = (0..4).map(|_| Client::silent(&server)).collect();
    clients.iter_mut().for_each(|client| client.send(connect("right").as_bytes()));
    for client in &mut clients {
        assert_eq!(client.next(), Got::Error("Authentication Timeout".to_owned()));
    }
    for client in &mut clients {
        let (rest, is_closed) = client.rest();
        assert!(is_closed && rest.is_empty());
    }
    assert_eq!(server.counted(Counter::AuthenticationTimeouts), 4);
    assert!(server.counted(Counter::Checks) <= 4);
}

/// No message of megabytes is buffered for a client before authentication; afterwards it is.
#[test]
fn web_sockets_are_small_before_authentication() {
    let server = start(1, |config| {
        config.authorization.token = Some(Secret::new("t"));
        with_web(config);
    });
    let mut stranger = web_client(&server).expect("an upgrade");
    stranger.write_all(&web_head(4 << 20)).expect("sent");
    // The kernel takes only a part: the server may close before all is written.
    let _ = stranger.write_all(&vec![b' '; 100 << 10]);
    let mut rest = Vec::new();
    let closed = stranger.read_to_end(&mut rest);
    assert!(
        !closed.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock),
        "it gathers what a stranger sends"
    );
    wait_until("it is counted", || server.counted(Counter::ControlLinesTooLong) == 1);

    let mut known = web_client(&server).expect("an upgrade");
    let hello = b"CONNECT {\"verbose\":false,\"auth_token\":\"t\"}\r\n";
    known.write_all(&[&web_head(hello.len() as u64)[..], hello].concat()).expect("sent");
    let message = [b"PUB a 900000\r\n".to_vec(), vec![b'x'; 900_000], b"\r\nPING\r\n".to_vec()].concat();
    known.write_all(&[&web_head(message.len() as u64)[..], &message].concat()).expect("sent");
    let mut have = Vec::new();
    while !have.windows(4).any(|word| word == b"PONG") {
        let mut buffer = [0; 4096];
        let bytes = known.read(&mut buffer).expect("an answer");
        assert!(bytes > 0, "closed");
        have.extend_from_slice(&buffer[..bytes]);
    }
    assert_eq!(server.counted(Counter::MessagesIn), 1);
}
