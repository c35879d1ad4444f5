//! A measurement in a process of its own: this same program, started again with a task in its environment.
//!
//! ```text
//! parent: ask(task) ─▶ child: do_task_and_exit() ─▶ perform(task) ─▶ answer in a file ─▶ parent
//! ```
//! So a test's executable can be its own child as well as `nighttrain` can. The child does its task where the
//! experiment would begin, and ends; it never starts another. Its counters, its page cache and its memory cgroup are
//! its own and end with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// How the children are started.
#[derive(Debug, Clone)]
pub struct ChildCommand {
    /// Arguments after the program's own path that lead to [`do_task_and_exit`].
    pub arguments: Vec<String>,
}

/// What stands in the environment.
#[derive(Debug, Serialize, Deserialize)]
struct ChildTask<T> {
    task: T,
    answer: PathBuf,
}

/// If this process is a child that was started with `variable`: does its task and ends the process. Returns at once
/// if it is not.
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
            // The parent hands this on.
            let _ = io::Write::write_all(&mut io::stderr(), format!("{error}\n").as_bytes());
            1
        }
    })
}

/// Starts a child for `task` and waits for what it finds; its answer passes through a file in `directory`.
///
/// # Errors
/// If it cannot be started, or ended otherwise than well; the text has its own last words.
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
