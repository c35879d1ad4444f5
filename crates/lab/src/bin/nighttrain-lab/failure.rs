//! How the lab ends when it could not do what it was asked. The codes are those of `nighttrain`.

use std::{fmt, process::ExitCode};

/// Why it ended, in words that say what to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It could not be done (exit code 1).
    Failed(String),
    /// It was asked for wrongly (exit code 2, as clap's own).
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
