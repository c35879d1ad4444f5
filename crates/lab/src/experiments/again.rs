//! Measurements in a child process: the same program, started again with a task in its environment.
//!
//! ```text
//! parent: ask(task) ─▶ child: do_task_and_exit() ─▶ perform(task) ─▶ answer in a file ─▶ parent
//! ```
//! A test's executable can be its own child in this way, like `nighttrain` itself. The child does its task at
//! the point where the experiment would begin, and ends; it never starts another child. Its counters, its
//! page cache and its memory cgroup are its own and end with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Command line that starts a child process.
#[derive(Debug, Clone)]
pub struct ChildCommand {
    /// Arguments after the program's own path that make it call [`do_task_and_exit`].
    pub arguments: Vec<String>,
}

/// Task of a child process, as JSON in its environment.
#[derive(Debug, Serialize, Deserialize)]
struct ChildTask<T> {
    task: T,
    answer: PathBuf,
}

/// If this process is a child that was started with `variable`, performs its task and ends the process;
/// returns at once in any other process.
pub fn do_task_and_exit<T: DeserializeOwned, F: Serialize>(
    variable: &str,
    perform: impl FnOnce(&T) -> io::Result<F>,
) {
    let Some(errand) = std::env::var_os(variable) else { return };
    let done = serde_json::from_str::<ChildTask<T>>(&errand.to_string_lossy())
        .map_err(io::Error::other)
        .and_then(|errand| fs::write(&errand.answer, serde_json::to_vec(&perform(&errand.task)?)?));
    std::process::exit(match done {
        Ok(()) => 0,
        Err(error) => {
            // The parent includes this message in its error.
            let _ = io::Write::write_all(&mut io::stderr(), format!("{error}\n").as_bytes());
            1
        }
    })
}

/// Starts a child for `task` and waits for its answer, which passes through a file in `directory`.
///
/// # Errors
/// Returns an error if the child cannot be started or fails; its text includes the child's last message.
pub fn ask<T: Serialize, F: DeserializeOwned>(
    variable: &str,
    task: &T,
    directory: &Path,
    again: &ChildCommand,
) -> io::Result<F> {
    let errand = ChildTask { task, answer: directory.join("answer") };
    let program = std::env::current_exe()?;
    let output = Command::new(program)
        .args(&again.arguments)
        .env(variable, serde_json::to_string(&errand)?)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()?;
    if !output.status.success() || !errand.answer.exists() {
        let words = String::from_utf8_lossy(&output.stderr);
        let last = words.trim().lines().last().unwrap_or("no word of why").to_owned();
        return Err(io::Error::other(format!("the measuring process ended with {}: {last}", output.status)));
    }
    let found = serde_json::from_slice(&fs::read(&errand.answer)?)?;
    fs::remove_file(&errand.answer)?;
    Ok(found)
}
