//! `make benchmarks-page` and `make record-html`: what is made from the records of measurements.
//!
//! ```text
//!  bench/records/*.json ─┐            ┌─▶ docs/benchmarks.md            every table, every loss, the machine once
//!  docs/lab/results.json ┴─▶ Shelf ───┼─▶ docs/benchmarks/*.svg         a small chart a server, × the limit
//!                                     └─▶ README.md, between two marks  the charts, and a line of losses each
//!  one record.json ──────────────────────▶ HTML on stdout
//! ```
//! Nothing is measured here, and no figure is typed in: where a section says a number, it takes it from the newest
//! record that measured it ([`shelf`]). A test holds the committed files to what these records give.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "talks to the person who started it")]

mod cache;
mod chart;
mod claims;
mod contenders;
mod edge;
mod feed;
mod html;
mod mail;
mod markdown;
mod page;
mod pressure;
mod queues;
mod shelf;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use clap::{Parser, Subcommand};
use lab::paired::place::workspace;

use shelf::Shelf;

/// Makes pages from records of measurements.
#[derive(Debug, Parser)]
#[command(name = "records")]
struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Writes docs/benchmarks.md, its charts, and the README's part about peers
    Page,
    /// Prints one record as a page that stands alone
    Html {
        /// A record: bench/records/….json, or docs/lab/results.json
        record: PathBuf,
    },
}

fn main() -> ExitCode {
    match perform(&Options::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("records: {why}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: &Task) -> Result<(), String> {
    match task {
        Task::Page => {
            let root = workspace();
            let shelf = Shelf::read(&root)?;
            for (path, text) in page::files(&shelf, &root)? {
                let changed = write(&root.join(&path), &text).map_err(|why| format!("{path}: {why}"))?;
                println!("{path}{}", if changed { "" } else { ": as it was" });
            }
            Ok(())
        }
        Task::Html { record } => {
            let page = html::render(record)?;
            match io::stdout().lock().write_all(page.as_bytes()) {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
                _ => Ok(()),
            }
        }
    }
}

/// Answers whether the file was another before.
fn write(path: &Path, text: &str) -> io::Result<bool> {
    if fs::read_to_string(path).is_ok_and(|before| before == text) {
        return Ok(false);
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, text)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever adds a record, or changes what is said of them, runs `make benchmarks-page`.
    #[test]
    fn what_is_committed_is_what_the_records_give() {
        let root = workspace();
        let shelf = Shelf::read(&root).unwrap();
        for (path, text) in page::files(&shelf, &root).unwrap() {
            let committed = fs::read_to_string(root.join(&path)).unwrap_or_default();
            assert!(committed == text, "{path} is not what its records give: run `make benchmarks-page`");
        }
    }
}
