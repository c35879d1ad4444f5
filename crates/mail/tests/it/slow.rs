//! Clients that send a byte at a time, and clients that take all connections: each holds a connection for a
//! limited time, and an address has a limited share of them.

use std::{
    io::{BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::common::{Client, config, connect, greeted};
use engine::cores::clock;
use mail::{Config, Server, config::Limits};

const SHORT: Duration = Duration::from_millis(200);
/// Longest wait, after which a test fails.
const PATIENCE_MS: u64 = 20_000;

/// Sends `bytes` over and over, a few at a time, until the server closes; returns the server's replies.
fn dribble(stream: &mut TcpStream, bytes: &[u8], at_a_time: usize) -> String {
    stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let begun_ms = clock::monotonic_ms();
    let mut said = Vec::new();
    for piece in bytes.chunks(at_a_time).cycle() {
        assert!(
            clock::monotonic_ms() - begun_ms < PATIENCE_MS,
            "it was never ended: {}",
            said.escape_ascii()
        );
        let _ = stream.write_all(piece);
        let mut part = [0; 4096];
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(read) => said.extend_from_slice(&part[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    String::from_utf8(said).unwrap()
}

fn counted(server: &Server, name: &str) -> String {
    let text = engine::meter::prometheus::encode(&server.registry());
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(str::to_owned).unwrap_or_default()
}

#[test]
fn a_command_has_a_time_however_it_comes() {
    let limits = Limits { command_time_max: SHORT, ..config().limits };
    let server = Server::start(Config { limits, ..config() }).unwrap();
    let mut stream = greeted(server.addresses().smtp).stream.into_inner();
    let said = dribble(&mut stream, b"NOOP and so on ", 1);
    assert!(said.starts_with("421 4.4.2"), "{said}");
    assert_eq!(counted(&server, "mail_timeouts_total"), "1");
}

#[test]
fn a_mail_has_a_time_however_it_comes() {
    let limits = Limits { mail_time_max: SHORT, ..config().limits };
    let server = Server::start(Config { limits, ..config() }).unwrap();
    let begin = |command: &str| {
        let mut client = greeted(server.addresses().smtp);
        client.expect("MAIL FROM:<a@client.test>", "250");
        client.expect("RCPT TO:<ann@inbox.test>", "250");
        client.expect(command, if command == "DATA" { "354" } else { "250" });
        client.stream.into_inner()
    };
    let said = dribble(&mut begin("DATA"), b"Subject: slow\r\n", 1);
    assert!(said.starts_with("421 4.4.2 The mail took too long"), "{said}");
    // BDAT chunks that are whole each.
    let said = dribble(&mut begin("BDAT 0"), b"BDAT 1\r\nx", 9);
    assert!(said.starts_with("250 ") && said.contains("\r\n421 4.4.2 The mail took too long"), "{said}");
    assert_eq!(counted(&server, "mail_slow_mails_total"), "2");
    assert_eq!(counted(&server, "mail_timeouts_total"), "0");
    // Several mails one after the other have their own time each.
    let mut client = greeted(server.addresses().smtp);
    let begun_ms = clock::monotonic_ms();
    while clock::monotonic_ms() - begun_ms < 2 * SHORT.as_millis() as u64 {
        assert!(client.mail("ann@inbox.test", "Subject: quick\r\n\r\n").starts_with("250"));
    }
}

#[test]
fn one_address_has_a_share_of_the_connections() {
    let limits = Limits { connections_max: 32, ..config().limits };
    assert_eq!(limits.address_connections_max(), 16);
    assert_eq!(Limits::default().address_connections_max(), 1250);
    let server = Server::start(Config { limits, ..config() }).unwrap();
    let _held: Vec<_> = (0..16).map(|_| greeted(server.addresses().smtp)).collect();
    assert!(connect(server.addresses().smtp).reply().starts_with("421 4.7.0"));
    let other = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    other.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    other.connect(&server.addresses().smtp.into()).unwrap();
    let mut greeting = [0; 3];
    TcpStream::from(other).read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"220");
    assert_eq!(counted(&server, "mail_address_connections_refused_total"), "1");
}

#[test]
fn sessions_are_limited_by_time_commands_and_bytes() {
    let over = "421 4.7.0 This session has lasted long enough";
    let limits = |limits: Limits| Config { limits, ..config() };
    // A client that is always busy, and never sends a mail.
    let server = Server::start(limits(Limits { session_time_max: SHORT, ..config().limits })).unwrap();
    let said = dribble(&mut greeted(server.addresses().smtp).stream.into_inner(), b"RSET\r\n", 6);
    assert!(said.starts_with("250 ") && said.contains(over), "{said}");
    // A client that is silent for less than a command's timeout.
    let mut silent = greeted(server.addresses().smtp);
    assert!(silent.reply().starts_with(over));
    assert_eq!(counted(&server, "mail_long_sessions_total"), "2");
    assert_eq!(counted(&server, "mail_timeouts_total"), "0");

    let server = Server::start(limits(Limits { session_commands_max: 20, ..config().limits })).unwrap();
    let mut client = greeted(server.addresses().smtp);
    // All commands are in one packet, so that no turn ends between them.
    client.stream.get_mut().write_all("NOOP\r\n".repeat(30).as_bytes()).unwrap();
    let replies: Vec<String> = (0..21).map(|_| client.reply()).collect();
    assert_eq!(replies.iter().filter(|reply| reply.starts_with("250 ")).count(), 20, "{replies:?}");
    assert!(replies[20].starts_with(over), "{replies:?}");

    // A mail that has begun is received to its end, and stored.
    let server = Server::start(limits(Limits { session_bytes_max: 4096, ..config().limits })).unwrap();
    let mut client = greeted(server.addresses().smtp);
    let long = format!("Subject: long\r\n\r\n{}", "and so on\r\n".repeat(1000));
    assert!(client.mail("ann@inbox.test", &long).starts_with("250 "));
    client.stream.get_mut().write_all(b"MAIL FROM:<a@client.test>\r\n").unwrap();
    assert!(client.reply().starts_with(over));
    assert_eq!(counted(&server, "mail_long_sessions_total"), "1");
}

/// Opens a session from 127.0.0.`last` and begins a mail.
fn begun_from(last: u8, server: &Server) -> Client<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
    socket.connect(&server.addresses().smtp.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut client = Client { stream: BufReader::new(stream) };
    assert!(client.reply().starts_with("220 "));
    for (line, code) in
        [("EHLO a.test", "250"), ("MAIL FROM:<a@a.test>", "250"), ("RCPT TO:<b@b.test>", "250")]
    {
        client.expect(line, code);
    }
    client
}

/// Sends `kib` KiB of a mail, or less if the server closes.
fn some(client: &mut Client<TcpStream>, kib: usize) {
    let line = format!("{}\r\n", "x".repeat(1022));
    let _ = (0..kib).try_for_each(|_| client.stream.get_mut().write_all(line.as_bytes()));
}

#[test]
fn unfinished_mails_are_bounded_overall_and_per_address() {
    // A large mail takes less than one MiB of the limit, whatever its size.
    let limits = Limits { receiving_bytes_max: 2 << 20, mail_bytes_max: 10 << 20, ..config().limits };
    let server = Server::start(Config { limits, ..config() }).unwrap();
    // One address may take half of the limit.
    let mut first = begun_from(1, &server);
    first.expect("DATA", "354");
    some(&mut first, 700);
    let mut greedy = begun_from(1, &server);
    greedy.expect("DATA", "354");
    some(&mut greedy, 9 << 10);
    assert!(greedy.reply().contains("your network"));
    drop(first);
    assert_eq!(counted(&server, "mail_address_receiving_full_total"), "1");
    // Five addresses within their own shares exceed the total together; then no mail may begin.
    let mut five: Vec<_> = (1..=5).map(|last| begun_from(last, &server)).collect();
    for client in &mut five {
        let reply = client.say("DATA");
        assert!(reply.starts_with("354") || reply.starts_with("452 4.3.1 Too many mails are"), "{reply}");
        if reply.starts_with("354") {
            some(client, 3900);
        }
    }
    let full = || counted(&server, "mail_receiving_full_total").parse::<u32>().unwrap() > 0;
    let begun_ms = clock::monotonic_ms();
    while !full() {
        assert!(clock::monotonic_ms() - begun_ms < PATIENCE_MS);
        std::thread::yield_now();
    }
    // Memory of refused mails, and of mails whose sender left, is free again.
    drop((greedy, five));
    loop {
        let mut again = begun_from(1, &server);
        let reply = again.say("DATA");
        if reply.starts_with("354") {
            some(&mut again, 3900);
            assert!(again.say(".").starts_with("250 "));
            break;
        }
        assert!(clock::monotonic_ms() - begun_ms < PATIENCE_MS, "{reply}");
    }
}
