//! `nighttrain mail` as a process of its own, and a rude SMTP client.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::{PATIENCE, program::command};

/// A running mail service; killed when dropped.
pub struct MailService {
    child: Child,
    /// Address of the SMTP server.
    pub smtp: SocketAddr,
    /// Address of the LMTP server, if it was enabled.
    pub lmtp: Option<SocketAddr>,
    /// Address of the web pages and APIs.
    pub http: SocketAddr,
    /// Address of the admin server.
    pub admin: SocketAddr,
}

impl MailService {
    /// Starts the service on free ports with more flags, and waits until it has printed its addresses.
    ///
    /// # Panics
    /// If the service does not start.
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = command();
        command.args(["mail", "--smtp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.args(arguments).stdout(Stdio::piped());
        Self::of(command)
    }

    /// Starts the service with its mails in this file.
    pub fn with_store(store: &Path, arguments: &[&str]) -> Self {
        Self::with_store_of("128MiB", store, arguments)
    }

    /// Starts the service with its mails in this file, of this size.
    pub fn with_store_of(size: &str, store: &Path, arguments: &[&str]) -> Self {
        let path = store.to_str().expect("a path in UTF-8");
        Self::start(&[&["--store", path, "--store-size", size], arguments].concat())
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.spawn().expect("it can be started");
        let stdout = child.stdout.take().expect("it is piped");
        let (mut smtp, mut lmtp, mut http, mut admin) = (None, None, None, None);
        for line in BufReader::new(stdout).lines() {
            let line = line.expect("text");
            let address = || line.rsplit("//").next().and_then(|text| text.parse().ok());
            match line.split("//").next() {
                Some("mail: listening on smtp:") => smtp = address(),
                Some("mail: listening on lmtp:") => lmtp = address(),
                Some("mail: inboxes on http:") => http = address(),
                Some("admin: listening on http:") => {
                    admin = address();
                    break;
                }
                _ => {}
            }
        }
        let (Some(smtp), Some(http), Some(admin)) = (smtp, http, admin) else {
            let _ = child.kill();
            panic!("it did not say where it listens: {:?}", child.wait());
        };
        Self { child, smtp, lmtp, http, admin }
    }

    /// Ends the service with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Sends SIGTERM, and checks that the service exits successfully.
    pub fn stop(self) {
        self.signal("TERM");
        self.ends();
    }

    /// Waits for a service that was told to stop, and checks that it exits successfully.
    pub fn ends(mut self) {
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }

    /// Returns the subjects of an inbox from the API, newest first.
    pub fn subjects(&self, inbox: &str) -> Vec<String> {
        let body = self.get(&format!("/api/v2/domains/public/inboxes/{inbox}?limit=99"));
        let json: serde_json::Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"));
        let messages = json["msgs"].as_array().expect("msgs");
        messages.iter().map(|mail| mail["subject"].as_str().expect("a subject").to_owned()).collect()
    }

    /// Fetches a page from the web server.
    pub fn get(&self, path: &str) -> String {
        get(self.http, path)
    }

    /// Returns the value of a metric.
    pub fn counted(&self, name: &str) -> f64 {
        let text = get(self.admin, "/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not there")).parse().expect("a number")
    }
}

impl Drop for MailService {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).expect("a body")
}

/// An SMTP client that sends lines and reads replies.
pub struct Smtp {
    stream: BufReader<TcpStream>,
}

impl Smtp {
    /// Connects, reads the greeting and sends EHLO.
    ///
    /// # Errors
    /// The server is gone.
    pub fn greeted(address: SocketAddr) -> std::io::Result<Self> {
        Self::over(TcpStream::connect(address)?)
    }

    /// Makes a client of an open connection: reads the greeting and sends EHLO.
    ///
    /// # Errors
    /// The server is gone.
    pub fn over(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut client = Self { stream: BufReader::new(stream) };
        client.reply()?;
        client.say("EHLO client.test\r\n")?;
        Ok(client)
    }

    /// Sends bytes without waiting for a reply.
    ///
    /// # Errors
    /// The server is gone.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends bytes and reads one reply with all of its lines.
    ///
    /// # Errors
    /// The server is gone.
    pub fn say(&mut self, bytes: &str) -> std::io::Result<String> {
        self.stream.get_mut().write_all(bytes.as_bytes())?;
        self.reply()
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// The server is gone.
    pub fn reply(&mut self) -> std::io::Result<String> {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let last = line.as_bytes().get(3) != Some(&b'-');
            text.push_str(&line);
            if last {
                return Ok(text);
            }
        }
    }

    /// Sends a mail, and returns whether the server accepted it with 250.
    ///
    /// # Errors
    /// The server is gone.
    pub fn mail(&mut self, to: &str, text: &str) -> std::io::Result<bool> {
        for line in ["MAIL FROM:<sender@client.test>", &format!("RCPT TO:<{to}>"), "DATA"] {
            if !self.say(&format!("{line}\r\n"))?.starts_with(['2', '3']) {
                return Ok(false);
            }
        }
        Ok(self.say(&format!("{text}\r\n.\r\n"))?.starts_with("250"))
    }
}
