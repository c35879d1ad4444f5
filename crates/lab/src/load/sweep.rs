//! The knee: the highest rate at which a percentile stays under a bound (claim C19).
//!
//! ```text
//!  rate ×2 ×2 ×2 ─▶ bound broken ─▶ halve the bracket (on a log scale) ─▶ narrow enough ─▶ confirm, several times
//! ```
//! One run at a rate says *holds* or *breaks*. Noise makes a run break that would hold far more often than the
//! other way round, so a broken rate is tried again, and two of three decide. What remains uncertain is the bracket
//! between the highest rate that held and the lowest that broke.

use serde::Serialize;

use super::{LoadError, Outcome, Plan, Target, run};
use crate::latency::LatencyOrigin;

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencyBound {
    /// Which share of the requests, 0 to 1.
    pub quantile: f64,
    /// Is answered within this time from when it was due, in nanoseconds.
    pub at_most_ns: u64,
}

/// How the knee is looked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// Where to begin, requests a second.
    pub from: f64,
    /// No rate above this is tried.
    pub to: f64,
    /// The bracket is narrow enough when its ends are this close: 1.05 for 5%.
    pub precision: f64,
    /// See [`LatencyBound`].
    pub bound: LatencyBound,
}

/// One rate that was tried.
#[derive(Debug, Clone)]
pub struct RateTrial {
    /// Requests a second.
    pub rate: f64,
    /// What came of it.
    pub outcome: Outcome,
    /// The bound held.
    pub held: bool,
}

/// What the search found.
#[derive(Debug, Clone)]
pub struct Knee {
    /// The highest rate that held; `None` if none did.
    pub held: Option<f64>,
    /// The lowest rate above it that broke; `None` if all held up to the highest that was to be tried.
    pub broke: Option<f64>,
    /// All that was tried, in the order of the rates.
    pub tries: Vec<RateTrial>,
}

/// Looks for the knee of `target`; `plan` says all but the rate. `tried` is told of each run.
///
/// # Errors
/// As [`run`].
pub fn sweep(
    target: &Target,
    plan: &Plan,
    search: &Search,
    mut tried: impl FnMut(&RateTrial),
) -> Result<Knee, LoadError> {
    let mut tries = Vec::new();
    let (held, broke) = bisect(search, |rate| {
        let outcome = run(target, &Plan { rate, ..plan.clone() })?;
        let held = holds(&outcome, search.bound);
        let one = RateTrial { rate, outcome, held };
        tried(&one);
        tries.push(one);
        Ok::<_, LoadError>(held)
    })?;
    tries.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    Ok(Knee { held, broke, tries })
}

/// The bound held, and the server kept up.
#[must_use]
pub fn holds(outcome: &Outcome, bound: LatencyBound) -> bool {
    !outcome.is_overloaded()
        && outcome.answered > 0
        && outcome.latencies.quantile(LatencyOrigin::Due, bound.quantile) <= bound.at_most_ns
}

/// The bracket about the highest rate of which `holds` says yes twice out of three times at most.
fn bisect<E>(
    search: &Search,
    mut holds: impl FnMut(f64) -> Result<bool, E>,
) -> Result<(Option<f64>, Option<f64>), E> {
    let mut two_of_three = |rate: f64| Ok::<bool, E>(holds(rate)? || (holds(rate)? && holds(rate)?));
    let (mut held, mut broke) = (None, None);
    let mut rate = search.from;
    while rate <= search.to {
        if !two_of_three(rate)? {
            broke = Some(rate);
            break;
        }
        held = Some(rate);
        rate *= 2.0;
    }
    if broke.is_none() && held.is_some_and(|held| held < search.to) && rate > search.to {
        // The last step would have gone too far: the end itself is tried.
        if two_of_three(search.to)? { held = Some(search.to) } else { broke = Some(search.to) }
    }
    // Nothing held: downwards, by powers of two, at most to a thousandth.
    while held.is_none()
        && let Some(lowest) = broke
        && lowest > search.from / 1_000.0
    {
        let rate = lowest / 2.0;
        if two_of_three(rate)? { held = Some(rate) } else { broke = Some(rate) }
    }
    while let (Some(low), Some(high)) = (held, broke)
        && high / low > search.precision.max(1.001)
    {
        let rate = (low * high).sqrt();
        if two_of_three(rate)? { held = Some(rate) } else { broke = Some(rate) }
    }
    Ok((held, broke))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn search(from: f64, to: f64) -> Search {
        Search { from, to, precision: 1.02, bound: LatencyBound { quantile: 0.99, at_most_ns: 1_000_000 } }
    }

    fn knee_at(knee: f64, search: &Search) -> (Option<f64>, Option<f64>) {
        bisect(search, |rate| Ok::<_, Infallible>(rate <= knee)).unwrap_or((None, None))
    }

    #[test]
    fn the_bracket_holds_the_knee_and_is_narrow() {
        for knee in [900.0, 1_000.0, 12_345.0, 98_000.0] {
            let (held, broke) = knee_at(knee, &search(1_000.0, 1e6));
            let (held, broke) = (held.unwrap(), broke.unwrap());
            assert!(held <= knee && knee < broke && broke / held <= 1.02, "{held} {knee} {broke}");
        }
    }

    #[test]
    fn the_ends_are_said() {
        assert_eq!(knee_at(1e9, &search(1_000.0, 5_000.0)), (Some(5_000.0), None));
        let (held, broke) = knee_at(0.0, &search(1_000.0, 5_000.0));
        assert!(held.is_none() && broke.unwrap() < 2.0);
    }

    #[test]
    fn one_unlucky_run_of_three_does_not_move_the_knee() {
        let mut unlucky = 0;
        let (held, broke) = bisect(&search(1_000.0, 1e6), |rate| {
            unlucky += 1;
            Ok::<_, Infallible>(rate <= 50_000.0 && unlucky % 4 != 0)
        })
        .unwrap_or((None, None));
        assert!(held.unwrap() <= 50_000.0 && broke.unwrap() > 50_000.0);
    }
}
