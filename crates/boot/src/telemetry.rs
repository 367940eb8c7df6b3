//! The log of a process.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::BootError;

/// The environment variable that sets the log filter, for the executable's flag.
pub const LOG_VARIABLE: &str = "OPENCODE_CLOUD_LOG";

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people: one short line each, coloured on a terminal.
    #[default]
    Compact,
    /// For collectors: one JSON object a line.
    Json,
}

/// Sends the log of this process to stderr. `filter` is what [`LOG_VARIABLE`] holds, as `info` or
/// `info,session=debug`. A second call changes nothing.
///
/// # Errors
/// [`BootError::LogFilter`] when the filter cannot be read.
pub fn init(format: LogFormat, filter: &str) -> Result<(), BootError> {
    let filter = EnvFilter::try_new(filter).map_err(|error| BootError::LogFilter {
        filter: filter.to_owned(),
        reason: error.to_string(),
    })?;
    let lines = fmt().with_env_filter(filter).with_writer(io::stderr);
    // An error means that there is a subscriber already, as in tests: then that one stays.
    let _already_set = match format {
        LogFormat::Compact => {
            lines.compact().with_target(false).with_ansi(io::stderr().is_terminal()).try_init()
        }
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_refused() {
        let refused = init(LogFormat::Json, "info,=??").unwrap_err().to_string();
        assert!(refused.starts_with("the log filter `info,=??` is not understood"), "{refused}");
        init(LogFormat::Json, "info,sqlx=warn").unwrap();
        init(LogFormat::Compact, "debug").unwrap();
    }
}
