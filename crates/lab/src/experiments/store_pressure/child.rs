//! Measurement of one serving mode in a child process, which is in a memory cgroup from its start.

use std::{
    fs, io,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde::{Deserialize, Serialize};

use super::{PressureFigures, ServingMode, serving};
use crate::experiments::bheap_paging::group::Group;

/// Environment variable that makes a process a measuring child; its value is a [`Task`] as JSON.
pub(super) const TASK: &str = "NIGHTTRAIN_LAB_PRESSURE_TASK";

/// Command line of the children.
#[derive(Debug, Clone)]
pub struct ChildCommand {
    /// Arguments after the program's own path that make a child perform its task.
    pub arguments: Vec<String>,
}

/// Task of a child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// Memory cgroup that the child enters, if any.
    pub(super) group: Option<Group>,
    pub(super) way: ServingMode,
    pub(super) objects: u64,
    /// File of the objects.
    pub(super) store: PathBuf,
    /// Bytes of the store that may stay in memory, including its metadata.
    pub(super) memory_bytes: u64,
    /// Requests per second.
    pub(super) rate: u64,
    /// Durations of the warm-up and of the measurement, in seconds.
    pub(super) seconds: (f64, f64),
    /// File to which the child writes its figures.
    pub(super) answer: PathBuf,
}

/// If this process was started as a measuring child, performs its task and ends the process. Otherwise
/// returns at once.
pub(super) fn do_task_and_exit() {
    let Some(task) = std::env::var_os(TASK) else { return };
    let done = serde_json::from_str::<Task>(&task.to_string_lossy())
        .map_err(io::Error::other)
        .and_then(|task| perform(&task));
    std::process::exit(match done {
        Ok(()) => 0,
        Err(error) => {
            // The parent includes this message in its error.
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

/// Starts a child for `task` and waits for its figures.
///
/// # Errors
/// Returns an error if the child cannot be started or fails; its text includes the child's last message.
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
