//! Common code of the benchmarks' quick runs: installed programs, and a program's output.

use std::{
    env,
    path::Path,
    process::{Command, Output},
};

/// Returns whether a peer's program is installed.
pub(crate) fn installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain(["/usr/sbin".into()]).any(|directory| directory.join(program).is_file())
}

/// Returns all output of a program.
pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Returns whether the program beside a benchmark is built, and has this command with this flag.
pub(crate) fn ours_can(bench: &str, command: &str, flag: &str) -> bool {
    let Some(program) = Path::new(bench).parent().map(|directory| directory.join("nighttrain")) else {
        return false;
    };
    let help = Command::new(program).args([command, "--help"]).output();
    help.is_ok_and(|help| help.status.success() && said(&help).contains(flag))
}
