//! Schedule of certificate renewal, as pure functions of the time.
//!
//! ```text
//!  none, or an order under way ──────────────────────────────▶ order, unless a failure makes it wait
//!  valid ── when the CA's window is old: ask for it (ARI) ───▶ order at a moment within the window (RFC 9773 §4.2)
//!        └─ the CA suggests none ────────────────────────────▶ order when two thirds of its lifetime are over
//! ```
//! The moment within a window is derived from the certificate itself, so that a restart gives the same
//! moment. The waits after failures grow ([`wait_s`]); they are long enough that a name whose validation
//! fails stays within five attempts an hour, which is what Let's Encrypt allows.

use std::time::Duration;

/// Longest wait while the CA cannot be reached; attempts then cost the CA nothing.
pub(crate) const UNREACHABLE_WAIT_S_MAX: i64 = 60 * 60;
/// Longest wait while the CA refuses orders. Renewal begins with a third of the certificate's lifetime left,
/// which allows many attempts.
pub(crate) const REFUSED_WAIT_S_MAX: i64 = 6 * 60 * 60;
/// Wait if the CA reports too many requests without naming a time.
pub(crate) const LIMITED_WAIT_S: i64 = 60 * 60;
/// Longest accepted Retry-After; if the CA names a later time, the request is repeated after this time
/// anyway.
pub(crate) const RETRY_AFTER_S_MAX: i64 = 7 * 24 * 60 * 60;
/// Minimum time between the start of a replacement certificate's validity and its own renewal; a tenth of its
/// lifetime if that is less. A certificate whose renewal window is in the past is replaced at once (RFC 9773
/// §4.2), so a CA whose windows are always in the past would otherwise cause one order after another.
pub(crate) const RENEWED_AFTER_S: i64 = 24 * 60 * 60;
/// Upper bound of the values that [`wait_s`] returns. A stored wait beyond it was written while the clock was
/// ahead.
const WAIT_S_MAX: i64 = RETRY_AFTER_S_MAX + REFUSED_WAIT_S_MAX;
/// Shortest and longest interval between requests for a CA's window, whatever the CA suggests (RFC 9773
/// §4.3.2).
pub(crate) const ASK_EVERY_S: (i64, i64) = (60, 24 * 60 * 60);
/// Interval after which a request for the renewal window is repeated if the CA did not answer.
pub(crate) const ASK_AGAIN_S: i64 = 60 * 60;
/// Maximum number of new orders in [`ORDERS_SPAN_S`]; Let's Encrypt allows an account 300 in three hours.
pub(crate) const ORDERS_MAX: usize = 250;
/// Time span to which [`ORDERS_MAX`] applies.
pub(crate) const ORDERS_SPAN_S: i64 = 3 * 60 * 60;

/// Kind of a failure, which decides when the next attempt is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The CA does not answer, or reports an outage.
    Unreachable,
    /// The CA refuses, or its certificate cannot be used.
    Refused,
    /// The CA limits our rate.
    Limited,
}

/// State of a certificate from which the next action is computed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct RenewalSchedule {
    /// Start and end of the validity, in seconds since the UNIX epoch; `None` if there is no certificate.
    pub(crate) validity: Option<(i64, i64)>,
    /// Position of the renewal within the renewal window, from 0 to 1.
    pub(crate) lot: f64,
    /// Renewal window that the CA suggests.
    pub(crate) window: Option<(i64, i64)>,
    /// Time at which the CA is next asked for that window.
    pub(crate) ask_at_s: i64,
    /// Earliest time of the next order.
    pub(crate) not_before_s: i64,
    /// True while an order is pending.
    pub(crate) is_ordered: bool,
    /// True if the certificate replaced one whose renewal window had passed.
    pub(crate) is_hastened: bool,
}

/// Next action for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalAction {
    /// The certificate must be ordered.
    Order,
    /// The CA must be asked for the renewal window.
    Ask,
    /// Nothing is due before this second.
    At(i64),
}

impl RenewalSchedule {
    /// Returns the time of the renewal; `None` if there is no certificate.
    pub(crate) fn renew_at_s(&self) -> Option<i64> {
        let (from, until) = self.validity?;
        let lifetime = (until - from).max(1);
        // A window that ends before it begins is ignored; one that ends with the certificate would leave no
        // time for retries.
        let at = match self.window.filter(|(start, end)| start < end) {
            Some((start, end)) => {
                let wanted = start + share(end - start, self.lot);
                let after_s = if self.is_hastened { (lifetime / 10).min(RENEWED_AFTER_S) } else { 0 };
                wanted.max(from + after_s)
            }
            None => from + lifetime / 3 * 2,
        };
        Some(at.min(until - lifetime / 10))
    }

    /// Resets times that lie further in the future than any wait: they were written while the clock was
    /// ahead. Returns whether `not_before_s` was one of them.
    pub(crate) fn forget_impossible(&mut self, now_s: i64) -> bool {
        let is_wait_over = self.not_before_s > now_s.saturating_add(WAIT_S_MAX);
        if is_wait_over {
            self.not_before_s = 0;
        }
        if self.ask_at_s != i64::MAX && self.ask_at_s > now_s.saturating_add(ASK_EVERY_S.1) {
            self.ask_at_s = now_s;
        }
        is_wait_over
    }

    /// Returns the action that is due at this second.
    pub(crate) fn due(&self, now_s: i64) -> RenewalAction {
        let order_at = match self.renew_at_s() {
            Some(at) if !self.is_ordered => at,
            _ => now_s,
        };
        if order_at <= now_s && self.not_before_s <= now_s {
            return RenewalAction::Order;
        }
        // A certificate that is about to be ordered needs no request for the window.
        let is_asked_for = self.validity.is_some() && !self.is_ordered && self.ask_at_s < order_at;
        match self.ask_at_s {
            ask_at if is_asked_for && order_at > now_s && ask_at <= now_s => RenewalAction::Ask,
            ask_at if is_asked_for && ask_at > now_s => RenewalAction::At(ask_at),
            _ => RenewalAction::At(order_at.max(self.not_before_s)),
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "seconds, of at most years")]
fn share(span_s: i64, of: f64) -> i64 {
    (span_s as f64 * of.clamp(0.0, 1.0)) as i64
}

/// Returns the wait after `failures` failures in a row. The first wait is `first`; each further wait is twice
/// the previous one, up to a maximum. `lot`, from 0 to 1, adds up to a quarter, so that clients that failed
/// together do not return together. `retry_after_s` is the CA's Retry-After.
pub(crate) fn wait_s(
    kind: Kind,
    failures: u32,
    first: Duration,
    retry_after_s: Option<i64>,
    lot: f64,
) -> i64 {
    let first_s = i64::try_from(first.as_secs()).unwrap_or(REFUSED_WAIT_S_MAX).max(1);
    let doubled = |first_s: i64, most: i64| {
        let wait = first_s.saturating_mul(1 << failures.saturating_sub(1).min(30)).min(most);
        wait + share(wait / 4, lot)
    };
    let wait = match kind {
        Kind::Unreachable => doubled((first_s / 4).max(1), UNREACHABLE_WAIT_S_MAX),
        Kind::Refused => doubled(first_s, REFUSED_WAIT_S_MAX),
        Kind::Limited => retry_after_s.map_or(LIMITED_WAIT_S, |_| 0).max(first_s),
    };
    wait.max(retry_after_s.unwrap_or(0).min(RETRY_AFTER_S_MAX))
}

/// Times of recent new orders.
#[derive(Debug, Default)]
pub(crate) struct OrderRate {
    at_s: std::collections::VecDeque<i64>,
}

impl OrderRate {
    /// Checks whether a new order is allowed now. If it is not, the error is the time at which it will be
    /// allowed.
    pub(crate) fn admit(&mut self, now_s: i64) -> Result<(), i64> {
        // Times in the future mean that the clock was set back; they are dropped.
        while self.at_s.front().is_some_and(|at| now_s - at >= ORDERS_SPAN_S || *at > now_s) {
            self.at_s.pop_front();
        }
        match self.at_s.front() {
            Some(first) if self.at_s.len() >= ORDERS_MAX => Err(first + ORDERS_SPAN_S),
            _ => Ok(()),
        }
    }

    /// Records a new order.
    pub(crate) fn note(&mut self, now_s: i64) {
        self.at_s.push_back(now_s);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 24 * 60 * 60;
    const FIRST: Duration = Duration::from_secs(120);

    fn of(from: i64, until: i64) -> RenewalSchedule {
        RenewalSchedule {
            validity: Some((from, until)),
            lot: 0.5,
            ask_at_s: i64::MAX,
            ..RenewalSchedule::default()
        }
    }

    #[test]
    fn a36_renewal_follows_lifetime_or_suggested_window() {
        assert_eq!(of(0, 90 * DAY).renew_at_s(), Some(60 * DAY));
        assert_eq!(of(0, 6 * DAY).renew_at_s(), Some(4 * DAY));
        let window = |window| RenewalSchedule { window: Some(window), ..of(0, 90 * DAY) };
        assert_eq!(window((10 * DAY, 12 * DAY)).renew_at_s(), Some(11 * DAY));
        // A window in the past means that renewal is due at once. The resulting certificate waits for a day.
        assert_eq!(window((-2 * DAY, -DAY)).due(0), RenewalAction::Order);
        let hastened = RenewalSchedule { is_hastened: true, ..window((-2 * DAY, -DAY)) };
        assert_eq!((hastened.due(0), hastened.due(DAY)), (RenewalAction::At(DAY), RenewalAction::Order));
        // An invalid window is ignored, and a late one is cut so that time is left for retries.
        assert_eq!(window((12 * DAY, 10 * DAY)).renew_at_s(), Some(60 * DAY));
        assert_eq!(window((80 * DAY, 100 * DAY)).renew_at_s(), Some(81 * DAY));
    }

    #[test]
    fn a36_a_missing_or_requested_certificate_is_ordered() {
        assert_eq!(RenewalSchedule::default().due(7), RenewalAction::Order);
        assert_eq!(
            RenewalSchedule { not_before_s: 9, ..RenewalSchedule::default() }.due(7),
            RenewalAction::At(9)
        );
        let ordered = RenewalSchedule { is_ordered: true, ..of(0, 90 * DAY) };
        assert_eq!(ordered.due(DAY), RenewalAction::Order);
        let asked = RenewalSchedule { ask_at_s: DAY, ..of(0, 90 * DAY) };
        assert_eq!(asked.due(0), RenewalAction::At(DAY));
        assert_eq!(asked.due(DAY), RenewalAction::Ask);
        // A certificate that is due is ordered without asking for the window.
        assert_eq!(asked.due(60 * DAY), RenewalAction::Order);
        assert_eq!(
            RenewalSchedule { not_before_s: 61 * DAY, ..asked }.due(60 * DAY),
            RenewalAction::At(61 * DAY)
        );
    }

    /// Returns the times of all attempts in a year in which the CA refuses or does not answer.
    fn attempts(kind: Kind, lot: f64) -> Vec<i64> {
        let (mut now, mut failures, mut at) = (0, 0, Vec::new());
        let mut standing = RenewalSchedule::default();
        while now < 365 * DAY {
            match standing.due(now) {
                RenewalAction::Order => {
                    at.push(now);
                    failures += 1;
                    standing.not_before_s = now + wait_s(kind, failures, FIRST, None, lot);
                }
                RenewalAction::At(next) => now = next,
                RenewalAction::Ask => unreachable!("there is nothing to ask for"),
            }
        }
        at
    }

    #[test]
    fn a36_failing_orders_retry_within_the_hourly_limit() {
        for lot in [0.0, 0.5, 1.0] {
            for (kind, a_day) in [(Kind::Refused, 3), (Kind::Limited, 19), (Kind::Unreachable, 19)] {
                let at = attempts(kind, lot);
                if kind != Kind::Unreachable {
                    // Counts the attempts within any hour of the year.
                    let most =
                        at.iter().map(|from| at.iter().filter(|a| (0..3600).contains(&(*a - from))).count());
                    assert!(most.max().is_some_and(|most| most <= 5), "{kind:?} {lot}");
                }
                let last_day = at.iter().filter(|at| **at >= 364 * DAY).count();
                assert!(last_day >= a_day, "{kind:?} {lot}: {last_day} on the last day");
            }
        }
    }

    #[test]
    fn a36_renewal_succeeds_after_a_day_long_ca_outage() {
        let mut standing = of(0, 6 * DAY);
        let (away, mut now, mut failures) = (4 * DAY..5 * DAY, 0, 0);
        loop {
            match standing.due(now) {
                RenewalAction::Order if away.contains(&now) => {
                    failures += 1;
                    standing.not_before_s = now + wait_s(Kind::Unreachable, failures, FIRST, None, 1.0);
                }
                RenewalAction::Order => break,
                RenewalAction::At(next) => now = next,
                RenewalAction::Ask => unreachable!("nobody is asked"),
            }
        }
        assert!(failures > 10 && now < 5 * DAY + 2 * 3600, "{failures} failures, renewed at {now}");
    }

    #[test]
    fn a36_orders_stay_within_the_account_rate_limit() {
        let mut pace = OrderRate::default();
        for n in 0..250 {
            assert_eq!(pace.admit(n), Ok(()));
            pace.note(n);
        }
        assert_eq!(pace.admit(250), Err(ORDERS_SPAN_S));
        assert_eq!(pace.admit(ORDERS_SPAN_S), Ok(()));
        pace.note(ORDERS_SPAN_S);
        assert_eq!(pace.admit(ORDERS_SPAN_S), Err(ORDERS_SPAN_S + 1));
    }

    /// A CA whose windows are always in the past causes at most about one order a day.
    #[test]
    fn past_renewal_windows_cause_one_order_a_day() {
        for (life, most) in [(90 * DAY, 31), (6 * DAY, 51)] {
            let (mut now, mut orders, mut standing) = (0, 0, of(0, life));
            while now < 30 * DAY {
                standing.window = Some((now - 2 * DAY, now - DAY));
                match standing.due(now) {
                    RenewalAction::Order => {
                        orders += 1;
                        standing = RenewalSchedule { is_hastened: true, ..of(now, now + life) };
                    }
                    RenewalAction::At(next) => now = next,
                    RenewalAction::Ask => unreachable!("it is never time to ask"),
                }
            }
            assert!((20..=most).contains(&orders), "{orders} in thirty days for {life} s");
        }
    }

    /// A wait stored while the clock was years ahead is dropped.
    #[test]
    fn a_clock_that_was_ahead_delays_nothing() {
        let year = 365 * DAY;
        let mut standing = RenewalSchedule { not_before_s: 3 * year, ask_at_s: 3 * year, ..of(0, 90 * DAY) };
        assert!(standing.forget_impossible(60 * DAY));
        assert_eq!(standing.due(60 * DAY), RenewalAction::Order);
        assert_eq!(standing.ask_at_s, 60 * DAY);
        // A wait that a CA may ask for (`RETRY_AFTER_S_MAX`) is kept.
        let mut waits = RenewalSchedule { not_before_s: 7 * DAY, ..RenewalSchedule::default() };
        assert!(!waits.forget_impossible(0));
        assert_eq!(waits.due(0), RenewalAction::At(7 * DAY));
    }

    proptest! {
        #[test]
        fn a36_a_retry_honours_retry_after_within_bounds(
            failures in 1_u32..200,
            retry_after in proptest::option::of(-10_i64..30 * DAY),
            lot in 0.0_f64..=1.0,
            first in 0_u64..100_000,
        ) {
            for kind in [Kind::Unreachable, Kind::Refused, Kind::Limited] {
                let wait = wait_s(kind, failures, Duration::from_secs(first), retry_after, lot);
                prop_assert!(wait >= 1);
                prop_assert!(wait >= retry_after.unwrap_or(0).min(RETRY_AFTER_S_MAX));
                prop_assert!(wait <= RETRY_AFTER_S_MAX);
            }
        }

        /// In any state an action is due either at once or at a time in the future.
        #[test]
        fn a36_nothing_is_waited_for_that_is_over(
            validity in proptest::option::of((0..100 * DAY, 0..100 * DAY)),
            window in proptest::option::of((-DAY..200 * DAY, -DAY..200 * DAY)),
            (lot, ask_at_s, not_before_s, is_ordered, now) in
                (0.0_f64..=1.0, 0..300 * DAY, 0..300 * DAY, any::<bool>(), 0..300 * DAY),
        ) {
            let validity = validity.map(|(from, life)| (from, from + life));
            let standing =
                RenewalSchedule { validity, lot, window, ask_at_s, not_before_s, is_ordered, is_hastened: false };
            if let RenewalAction::At(at) = standing.due(now) {
                prop_assert!(at > now);
                prop_assert!(matches!(standing.due(at), RenewalAction::Order | RenewalAction::Ask));
            }
            if let (Some(at), Some((_, until))) = (standing.renew_at_s(), validity) {
                prop_assert!(at <= until);
            }
        }
    }
}
