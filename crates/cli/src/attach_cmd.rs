//! `opencode-cloud attach`: the terminal interface of the released client, at our service.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use client::{Client, ClientError, ClientOptions, SessionsQuery};

use crate::CliError;

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

/// Becomes `opencode attach`. Asks the service first, whose errors are clearer than that client's.
///
/// # Errors
/// [`CliError`]; there is no other return.
pub(crate) async fn execute(args: AttachArgs) -> Result<u8, CliError> {
    Client::new(&args.client)?.sessions_json(&SessionsQuery::newest(1)).await?;
    let directory = args.directory.unwrap_or_else(|| PathBuf::from("."));
    let directory = directory.canonicalize().map_err(|error| {
        CliError::Usage(format!(
            "cannot work in {}: {error}; name a directory that is there",
            directory.display()
        ))
    })?;
    start(&args.client, directory, args.options)
}

/// Returns whether the released client is on the PATH.
pub(crate) fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(OPENCODE).is_file())
}

/// Replaces this process by the released client, in a directory as the service knows it.
///
/// # Errors
/// [`CliError`]; there is no other return.
pub(crate) fn start(
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
    let source = opencode.exec();
    if source.kind() == ErrorKind::NotFound {
        return Err(CliError::Usage(format!(
            "the released client `{OPENCODE}` is not on the PATH: install it, for example with `npm install --global \
             opencode-ai`"
        )));
    }
    Err(CliError::Io { doing: "cannot start `opencode`", source })
}
