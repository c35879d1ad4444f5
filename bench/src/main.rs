//! Compares Nighttrain with other servers, and generates the pages with the results.
//!
//! ```text
//!  bench list               each part's scenarios and contenders
//!  bench run [PART]         measures: all parts, or one                 ─▶ bench/records/bench-PART-DATE.json, .md
//!  bench pages              bench/records/*.json, docs/lab/results.json ─▶ docs/benchmarks.md, charts, README.md
//!  bench html RECORD        one record as a page that stands alone
//! ```
//! Servers are programs: `nighttrain` is started and loaded like its peers. Starting and loading them is
//! shared with the experiments ([`lab::peers`]), and so is the computation of figures ([`lab::paired`]).

mod cache;
mod feed;
mod mail;
mod namespace;
mod pages;
mod part;
mod pressure;
mod record;
mod selection;
mod session;
mod tls;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::{env, io};

use clap::{Args, Parser, Subcommand};

use part::{PARTS, minutes};
use selection::Selection;

/// Compares Nighttrain with its peers
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Lists each part's scenarios and contenders, and how long they take
    List,
    /// Measures all parts, or one
    Run(Box<Run>),
    /// Generates docs/benchmarks.md, its charts and the README's part from the records
    Pages,
    /// Prints one record as a self-contained HTML page
    Html {
        /// A record: bench/records/….json, or docs/lab/results.json
        record: PathBuf,
    },
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
struct Run {
    #[command(flatten)]
    selection: Selection,
    #[command(subcommand)]
    part: Option<part::Task>,
}

fn main() -> ExitCode {
    pressure::do_task();
    match Options::parse().task {
        Task::List => {
            PARTS.iter().for_each(part::Part::list);
            ExitCode::SUCCESS
        }
        Task::Run(run) => match &run.part {
            Some(part) => part.run(),
            None => run_all(&run.selection),
        },
        Task::Pages => printed(pages::write().map(|lines| lines.join("\n") + "\n")),
        Task::Html { record } => printed(pages::html::render(&record)),
    }
}

/// Runs every part in a separate process, because each binds itself to a core.
fn run_all(selection: &Selection) -> ExitCode {
    let seconds: Vec<u64> = PARTS.iter().map(|part| (part.contents)(selection.quick).seconds()).collect();
    println!("All parts take about {}:", minutes(seconds.iter().sum()));
    for (part, seconds) in PARTS.iter().zip(&seconds) {
        println!("  {:<10} {} ({})", part.name, minutes(*seconds), part.what);
    }
    let mut failed = Vec::new();
    for part in &PARTS {
        println!("\n== {} ==", part.name);
        let run = env::current_exe().and_then(|program| {
            Command::new(program).args(["run", part.name]).args(selection.arguments()).status()
        });
        match run {
            Ok(status) if status.success() => {}
            Ok(status) => failed.push(format!("{} ({status})", part.name)),
            Err(error) => failed.push(format!("{} ({error})", part.name)),
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("bench: failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

fn printed(text: Result<String, String>) -> ExitCode {
    let text = match text {
        Ok(text) => text,
        Err(why) => {
            eprintln!("bench: {why}");
            return ExitCode::FAILURE;
        }
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
