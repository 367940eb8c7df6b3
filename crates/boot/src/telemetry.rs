//! The log of a process.

use std::io::{self, IsTerminal};

use reports::ErrorLayer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use crate::BootError;
use crate::log_line::LogLine;

/// The environment variable with the log filter, for the executable's flag.
pub const LOG_VARIABLE: &str = "OPENCODE_CLOUD_LOG";

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people: one short line each, in colour on a terminal.
    #[default]
    Compact,
    /// For collectors: one JSON object per line.
    Json,
}

/// Sends the log of this process to stderr, in lines of at most 8 KiB, and its errors to Sentry once reports are on.
/// `filter` is the value of [`LOG_VARIABLE`], such as `info` or `info,session=debug`. A second call changes nothing.
///
/// # Errors
/// [`BootError::LogFilter`] if the filter is invalid.
pub fn init(format: LogFormat, filter: &str) -> Result<(), BootError> {
    let filter = EnvFilter::try_new(filter).map_err(|error| BootError::LogFilter {
        filter: filter.to_owned(),
        reason: error.to_string(),
    })?;
    let lines =
        fmt().with_env_filter(filter).with_writer(move || LogLine { to: io::stderr(), format });
    // An error means that there is a subscriber already, as in tests; that one stays.
    let _already_set = match format {
        LogFormat::Compact => {
            let lines = lines.compact().with_target(false).with_ansi(io::stderr().is_terminal());
            lines.finish().with(ErrorLayer).try_init()
        }
        LogFormat::Json => lines.json().flatten_event(true).finish().with(ErrorLayer).try_init(),
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
