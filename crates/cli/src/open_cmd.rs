//! `opencode-cloud open`: opens the service in the browser, signed in as the owner of the key.

use std::process::{Command, Stdio};

use client::{Client, ClientOptions};
use domain::SessionId;
use reqwest::{Method, Url};

use crate::CliError;
use crate::output::Screen;
use crate::session_name::find_session;

/// Arguments of `open`.
#[derive(Debug, clap::Args)]
pub struct OpenArgs {
    /// Open this session, by its id or the beginning of it [default: the list of sessions]
    #[arg(value_name = "SESSION")]
    pub session: Option<SessionId>,
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
    let session = match &args.session {
        Some(given) => Some(find_session(&client, Some(given)).await?),
        None => None,
    };
    let made = client.call_json(Method::POST, "/platform/login", None, "the login link").await?;
    let url = &add_return(made["url"].as_str().unwrap_or_default(), session.as_ref());
    screen.out.line(url)?;
    let told = "it logs you in once, within an hour";
    if args.print || !OPENERS.into_iter().any(|opener| opens(opener, url)) {
        screen.err.say(&format!("open it in a browser: {told}"))?;
    } else {
        screen.err.say(&format!("opened in the browser: {told}"))?;
    }
    Ok(0)
}

/// Returns a login link that leads to a session's page.
fn add_return(link: &str, session: Option<&SessionId>) -> String {
    let (Ok(mut url), Some(session)) = (Url::parse(link), session) else { return link.to_owned() };
    // The console puts its own organisation in the place of `-`.
    url.query_pairs_mut().append_pair("return", &format!("/o/-/session/{session}"));
    url.into()
}

/// Returns whether a program could be started with the link. The link is in its command line for a moment, where other
/// users of this machine may see it; it works once.
fn opens(program: &str, url: &str) -> bool {
    let mut opener = Command::new(program);
    opener.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    opener.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_the_session_that_is_asked_for() {
        let session: SessionId = "ses_1".parse().expect("an id");
        let link = "http://127.0.0.1:4096/login#token";
        assert_eq!(add_return(link, None), link);
        let led = "http://127.0.0.1:4096/login?return=%2Fo%2F-%2Fsession%2Fses_1#token";
        assert_eq!(add_return(link, Some(&session)), led);
    }
}
