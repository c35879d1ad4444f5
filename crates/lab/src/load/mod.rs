//! An open-loop load generator: it sends when a request is due, and measures from then (claims C17–C19).
//!
//! ```text
//!  schedule ──due──▶ idle connection? ──yes──▶ send ──▶ answer ──▶ Latencies(due, sent, answered)
//!                        └── no: the request waits, and its wait counts as the server's
//! ```
//! *One thread* handles all connections with one epoll instance. It polls busily while a request is due
//! within [`SLEEP_NS`], because a kernel timer is less precise. *Own delays are reported:* if a request was
//! due and a connection was free, every further delay before sending is the generator's own. This lateness
//! has a histogram of its own, which is shown beside the server's figures and judged in
//! [`Outcome::is_disturbed`].
//!
//! Requests that are still waiting at the end count with their wait so far, so that an overloaded server's
//! percentiles are lower bounds; the outcome reports this.

mod client;
mod connection;
pub mod report;
mod run;
mod schedule;
pub mod sweep;
mod target;

use std::time::Duration;

pub use client::InvalidReply;
pub use run::{LoadError, rest, run};
pub use schedule::{Arrivals, Schedule};
use serde::Serialize;
pub use target::{Target, TargetError};

use crate::latency::{Latencies, LatencyOrigin, readable};

/// Time before a due request during which the generator polls; for longer waits it sleeps until the kernel
/// wakes it.
pub const SLEEP_NS: u64 = 1_500_000;
/// Maximum number of connections: each needs a file descriptor.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Fraction of the server's corrected 99th percentile. A run counts as disturbed if the 99th percentile of
/// the generator's own lateness exceeds both this fraction and [`LATENESS_NS`].
const LATENESS_SHARE: f64 = 0.1;
/// Lateness in nanoseconds that is always acceptable; see [`LATENESS_SHARE`].
const LATENESS_NS: u64 = 20_000;
/// Maximum lateness of the generator, in nanoseconds, that does not count as a stall.
const STALL_NS: u64 = 1_000_000;

/// Parameters of a load run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Requests per second.
    pub rate: f64,
    /// Distribution of the due times.
    pub arrivals: Arrivals,
    /// Seed of the schedule.
    pub seed: u64,
    /// Number of connections, which are opened before the start.
    pub connections: usize,
    /// Duration of the warm-up, at the same rate, before anything is recorded.
    pub warm_up: Duration,
    /// Time during which requests become due.
    pub duration: Duration,
    /// Time to wait for answers after `duration`.
    pub drain: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            rate: 1_000.0,
            arrivals: Arrivals::Constant,
            seed: 1,
            connections: 16,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(10),
            drain: Duration::from_secs(2),
        }
    }
}

/// Counts of a run's connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Connections {
    /// Connections that were opened; a reconnect counts again.
    pub opened: u64,
    /// Connections on which a request was sent.
    pub used: u64,
    /// Connections on which an answer arrived.
    pub answered: u64,
    /// Connections that the server ended before any answer.
    pub refused: u64,
}

impl Connections {
    fn note(&mut self, connection: &connection::Connection) {
        self.opened += 1;
        self.used += u64::from(connection.is_used);
        self.answered += u64::from(connection.is_answered);
    }
}

/// Result of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Planned requests per second.
    pub offered: f64,
    /// Answers per second, from the end of the warm-up until the last answer; late answers to warm-up
    /// requests count, too.
    pub achieved: f64,
    /// Counts of the run's connections.
    pub connections: Connections,
    /// Requests that were due after the warm-up.
    pub due: u64,
    /// Number of requests in `due` that were answered.
    pub answered: u64,
    /// Answers that reported a refusal or failure (an HTTP status from 400 on, an SMTP reply from 400 on),
    /// including the warm-up.
    pub refused: u64,
    /// Text of the first answer that reported a refusal or failure.
    pub first_refusal: Option<String>,
    /// Requests that were lost with their connection.
    pub lost: u64,
    /// Reason for the first loss.
    pub first_loss: Option<String>,
    /// Number of connections that were reopened.
    pub reconnects: u64,
    /// Requests that still waited for a connection or for their answer at the end.
    pub unanswered: u64,
    /// Latencies; unanswered requests are included with their wait so far.
    pub latencies: Latencies,
    /// Delay of each request beyond the earliest time at which it could have been sent, in nanoseconds.
    pub lateness: Latencies,
    /// CPU time of the generator's thread over its wall-clock time.
    pub busy: f64,
    /// Number of times that the generator's thread was preempted.
    pub preempted: u64,
}

/// Figures of an [`Outcome`] as JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    offered_per_s: f64,
    achieved_per_s: f64,
    due: u64,
    answered: u64,
    refused: u64,
    lost: u64,
    unanswered: u64,
    reconnects: u64,
    connections: Connections,
    corrected_ns: crate::latency::Percentiles,
    uncorrected_ns: crate::latency::Percentiles,
    generator_lateness_ns: crate::latency::Percentiles,
    generator_preempted: u64,
    disturbed: bool,
}

impl Outcome {
    /// Returns whether the generator itself was so late that its figures say little about the server.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        let own = self.lateness.quantile(LatencyOrigin::Due, 0.99);
        own > LATENESS_NS
            && own as f64 > LATENESS_SHARE * self.latencies.quantile(LatencyOrigin::Due, 0.99) as f64
    }

    /// Returns whether the generator once stalled for a substantial part of the worst latency that is
    /// reported for the server.
    #[must_use]
    pub fn has_stalled(&self) -> bool {
        let own = self.lateness.percentiles(LatencyOrigin::Due).worst;
        own > STALL_NS
            && own as f64 > LATENESS_SHARE * self.latencies.percentiles(LatencyOrigin::Due).worst as f64
    }

    /// Returns whether the server did not keep up: more than one in fifty requests was unanswered or lost, or
    /// the rate was not reached.
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        (self.unanswered + self.lost) * 50 > self.due || self.achieved < 0.98 * self.offered
    }

    /// Returns warnings that a reader of the figures needs, if there are any.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.is_disturbed() {
            warnings.push(format!(
                "the generator itself was late by {} at its 99th percentile (put off its core {} times): a quieter \
                 machine or a lower rate would tell more",
                readable(self.lateness.quantile(LatencyOrigin::Due, 0.99)),
                self.preempted
            ));
        }
        if self.has_stalled() && !self.is_disturbed() {
            let own = self.lateness.percentiles(LatencyOrigin::Due);
            warnings.push(format!(
                "the generator itself stood still for up to {} (99% within {}; put off its core {} times): what is told \
                 beyond the 99th percentile is as much its own as the server's",
                readable(own.worst),
                readable(own.p99),
                self.preempted
            ));
        }
        let Connections { opened, used, answered, .. } = self.connections;
        if answered < used {
            warnings.push(format!(
                "of {opened} connections {used} were used and {answered} were answered: the server does not serve all"
            ));
        }
        if self.unanswered > 0 {
            warnings.push(format!(
                "{} requests were unanswered at the end; they count with what they had waited, so the percentiles \
                 are lower bounds",
                self.unanswered
            ));
        }
        if self.achieved < 0.98 * self.offered {
            let who = if self.busy > 0.95 && self.is_disturbed() { "the generator" } else { "the server" };
            warnings.push(format!(
                "{:.0} a second were asked for and {:.0} reached: {who} does not keep up",
                self.offered, self.achieved
            ));
        }
        if let Some(loss) = &self.first_loss {
            warnings
                .push(format!("{} requests were lost with their connection, the first: {loss}", self.lost));
        }
        if let Some(refusal) = &self.first_refusal {
            warnings.push(format!("{} requests were refused, the first: {refusal}", self.refused));
        }
        warnings
    }

    /// Returns the figures for JSON.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            offered_per_s: self.offered,
            achieved_per_s: self.achieved,
            due: self.due,
            answered: self.answered,
            refused: self.refused,
            lost: self.lost,
            unanswered: self.unanswered,
            reconnects: self.reconnects,
            connections: self.connections,
            corrected_ns: self.latencies.percentiles(LatencyOrigin::Due),
            uncorrected_ns: self.latencies.percentiles(LatencyOrigin::Sent),
            generator_lateness_ns: self.lateness.percentiles(LatencyOrigin::Due),
            generator_preempted: self.preempted,
            disturbed: self.is_disturbed(),
        }
    }
}
