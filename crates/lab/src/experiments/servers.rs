//! What the experiments with whole servers share: who is here, rates over rounds, and a gain with its verdict.

use std::path::{Path, PathBuf};

use crate::{
    cores::Placement,
    experiment::{Refusal, Report, Verdict},
    paired::{
        Sample, Series,
        spread::{ROUNDS_MIN, Ratio, median},
        tree::Cores,
    },
    peers::PeerError,
    placement::allowed,
    report::plot::{Axis, Plot, Series as Curve, Stroke},
};

impl From<PeerError> for Refusal {
    fn from(error: PeerError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Every core that may be used.
///
/// # Errors
/// What the system says.
pub fn all_cores() -> Result<Cores, Refusal> {
    let cores = allowed().map_err(|error| Refusal::Failed(error.to_string()))?;
    Cores::new(cores).ok_or_else(|| Refusal::Missing("no processor may be used".to_owned()))
}

/// A directory in memory, if there is one, that unprivileged servers may pass through; gone when dropped.
///
/// # Errors
/// What the system says.
pub fn directory() -> Result<tempfile::TempDir, Refusal> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let made = tempfile::Builder::new().prefix("nighttrain-lab-").tempdir_in(parent).and_then(|directory| {
        std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        Ok(directory)
    });
    made.map_err(|error| Refusal::Failed(error.to_string()))
}

/// The program of which the experiment is about, or a refusal that says how to have it.
///
/// # Errors
/// It is not there.
pub fn needed(program: Result<PathBuf, String>) -> Result<PathBuf, Refusal> {
    program.map_err(Refusal::Missing)
}

/// Units a second, round by round.
#[must_use]
pub fn rates(series: &Series) -> Vec<Option<f64>> {
    let rate = |sample: &Sample| (sample.units > 0).then(|| sample.units as f64 / sample.wall_s);
    series.samples.iter().map(rate).collect()
}

/// The middle of what is known.
#[must_use]
pub fn middle(values: &[Option<f64>]) -> Option<f64> {
    median(&values.iter().copied().flatten().collect::<Vec<_>>())
}

/// The middle of a figure over the rounds in which something was done.
#[must_use]
pub fn middle_of(series: &Series, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
    let done = series.samples.iter().filter(|sample| sample.units > 0);
    median(&done.map(figure).collect::<Vec<_>>())
}

/// How many times the CPU of one core the server used.
#[must_use]
pub fn cores_busy(sample: &Sample) -> f64 {
    (sample.cpu_user_s + sample.cpu_system_s) / sample.wall_s
}

/// Where several times as much was published, a tenth more is no gain.
const NO_GAIN: f64 = 1.1;

/// What a ratio says about "so many times as much": *holds* when the interval lies at or above `published`, *does not*
/// when all of it lies below 1.1, *with another figure* when it lies above 1.
#[must_use]
pub fn gain(ratio: Option<&Ratio>, published: f64) -> Verdict {
    match ratio {
        None => Verdict::CannotBeTestedHere,
        Some(ratio) if ratio.rounds < ROUNDS_MIN => Verdict::TooNoisyToSay,
        Some(ratio) if ratio.low >= published => Verdict::Holds,
        Some(ratio) if ratio.high < NO_GAIN => Verdict::DoesNotHoldHere,
        Some(ratio) if ratio.low > 1.0 => Verdict::HoldsWithAnotherFigure,
        Some(_) => Verdict::TooNoisyToSay,
    }
}

/// A ratio for people: `1.34× (1.20 to 1.51)`.
#[must_use]
pub fn times(ratio: Option<&Ratio>) -> String {
    ratio.map_or_else(
        || "–".to_owned(),
        |ratio| format!("{:.2}× ({:.2} to {:.2})", ratio.median, ratio.low, ratio.high),
    )
}

/// A number in a table, or a dash.
#[must_use]
pub fn cell(value: Option<f64>, places: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.places$}"))
}

/// The first reason to doubt any of these, with whom it is about.
#[must_use]
pub fn doubt<'s>(series: impl IntoIterator<Item = &'s Series>) -> Option<String> {
    series.into_iter().find_map(|series| Some(format!("{}: {}", series.name, series.doubt()?)))
}

/// What a server does a second by how many cores it may use, in thousands; of the placements that `counts`.
#[must_use]
pub fn by_cores(
    placements: &[Placement],
    series: &[Series],
    counts: impl Fn(&Placement) -> bool,
) -> Vec<(f64, f64)> {
    let pairs = placements.iter().zip(series).filter(|(placement, _)| counts(placement));
    pairs
        .filter_map(|(placement, series)| Some((placement.cores.len() as f64, middle(&rates(series))? / 1e3)))
        .collect()
}

/// Draws such points, a curve a name, up to four; nothing where no server had two cores.
pub fn draw_by_cores(
    curves: Vec<(String, Vec<(f64, f64)>)>,
    units: &str,
    caption: &str,
    report: &mut Report,
) {
    let all = || curves.iter().flat_map(|(_, points)| points);
    let most = all().map(|point| point.0).fold(1.0, f64::max);
    let highest = all().map(|point| point.1).fold(0.0, f64::max);
    if most < 2.0 || highest <= 0.0 {
        return;
    }
    let strokes = [Stroke::One, Stroke::Two, Stroke::Three, Stroke::Four];
    let curves = curves.into_iter().zip(strokes);
    let step = 10_f64.powf(highest.log10().floor());
    let plot = Plot {
        x: Axis::linear("cores that the server may use", 1.0, most, 1.0),
        left: Axis::linear(&format!("{units} [1,000/s]"), 0.0, (highest / step).ceil() * step, step),
        right: None,
        series: curves
            .map(|((name, points), stroke)| Curve::new(&name, stroke, points).with_discs())
            .collect(),
        references: Vec::new(),
    };
    let (first, rest) = units.split_at(1);
    let title = format!("{}{rest} a second over the server's cores", first.to_uppercase());
    report.figure(&title, plot.draw(&title), caption);
}

/// A planted series, for the tests of verdicts.
#[cfg(test)]
pub(super) fn planted(name: &str, rates: &[f64], cpu_s: f64) -> Series {
    let sample = |rate: &f64| Sample {
        units: *rate as u64,
        wall_s: 1.0,
        cpu_user_s: cpu_s / 2.0,
        cpu_system_s: cpu_s / 2.0,
        ..Sample::nothing(String::new())
    };
    let samples = rates.iter().map(sample).map(|sample| Sample { doubts: Vec::new(), ..sample }).collect();
    Series { name: name.to_owned(), samples }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_gain_is_found_and_a_planted_null_is_not() {
        let base = planted("base", &[100.0, 104.0, 96.0, 101.0, 99.0], 1.0);
        let against = |rates: &[f64], published| {
            let series = planted("other", rates, 1.0);
            gain(Ratio::paired(&super::rates(&series), &super::rates(&base)).as_ref(), published)
        };
        assert_eq!(against(&[700.0, 720.0, 690.0, 702.0, 699.0], 6.5), Verdict::Holds);
        assert_eq!(against(&[200.0, 210.0, 190.0, 202.0, 199.0], 6.5), Verdict::HoldsWithAnotherFigure);
        assert_eq!(against(&[50.0, 52.0, 48.0, 50.0, 50.0], 6.5), Verdict::DoesNotHoldHere);
        assert_eq!(against(&[100.0, 103.0, 97.0, 101.0, 99.0], 6.5), Verdict::DoesNotHoldHere);
        assert_eq!(against(&[60.0, 190.0, 70.0, 150.0, 90.0], 6.5), Verdict::TooNoisyToSay);
        assert_eq!(against(&[700.0, 720.0], 6.5), Verdict::TooNoisyToSay);
        assert_eq!(gain(None, 2.0), Verdict::CannotBeTestedHere);
    }

    #[test]
    fn rounds_in_which_nothing_was_done_are_left_out() {
        let mut series = planted("s", &[100.0, 300.0], 0.5);
        series.samples.push(Sample::nothing("it died".into()));
        assert_eq!(middle(&rates(&series)), Some(200.0));
        assert_eq!(middle_of(&series, cores_busy), Some(0.5));
        assert_eq!(doubt([&series]).as_deref(), Some("s: it died"));
    }
}
