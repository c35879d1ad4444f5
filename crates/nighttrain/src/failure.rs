//! How the program ends when it could not do what it was asked: what it says, and its exit code.

use std::{fmt, process::ExitCode};

/// Why a command ended, in words that say what to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It could not be done (exit code 1).
    Failed(String),
    /// It was asked for wrongly (exit code 2, as clap's own).
    Usage(String),
    /// What was configured is wrong (exit code 3): one entry for each fault.
    Configuration(Vec<Fault>),
    /// It could not be done, and who called expects a code of another convention (`sysexits.h`).
    As(u8, String),
}

/// One thing that is wrong in what was configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Where: `nighttrain.toml:3:10`, or the name of an environment variable or a flag.
    pub place: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl Failure {
    /// As one thing that is wrong with a configuration.
    pub(crate) fn into_fault(self) -> Fault {
        match self {
            Self::Configuration(mut faults) if !faults.is_empty() => faults.swap_remove(0),
            other => Fault { place: "cache".to_owned(), message: other.to_string() },
        }
    }

    /// The exit code that the command line promises.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Configuration(_) => 3,
            Self::As(code, _) => *code,
        })
    }
}

impl fmt::Display for Failure {
    /// One line for each thing that is wrong.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(message) | Self::Usage(message) => write!(f, "nighttrain: {message}"),
            Self::As(_, message) => f.write_str(message),
            Self::Configuration(faults) => {
                for (i, fault) in faults.iter().enumerate() {
                    if i > 0 {
                        f.write_str("\n")?;
                    }
                    write!(f, "nighttrain: {fault}")?;
                }
                Ok(())
            }
        }
    }
}
