//! `opencode-cloud ready`: asks a role whether it is ready, for health checks and scripts. It needs no key.

use std::time::Duration;

use reqwest::Url;
use serde_json::Value;

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Arguments of `ready`.
#[derive(Debug, clap::Args)]
pub struct ReadyArgs {
    /// The role's own URL
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:4096")]
    pub url: Url,
    /// Ask only whether the process answers
    #[arg(long)]
    pub live: bool,
}

/// Asks, and returns 0 if it is ready, otherwise 1 with a sentence.
///
/// # Errors
/// When nothing can be printed or sent.
pub(crate) async fn execute(args: ReadyArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let path = if args.live { "/healthz" } else { "/readyz" };
    let url = args.url.join(path).map_err(|_| {
        CliError::Usage(format!(
            "{} has no path {path}; give one like http://127.0.0.1:4096",
            args.url
        ))
    })?;
    // A certificate is for the service's public name, which this address is not.
    let is_here = match url.host_str() {
        Some(host) => host == "localhost" || host.starts_with("127.") || host == "[::1]",
        None => false,
    };
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(PATIENCE)
        .tls_danger_accept_invalid_certs(is_here)
        .build();
    let answer = match client {
        Ok(client) => client.get(url.clone()).send().await,
        Err(error) => Err(error),
    };
    let (code, line) = match answer {
        Ok(answer) if answer.status().is_success() => (0, format!("{url}: ready")),
        Ok(answer) => {
            let status = answer.status();
            let body = answer.text().await.unwrap_or_default();
            let said: Option<Value> = serde_json::from_str(&body).ok();
            let said = said.as_ref().and_then(|body| body["error"]["message"].as_str());
            let why = printable::line(said.unwrap_or(body.trim()), 400);
            (1, format!("{url}: not ready ({status}): {why}"))
        }
        Err(error) => {
            let why = client::reason(&error);
            let line = match client::certificate_fault(&why) {
                Some(fault) => format!("{url}: its certificate is not trusted: {fault}"),
                None => format!("{url}: nobody answers: {why}"),
            };
            (1, line)
        }
    };
    screen.out.say(&line)?;
    Ok(code)
}
