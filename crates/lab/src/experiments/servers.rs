//! Common code of the experiments with whole servers: installed programs, rates over rounds, and the verdict
//! on a gain.

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

/// Returns every core that may be used.
///
/// # Errors
/// Returns [`Refusal`] if the system reports an error, or if no core may be used.
pub fn all_cores() -> Result<Cores, Refusal> {
    let cores = allowed().map_err(|error| Refusal::Failed(error.to_string()))?;
    Cores::new(cores).ok_or_else(|| Refusal::Missing("no processor may be used".to_owned()))
}

/// Creates a directory, in memory if possible, that unprivileged servers may traverse; it is removed when
/// dropped.
///
/// # Errors
/// Returns [`Refusal::Failed`] with the system's error.
pub fn directory() -> Result<tempfile::TempDir, Refusal> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let made = tempfile::Builder::new().prefix("nighttrain-lab-").tempdir_in(parent).and_then(|directory| {
        std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        Ok(directory)
    });
    made.map_err(|error| Refusal::Failed(error.to_string()))
}

/// Returns the program that the experiment is about, or a refusal that says how to install it.
///
/// # Errors
/// Returns [`Refusal::Missing`] if the program is not installed.
pub fn needed(program: Result<PathBuf, String>) -> Result<PathBuf, Refusal> {
    program.map_err(Refusal::Missing)
}

/// Returns units per second, one per round.
#[must_use]
pub fn rates(series: &Series) -> Vec<Option<f64>> {
    let rate = |sample: &Sample| (sample.units > 0).then(|| sample.units as f64 / sample.wall_s);
    series.samples.iter().map(rate).collect()
}

/// Returns the median of the known values.
#[must_use]
pub fn middle(values: &[Option<f64>]) -> Option<f64> {
    median(&values.iter().copied().flatten().collect::<Vec<_>>())
}

/// Returns the median of a figure over the rounds that did any work.
#[must_use]
pub fn middle_of(series: &Series, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
    let done = series.samples.iter().filter(|sample| sample.units > 0);
    median(&done.map(figure).collect::<Vec<_>>())
}

/// Returns the CPU time of the server in multiples of one core.
#[must_use]
pub fn cores_busy(sample: &Sample) -> f64 {
    (sample.cpu_user_s + sample.cpu_system_s) / sample.wall_s
}

/// Ratio below which there is no gain, where the published gain was severalfold.
const NO_GAIN: f64 = 1.1;

/// Judges a ratio against a published factor: it *holds* if the interval is at or above `published`, *does
/// not* if all of it is below 1.1, and holds *with another figure* if it is above 1.
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

/// Formats a ratio with its interval: `1.34× (1.20 to 1.51)`.
#[must_use]
pub fn times(ratio: Option<&Ratio>) -> String {
    ratio.map_or_else(
        || "–".to_owned(),
        |ratio| format!("{:.2}× ({:.2} to {:.2})", ratio.median, ratio.low, ratio.high),
    )
}

/// Formats a number for a table, or a dash.
#[must_use]
pub fn cell(value: Option<f64>, places: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.places$}"))
}

/// Returns the first reason to doubt any of these series, with the series' name.
#[must_use]
pub fn doubt<'s>(series: impl IntoIterator<Item = &'s Series>) -> Option<String> {
    series.into_iter().find_map(|series| Some(format!("{}: {}", series.name, series.doubt()?)))
}

/// Returns a server's rate per second in thousands by number of cores, for the placements that `counts`
/// accepts.
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

/// Draws the points of [`by_cores`], one curve per name, up to four; nothing if no server had two cores.
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

/// Returns a series with the given rates, for tests of verdicts.
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
    fn the_verdict_follows_the_planted_gain() {
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
    fn rounds_without_work_are_left_out() {
        let mut series = planted("s", &[100.0, 300.0], 0.5);
        series.samples.push(Sample::nothing("it died".into()));
        assert_eq!(middle(&rates(&series)), Some(200.0));
        assert_eq!(middle_of(&series, cores_busy), Some(0.5));
        assert_eq!(doubt([&series]).as_deref(), Some("s: it died"));
    }
}
