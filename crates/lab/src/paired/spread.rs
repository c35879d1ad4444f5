//! Medians, ratios with a confidence interval, and verdicts.
//!
//! **The rule.** A ratio is computed per round (both contenders saw the same conditions), and the median of
//! the ratios is the figure. The interval is the 95% bootstrap interval of that median: the rounds are
//! resampled with replacement [`RESAMPLES`] times from a fixed seed, and the middle 95% of the medians bound
//! the interval. A bound is *met* when the whole interval lies on its good side, and *not met* when all of it
//! lies on the bad side. The verdict is **too noisy to say** when the bound lies inside the interval, when
//! there are fewer than [`ROUNDS_MIN`] paired rounds, or when a sample is doubtful.

use serde::{Deserialize, Serialize};

/// Number of bootstrap resamples.
pub const RESAMPLES: usize = 4_000;
/// Minimum number of paired rounds for a verdict; with fewer, the result is too noisy.
pub const ROUNDS_MIN: usize = 3;
/// Fixed seed of the bootstrap. Its value is arbitrary; a constant makes the result reproducible.
const SEED: u64 = 0x6e69_6768_7474_7261;

/// Returns the median of `values` (the mean of the middle two if their number is even); `None` when there are
/// none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 { Some(upper) } else { Some((sorted.get(middle - 1)? + upper) / 2.0) }
}

/// Distribution of a series around its median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// Median absolute deviation (MAD), which a single outlier does not change.
    pub mad: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Number of values.
    pub rounds: usize,
}

impl Spread {
    /// Computes the spread of `values`; `None` when there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let middle = median(values)?;
        let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
        Some(Self {
            median: middle,
            mad: median(&distances)?,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            rounds: values.len(),
        })
    }
}

/// Cost of a contender as a multiple of the reference's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median of the per-round ratios.
    pub median: f64,
    /// Lower end of the median's 95% interval.
    pub low: f64,
    /// Upper end of the median's 95% interval.
    pub high: f64,
    /// Number of rounds in which both contenders have a figure.
    pub rounds: usize,
}

impl Ratio {
    /// Pairs the two series round by round; `None` when no round has a figure for both.
    pub fn paired(contender: &[Option<f64>], reference: &[Option<f64>]) -> Option<Self> {
        let ratios: Vec<f64> = contender
            .iter()
            .zip(reference)
            .filter_map(|(contender, reference)| {
                Some((*contender)? / (*reference).filter(|&cost| cost > 0.0)?)
            })
            .collect();
        let (low, high) = bootstrap(&ratios)?;
        Some(Self { median: median(&ratios)?, low, high, rounds: ratios.len() })
    }
}

/// Returns the bounds of the middle 95% of the medians of resampled `values`.
fn bootstrap(values: &[f64]) -> Option<(f64, f64)> {
    let mut draws = Draws(SEED);
    let mut resample = vec![0.0; values.len()];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for slot in &mut resample {
            *slot = *values.get(draws.below(values.len()))?;
        }
        medians.push(median(&resample)?);
    }
    medians.sort_unstable_by(f64::total_cmp);
    let tail = RESAMPLES / 40;
    Some((*medians.get(tail)?, *medians.get(RESAMPLES - 1 - tail)?))
}

/// SplitMix64 random number generator (Steele, Lea, Flood: *Fast splittable pseudorandom number generators*,
/// 2014): the same seed always gives the same sequence.
#[derive(Clone, Debug)]
pub struct Draws(u64);

impl Draws {
    /// Creates the generator for a seed; each seed gives a different sequence.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number uniformly distributed in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number uniformly distributed in 0..`bound` (0 for a bound of 0); the bias is below 2⁻³² for
    /// the small bounds used here.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }
}

/// Verdict on a figure and its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval is within the bound.
    Met,
    /// The whole interval is beyond the bound.
    NotMet,
    /// The bound lies inside the interval, there are too few rounds, or a sample is doubtful.
    TooNoisy,
    /// There is nothing to compare.
    NotMeasured,
}

impl Verdict {
    /// Judges a ratio that must be at most `bound`, by the rule in the module's documentation.
    pub fn at_most(bound: f64, ratio: &Ratio) -> Self {
        if ratio.rounds < ROUNDS_MIN {
            Self::TooNoisy
        } else if ratio.high <= bound {
            Self::Met
        } else if ratio.low > bound {
            Self::NotMet
        } else {
            Self::TooNoisy
        }
    }

    /// Returns the verdict in words, for reports.
    pub fn words(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::TooNoisy => "too noisy to say",
            Self::NotMeasured => "not measured",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(values: &[f64]) -> Vec<Option<f64>> {
        values.iter().copied().map(Some).collect()
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }

    #[test]
    fn one_wild_round_moves_the_maximum_only() {
        let spread = Spread::of(&[10.0, 11.0, 9.0, 10.0, 500.0]).unwrap();
        assert_eq!((spread.median, spread.mad, spread.min, spread.max), (10.0, 1.0, 9.0, 500.0));
    }

    #[test]
    fn pairing_cancels_what_both_met() {
        // The machine was three times slower in two rounds; the ratio is not affected.
        let reference = [5.0, 15.0, 5.2, 14.4, 5.1, 5.0, 5.0];
        let contender: Vec<f64> = reference.iter().map(|cost| cost * 1.2).collect();
        let ratio = Ratio::paired(&all(&contender), &all(&reference)).unwrap();
        assert!((ratio.low - 1.2).abs() < 1e-9 && (ratio.high - 1.2).abs() < 1e-9, "{ratio:?}");
        assert_eq!(Verdict::at_most(1.3, &ratio), Verdict::Met);
        assert_eq!(Verdict::at_most(1.1, &ratio), Verdict::NotMet);
    }

    #[test]
    fn a_bound_inside_the_interval_is_too_noisy() {
        let reference = [1.0; 7];
        let contender = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6];
        let ratio = Ratio::paired(&all(&contender), &all(&reference)).unwrap();
        assert_eq!(ratio.median, 1.3);
        assert!(ratio.low < 1.3 && ratio.high > 1.3 && ratio.low >= 1.0 && ratio.high <= 1.6, "{ratio:?}");
        assert_eq!(Verdict::at_most(1.3, &ratio), Verdict::TooNoisy);
        assert_eq!(Verdict::at_most(1.65, &ratio), Verdict::Met);
        assert_eq!(Verdict::at_most(0.9, &ratio), Verdict::NotMet);
    }

    #[test]
    fn one_wild_round_of_seven_does_not_decide() {
        let ratio = Ratio::paired(&all(&[1.0, 1.01, 0.99, 9.0, 1.0, 1.02, 1.0]), &all(&[1.0; 7])).unwrap();
        assert!(ratio.high < 1.1, "{ratio:?}");
    }

    #[test]
    fn too_few_complete_rounds_are_too_noisy() {
        let ratio = Ratio::paired(&all(&[1.0, 1.0]), &all(&[2.0, 2.0])).unwrap();
        assert_eq!(Verdict::at_most(1.0, &ratio), Verdict::TooNoisy);
        let ratio = Ratio::paired(&[None, Some(3.0), Some(4.0)], &[Some(1.0), Some(0.0), Some(2.0)]).unwrap();
        assert_eq!((ratio.rounds, ratio.median), (1, 2.0));
        assert_eq!(Ratio::paired(&[None], &[Some(1.0)]), None);
    }

    #[test]
    fn the_interval_has_its_stated_coverage() {
        // Ratios are drawn from a known distribution with median 1. The interval of seven rounds must contain
        // 1 in clearly more than 80% of the runs. An interval that contains 1 in all of them is too wide.
        let mut draws = Draws::new(7);
        let mut covered = 0;
        for _ in 0..300 {
            let contender: Vec<f64> = (0..7).map(|_| 1.0 + (draws.unit() - 0.5) * 0.2).collect();
            let ratio = Ratio::paired(&all(&contender), &all(&[1.0; 7])).unwrap();
            covered += usize::from(ratio.low <= 1.0 && ratio.high >= 1.0);
        }
        assert!((250..300).contains(&covered), "{covered} of 300");
    }

    #[test]
    fn draws_are_even_and_repeatable() {
        let (mut one, mut two) = (Draws::new(1), Draws::new(1));
        let mut counts = [0_usize; 10];
        for _ in 0..100_000 {
            let draw = one.below(10);
            assert_eq!(draw, two.below(10));
            counts[draw] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        assert_eq!(Draws::new(1).below(0), 0);
    }
}
