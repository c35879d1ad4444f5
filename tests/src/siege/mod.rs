//! A siege: attackers of every port at once, honest clients beside them, and what came of it.
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

/// What is attacked. What a server does not have is left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Target {
    /// The accelerator.
    pub cache: Option<SocketAddr>,
    /// A feed, or a nats-server.
    pub feed: Option<SocketAddr>,
    /// The feed's WebSocket port.
    pub web: Option<SocketAddr>,
    /// Its monitoring.
    pub monitor: Option<SocketAddr>,
    /// Where mail is taken.
    pub smtp: Option<SocketAddr>,
    /// Its pages and APIs.
    pub pages: Option<SocketAddr>,
    /// The admin server.
    pub admin: Option<SocketAddr>,
}

/// One server's parts, beside a peer that has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The accelerator.
    Cache,
    /// The feed.
    Feed,
}

impl Target {
    /// What is left of it when only one server is attacked.
    #[must_use]
    pub fn only(&self, part: Part) -> Self {
        match part {
            Part::Cache => Self { cache: self.cache, ..Self::default() },
            Part::Feed => Self { feed: self.feed, monitor: self.monitor, ..Self::default() },
        }
    }

    /// Its parts by the names that the command line has for them.
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

/// When it is over.
#[derive(Debug)]
pub struct Until {
    end: Instant,
    stopped: AtomicBool,
    /// Attacks that have not yet handed over the mails that they are about.
    unprepared: AtomicUsize,
}

impl Until {
    /// After so long.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        Self { end: Instant::now() + time, stopped: AtomicBool::new(false), unprepared: AtomicUsize::new(0) }
    }

    /// Before its time.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Sets how many attacks hand mails over before the others begin: beside a flood they find no room.
    pub(crate) fn prepare(&self, attacks: usize) {
        self.unprepared.store(attacks, Ordering::Release);
    }

    /// Notes that one attack has handed its mails over.
    pub(crate) fn note_prepared(&self) {
        self.unprepared.fetch_sub(1, Ordering::Release);
    }

    /// Waits until every attack has handed its mails over.
    pub(crate) fn wait_for_prepared(&self) {
        while self.unprepared.load(Ordering::Acquire) > 0 && !self.is_over() {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether it is.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || Instant::now() >= self.end
    }
}
