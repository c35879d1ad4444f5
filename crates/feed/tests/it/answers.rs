//! Clients that make the server answer and do not read the answers: their pending bytes are bounded, and the
//! clients are cut off. Clients that read late are only paused.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use crate::common::{Client, HELLO, pause, start, wait_until};
use feed::{
    Config, Counter, Server,
    identity::{Entry, Permissions, Rules, Secret, User},
};

/// `max_pending` of the servers in these tests.
const MAX_PENDING: usize = 1 << 20;
/// More requests, and more answers, than a socket's buffers take.
const PINGS: usize = 1_000_000;
const VERBOSE: &[u8] =
    b"CONNECT {\"verbose\":true,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\n";

fn slow(server: &Server) -> u64 {
    server.counted(Counter::SlowPending) + server.counted(Counter::SlowDeadline)
}

/// Runs a client that sends `first` and then `again` for ever, and reads nothing: less than `max_pending` is
/// pending for it at any time, and in the end it is cut and counted as a slow consumer.
fn flood(change: impl FnOnce(&mut Config), first: &[u8], again: &[u8]) -> Server {
    let server = start(1, |config| {
        config.limits.max_pending = MAX_PENDING;
        config.limits.write_deadline = Duration::from_millis(300);
        change(config);
    });
    let mut honest = Client::new(&server);
    let mut flooder = Client::silent(&server).socket;
    flooder.write_all(first).expect("sent");
    let batch = again.repeat((64 << 10) / again.len() + 1);
    // Writes until the server closes: a reset ends the write.
    let flooding = thread::spawn(move || while flooder.write_all(&batch).is_ok() {});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    wait_until("the flooder is cut", || {
        // A machine that is too busy to answer in time is asked again.
        for connection in
            runtime.block_on(server.snapshot()).iter().flat_map(|snapshot| &snapshot.connections)
        {
            let pending = connection.pending_bytes;
            assert!(pending <= MAX_PENDING, "{pending} bytes wait for one client");
        }
        slow(&server) == 1
    });
    flooding.join().expect("no panic");
    // A client that reads its answers is not disturbed.
    honest.ping();
    server
}

#[test]
fn pings_without_reading() {
    let server = flood(|_| {}, HELLO, b"PING\r\n");
    assert!(server.counted(Counter::HeldForAnswers) > 0, "it was not read from before it was cut");
}

#[test]
fn verbose_publishing_without_reading() {
    let server = flood(|_| {}, VERBOSE, b"PUB a 1\r\nx\r\n");
    assert!(server.counted(Counter::HeldForAnswers) > 0, "it was not read from before it was cut");
}

#[test]
fn bad_subjects_without_reading() {
    let server = flood(|_| {}, HELLO, b"SUB a. 1\r\n");
    assert!(server.counted(Counter::HeldForAnswers) > 0, "it was not read from before it was cut");
}

#[test]
fn requests_that_nobody_answers_without_reading() {
    let subscribe = |sid: &str| [HELLO, b"SUB reply ", sid.as_bytes(), b"\r\n"].concat();
    let server = flood(|_| {}, &subscribe("1"), b"PUB nobody reply 0\r\n\r\n");
    assert!(server.counted(Counter::HeldForAnswers) > 0, "it was not read from before it was cut");
    // A sid as long as a control line allows makes each answer two hundred times as long as its request.
    flood(|_| {}, &subscribe(&"9".repeat(4000)), b"PUB nobody reply 0\r\n\r\n");
}

/// A run of denied messages gets one error for each message.
#[test]
fn denied_messages_without_reading() {
    let deny = |config: &mut Config| {
        let publish = Rules { allow: None, deny: vec![Entry::of("denied")] };
        config.authorization.users = vec![User {
            user: Some("nobody".to_owned()),
            password: Some(Secret::new("secret")),
            permissions: Some(Permissions { publish, ..Permissions::default() }),
            ..User::default()
        }];
        config.authorization.no_auth_user = Some("nobody".to_owned());
    };
    flood(deny, HELLO, b"PUB denied 0\r\n\r\n");
}

/// A client that reads a little now and then is still too slow for its pending bytes.
#[test]
fn a_trickle_of_reading_is_not_progress() {
    let server = start(1, |config| {
        config.limits.write_deadline = Duration::from_secs(1);
        // A sixteenth of `max_pending`, 32 MiB, must be read in each second.
        config.limits.max_pending = 512 << 20;
    });
    let mut socket = Client::silent(&server).socket;
    socket.write_all(HELLO).expect("sent");
    let mut writing = socket.try_clone().expect("a second handle");
    let batch = b"PING\r\n".repeat(10_000);
    let flooding = thread::spawn(move || while writing.write_all(&batch).is_ok() {});
    let mut buffer = vec![0; 64 << 10];
    wait_until("it is cut", || {
        // At most 6 MB a second: the socket always takes some, but never enough.
        let _ = socket.read(&mut buffer);
        (0..5).for_each(|_| pause());
        server.counted(Counter::SlowDeadline) == 1
    });
    flooding.join().expect("no panic");
}

/// Reads the PONGs for [`PINGS`] and checks that nothing else arrives but the server's own PING, which is
/// sent after two seconds.
fn take_pongs(socket: &mut TcpStream) {
    let (mut buffer, mut taken, mut pongs) = (vec![0; 64 << 10], 0, 0);
    while pongs < PINGS || taken % b"PONG\r\n".len() > 0 {
        let bytes = socket.read(&mut buffer).expect("an answer");
        assert!(bytes > 0, "closed after {taken} bytes");
        for (at, byte) in (taken..).zip(&buffer[..bytes]) {
            pongs += usize::from(*byte == b'O');
            assert!(*byte == b"PONG\r\n"[at % 6] || *byte == b"PING\r\n"[at % 6]);
        }
        taken += bytes;
    }
}

#[test]
fn a_pipeliner_that_reads_gets_all_its_answers() {
    let server = start(2, |_| {});
    let mut client = Client::new(&server);
    let mut writing = client.socket.try_clone().expect("a second handle");
    let sending = thread::spawn(move || writing.write_all(&b"PING\r\n".repeat(PINGS)).expect("sent"));
    take_pongs(&mut client.socket);
    sending.join().expect("no panic");
    client.ping();
    assert_eq!(slow(&server), 0);
}

/// A client that pipelines and begins to read only after the server has stopped reading from it gets all its
/// answers.
#[test]
fn a_paused_pipeliner_gets_all_its_answers() {
    let server = start(1, |config| {
        config.limits.max_pending = MAX_PENDING;
        // This client must not be cut, however busy the machine is.
        config.limits.write_deadline = Duration::from_secs(60);
    });
    let mut client = Client::new(&server);
    // A small receive buffer, so that the answers do not all fit into the kernel.
    socket2::SockRef::from(&client.socket).set_recv_buffer_size(64 << 10).expect("an option");
    let mut writing = client.socket.try_clone().expect("a second handle");
    let sending = thread::spawn(move || writing.write_all(&b"PING\r\n".repeat(PINGS)).expect("sent"));
    wait_until("nothing more is read from it", || server.counted(Counter::HeldForAnswers) > 0);
    pause();
    take_pongs(&mut client.socket);
    sending.join().expect("no panic");
    client.ping();
    assert_eq!(slow(&server), 0);
}
