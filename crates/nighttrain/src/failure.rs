//! Failure of a command: its message, and its exit code.

use std::{fmt, io, process::ExitCode};

/// Reason why a command failed, with a message that says what to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command could not do its task (exit code 1).
    Failed(String),
    /// The arguments are wrong (exit code 2, like clap's own errors).
    Usage(String),
    /// The configuration is wrong (exit code 3): one entry for each fault.
    Configuration(Vec<Fault>),
    /// The command could not do its task, and its caller expects an exit code defined by another convention
    /// (`sysexits.h`).
    As(u8, String),
}

/// A fault of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Location of the fault: `nighttrain.toml:3:10`, or the name of an environment variable or a flag.
    pub place: String,
    /// Description of the fault and of a correct value.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl Failure {
    /// Converts the failure into one fault of the configuration.
    pub(crate) fn into_fault(self) -> Fault {
        match self {
            Self::Configuration(mut faults) if !faults.is_empty() => faults.swap_remove(0),
            other => Fault { place: "cache".to_owned(), message: other.to_string() },
        }
    }

    /// Returns the exit code that the command line documents.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Configuration(_) => 3,
            Self::As(code, _) => *code,
        })
    }
}

/// Returns the failure for a setting with a wrong value.
pub(crate) fn fault(key: &str, message: String) -> Failure {
    Failure::Configuration(vec![Fault { place: key.to_owned(), message }])
}

/// Returns a function that turns a system error into a failure.
pub(crate) fn failed(what: &'static str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::Failed(format!("{what}: {error}"))
}

impl fmt::Display for Failure {
    /// Writes one line for each fault.
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
