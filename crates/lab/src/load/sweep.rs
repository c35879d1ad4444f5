//! Search for the knee: the highest rate at which a percentile stays under a bound (claim C19).
//!
//! ```text
//!  rate ×2 ×2 ×2 ─▶ bound broken ─▶ halve the bracket (on a log scale) ─▶ narrow enough ─▶ confirm, several times
//! ```
//! One run at a rate *holds* or *breaks*. Noise often breaks a run that would otherwise hold; it rarely does
//! the reverse. A rate that broke is therefore tried again, and two of three runs decide. The remaining
//! uncertainty is the bracket between the highest rate that held and the lowest that broke.

use serde::Serialize;

use super::{LoadError, Outcome, Plan, Target, run};
use crate::latency::LatencyOrigin;

/// Latency that a share of the requests must not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencyBound {
    /// Share of the requests, 0 to 1.
    pub quantile: f64,
    /// Maximum time in nanoseconds from when a request was due to its answer.
    pub at_most_ns: u64,
}

/// Parameters of the search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// First rate, in requests per second.
    pub from: f64,
    /// Highest rate that is tried.
    pub to: f64,
    /// Ratio of the bracket's ends at which it is narrow enough: 1.05 for 5%.
    pub precision: f64,
    /// Bound that must hold.
    pub bound: LatencyBound,
}

/// Run at one rate.
#[derive(Debug, Clone)]
pub struct RateTrial {
    /// Requests per second.
    pub rate: f64,
    /// Result of the run.
    pub outcome: Outcome,
    /// True if the bound held.
    pub held: bool,
}

/// Result of the search.
#[derive(Debug, Clone)]
pub struct Knee {
    /// Highest rate that held; `None` if none did.
    pub held: Option<f64>,
    /// Lowest rate above `held` that broke; `None` if all rates held, up to the highest one tried.
    pub broke: Option<f64>,
    /// Runs in the order of their rates.
    pub tries: Vec<RateTrial>,
}

/// Searches for the knee of `target`; `plan` contains everything except the rate. `tried` receives each run.
///
/// # Errors
/// Returns the errors of [`run`].
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

/// Returns whether the bound held and the server kept up.
#[must_use]
pub fn holds(outcome: &Outcome, bound: LatencyBound) -> bool {
    !outcome.is_overloaded()
        && outcome.answered > 0
        && outcome.latencies.quantile(LatencyOrigin::Due, bound.quantile) <= bound.at_most_ns
}

/// Returns the bracket around the highest rate for which `holds` returns true on the first try, or in two of
/// three tries.
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
        // The last step would exceed the maximum, so the maximum itself is tried.
        if two_of_three(search.to)? { held = Some(search.to) } else { broke = Some(search.to) }
    }
    // No rate held, so the search halves the rate, down to about a thousandth of the first rate.
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
    fn an_unlucky_run_does_not_move_the_knee() {
        let mut unlucky = 0;
        let (held, broke) = bisect(&search(1_000.0, 1e6), |rate| {
            unlucky += 1;
            Ok::<_, Infallible>(rate <= 50_000.0 && unlucky % 4 != 0)
        })
        .unwrap_or((None, None));
        assert!(held.unwrap() <= 50_000.0 && broke.unwrap() > 50_000.0);
    }
}
