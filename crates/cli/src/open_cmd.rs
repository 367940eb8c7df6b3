//! `opencode-cloud open`: opens the service in the browser, signed in as the owner of the key.

use std::process::{Command, Stdio};

use client::{Client, ClientOptions};
use reqwest::Method;

use crate::CliError;
use crate::output::Screen;

/// Arguments of `open`.
#[derive(Debug, clap::Args)]
pub struct OpenArgs {
    /// Only print the link
    #[arg(long)]
    pub print: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// The programs that open a link in the person's browser, the first that is there.
const OPENERS: [&str; 3] = ["xdg-open", "open", "wslview"];

/// Makes a one-time link and opens it. The link is printed in any case: it may be another machine's browser.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: OpenArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    let made = client.call_json(Method::POST, "/platform/login", None, "the login link").await?;
    let url = made["url"].as_str().unwrap_or_default();
    screen.out.line(url)?;
    let told = "it logs you in once, within an hour";
    if args.print || !OPENERS.into_iter().any(|opener| opens(opener, url)) {
        screen.err.say(&format!("open it in a browser: {told}"))?;
    } else {
        screen.err.say(&format!("opened in the browser: {told}"))?;
    }
    Ok(0)
}

/// Returns whether a program could be started with the link. The link is in its command line for a moment, where other
/// users of this machine may see it; it works once.
fn opens(program: &str, url: &str) -> bool {
    let mut opener = Command::new(program);
    opener.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    opener.status().is_ok_and(|status| status.success())
}
