//! A plain C version of the round-trip loop, which shows the practical limit.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use serde::Serialize;

/// Source of the program, which the system's compiler compiles when it is needed.
const SOURCE: &str = include_str!("../../../../../bench/limit/pingpong.c");

/// The compiled program, in a directory that is removed with it.
#[derive(Debug)]
pub(super) struct Limit {
    _directory: tempfile::TempDir,
    program: PathBuf,
}

/// Figures of the program, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct LimitFigures {
    /// p50, p90, p99 and the maximum, measured from the time when a message was due.
    pub(super) corrected: [f64; 4],
    /// p50, p90, p99 and the maximum, measured from the time when a message was sent.
    pub(super) uncorrected: [f64; 4],
    /// Messages per second.
    pub(super) achieved: f64,
}

impl Limit {
    /// Compiles the program. Without a compiler there is no limit to compare with, and the error says why.
    pub(super) fn compiled() -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let source = directory.path().join("pingpong.c");
        let program = directory.path().join("pingpong");
        std::fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
        let status = Command::new("cc")
            .args(["-O2", "-pthread", "-o"])
            .args([&program, &source])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|error| format!("cc: {error} (on Debian: apt-get install gcc libc6-dev)"))?;
        if !status.success() {
            return Err(format!("cc ended with {status}"));
        }
        Ok(Self { _directory: directory, program })
    }

    /// Runs the program once.
    pub(super) fn run(&self, rate: f64, count: usize, cores: (usize, usize)) -> Result<LimitFigures, String> {
        let arguments = [format!("{rate}"), count.to_string(), cores.0.to_string(), cores.1.to_string()];
        let output =
            Command::new(&self.program).args(arguments).output().map_err(|error| error.to_string())?;
        parse(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| format!("it ended with {}", output.status))
    }
}

fn parse(text: &str) -> Option<LimitFigures> {
    let figures: Vec<f64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let corrected = figures.get(..4)?.try_into().ok()?;
    let uncorrected = figures.get(4..8)?.try_into().ok()?;
    Some(LimitFigures { corrected, uncorrected, achieved: *figures.get(8)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_figures_are_read_in_order() {
        let measured = parse("1 2 3 4 5 6 7 8 9000\n").unwrap();
        assert_eq!(measured.corrected, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!((measured.uncorrected[3], measured.achieved), (8.0, 9000.0));
        assert_eq!(parse("1 2 3"), None);
    }
}
