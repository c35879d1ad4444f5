//! Stands in for `cache::Server` until the accelerator lands: listens, and answers 503.
#![allow(missing_docs, clippy::unnecessary_wraps, clippy::unused_self)]
use std::{
    io::Write,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use cache::config::Config;
use engine::meter::Registry;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purged {
    #[allow(dead_code)]
    Dropped,
    Absent,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PurgeError {
    #[error("not a URL: {0:?}; it should look like http://www.example.org/path")]
    NotAUrl(String),
    #[error("the core that owns the object did not answer; the server may be stopping")]
    NoAnswer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drained {
    Clean,
    #[allow(dead_code)]
    CutShort,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("{0}")]
    Listen(std::io::Error),
}

pub(crate) struct Server {
    addresses: Vec<SocketAddr>,
    registry: Arc<Registry>,
}

impl Server {
    pub(crate) fn start(config: Config) -> Result<Self, StartError> {
        let listener =
            engine::cores::listener::bind_all(config.listen, 1).map_err(StartError::Listen)?.remove(0);
        let address = listener.local_addr().map_err(StartError::Listen)?;
        listener.set_nonblocking(false).map_err(StartError::Listen)?;
        std::thread::spawn(move || answer(&listener));
        Ok(Self { addresses: vec![address], registry: Arc::new(Registry::new()) })
    }
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }
    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }
    pub(crate) fn is_ready(&self) -> bool {
        true
    }
    pub(crate) fn purge(&self, url: &str) -> Result<Purged, PurgeError> {
        if url.starts_with("http://") { Ok(Purged::Absent) } else { Err(PurgeError::NotAUrl(url.to_owned())) }
    }
    pub(crate) fn drain(self, _at_most: Duration) -> Drained {
        Drained::Clean
    }
}

fn answer(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        let mut stream = stream;
        _ = stream
            .write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
}
