//! `opencode-cloud attach`: the terminal interface of the released client, at our service.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;

use client::{Client, ClientError, ClientOptions, SessionView, SessionsQuery};
use domain::{Clock as _, SessionId, SystemClock, TimestampMs};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::CliError;
use crate::output::Screen;
use crate::program;
use crate::session_name::newest_in;

/// The released client's executable.
const OPENCODE: &str = "opencode";
/// Where it reads the password, so that no command line shows the key.
const PASSWORD: &str = "OPENCODE_SERVER_PASSWORD";

/// Arguments of `attach`.
#[derive(Debug, clap::Args)]
pub struct AttachArgs {
    /// Directory to work in [default: the current one]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Options for `opencode attach`, such as `-- --continue`
    #[arg(last = true, value_name = "OPTION")]
    pub options: Vec<OsString>,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// Runs `opencode attach`, and then says how to come back. Asks the service first, whose errors are clearer than that
/// client's.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: AttachArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    client.sessions_json(&SessionsQuery::newest(1)).await?;
    let directory = args.directory.unwrap_or_else(|| PathBuf::from("."));
    let directory = directory.canonicalize().map_err(|error| {
        CliError::Usage(format!(
            "cannot work in {}: {error}; name a directory that is there",
            directory.display()
        ))
    })?;
    let begun = SystemClock::new().now_ms();
    let named = directory.to_string_lossy().into_owned();
    let code = start(&args.client, directory, args.options).await?;
    // The service may be gone by now; then there is nothing to say.
    if let Ok(Some(last)) = newest_in(&client, &named).await
        && was_used(&last, begun)
    {
        tell_return(&last.id, screen)?;
    }
    Ok(code)
}

/// Returns whether a session has changed since a time, by this machine's clock, which may go a little ahead.
fn was_used(session: &SessionView, since: TimestampMs) -> bool {
    const AHEAD: TimestampMs = 5_000;
    session.time.updated.unwrap_or(session.time.created) + AHEAD >= since
}

/// Says how to open the session again. The client itself names a command that looks for it on this machine.
pub(crate) fn tell_return(session: &SessionId, screen: &mut Screen) -> io::Result<()> {
    screen.err.say(&format!("open it again: {} session open {session}", program()))
}

/// Returns whether the released client is on the PATH.
pub(crate) fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(OPENCODE).is_file())
}

/// Runs the released client in a directory as the service knows it, and returns its exit code.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn start(
    client: &ClientOptions,
    directory: PathBuf,
    options: Vec<OsString>,
) -> Result<u8, CliError> {
    let access = client.resolve()?;
    let Some(key) = access.key else {
        return Err(ClientError::unauthorized(&access.url, &access.source).into());
    };
    let mut opencode = Command::new(OPENCODE);
    opencode
        .arg("attach")
        .arg(&access.url)
        .arg("--dir")
        .arg(directory)
        .args(options)
        .env(PASSWORD, key);
    let failed = |source| CliError::Io { doing: "cannot start `opencode`", source };
    // Ctrl-C in this terminal is for the client; it comes to us too.
    let _interrupts = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut child = opencode.spawn().map_err(|source| {
        if source.kind() != ErrorKind::NotFound {
            return failed(source);
        }
        CliError::Usage(format!(
            "the released client `{OPENCODE}` is not on the PATH: install it, for example with `npm install --global \
             opencode-ai`"
        ))
    })?;
    let ended = child.wait().await.map_err(failed)?;
    let code = ended.code().or(ended.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_session_that_was_used_is_named_at_the_end() {
        let session = |updated: Option<i64>| -> SessionView {
            let answer = json!({
                "id": "ses_1", "projectID": "prj_1", "directory": "/code", "title": "t", "agent": "build", "busy": false,
                "seq": 1, "time": { "created": 50_000, "updated": updated },
            });
            serde_json::from_value(answer).expect("a session")
        };
        assert!(was_used(&session(Some(100_000)), 100_000));
        assert!(was_used(&session(None), 50_000), "it was made just now");
        assert!(!was_used(&session(Some(60_000)), 100_000));
    }
}
