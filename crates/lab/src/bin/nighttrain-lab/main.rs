//! The lab's program, which `nighttrain lab …` starts.
//!
//! ```text
//! arguments ──▶ experiments ──▶ outcomes ──▶ text, JSON, a page, Markdown
//!          └──▶ load, cores, compare: instruments for any server
//! ```
#![allow(
    clippy::disallowed_methods,
    reason = "instruments read clocks and wait for processes; nothing here is on a loop"
)]

mod cli;
mod experiments;
mod failure;
mod feed_bench;
mod tools;

use std::{io::Write, process::ExitCode};

use clap::Parser;

use crate::{cli::LabTask, failure::Failure};

/// Counting allocator, so that the allocations of a stretch of code can be counted; it costs two additions
/// per call (docs/decisions/004).
#[global_allocator]
static ALLOCATOR: allocations::CountingAllocator = allocations::CountingAllocator::system();

fn main() -> ExitCode {
    match experiments::lab(&LabTask::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // An error is ignored: if stderr is gone, the exit code still reports the failure.
            _ = writeln!(std::io::stderr(), "{failure}");
            failure.exit_code()
        }
    }
}

/// Writes to stdout. A reader that has gone away, such as `head`, is not an error.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}
