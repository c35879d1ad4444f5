//! A siege: attackers of every port at once, honest clients beside them, and the results.
//!
//! ```text
//!   siege attack ──▶ a process of its own: a thread an attack, each with its crowd of connections
//!   siege run ─────▶ nighttrain serve with default limits ◀── honest clients, from another address
//!                        └ memory, counters, what was acknowledged: looked at while and after
//! ```
//!
//! The attackers know only addresses, so they can be run against any server that speaks the same protocols:
//! `siege attack --feed HOST:PORT --seconds 60`.

pub mod attacks;
pub mod crowd;
pub mod honest;
mod http2;
mod mail;
pub mod origin;
mod origins;
pub mod peers;
pub mod server;

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Addresses under attack. Parts that a server does not have are left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Target {
    /// The accelerator.
    pub cache: Option<SocketAddr>,
    /// A feed, or a nats-server.
    pub feed: Option<SocketAddr>,
    /// The feed's WebSocket port.
    pub web: Option<SocketAddr>,
    /// The feed's monitoring port.
    pub monitor: Option<SocketAddr>,
    /// The SMTP server.
    pub smtp: Option<SocketAddr>,
    /// The mail service's web pages and APIs.
    pub pages: Option<SocketAddr>,
    /// The admin server.
    pub admin: Option<SocketAddr>,
}

/// Part of the server for which there is a peer to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The accelerator.
    Cache,
    /// The feed.
    Feed,
}

impl Target {
    /// Returns the target with only the addresses of one part.
    #[must_use]
    pub fn only(&self, part: Part) -> Self {
        match part {
            Part::Cache => Self { cache: self.cache, ..Self::default() },
            Part::Feed => Self { feed: self.feed, monitor: self.monitor, ..Self::default() },
        }
    }

    /// Returns the addresses with their names on the command line.
    pub fn parts(&mut self) -> [(&'static str, &mut Option<SocketAddr>); 7] {
        [
            ("cache", &mut self.cache),
            ("feed", &mut self.feed),
            ("web", &mut self.web),
            ("monitor", &mut self.monitor),
            ("smtp", &mut self.smtp),
            ("pages", &mut self.pages),
            ("admin", &mut self.admin),
        ]
    }
}

/// End of the siege.
#[derive(Debug)]
pub struct Until {
    end: Instant,
    stopped: AtomicBool,
    /// Attacks that have not yet delivered their mails.
    unprepared: AtomicUsize,
}

impl Until {
    /// Makes an end after this time.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        Self { end: Instant::now() + time, stopped: AtomicBool::new(false), unprepared: AtomicUsize::new(0) }
    }

    /// Ends the siege early.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Sets the number of attacks that deliver mails before the others begin: beside a flood the mails would
    /// find no room.
    pub(crate) fn prepare(&self, attacks: usize) {
        self.unprepared.store(attacks, Ordering::Release);
    }

    /// Notes that one attack has delivered its mails.
    pub(crate) fn note_prepared(&self) {
        self.unprepared.fetch_sub(1, Ordering::Release);
    }

    /// Waits until every attack has delivered its mails.
    pub(crate) fn wait_for_prepared(&self) {
        while self.unprepared.load(Ordering::Acquire) > 0 && !self.is_over() {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns whether the siege is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || Instant::now() >= self.end
    }
}
