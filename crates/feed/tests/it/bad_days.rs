//! Consumers that do not read, producers that stop, clients that vanish: the server handles them, and no
//! other client is disturbed.

use std::{thread, time::Duration};

use crate::common::{Client, Got, start, wait_until};
use feed::{Config, Counter, Server};

/// A pair of clients that must lose nothing: sequence numbers go from one to the other until `stop` is sent.
struct Honest {
    stop: std::sync::mpsc::Sender<()>,
    thread: thread::JoinHandle<usize>,
}

impl Honest {
    fn start(server: &Server) -> Self {
        let mut consumer = Client::new(server);
        consumer.subscribe("honest.>", "7");
        let mut producer = Client::new(server);
        let (stop, told) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let mut number = 0_usize;
            while told.try_recv().is_err() {
                for _ in 0..20 {
                    producer.publish("honest.x", format!("{number}").as_bytes());
                    assert_eq!(consumer.payload(), format!("{number}").as_bytes());
                    number += 1;
                }
            }
            assert_eq!(consumer.until_pong(), []);
            producer.ping();
            number
        });
        Self { stop, thread }
    }

    fn end(self) {
        self.stop.send(()).expect("it runs");
        assert!(self.thread.join().expect("it lost nothing") > 0);
    }
}

/// More bytes than the kernel's buffers of one connection take.
const MORE_THAN_SOCKETS_HOLD: usize = 24 << 20;

#[test]
fn a_consumer_that_never_reads_is_disconnected() {
    for loops in [1, 3] {
        let server = start(loops, |config| {
            config.limits.max_pending = 4 << 20;
            config.limits.producer_hold_max = Duration::from_millis(100);
        });
        let honest = Honest::start(&server);
        let stuck: Vec<Client> = (0..2)
            .map(|_| {
                let mut client = Client::new(&server);
                client.subscribe("stuck", "1");
                client
            })
            .collect();
        let mut reader = Client::new(&server);
        reader.subscribe("stuck", "1");
        let count = MORE_THAN_SOCKETS_HOLD / 1000;
        let mut producer = Client::new(&server);
        for numbers in (0..count).collect::<Vec<_>>().chunks(100) {
            for number in numbers {
                producer.publish("stuck", format!("{number:08}{}", "x".repeat(992)).as_bytes());
            }
            for number in numbers {
                assert_eq!(reader.payload()[..8], format!("{number:08}").into_bytes()[..]);
            }
        }
        producer.ping();
        let cut = || server.counted(Counter::SlowHold) + server.counted(Counter::SlowPending);
        wait_until("the stuck ones are cut", || cut() == 2);
        assert!(server.counted(Counter::ProducersHeld) > 0, "the producer was held first");
        for mut client in stuck {
            let (_, closed) = client.rest();
            assert!(closed);
        }
        honest.end();
    }
}

/// One producer fills the output of a consumer that does not read: that producer is held once and briefly,
/// and other producers who publish to the same consumer are not held at all. (Waiting for the consumer would
/// take an hour.)
#[test]
fn a_stuck_consumer_holds_no_small_producer() {
    for loops in [1, 2] {
        let server = start(loops, |config| {
            config.limits.max_pending = 4 << 20;
            config.limits.producer_hold_max = Duration::from_secs(3600);
            config.limits.write_deadline = Duration::from_secs(3600);
        });
        let honest = Honest::start(&server);
        let mut stuck = Client::new(&server);
        stuck.subscribe(">", "1");
        let mut flooder = Client::new(&server);
        for _ in 0..MORE_THAN_SOCKETS_HOLD / 10_000 {
            flooder.publish("flood", &[b'x'; 10_000]);
        }
        flooder.ping();
        wait_until("the stuck one is cut", || server.counted(Counter::SlowPending) == 1);
        assert!(server.counted(Counter::ProducersHeld) > 0, "the flooder was held first");
        honest.end();
    }
}

#[test]
fn a_slow_consumer_slows_its_producer_without_loss() {
    for loops in [1, 2] {
        let server = start(loops, |config| {
            config.limits.max_pending_total = 1 << 30;
            // This consumer must not be cut, however busy the machine is: it reads a little at a time.
            config.limits.producer_hold_max = Duration::from_secs(60);
        });
        let mut consumer = Client::new(&server);
        consumer.subscribe("s", "1");
        let mut producer = Client::new(&server);
        let count = (MORE_THAN_SOCKETS_HOLD + (64 << 20)) / 10_000;
        let producing = thread::spawn(move || {
            for number in 0..count {
                producer.publish("s", format!("{number:08}{}", "x".repeat(9992)).as_bytes());
            }
            producer.ping();
        });
        let mut number = 0;
        let mut take = |consumer: &mut Client| {
            assert_eq!(consumer.payload()[..8], format!("{number:08}").into_bytes()[..]);
            number += 1;
            number
        };
        wait_until("the producer is held", || {
            take(&mut consumer);
            server.counted(Counter::ProducersHeld) > 0
        });
        while take(&mut consumer) < count {}
        producing.join().expect("the producer is let go");
        assert_eq!(server.counted(Counter::SlowHold) + server.counted(Counter::SlowPending), 0);
    }
}

#[test]
fn the_write_deadline_disconnects_a_stuck_consumer() {
    let server = start(1, |config| config.limits.write_deadline = Duration::from_millis(100));
    let mut stuck = Client::new(&server);
    stuck.subscribe("s", "1");
    let mut producer = Client::new(&server);
    for _ in 0..MORE_THAN_SOCKETS_HOLD / 500_000 {
        producer.publish("s", &vec![b'x'; 500_000]);
    }
    wait_until("it is cut", || server.counted(Counter::SlowDeadline) == 1);
    producer.ping();
}

#[test]
fn who_does_not_answer_pings_is_closed() {
    let server = start(1, |config| {
        config.limits.ping_interval = Duration::from_millis(20);
        config.limits.ping_max = 2;
    });
    let mut mute = Client::silent(&server);
    mute.send(crate::common::HELLO);
    let (text, closed) = {
        mute.send(b"PING\r\n");
        mute.rest()
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(closed && text.ends_with("PING\r\nPING\r\n-ERR 'Stale Connection'\r\n"), "{text}");
    assert_eq!(server.counted(Counter::StaleConnections), 1);
}

#[test]
fn a_silent_client_hits_the_auth_timeout() {
    let server = start(1, |config| {
        config.authorization.token = Some(feed::identity::Secret::new("secret"));
        config.limits.auth_timeout = Duration::from_millis(20);
    });
    let mut mute = Client::silent(&server);
    assert_eq!(mute.next(), Got::Error("Authentication Timeout".to_owned()));
    assert_eq!(mute.next(), Got::Closed);
}

#[test]
fn half_a_message_is_never_delivered() {
    for loops in [1, 2] {
        let server = start(loops, |_| {});
        let mut consumer = Client::new(&server);
        consumer.subscribe(">", "1");
        for cut in [1, 5, 12, 13, 200_000, 900_000] {
            let mut producer = Client::new(&server);
            let mut message = b"PUB a 900000\r\n".to_vec();
            message.extend_from_slice(&vec![b'x'; 900_000]);
            message.extend_from_slice(b"\r\n");
            producer.send(&message[..cut]);
            drop(producer);
        }
        let mut producer = Client::new(&server);
        let body: Vec<u8> = (0..900_000_u32).map(|at| (at / 7) as u8).collect();
        producer.publish("a", &body);
        assert_eq!(consumer.payload(), body);
        assert_eq!(consumer.until_pong(), []);
        wait_until("those that left are gone", || server.counted(Counter::Connections) == 2);
        assert_eq!(server.counted(Counter::MessagesIn), 1);
    }
}

/// A client with very many subscriptions vanishes; all their memory is freed.
#[test]
fn a_million_subscriptions_come_and_go() {
    let count: usize =
        std::env::var("FEED_TEST_SUBSCRIPTIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(60_000);
    let server = start(2, |_| {});
    let honest = Honest::start(&server);
    let mut greedy = Client::new(&server);
    let mut batch = Vec::new();
    for number in 0..count {
        let subject = match number % 4 {
            0 => format!("many.{number}"),
            1 => format!("many.*.{}", number / 100),
            2 => format!("{}.>", number / 10),
            _ => "same".to_owned(),
        };
        wire::nats::write::subscribe(&mut batch, subject.as_bytes(), b"", number.to_string().as_bytes());
        if batch.len() > 60_000 {
            greedy.send(&batch);
            batch.clear();
        }
    }
    greedy.send(&batch);
    greedy.ping();
    assert_eq!(server.counted(Counter::Subscriptions), count as u64 + 1);
    let mut producer = Client::new(&server);
    producer.publish("many.0", b"x");
    assert_eq!(greedy.payload(), b"x");
    drop(greedy);
    wait_until("all are gone", || server.counted(Counter::Subscriptions) == 1);
    honest.end();
    drop(producer);
    wait_until("all have left", || server.counted(Counter::Connections) == 0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    wait_until("the tries are empty but for their roots", || {
        runtime.block_on(server.snapshot()).expect("a snapshot").trie_nodes == 2
    });
}

/// Clients that are reset in the middle of their operations leave nothing behind.
#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let server = start(3, |_| {});
    let honest = Honest::start(&server);
    for round in 0..60_u64 {
        let mut client = Client::new(&server);
        client.send(b"SUB honest.* 1\r\nSUB a q 2\r\nSUB b.* 3\r\nPUB a 3\r\nxyz\r\nPUB b.c 10\r\n123");
        if round % 2 == 0 {
            // A reset instead of an orderly close.
            let socket = socket2::SockRef::from(&client.socket);
            socket.set_linger(Some(Duration::ZERO)).expect("an option");
        }
        drop(client);
    }
    honest.end();
    wait_until("all have left", || server.counted(Counter::Connections) == 0);
    wait_until("all have ended", || server.counted(Counter::Subscriptions) == 0);
}

/// A lowered `max_connections` closes the surplus connections with an error; the oldest connections stay.
#[test]
fn a_lower_limit_of_connections_closes_the_surplus() {
    let server = start(2, |_| {});
    let mut clients: Vec<Client> = (0..10).map(|_| Client::new(&server)).collect();
    let mut config = Config::default();
    config.limits.max_connections = 4;
    server.reload(config).expect("it is sound");
    wait_until("there are as many as may be", || server.counted(Counter::Connections) == 4);
    for client in &mut clients[4..] {
        let mut got = client.next();
        while matches!(got, Got::Info(_)) {
            got = client.next();
        }
        assert_eq!(got, Got::Error("maximum connections exceeded".to_owned()));
    }
    for client in &mut clients[..4] {
        let Got::Info(_) = client.next() else { panic!("the new INFO") };
        client.ping();
    }
    assert_eq!(server.counted(Counter::ConnectionsRefused), 6);
}

/// A stopping server announces it (`ldm`) to clients that support this, and closes all connections.
#[test]
fn a_server_that_stops_says_so() {
    let server = start(2, |config| config.lame_duck_grace_period = Duration::from_millis(50));
    let mut clients: Vec<Client> = (0..6).map(|_| Client::new(&server)).collect();
    let draining = thread::spawn(move || server.drain(Duration::from_secs(20)));
    for client in &mut clients {
        let Got::Info(json) = client.next() else { panic!("an INFO") };
        assert!(json.contains("\"ldm\":true"), "{json}");
        assert_eq!(client.next(), Got::Closed);
    }
    assert!(draining.join().expect("no panic").expect("no failure").is_clean());
}
