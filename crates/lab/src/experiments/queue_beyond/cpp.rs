//! The C++ library's `priority_queue`, compiled on demand by an installed compiler.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::contenders::ItemOrder;
use super::ram::Timing;

const SOURCE: &str = include_str!("priority_queue.cpp");
/// Names of compilers, the system's own choice first.
const COMPILERS: [&str; 3] = ["c++", "g++", "clang++"];

/// A compiled program; its file is removed when this is dropped.
#[derive(Debug)]
pub struct Program {
    directory: TempDir,
    /// First line of the compiler's version output.
    pub compiler: String,
}

impl Program {
    /// Compiles the program.
    ///
    /// # Errors
    /// Returns a sentence if there is no compiler, or if it refuses.
    pub fn compile() -> Result<Self, String> {
        let directory = tempfile::Builder::new()
            .prefix("nighttrain-lab-")
            .tempdir()
            .map_err(|error| format!("no directory for the C++ program: {error}"))?;
        let source = directory.path().join("priority_queue.cpp");
        std::fs::write(&source, SOURCE).map_err(|error| format!("{}: {error}", source.display()))?;
        let mut said = Vec::new();
        for compiler in COMPILERS {
            let mut command = Command::new(compiler);
            command
                .args(["-std=c++17", "-O3", "-o"])
                .arg(directory.path().join("priority_queue"))
                .arg(&source);
            match command.output() {
                Ok(output) if output.status.success() => {
                    let version = Command::new(compiler).arg("--version").output();
                    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
                    let line = version.ok().and_then(|text| text.lines().next().map(str::to_owned));
                    return Ok(Self { directory, compiler: line.unwrap_or_else(|| compiler.to_owned()) });
                }
                Ok(output) => {
                    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                    said.push(format!("{compiler}: {}", words.lines().next().unwrap_or("refused")));
                }
                Err(error) => said.push(format!("{compiler}: {error}")),
            }
        }
        Err(format!("no C++ compiler here ({})", said.join("; ")))
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("priority_queue")
    }

    /// Does the same work as [`super::ram::time`].
    ///
    /// # Errors
    /// Returns a sentence if the program fails or has an unexpected output.
    pub fn time(
        &self,
        items: usize,
        compared: ItemOrder,
        repeats: usize,
        seed: u64,
    ) -> Result<Timing, String> {
        let what = if compared == ItemOrder::Key { "key" } else { "both" };
        let output = Command::new(self.path())
            .args([what, &items.to_string(), &repeats.to_string(), &seed.to_string()])
            .output()
            .map_err(|error| format!("the C++ program: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        answer(&text).ok_or_else(|| format!("the C++ program ended with {}: {text}", output.status))
    }
}

/// Parses the checksum, and the seconds of the three phases.
fn answer(text: &str) -> Option<Timing> {
    let mut words = text.split_whitespace();
    let checksum = words.next()?.parse().ok()?;
    let mut second = || words.next()?.parse().ok();
    Some(Timing { checksum, phases_s: [second()?, second()?, second()?] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::queue_beyond::{contenders, ram};

    #[test]
    fn an_answer_is_four_numbers() {
        let timing = answer("17 0.5 1.5 2.5\n").unwrap();
        assert_eq!((timing.checksum, timing.phases_s), (17, [0.5, 1.5, 2.5]));
        assert_eq!(answer("17 0.5 1.5"), None);
        assert_eq!(answer(""), None);
    }

    #[test]
    fn it_does_the_same_work_as_ours() {
        // There is nothing to test without a compiler; the experiment then reports that.
        let Ok(program) = Program::compile() else { return };
        for compared in [ItemOrder::Key, ItemOrder::KeyAndHandle] {
            let theirs = program.time(500, compared, 2, 9).unwrap();
            let mut queue = contenders::make(0, compared).unwrap();
            assert_eq!(theirs.checksum, ram::time(queue.as_mut(), 500, 2, 9).checksum);
            assert_ne!(theirs.checksum, program.time(500, compared, 2, 10).unwrap().checksum);
        }
    }
}
