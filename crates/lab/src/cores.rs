//! Performance of a program on one core, on two, and on more: `nighttrain lab cores -- COMMAND` (claims C10,
//! C22; row L9 of `docs/features.md`).
//!
//! "Test this yourself; you don't even have to change a line of code." The program is started again for each
//! placement. The placements alternate, so that disturbances of the machine affect all of them equally:
//!
//! ```text
//!  round 1:  free │ 1 core │ 2 cores │ 2 siblings │ …      the figure: seconds that it took,
//!  round 2:  free │ 1 core │ …                             or a number in its output, or in the load's
//! ```

use std::{
    fmt, fs, io,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::{
    experiment::{Experiment, Refusal, Report, Table},
    paired::spread::{Ratio, Spread},
    placement::{allowed, within},
    report::plot::{Axis, Plot, Series, Stroke},
};

/// The experiment as the report describes it.
pub const CORES: Experiment = Experiment {
    name: "cores",
    claims: &["C10", "C22"],
    title: "one program on one core, on two, on more",
    statement: "A server that only passes messages on is fastest on one core; one that computes gains by each",
    source: "P. Tyma, How I sped up my server by a factor of 6, June 2010",
    run: |_| Err(Refusal::Usage("`nighttrain lab cores -- COMMAND` runs it".to_owned())),
};

/// Set of cores on which the program may run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Name of the placement in reports, such as `2 cores`.
    pub name: String,
    /// Numbers of the cores.
    pub cores: Vec<usize>,
    /// True if some of the cores are siblings that share a physical core.
    pub siblings: bool,
}

/// The program to measure, and how.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Program with its arguments.
    pub command: Vec<String>,
    /// Shell command that puts load on the program; the program is stopped when this command ends.
    pub load: Option<String>,
    /// Text in the output that precedes the figure: the first number after it counts. Without it the figure
    /// is the run time in seconds.
    pub figure: Option<String>,
    /// Number of runs under each placement.
    pub rounds: usize,
    /// Wait before the load begins.
    pub settle: Duration,
}

/// Figures of one placement, over all rounds.
#[derive(Debug, Clone, Serialize)]
pub struct PlacementFigures {
    /// Placement of the program.
    pub placement: Placement,
    /// Figures, one per round.
    pub figures: Vec<f64>,
}

/// Reason why a trial has no figure.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The command is empty.
    #[error("no command: nighttrain lab cores -- COMMAND ARGUMENT …")]
    NoCommand,
    /// The program could not be started.
    #[error("cannot start `{program}`: {error}")]
    Start {
        /// Name of the program.
        program: String,
        /// Error that the system returned.
        error: io::Error,
    },
    /// The program exited before the load had finished.
    #[error("`{0}` exited before the load had finished")]
    Ended(String),
    /// A command failed.
    #[error("`{command}` failed ({status}): {said}")]
    Failed {
        /// Command line.
        command: String,
        /// Exit status.
        status: String,
        /// Last line that the command printed.
        said: String,
    },
    /// The output lacks the text, or a number after it.
    #[error("the output has no number after “{0}”")]
    NoFigure(String),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Returns the placements that this machine allows.
///
/// # Errors
/// Returns the system's error if the allowed cores cannot be read.
pub fn placements() -> io::Result<Vec<Placement>> {
    let cores = allowed()?;
    Ok(placements_of(&cores, &|core| {
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"))
            .map(|text| cores_of(text.trim()))
            .unwrap_or_default()
    }))
}

/// Parses a list of cores such as `0-1,4`.
fn cores_of(list: &str) -> Vec<usize> {
    list.split(',')
        .filter_map(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            Some(from.parse::<usize>().ok()?..=to.parse::<usize>().ok()?)
        })
        .flatten()
        .collect()
}

fn placements_of(cores: &[usize], siblings: &dyn Fn(usize) -> Vec<usize>) -> Vec<Placement> {
    let mut all = vec![Placement { name: "free".into(), cores: cores.to_vec(), siblings: false }];
    all.extend(cores.first().map(|core| Placement {
        name: "1 core".into(),
        cores: vec![*core],
        siblings: false,
    }));
    // The first logical core of each physical core comes first, so that siblings are used only after every
    // physical core is in use.
    let mut spread: Vec<usize> = Vec::new();
    let mut rest: Vec<usize> = Vec::new();
    for core in cores {
        let taken = siblings(*core).iter().any(|sibling| spread.contains(sibling));
        if taken { rest.push(*core) } else { spread.push(*core) }
    }
    let physical = spread.len();
    spread.extend(rest);
    let mut count = 2;
    while count <= cores.len() {
        let chosen = spread[..count].to_vec();
        all.push(Placement { name: format!("{count} cores"), cores: chosen, siblings: count > physical });
        count *= 2;
    }
    let pair = cores.iter().find_map(|core| {
        let sibling = siblings(*core).into_iter().find(|other| other != core && cores.contains(other))?;
        Some(vec![*core, sibling])
    });
    if let Some(pair) = pair.filter(|_| physical > 1) {
        all.push(Placement { name: "2 siblings".into(), cores: pair, siblings: true });
    }
    all
}

/// Runs the program under each placement, round by round. `told` receives a message before each run.
///
/// # Errors
/// Returns [`TrialError`] if a run has no figure. The started program is ended in any case.
pub fn run(
    trial: &Trial,
    placements: &[Placement],
    told: &dyn Fn(&str),
) -> Result<Vec<PlacementFigures>, TrialError> {
    if trial.command.is_empty() {
        return Err(TrialError::NoCommand);
    }
    let mut placed: Vec<PlacementFigures> =
        placements.iter().map(|p| PlacementFigures { placement: p.clone(), figures: Vec::new() }).collect();
    for round in 0..trial.rounds.max(1) {
        for one in &mut placed {
            told(&format!("round {} of {}: {}", round + 1, trial.rounds.max(1), one.placement.name));
            one.figures.push(once(trial, &one.placement)?);
        }
    }
    Ok(placed)
}

fn once(trial: &Trial, placement: &Placement) -> Result<f64, TrialError> {
    let command = trial.command.join(" ");
    let start = || {
        Command::new(&trial.command[0])
            .args(&trial.command[1..])
            .stdin(Stdio::null())
            .stdout(if trial.load.is_some() { Stdio::null() } else { Stdio::piped() })
            .stderr(if trial.load.is_some() { Stdio::null() } else { Stdio::piped() })
            .spawn()
    };
    let began = Instant::now();
    let child = within(&placement.cores, start)?
        .map_err(|error| TrialError::Start { program: trial.command[0].clone(), error })?;
    let (output, seconds, whose) = match &trial.load {
        None => {
            let output = child.wait_with_output()?;
            (output, began.elapsed().as_secs_f64(), command)
        }
        Some(load) => {
            let mut running = ChildGuard(child);
            thread::sleep(trial.settle);
            if running.0.try_wait()?.is_some() {
                return Err(TrialError::Ended(command));
            }
            let began = Instant::now();
            let output = Command::new("sh").args(["-c", load]).stdin(Stdio::null()).output()?;
            let seconds = began.elapsed().as_secs_f64();
            if running.0.try_wait()?.is_some() {
                return Err(TrialError::Ended(command));
            }
            (output, seconds, load.clone())
        }
    };
    let text = said(&output);
    if !output.status.success() {
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned();
        return Err(TrialError::Failed { command: whose, status: output.status.to_string(), said: last });
    }
    match &trial.figure {
        None => Ok(seconds),
        Some(after) => number_after(&text, after).ok_or_else(|| TrialError::NoFigure(after.clone())),
    }
}

/// A child process that is ended when the guard is dropped: first with SIGTERM, later with SIGKILL.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        for _ in 0..100 {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Returns the first number after a text; `12,345.6` and `1.2e3` are numbers.
fn number_after(text: &str, after: &str) -> Option<f64> {
    let rest = &text[text.find(after)? + after.len()..];
    let begin = rest.find(|c: char| c.is_ascii_digit())?;
    let word: String = rest[begin..]
        .chars()
        .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ',' | 'e' | '+'))
        .filter(|c| *c != ',')
        .collect();
    word.trim_end_matches(['.', 'e', '+']).parse().ok()
}

/// Builds the report of a trial.
#[must_use]
pub fn report(trial: &Trial, placed: &[PlacementFigures]) -> Report {
    let unit = trial.figure.as_deref().map_or("s", |_| "");
    let mut report = Report {
        data: serde_json::json!({
            "command": trial.command, "load": trial.load, "figure": trial.figure, "placements": placed,
        }),
        ..Report::default()
    };
    let name = trial.figure.clone().unwrap_or_else(|| "time it took".to_owned());
    let mut table = Table::new(
        format!("{name}, over {} rounds", trial.rounds.max(1)),
        &[
            ("placement", ""),
            ("cores", ""),
            ("median", unit),
            ("least", unit),
            ("greatest", unit),
            ("to free", ""),
        ],
    );
    let series = |one: &PlacementFigures| one.figures.iter().copied().map(Some).collect::<Vec<_>>();
    for one in placed {
        let Some(spread) = Spread::of(&one.figures) else { continue };
        let ratio = placed.first().and_then(|free| Ratio::paired(&series(one), &series(free)));
        table.row([
            one.placement.name.clone(),
            Cores(&one.placement.cores).to_string(),
            format!("{:.3}", spread.median),
            format!("{:.3}", spread.min),
            format!("{:.3}", spread.max),
            ratio.map_or_else(
                || "–".to_owned(),
                |r| format!("{:.2}× ({:.2} to {:.2})", r.median, r.low, r.high),
            ),
        ]);
    }
    report.tables.push(table);
    let points: Vec<(f64, f64)> = placed
        .iter()
        .skip(1)
        .filter(|one| !one.placement.siblings)
        .filter_map(|one| Some((one.placement.cores.len() as f64, Spread::of(&one.figures)?.median)))
        .collect();
    if points.len() > 1 {
        let highest = points.iter().map(|p| p.1).fold(0.0, f64::max);
        let step = 10_f64.powf(highest.max(1e-9).log10().floor());
        let plot = Plot {
            x: Axis::linear("cores", 1.0, points.last().map_or(2.0, |p| p.0), 1.0),
            left: Axis::linear(&name, 0.0, (highest / step).ceil() * step, step),
            right: None,
            series: vec![Series::new("median", Stroke::One, points.clone()).with_discs()],
            references: Vec::new(),
        };
        let (first, last) = (points[0], points[points.len() - 1]);
        let title = format!("{} cores: {:.2} times the figure of one", last.0, last.1 / first.1);
        report.figure(title.clone(), plot.draw(&title), trial.command.join(" "));
    } else {
        report.note("This process may use one core only: there is nothing to compare.");
    }
    report
}

struct Cores<'c>(&'c [usize]);

impl fmt::Display for Cores<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&names.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(command: &[&str]) -> Trial {
        Trial {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            load: None,
            figure: None,
            rounds: 1,
            settle: Duration::from_millis(10),
        }
    }

    #[test]
    fn placements_spread_over_physical_cores_first() {
        // Four logical cores, two on each physical core: 0 and 2, 1 and 3.
        let siblings = |core: usize| if core.is_multiple_of(2) { vec![0, 2] } else { vec![1, 3] };
        let names: Vec<(String, Vec<usize>, bool)> = placements_of(&[0, 1, 2, 3], &siblings)
            .into_iter()
            .map(|p| (p.name, p.cores, p.siblings))
            .collect();
        assert_eq!(names[1], ("1 core".into(), vec![0], false));
        assert_eq!(names[2], ("2 cores".into(), vec![0, 1], false));
        assert_eq!(names[3], ("4 cores".into(), vec![0, 1, 2, 3], true));
        assert_eq!(names[4], ("2 siblings".into(), vec![0, 2], true));
        // Two logical cores on one physical core are always siblings.
        let one = placements_of(&[0, 1], &|_| vec![0, 1]);
        assert_eq!(one.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["free", "1 core", "2 cores"]);
        assert!(one[2].siblings);
        assert_eq!(cores_of("0-2,5"), [0, 1, 2, 5]);
    }

    #[test]
    fn the_program_runs_where_it_was_said() {
        let all = allowed().unwrap();
        let last = *all.last().unwrap();
        let placement = Placement { name: "one".into(), cores: vec![last], siblings: false };
        let show = "echo cores $(grep Cpus_allowed_list /proc/self/status | tr -dc 0-9-,)";
        let mut trial = trial(&["sh", "-c", show]);
        trial.figure = Some("cores".into());
        let placed = run(&trial, &[placement], &|_| ()).unwrap();
        assert_eq!(placed[0].figures, [last as f64]);
        assert_eq!(allowed().unwrap(), all, "and only it");
    }

    #[test]
    fn a_loaded_program_is_stopped_after_the_load() {
        let directory = tempfile::tempdir().unwrap();
        let mark = directory.path().join("pid");
        let mut trial = trial(&["sh", "-c", &format!("echo $$ > {}; exec sleep 600", mark.display())]);
        trial.load = Some("echo 'Requests/sec: 1,234.5'".into());
        trial.figure = Some("Requests/sec:".into());
        trial.settle = Duration::from_millis(300);
        let placed = run(&trial, &placements().unwrap()[..1], &|_| ()).unwrap();
        assert_eq!(placed[0].figures, [1_234.5]);
        let pid = fs::read_to_string(mark).unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists(), "it was ended");
    }

    #[test]
    fn what_goes_wrong_is_named() {
        let all = placements().unwrap();
        let error = |trial: &Trial| run(trial, &all[..1], &|_| ()).unwrap_err().to_string();
        assert!(error(&trial(&[])).contains("no command"));
        assert!(error(&trial(&["/no/such/program"])).contains("cannot start `/no/such/program`"));
        assert!(error(&trial(&["sh", "-c", "echo because >&2; exit 3"])).contains("because"));
        let mut gone = trial(&["true"]);
        gone.load = Some("true".into());
        gone.settle = Duration::from_millis(200);
        assert!(error(&gone).contains("exited before the load"));
        let mut silent = trial(&["echo", "nothing"]);
        silent.figure = Some("Requests".into());
        assert!(error(&silent).contains("no number after “Requests”"));
    }
}
