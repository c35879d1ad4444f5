//! Cost of WebSocket connections for other clients: frames, and unfinished messages.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use feed::Counter;

use crate::common::{Client, HELLO, expect_cut, pause, start, wait_until, web_client, web_head, with_web};

/// Frames without payload count toward a turn's budget: their sender and the other clients take turns.
#[test]
fn empty_frames_leave_turns_to_others() {
    const FLOODERS: usize = 4;
    let server = start(1, with_web);
    let (mut producer, mut consumer) = (Client::new(&server), Client::new(&server));
    consumer.subscribe("honest", "1");
    let left = Arc::new(AtomicUsize::new(FLOODERS));
    let flooding: Vec<_> = (0..FLOODERS)
        .map(|_| {
            let mut socket = web_client(&server).expect("an upgrade");
            let left = Arc::clone(&left);
            thread::spawn(move || {
                let empty = [0x82, 0x80, 0, 0, 0, 0].repeat(10_000);
                for _ in 0..60 {
                    socket.write_all(&empty).expect("sent");
                }
                let ping = [HELLO, b"PING\r\n"].concat();
                socket.write_all(&[&web_head(ping.len() as u64)[..], &ping].concat()).expect("sent");
                let mut have = Vec::new();
                while !have.windows(4).any(|word| word == b"PONG") {
                    let mut buffer = [0; 4096];
                    let bytes = socket.read(&mut buffer).expect("an answer");
                    assert!(bytes > 0, "closed");
                    have.extend_from_slice(&buffer[..bytes]);
                }
                left.fetch_sub(1, Ordering::Relaxed);
            })
        })
        .collect();
    let mut trips = 0;
    while left.load(Ordering::Relaxed) > 0 {
        producer.publish("honest", b"x");
        assert_eq!(consumer.payload(), b"x");
        trips += 1;
    }
    flooding.into_iter().for_each(|flooding| flooding.join().expect("it was answered"));
    assert!(trips > 30, "{trips} round trips beside two million frames");
}

/// Received bytes of unfinished frames count like those of unfinished messages.
#[test]
fn unfinished_frames_of_all_clients_together() {
    const TOTAL: usize = 16 << 20;
    const PART: usize = 1 << 20;
    let server = start(1, |config| {
        with_web(config);
        config.limits.max_pending_total = TOTAL;
    });
    let mut honest = Client::new(&server);
    honest.subscribe("honest", "1");
    let mut begun = web_head(4 << 20);
    begun.resize(begun.len() + PART, b' ');
    let _held: Vec<_> = (0..2 * TOTAL / PART)
        .map(|_| {
            let mut socket = web_client(&server).expect("an upgrade");
            // The client may be cut while it writes.
            let _ = socket.write_all(&begun);
            socket
        })
        .collect();
    expect_cut(&server, &mut honest, TOTAL / PART);
}

/// More idle connections than concurrent handshakes allowed: a new client is served, and an idle connection
/// is closed.
#[test]
fn idle_connections_keep_no_upgrade_out() {
    let server = start(1, with_web);
    let _idle: Vec<TcpStream> =
        (0..1100).map(|_| TcpStream::connect(server.addresses()[1]).expect("a connection")).collect();
    wait_until("all are accepted", || server.counted(Counter::Accepted) == 1100);
    for _ in 0..20 {
        assert!(web_client(&server).is_some(), "refused beside idle connections");
    }
    assert!(server.counted(Counter::HandshakesDisplaced) >= 76);
}

/// Many clients hold an unfinished message of 60 KiB, and one client sends 100 KiB in two parts: that client
/// is not cut, although it holds the most.
#[test]
fn stalled_clients_are_cut_before_a_progressing_client() {
    const TOTAL: usize = 16 << 20;
    let server = start(1, |config| config.limits.max_pending_total = TOTAL);
    let begun = [HELLO, b"PUB x 70000\r\n", &[b'x'; 60_000]].concat();
    let hold = || {
        let mut socket = Client::silent(&server).socket;
        socket.write_all(&begun).expect("sent");
        socket
    };
    // Nearly all of one core's half of the total.
    let mut held: Vec<TcpStream> = (0..120).map(|_| hold()).collect();
    for _ in 0..200 {
        pause();
    }
    let mut honest = Client::new(&server);
    honest.subscribe("honest", "1");
    let body = vec![b'y'; 100_000];
    for _ in 0..20 {
        held.extend((0..10).map(|_| hold()));
        honest.send(format!("PUB honest {}\r\n", body.len()).as_bytes());
        honest.send(&body[..90_000]);
        pause();
        honest.send(&body[90_000..]);
        honest.send(b"\r\n");
        assert_eq!(honest.payload(), body);
    }
    assert!(server.counted(Counter::SlowProducers) > 0, "there was more than there may be");
}

/// An operation that stalls is cut at its deadline, however little memory all clients hold.
#[test]
fn a_long_operation_has_a_deadline() {
    let server = start(1, |config| config.limits.write_deadline = Duration::from_millis(100));
    let mut stuck = Client::silent(&server);
    stuck.send(&[HELLO, b"PUB x 70000\r\n", &[b'x'; 60_000]].concat());
    wait_until("it is cut", || server.counted(Counter::SlowOperations) == 1);
}
