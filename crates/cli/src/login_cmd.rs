//! `opencode-cloud login|logout|services|use`: the services that this user's commands know.

use std::path::PathBuf;

use client::profile::{Profile, ProfileFile};
use client::{Client, ClientError, SessionsQuery, is_loopback};
use serde_json::json;

use crate::CliError;
use crate::output::Screen;
use crate::secret_input;
use crate::table::fitted;

/// Arguments of `login`.
#[derive(Debug, clap::Args)]
pub struct LoginArgs {
    /// URL of the service; without a scheme it is https (http on this machine)
    #[arg(value_name = "URL")]
    pub url: String,
    /// File with the API key; `-` is standard input [default: standard input; at a terminal, it asks]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// A short name for the service, which `--url`, `use` and `logout` take too
    #[arg(long, value_name = "NAME", value_parser = service_name)]
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `logout`.
#[derive(Debug, clap::Args)]
pub struct LogoutArgs {
    /// URL or name of the service [default: the one that commands use]
    #[arg(value_name = "SERVICE", conflicts_with = "all")]
    pub service: Option<String>,
    /// Forget all services
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `services`.
#[derive(Debug, clap::Args)]
pub struct ServicesArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `use`.
#[derive(Debug, clap::Args)]
pub struct UseArgs {
    /// URL or name of the service
    #[arg(value_name = "SERVICE")]
    pub service: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Reads a name of a service. It must not look like a URL.
fn service_name(text: &str) -> Result<String, &'static str> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !text.is_empty() && text.len() <= 64 && text.chars().all(is_good) {
        return Ok(text.to_owned());
    }
    Err("a name is 1 to 64 letters, digits, `-`, `_` or `.`")
}

/// Checks a key at its service and stores both in the client profile.
///
/// # Errors
/// [`CliError`]; nothing is stored then.
pub(crate) async fn login(args: LoginArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let file = ProfileFile::of_caller().map_err(ClientError::from)?;
    let profile = file.read().map_err(ClientError::from)?;
    let url = url_of(&args.url);
    // A wrong URL is told before the user looks for the key.
    Client::at(&url, "none")?;
    if let Some(name) = &args.name
        && let Some(taken) = profile.url_of_name(name).filter(|taken| *taken != url)
    {
        let usage = format!("--name {name}: {taken} has that name; choose another one");
        return Err(CliError::Usage(usage));
    }
    let key =
        secret_input::read(args.key_file.as_deref(), &format!("API key for {url}: "), screen)?;
    let client = Client::at(&url, &key)?;
    let may_read = match client.sessions_json(&SessionsQuery::newest(1)).await {
        Ok(list) if list.is_array() => true,
        Err(ClientError::Forbidden { .. }) => false, // a key of this service, without that scope
        Ok(_) | Err(ClientError::NotFound { .. } | ClientError::Unreadable { .. }) => {
            return Err(ClientError::Foreign { url }.into());
        }
        Err(error) => return Err(error.into()),
    };
    file.log_in(&url, &key, args.name.as_deref()).map_err(ClientError::from)?;
    if args.json {
        let line = json!({ "url": url, "name": args.name, "profile": file.path() });
        screen.out.line(&line.to_string())?;
        return Ok(0);
    }
    screen.out.say(&format!("Logged in to {url}; commands use it from now on."))?;
    screen
        .out
        .say(&format!("The key is in {}, which only you can read.", file.path().display()))?;
    if !may_read {
        screen.err.say("note: this key may not read sessions; many commands will be refused")?;
    }
    if url.starts_with("http:") && !is_loopback(&url) {
        screen.err.say("note: http is not encrypted: whoever sees the traffic sees the key")?;
    }
    for variable in ["OPENCODE_CLOUD_URL", "OPENCODE_CLOUD_KEY"] {
        if std::env::var_os(variable).is_some_and(|value| !value.is_empty()) {
            screen.err.say(&format!(
                "note: {variable} is set and overrides the profile; remove it with: unset {variable}"
            ))?;
        }
    }
    Ok(0)
}

/// Forgets one service, or all.
///
/// # Errors
/// [`CliError`].
pub(crate) fn logout(args: &LogoutArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let file = ProfileFile::of_caller().map_err(ClientError::from)?;
    let profile = file.read().map_err(ClientError::from)?;
    let gone: Vec<String> = match (&args.service, &profile.url) {
        _ if args.all => profile.services().map(|(url, _)| url.to_owned()).collect(),
        (Some(service), _) => vec![known(&profile, service)?],
        (None, Some(url)) => vec![known(&profile, url)?],
        (None, None) => {
            let usage = "no service is chosen; name one: opencode-cloud logout SERVICE";
            return Err(CliError::Usage(usage.to_owned()));
        }
    };
    let had_default = profile.url.as_ref().is_some_and(|url| gone.contains(url));
    let left = file.log_out(&gone).map_err(ClientError::from)?;
    if args.json {
        screen.out.line(&json!({ "removed": gone }).to_string())?;
        return Ok(0);
    }
    for url in &gone {
        screen.out.say(&format!(
            "Logged out of {url}: its key is forgotten here, and still valid there."
        ))?;
    }
    if gone.is_empty() {
        screen.out.say("no service is known, so there is nothing to forget")?;
    } else if let (true, Some(other)) = (had_default, left.first()) {
        screen
            .out
            .say(&format!("No service is chosen now; choose one: opencode-cloud use {other}"))?;
    }
    Ok(0)
}

/// Lists the services of the client profile.
///
/// # Errors
/// [`CliError`].
pub(crate) fn services(args: &ServicesArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let file = ProfileFile::of_caller().map_err(ClientError::from)?;
    let profile = file.read().map_err(ClientError::from)?;
    let is_default = |url: &str| profile.url.as_deref() == Some(url);
    if args.json {
        let list: Vec<_> = profile
            .services()
            .map(|(url, name)| json!({ "url": url, "name": name, "default": is_default(url) }))
            .collect();
        screen.out.line(&json!(list).to_string())?;
        return Ok(0);
    }
    let mut rows = vec![["", "SERVICE", "NAME"].map(str::to_owned)];
    rows.extend(profile.services().map(|(url, name)| {
        let mark = if is_default(url) { "*" } else { "" };
        [mark, url, name.unwrap_or_default()].map(str::to_owned)
    }));
    if rows.len() == 1 {
        screen.out.say(
            "no services yet; start one with `opencode-cloud up`, or: opencode-cloud login URL",
        )?;
    } else {
        let text = fitted(&rows, screen.out.width());
        screen.out.print(&text)?;
    }
    Ok(0)
}

/// Makes a service the one that commands use.
///
/// # Errors
/// [`CliError`].
pub(crate) fn choose(args: &UseArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let file = ProfileFile::of_caller().map_err(ClientError::from)?;
    let url = known(&file.read().map_err(ClientError::from)?, &args.service)?;
    file.choose(&url).map_err(ClientError::from)?;
    if args.json {
        screen.out.line(&json!({ "url": url }).to_string())?;
    } else {
        screen.out.say(&format!("Commands use {url} from now on."))?;
    }
    Ok(0)
}

/// Returns the URL of a known service that is given by name or URL.
fn known(profile: &Profile, service: &str) -> Result<String, CliError> {
    let named = profile.url_of_name(service).map(str::to_owned);
    let url = named.unwrap_or_else(|| url_of(service));
    if profile.services().any(|(known, _)| known == url) {
        return Ok(url);
    }
    Err(CliError::Usage(format!(
        "{service}: no such service is known; `opencode-cloud services` lists them, and `opencode-cloud login URL` adds one"
    )))
}

/// Completes a URL that a user typed, and removes the slash at its end.
fn url_of(typed: &str) -> String {
    let typed = typed.trim().trim_end_matches('/');
    if typed.contains("://") {
        return typed.to_owned();
    }
    let local = format!("http://{typed}");
    if is_loopback(&local) { local } else { format!("https://{typed}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_be_typed_without_its_scheme() {
        assert_eq!(url_of("oc.example/"), "https://oc.example");
        assert_eq!(url_of("localhost:4096"), "http://localhost:4096");
        assert_eq!(url_of("127.0.0.1:4096"), "http://127.0.0.1:4096");
        assert_eq!(url_of("http://oc.example/x/"), "http://oc.example/x");
    }

    #[test]
    fn a_name_never_looks_like_a_url() {
        assert_eq!(service_name("work-2").as_deref(), Ok("work-2"));
        for bad in ["", "a b", "http://x", "x:1", "a/b"] {
            assert!(service_name(bad).is_err(), "{bad:?}");
        }
    }
}
