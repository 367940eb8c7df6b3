use cli::CliError;

use crate::serve::ServeError;

/// The reason why the executable failed. Printed as one line.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A command of a person failed.
    #[error(transparent)]
    Command(#[from] CliError),
    /// A server did not start, or had to stop.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

impl Failure {
    /// Returns the exit code: 2 for wrong usage, 1 for a failure.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Command(error) => error.exit_code(),
            Self::Serve(error) => error.exit_code(),
        }
    }
}
