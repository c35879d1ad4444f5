//! A client that sends lines and reads replies, and a server on free ports.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use mail::{
    Config, Mailstore, Server,
    config::Limits,
    mailboxes::{Inbox, Mailboxes, Scope, Summary},
};

/// Client address of mails that are delivered by the API.
pub(crate) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A configuration for tests: free ports, one core, a store in memory.
pub(crate) fn config() -> Config {
    Config {
        smtp: SocketAddr::from(([127, 0, 0, 1], 0)),
        lmtp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        cores: vec![first_processor()],
        name: "mx.test".to_owned(),
        default_domain: "inbox.test".to_owned(),
        store_bytes: 128 << 20,
        limits: Limits { mail_bytes_max: 1 << 20, ..Limits::default() },
        ..Config::default()
    }
}

pub(crate) fn first_processor() -> usize {
    engine::cores::available().unwrap()[0]
}

pub(crate) struct Client<S> {
    pub(crate) stream: BufReader<S>,
}

pub(crate) fn connect(address: SocketAddr) -> Client<TcpStream> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    Client { stream: BufReader::new(stream) }
}

/// Connects and sends EHLO.
pub(crate) fn greeted(address: SocketAddr) -> Client<TcpStream> {
    let mut client = connect(address);
    assert!(client.reply().starts_with("220 mx.test ESMTP"));
    assert!(client.say("EHLO client.test").starts_with("250-mx.test"));
    client
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Reads a whole reply with all of its lines; "" if the server has closed.
    pub(crate) fn reply(&mut self) -> String {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).unwrap_or(0) == 0 {
                return text;
            }
            let last = line.as_bytes().get(3) != Some(&b'-');
            text.push_str(&line);
            if last {
                return text;
            }
        }
    }

    pub(crate) fn say(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes());
        self.reply()
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, line: &str, begin: &str) {
        let reply = self.say(line);
        assert!(reply.starts_with(begin), "{line}: {reply}");
    }

    /// Sends a mail; returns the last reply.
    #[track_caller]
    pub(crate) fn mail(&mut self, to: &str, text: &str) -> String {
        self.expect("MAIL FROM:<sender@client.test>", "250 2.1.0");
        self.expect(&format!("RCPT TO:<{to}>"), "250 2.1.5");
        self.expect("DATA", "354");
        self.send(text.as_bytes());
        self.say("\r\n.")
    }
}

/// Runs a request to the mail store to its end.
pub(crate) fn ask<T>(question: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(question)
}

pub(crate) fn inbox(address: &str) -> Scope {
    Scope::Inbox(Inbox::of(address, "inbox.test").unwrap())
}

pub(crate) fn list(store: &Mailstore, scope: &Scope) -> Vec<Arc<Summary>> {
    ask(store.list(scope, 0, 10_000)).unwrap()
}

pub(crate) fn subjects(store: &Mailstore, scope: &Scope) -> Vec<String> {
    list(store, scope).iter().map(|mail| String::from_utf8_lossy(&mail.subject).into_owned()).collect()
}

/// Stops the server as SIGTERM would.
pub(crate) fn drain(server: Server) {
    assert!(server.drain(Duration::from_secs(20)).unwrap().is_clean());
}
