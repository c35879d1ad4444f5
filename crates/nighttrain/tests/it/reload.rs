//! SIGHUP to `serve` reloads what each server reloads on its own.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    process::Stdio,
};

use crate::support::program;

/// The feed's first answer to a client with this user name.
fn greeting(feed: SocketAddr, user: &str) -> String {
    let mut stream = TcpStream::connect(feed).expect("it listens");
    let connect =
        format!("CONNECT {{\"verbose\":false,\"user\":\"{user}\",\"pass\":\"s3cret\"}}\r\nPING\r\n");
    stream.write_all(connect.as_bytes()).expect("it reads");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("text"));
    lines.find(|line| !line.starts_with("INFO")).expect("a word")
}

/// Opens an authenticated connection.
fn connected_as(feed: SocketAddr, user: &str) -> TcpStream {
    let mut stream = TcpStream::connect(feed).expect("it listens");
    let connect =
        format!("CONNECT {{\"verbose\":false,\"user\":\"{user}\",\"pass\":\"s3cret\"}}\r\nPING\r\n");
    stream.write_all(connect.as_bytes()).expect("it reads");
    let mut seen = Vec::new();
    while !seen.ends_with(b"PONG\r\n") {
        let mut byte = [0];
        std::io::Read::read_exact(&mut stream, &mut byte).expect("an answer");
        seen.push(byte[0]);
    }
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("an option");
    stream
}

/// SMTP reply to MAIL FROM with this address.
fn sender(smtp: SocketAddr, address: &str) -> String {
    let mut stream = TcpStream::connect(smtp).expect("it listens");
    write!(stream, "HELO a.example\r\nMAIL FROM:<{address}>\r\nQUIT\r\n").expect("it reads");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("text"));
    lines.nth(2).expect("an answer")
}

#[test]
fn a_reload_rereads_feed_users_and_mail_bans() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("written");
    let user = |name: &str| format!("authorization {{ user: {name}, password: s3cret }}\n");
    write("nats.conf", &user("ann"));
    write("banned", "");
    let text = format!(
        "admin = \"127.0.0.1:0\"\n[cache]\nlisten = \"127.0.0.1:0\"\nmemory = \"64MiB\"\n\
         [feed]\nlisten = \"127.0.0.1:0\"\nmonitor = \"127.0.0.1:0\"\nnats-config = {:?}\n\
         [mail]\nsmtp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nstore = \"anon\"\nstore-size = \"128MiB\"\nbanned = {:?}\n",
        path("nats.conf"),
        path("banned"),
    );
    write("nighttrain.toml", &text);
    let mut child = program(&["serve", "--config"])
        .arg(path("nighttrain.toml"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let (mut feed, mut smtp) = (None, None);
    for line in BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("text")) {
        let address = |what: &str| line.strip_prefix(what).map(|at| at.parse().expect("an address"));
        feed = feed.or(address("feed: listening on nats://"));
        smtp = smtp.or(address("mail: listening on smtp://"));
        if line.starts_with("admin:") {
            break;
        }
    }
    let (feed, smtp) = (feed.expect("the feed's address"), smtp.expect("mail's address"));
    let mut log = BufReader::new(child.stderr.take().expect("piped"));
    let mut reload = |until: &str| {
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::HUP)
            .expect("our child");
        let mut seen = String::new();
        while !seen.contains(until) {
            assert!(log.read_line(&mut seen).expect("text") > 0, "it ended without `{until}`: {seen}");
        }
    };

    assert_eq!(greeting(feed, "ann"), "PONG");
    let mut connected = connected_as(feed, "ann");
    assert!(greeting(feed, "bob").starts_with("-ERR 'Authorization Violation'"));
    assert!(sender(smtp, "x@spam.example").starts_with("250"));

    write("nats.conf", &user("bob"));
    write("banned", "sender @spam.example\n");
    reload("reload: 1 lines of bans");
    let mut rest = String::new();
    // A client whose user no longer exists gets an error and is closed.
    _ = std::io::Read::read_to_string(&mut connected, &mut rest);
    assert!(rest.ends_with("-ERR 'Authorization Violation'\r\n"), "{rest}");
    assert!(greeting(feed, "ann").starts_with("-ERR 'Authorization Violation'"));
    assert_eq!(greeting(feed, "bob"), "PONG");
    assert!(sender(smtp, "x@spam.example").starts_with('5'));

    // A mistake in one server's file changes nothing in the others.
    write("nats.conf", "authorization { user: cid }\n");
    write("banned", "");
    reload("configuration unchanged");
    assert_eq!(greeting(feed, "bob"), "PONG");
    assert!(sender(smtp, "x@spam.example").starts_with('5'));

    _ = child.kill();
    _ = child.wait();
}
