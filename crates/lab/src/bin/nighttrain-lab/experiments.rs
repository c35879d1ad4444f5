//! `nighttrain lab`: runs the chosen experiments and writes their findings.
//!
//! ```text
//! names ──▶ experiments ──run, progress on stderr──▶ outcomes ──▶ text or JSON on stdout, page in a file
//! ```
//! The exit code reports whether the experiments ran, not what they found: a claim that does not hold is a
//! result (0). An experiment that could not run is a failure (1), except under `all` if this machine only
//! lacks a requirement.

use std::{fs, io::IsTerminal, path::Path, sync::Arc, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use lab::{
    costs::Costs,
    experiment::{Experiment, Options, Outcome, Refusal},
    experiments,
    report::{json, markdown, page, text},
};
use serde_json::json;

use crate::{
    cli::{DisplayOptions, LabTask, LabTool},
    failure::Failure,
    feed_bench, print, tools,
};

/// Number of characters in a line if there is no terminal.
const WIDTH: usize = 110;

/// Runs `nighttrain lab`.
///
/// # Errors
/// Returns `Failure` for an unknown name, a file that cannot be written, or an experiment that could not run.
pub(crate) fn lab(task: &LabTask) -> Result<(), Failure> {
    match task.tool.as_deref() {
        Some(LabTool::Load(load)) => return tools::load(load),
        Some(LabTool::Cores(cores)) => return tools::cores(cores),
        Some(LabTool::Compare(compare)) => return tools::compare(compare),
        Some(LabTool::FeedBenchPage { file }) => return feed_bench::draw(file),
        None => {}
    }
    let all = task.names.iter().any(|name| name == "all");
    let Some(chosen) = chosen(&task.names)? else {
        for (flag, file) in [("--html", &task.shown.html), ("--markdown", &task.markdown)] {
            if file.is_some() {
                return Err(Failure::Usage(format!("{flag} shows what was run, and `list` runs nothing")));
            }
        }
        return print(&list(task.shown.json));
    };
    for file in [&task.shown.html, &task.markdown].into_iter().flatten() {
        // The file is opened before the measurement, which takes minutes, so that an error is reported at
        // once.
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(file)
            .map_err(|error| Failure::Failed(unwritable(file, &error)))?;
    }
    let progress = Progress::new(chosen.len());
    let mut options = Options {
        quick: task.quick,
        sweep: task.sweep,
        items: task.items,
        page_bytes: task.page_bytes,
        item_bytes: task.item_bytes,
        part: task.part.clone(),
        costs: Costs {
            memory_pages: task.costs.memory_pages,
            page_read_s: task.costs.page_read,
            page_write_s: task.costs.page_write,
            cpu: task.costs.cpu,
            first_touch: task.costs.first_touch,
        },
        directory: task.directory.clone(),
        progress: None,
    };
    let mut outcomes = Vec::new();
    for experiment in chosen {
        options.progress = Some(progress.of(experiment));
        outcomes.push(Outcome::of(experiment, &options));
    }
    progress.end();

    if let Some(file) = &task.markdown {
        let page = task.shown.html.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
        fs::write(file, markdown::render(&outcomes, &options, page.as_deref()))
            .map_err(|error| Failure::Failed(unwritable(file, &error)))?;
    }
    show(&outcomes, &options, &task.shown)?;
    outcomes.iter().find_map(|outcome| failure(outcome, all)).map_or(Ok(()), Err)
}

/// Writes text or JSON to stdout, and a page to a file.
///
/// # Errors
/// Returns `Failure::Failed` if one of them cannot be written.
pub(crate) fn show(outcomes: &[Outcome], options: &Options, shown: &DisplayOptions) -> Result<(), Failure> {
    if let Some(file) = &shown.html {
        fs::write(file, page::render(outcomes, options))
            .map_err(|error| Failure::Failed(unwritable(file, &error)))?;
    }
    if shown.json {
        print(&format!("{:#}\n", json::render(outcomes, options)))
    } else {
        print(&text::render(outcomes, style(shown)))
    }
}

fn unwritable(file: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}", file.display())
}

/// Returns the experiments of these names; `None` if the list was requested.
fn chosen(names: &[String]) -> Result<Option<Vec<&'static Experiment>>, Failure> {
    match names {
        [] => return Ok(None),
        [one] if one == "list" => return Ok(None),
        [one] if one == "all" => return Ok(Some(experiments::all().iter().collect())),
        _ => {}
    }
    let mut chosen: Vec<&'static Experiment> = Vec::new();
    for name in names {
        if name == "list" || name == "all" {
            return Err(Failure::Usage(format!("`{name}` stands alone, without names of experiments")));
        }
        let experiment = experiments::named(name).ok_or_else(|| unknown(name))?;
        // An experiment that is named twice runs once.
        if !chosen.iter().any(|known| known.name == experiment.name) {
            chosen.push(experiment);
        }
    }
    Ok(Some(chosen))
}

fn unknown(name: &str) -> Failure {
    let near = experiments::all()
        .iter()
        .map(|experiment| (strsim::jaro_winkler(name, experiment.name), experiment.name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    Failure::Usage(match near {
        Some((_, near)) => format!("no experiment is called `{name}`; perhaps `{near}`"),
        None => format!("no experiment is called `{name}`: `nighttrain lab list` shows them"),
    })
}

fn list(as_json: bool) -> String {
    if as_json {
        let all: Vec<serde_json::Value> = experiments::all()
            .iter()
            .map(|experiment| {
                json!({
                    "name": experiment.name,
                    "claims": experiment.claims,
                    "title": experiment.title,
                    "statement": experiment.statement,
                    "source": experiment.source,
                })
            })
            .collect();
        return format!("{:#}\n", json!({ "lab": 1, "experiments": all }));
    }
    let name_width = experiments::all().iter().map(|experiment| experiment.name.len()).max().unwrap_or(0);
    let claims: Vec<String> =
        experiments::all().iter().map(|experiment| experiment.claims.join(" ")).collect();
    let claims_width = claims.iter().map(String::len).max().unwrap_or(0);
    experiments::all()
        .iter()
        .zip(&claims)
        .map(|(experiment, claims)| {
            format!("{:<name_width$}  {claims:<claims_width$}  {}\n", experiment.name, experiment.title)
        })
        .collect()
}

fn style(shown: &DisplayOptions) -> text::Style {
    let terminal = std::io::stdout().is_terminal();
    // NO_COLOR counts if it is set and not empty (https://no-color.org).
    let unwanted = shown.no_color || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let width = match terminal_size::terminal_size() {
        Some((width, _)) if terminal => usize::from(width.0).max(40),
        _ => WIDTH,
    };
    text::Style { colour: terminal && !unwanted, width }
}

/// Returns the failure that decides the exit code, if the outcome is one.
fn failure(outcome: &Outcome, all: bool) -> Option<Failure> {
    let refusal = outcome.result.as_ref().err()?;
    let said = format!("{}: {refusal}", outcome.experiment.name);
    match refusal {
        Refusal::Usage(_) => Some(Failure::Usage(said)),
        Refusal::Missing(_) if all => None,
        Refusal::Missing(_) | Refusal::Failed(_) => Some(Failure::Failed(said)),
    }
}

/// A progress line on stderr; hidden if stderr is not a terminal.
pub(crate) struct Spinner(ProgressBar);

impl Spinner {
    pub(crate) fn new() -> Self {
        Self(Progress::new(1).bar)
    }

    pub(crate) fn say(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    pub(crate) fn end(&self) {
        self.0.finish_and_clear();
    }
}

/// A progress line over several experiments, each with its name.
struct Progress {
    bar: ProgressBar,
    many: bool,
}

impl Progress {
    fn new(count: usize) -> Self {
        // The bar hides itself if stderr is not a terminal.
        let bar = ProgressBar::new(count as u64);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        // Ticks are rare, because a measurement may be running.
        bar.enable_steady_tick(Duration::from_secs(1));
        Self { bar, many: count > 1 }
    }

    fn of(&self, experiment: &'static Experiment) -> lab::experiment::Progress {
        if self.many {
            self.bar.set_prefix(format!("{}:", experiment.name));
        }
        self.bar.set_message("measuring");
        let bar = self.bar.clone();
        Arc::new(move |what: &str| bar.set_message(what.to_owned()))
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(result: Result<lab::experiment::Report, Refusal>) -> Outcome {
        Outcome { experiment: &experiments::all()[0], result, seconds: 0.0 }
    }

    #[test]
    fn a_missing_requirement_fails_only_named_experiments() {
        let missing = outcome(Err(Refusal::Missing("a memory cgroup".into())));
        assert!(failure(&missing, true).is_none());
        assert!(
            matches!(failure(&missing, false), Some(Failure::Failed(said)) if said.contains("a memory cgroup"))
        );
        let failed = outcome(Err(Refusal::Failed("the disk is full".into())));
        assert!(matches!(failure(&failed, true), Some(Failure::Failed(_))));
        let wrong = outcome(Err(Refusal::Usage("--page-bytes 3".into())));
        assert!(matches!(failure(&wrong, true), Some(Failure::Usage(_))));
        assert!(failure(&outcome(Ok(lab::experiment::Report::default())), false).is_none());
    }

    #[test]
    fn experiment_names_are_unique_and_sources_given() {
        for (i, experiment) in experiments::all().iter().enumerate() {
            assert!(
                !["list", "all", "load", "cores", "compare", "feed-bench-page"].contains(&experiment.name),
                "{} is a word",
                experiment.name
            );
            assert!(!experiment.claims.is_empty() && !experiment.source.is_empty(), "{}", experiment.name);
            assert!(experiments::all()[..i].iter().all(|other| other.name != experiment.name));
        }
    }
}
