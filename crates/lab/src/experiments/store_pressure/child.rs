//! One way in a process of its own, which lives in a memory cgroup from its first moment.

use std::{
    fs, io,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde::{Deserialize, Serialize};

use super::{PressureFigures, ServingMode, serving};
use crate::experiments::bheap_paging::group::Group;

/// The environment variable that makes a process such a child: a [`Task`] as JSON.
pub(super) const TASK: &str = "NIGHTTRAIN_LAB_PRESSURE_TASK";

/// How the children are started.
#[derive(Debug, Clone)]
pub struct ChildCommand {
    /// Arguments after the program's own path that lead to where a child does its task.
    pub arguments: Vec<String>,
}

/// What a child has to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// The group that it enters, or none.
    pub(super) group: Option<Group>,
    pub(super) way: ServingMode,
    pub(super) objects: u64,
    /// The file of the objects.
    pub(super) store: PathBuf,
    /// What may stay of it in memory, what is kept about it included.
    pub(super) memory_bytes: u64,
    /// Requests a second.
    pub(super) rate: u64,
    /// Seconds before the measurement, and in it.
    pub(super) seconds: (f64, f64),
    /// Where the child writes what it found.
    pub(super) answer: PathBuf,
}

/// If this process is such a child: does its task and ends the process. Returns at once if it is not.
pub(super) fn do_task_and_exit() {
    let Some(task) = std::env::var_os(TASK) else { return };
    let done = serde_json::from_str::<Task>(&task.to_string_lossy())
        .map_err(io::Error::other)
        .and_then(|task| perform(&task));
    std::process::exit(match done {
        Ok(()) => 0,
        Err(error) => {
            // The parent hands this on.
            let _ = io::Write::write_all(&mut io::stderr(), format!("{error}\n").as_bytes());
            1
        }
    })
}

fn perform(task: &Task) -> io::Result<()> {
    if let Some(group) = &task.group {
        group.enter()?;
    }
    let found = serving::measured(task)?;
    fs::write(&task.answer, serde_json::to_vec(&found)?)
}

/// Starts a child for `task` and waits for what it finds.
///
/// # Errors
/// If it cannot be started, or ended otherwise than well; the text has its own last words.
pub(super) fn found_by_child(task: &Task, again: &ChildCommand) -> io::Result<PressureFigures> {
    let output = Command::new(std::env::current_exe()?)
        .args(&again.arguments)
        .env(TASK, serde_json::to_string(task)?)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()?;
    if !output.status.success() || !task.answer.exists() {
        let words = String::from_utf8_lossy(&output.stderr);
        let last = words.trim().lines().last().unwrap_or("no word of why").to_owned();
        return Err(io::Error::other(format!("the measuring process ended with {}: {last}", output.status)));
    }
    let found = serde_json::from_slice(&fs::read(&task.answer)?)?;
    fs::remove_file(&task.answer)?;
    Ok(found)
}
