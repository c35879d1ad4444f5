//! Failure of the lab. The exit codes are those of `nighttrain`.

use std::{fmt, process::ExitCode};

/// Reason why the lab failed, with a message that says what to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command could not do its task (exit code 1).
    Failed(String),
    /// The arguments are wrong (exit code 2, like clap's own errors).
    Usage(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(message) | Self::Usage(message)) = self;
        write!(f, "nighttrain: {message}")
    }
}
