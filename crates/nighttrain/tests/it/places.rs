//! Clients that hold connections of the admin port, monitoring and the mail pages do not keep others out.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Stdio},
    time::Duration,
};

use crate::support::program;

/// Far longer than any machine needs for one answer, and shorter than the timeout of a request's head: an
/// answer within it did not wait for that timeout.
const PATIENCE: Duration = Duration::from_secs(9);

struct Everything {
    child: Child,
    ports: Vec<(&'static str, SocketAddr)>,
    _state: tempfile::TempDir,
}

impl Everything {
    fn start() -> Self {
        let state = tempfile::tempdir().expect("a directory");
        let path = state.path().join("nighttrain.toml");
        let text = "admin = \"127.0.0.1:0\"\n[cache]\nlisten = \"127.0.0.1:0\"\nmemory = \"64MiB\"\n\
                    [feed]\nlisten = \"127.0.0.1:0\"\nmonitor = \"127.0.0.1:0\"\n\
                    [mail]\nsmtp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nstore = \"anon\"\nstore-size = \"128MiB\"\n";
        std::fs::write(&path, text).expect("written");
        let mut child = program(&["serve", "--config"])
            .arg(path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        let mut ports = Vec::new();
        for line in said.lines().map(|line| line.expect("text")) {
            for (what, page) in [
                ("monitor: listening on http://", "/varz"),
                ("mail: inboxes on http://", "/inbox/a@b.example"),
                ("admin: listening on http://", "/metrics"),
            ] {
                if let Some(address) = line.strip_prefix(what) {
                    ports.push((page, address.parse().expect("an address")));
                }
            }
            if line.starts_with("admin:") {
                break;
            }
        }
        assert_eq!(ports.len(), 3);
        Self { child, ports, _state: state }
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        // The process may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn connected(address: SocketAddr, said: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(said.as_bytes()).expect("the kernel takes it");
    stream
}

#[test]
fn idle_and_slow_connections_block_no_page() {
    let everything = Everything::start();
    for (page, address) in everything.ports.iter().copied() {
        for said in ["", "GET / HTTP/1.1\r\nHost: localhost\r\nX: "] {
            let mut strangers = Vec::new();
            for count in [64, 1000] {
                while strangers.len() < count {
                    strangers.push(connected(address, said));
                }
                let request = format!("GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
                let mut honest = connected(address, &request);
                honest.set_read_timeout(Some(PATIENCE)).expect("a time");
                let mut answer = Vec::new();
                honest.read_to_end(&mut answer).unwrap_or_else(|error| panic!("{page}, {count}: {error}"));
                assert!(answer.starts_with(b"HTTP/1.1 200 "), "{page}, {count}");
            }
        }
    }
}
