use std::io;

use crate::client::ClientError;
use crate::serve::ServeError;

/// Why a subcommand ended without its answer. Printed as one line.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line cannot be followed; says what to write instead.
    #[error("{0}")]
    Usage(String),
    /// The service was not reached, or did not do it.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A server did not start, or had to stop.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Reading or printing failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl CliError {
    /// The exit code: 2 for a wrong use, 1 for a failure.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Client(ClientError::BadUrl { .. } | ClientError::BadKey) => 2,
            Self::Serve(error) => error.exit_code(),
            Self::Client(_) | Self::Io { .. } => 1,
        }
    }
}

impl From<io::Error> for CliError {
    fn from(source: io::Error) -> Self {
        Self::Io { doing: "cannot print", source }
    }
}
