//! Health of a server: the operator's decision, and the results of its probes and exchanges.
//!
//! ```text
//!            eject_after consecutive failures                 eject_time (doubled each time)
//!   Up ─────────────────────────────────────────▶ Ejected ─────────────────────────────▶ Warming ── slow_start ──▶ Up
//!    └── of the last `window` probes fewer than `threshold` were good ─▶ Sick ─ enough are ─▶ ┘
//!   Drained, Down: set by an operator, whatever the probes and exchanges show
//! ```
//! Every core reads this state for each request to an origin, and writes it on a change: there are no locks.
//! Two cores that write at once may count one failure as two or as one, which does no harm.

use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::config::ServerRules;

/// Maximum number of times that repeated ejections double their duration.
const DOUBLED_MAX: u32 = 5;
/// Steps in which a returning server's weight grows; it begins with one step.
pub(super) const WARMING_STEPS: u32 = 16;

/// Decision of an operator about a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByHand {
    /// No decision: the server is used while it is healthy.
    Auto,
    /// The server gets no new visitors, only those bound to it by their cookie.
    Drain,
    /// The server is not used.
    Down,
}

impl ByHand {
    /// All decisions, with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("drain", Self::Drain), ("down", Self::Down)];

    fn from_u8(value: u8) -> Self {
        Self::ALL[usize::from(value).min(2)].1
    }
}

/// State of a server, which decides whether it may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthState {
    /// The server is in rotation.
    Up,
    /// The server is back, and gets this many sixteenths of its share of requests.
    Warming(u32),
    /// The server failed repeatedly and is out of rotation for a while.
    Ejected,
    /// The server's probes fail.
    Sick,
    /// An operator is draining the server.
    Drained,
    /// An operator has taken the server down.
    Down,
}

impl HealthState {
    /// Returns whether the server may be asked if there is no better one.
    pub(super) fn may_be_asked(self) -> bool {
        matches!(self, Self::Up | Self::Warming(_) | Self::Ejected)
    }
}

/// Rules for ejections and probes, with times in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct HealthRules {
    eject_after: u32,
    eject_ms: u64,
    slow_start_ms: u64,
    window: u32,
    threshold: u32,
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl HealthRules {
    pub(super) fn of(rules: &ServerRules) -> Self {
        Self {
            eject_after: rules.eject_after,
            eject_ms: ms(rules.eject_time),
            slow_start_ms: ms(rules.slow_start),
            window: rules.probe.window,
            threshold: rules.probe.threshold,
        }
    }
}

/// Health of one server.
#[derive(Debug)]
pub(super) struct Health {
    rules: HealthRules,
    by_hand: AtomicU8,
    is_sick: AtomicBool,
    /// Results of the last probes, the newest in the lowest bit. Probes that have not been made yet count as
    /// good.
    probes: AtomicU64,
    /// Failures since the last success.
    failures: AtomicU32,
    /// Ejections since the server was last fully up.
    ejections: AtomicU32,
    /// Time at which the ejection ends; 0 if there is none.
    ejected_until_ms: AtomicU64,
    /// Time at which the server's probes became good again; 0 if they never failed.
    back_ms: AtomicU64,
}

impl Health {
    pub(super) fn new(rules: HealthRules) -> Self {
        Self {
            rules,
            by_hand: AtomicU8::new(0),
            is_sick: AtomicBool::new(false),
            probes: AtomicU64::new(u64::MAX),
            failures: AtomicU32::new(0),
            ejections: AtomicU32::new(0),
            ejected_until_ms: AtomicU64::new(0),
            back_ms: AtomicU64::new(0),
        }
    }

    /// Sets the operator's decision.
    pub(super) fn set(&self, by_hand: ByHand) {
        self.by_hand.store(by_hand as u8, Relaxed);
    }

    pub(super) fn by_hand(&self) -> ByHand {
        ByHand::from_u8(self.by_hand.load(Relaxed))
    }

    pub(super) fn standing(&self, now_ms: u64) -> HealthState {
        match self.by_hand() {
            ByHand::Drain => return HealthState::Drained,
            ByHand::Down => return HealthState::Down,
            ByHand::Auto => {}
        }
        if self.is_sick.load(Relaxed) {
            return HealthState::Sick;
        }
        let until_ms = self.ejected_until_ms.load(Relaxed);
        if now_ms < until_ms {
            return HealthState::Ejected;
        }
        let back_ms = self.back_ms.load(Relaxed).max(until_ms);
        let away_ms = now_ms.saturating_sub(back_ms);
        if back_ms == 0 || away_ms >= self.rules.slow_start_ms {
            return HealthState::Up;
        }
        let step = away_ms * u64::from(WARMING_STEPS) / self.rules.slow_start_ms;
        HealthState::Warming(u32::try_from(step).unwrap_or(WARMING_STEPS).max(1))
    }

    /// Records an answer of the server, whatever its status.
    pub(super) fn succeeded(&self, now_ms: u64) {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
        if self.ejections.load(Relaxed) != 0 && self.standing(now_ms) == HealthState::Up {
            self.ejections.store(0, Relaxed);
        }
    }

    /// Records that the server could not be reached, or ended an exchange without an answer. Returns whether
    /// it is ejected now.
    pub(super) fn failed(&self, now_ms: u64) -> bool {
        let failures = self.failures.load(Relaxed).saturating_add(1);
        self.failures.store(failures, Relaxed);
        let HealthRules { eject_after, eject_ms, .. } = self.rules;
        // Requests sent before the ejection may still fail.
        if eject_after == 0 || failures < eject_after || now_ms < self.ejected_until_ms.load(Relaxed) {
            return false;
        }
        let doubled = self.ejections.fetch_add(1, Relaxed).min(DOUBLED_MAX);
        self.ejected_until_ms.store(now_ms.saturating_add(eject_ms << doubled), Relaxed);
        // The first failure after the server's return ejects it again.
        self.failures.store(eject_after - 1, Relaxed);
        true
    }

    /// Records the result of a probe. Returns whether the server's state has changed.
    pub(super) fn probed(&self, is_good: bool, now_ms: u64) -> bool {
        let probes = self.probes.load(Relaxed) << 1 | u64::from(is_good);
        self.probes.store(probes, Relaxed);
        let is_sick = self.good_probes() < self.rules.threshold;
        if self.is_sick.swap(is_sick, Relaxed) == is_sick {
            return false;
        }
        if !is_sick {
            self.back_ms.store(now_ms, Relaxed);
            // The probes prove the server healthy, so an earlier ejection ends.
            self.ejected_until_ms.store(0, Relaxed);
        }
        true
    }

    /// Returns how many of the last `window` probes were good.
    pub(super) fn good_probes(&self) -> u32 {
        let window = self.rules.window.clamp(1, 64);
        (self.probes.load(Relaxed) & (u64::MAX >> (64 - window))).count_ones()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: HealthRules =
        HealthRules { eject_after: 3, eject_ms: 1000, slow_start_ms: 1600, window: 4, threshold: 2 };

    #[test]
    fn a_failing_server_is_ejected_and_slowly_readmitted() {
        let health = Health::new(RULES);
        assert_eq!(health.standing(5), HealthState::Up);
        assert!(!health.failed(10) && !health.failed(20));
        health.succeeded(30);
        assert!(!health.failed(40) && !health.failed(50));
        assert!(health.failed(100));
        assert!(!health.failed(101), "of what was asked before");
        assert_eq!(health.standing(1099), HealthState::Ejected);
        assert_eq!(health.standing(1100), HealthState::Warming(1));
        assert_eq!(health.standing(1900), HealthState::Warming(8));
        // The first failure after the server's return ejects it again, for twice as long.
        assert!(health.failed(2000));
        assert_eq!(health.standing(3999), HealthState::Ejected);
        health.succeeded(4000);
        assert_eq!(health.standing(5599), HealthState::Warming(15));
        assert_eq!(health.standing(5600), HealthState::Up);
        // The server is fully up, so its ejections are counted from zero again.
        health.succeeded(5600);
        assert!(!health.failed(5700) && !health.failed(5701) && health.failed(5702));
        assert_eq!(health.standing(6702), HealthState::Warming(1));
    }

    #[test]
    fn probes_are_counted_in_their_window() {
        let health = Health::new(RULES);
        assert!(!health.probed(false, 1) && !health.probed(false, 2));
        assert!(health.probed(false, 3));
        assert_eq!((health.standing(3), health.good_probes()), (HealthState::Sick, 1));
        assert!(!health.probed(false, 4) && !health.probed(true, 5));
        assert!(health.probed(true, 100));
        assert_eq!(health.standing(100), HealthState::Warming(1));
        assert_eq!(health.standing(1700), HealthState::Up);
    }

    #[test]
    fn an_operator_decides() {
        let health = Health::new(RULES);
        for (by_hand, standing) in [(ByHand::Drain, HealthState::Drained), (ByHand::Down, HealthState::Down)]
        {
            health.set(by_hand);
            assert_eq!((health.by_hand(), health.standing(1)), (by_hand, standing));
        }
        health.set(ByHand::Auto);
        assert_eq!(health.standing(1), HealthState::Up);
    }

    proptest! {
        #[test]
        fn a_window_is_what_its_last_probes_say(probes in prop::collection::vec(any::<bool>(), 0..100)) {
            let health = Health::new(RULES);
            for (at, is_good) in probes.iter().enumerate() {
                health.probed(*is_good, at as u64);
            }
            let before = [true; 4];
            let all: Vec<bool> = before.into_iter().chain(probes).collect();
            let good = all.iter().rev().take(4).filter(|is_good| **is_good).count();
            prop_assert_eq!(health.good_probes() as usize, good);
            prop_assert_eq!(health.is_sick.load(Relaxed), good < 2);
        }
    }
}
