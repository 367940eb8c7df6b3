use std::io;

use client::ClientError;

/// The reason why a subcommand failed. Printed as one line.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A wrong command line. The message says what to write instead.
    #[error("{0}")]
    Usage(String),
    /// The service was not reached, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Nobody answers at the service's address, but others do.
    #[error("{source}. {others}")]
    Elsewhere {
        /// The failed call.
        source: ClientError,
        /// A sentence about the services that answer.
        others: String,
    },
    /// Reading or printing failed.
    #[error("{doing}: {source}")]
    Io {
        /// The attempted action.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl CliError {
    /// Returns the exit code: 2 for wrong usage, 1 for a failure.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Client(
                ClientError::BadUrl { .. }
                | ClientError::UnknownService { .. }
                | ClientError::BadKey,
            ) => 2,
            Self::Client(_) | Self::Elsewhere { .. } | Self::Io { .. } => 1,
        }
    }
}

impl From<io::Error> for CliError {
    fn from(source: io::Error) -> Self {
        Self::Io { doing: "cannot print", source }
    }
}
