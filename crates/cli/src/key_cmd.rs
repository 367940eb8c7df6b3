//! `opencode-cloud key`: prints the key of the service, and manages keys of people and service accounts.

use clap::Subcommand;
use client::{Client, ClientError, ClientOptions, parsed};
use domain::{Clock, SystemClock};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;
use crate::table::{ago, fitted, local_time};

/// Arguments of `key`.
#[derive(Debug, clap::Args)]
pub struct KeyArgs {
    /// The subcommand; without one, the key of the service is printed.
    #[command(subcommand)]
    pub command: Option<KeyCommand>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// The subcommands of `key`.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// List your keys, without their secrets
    List {
        /// Those of everybody and of service accounts: admins only
        #[arg(long)]
        all: bool,
    },
    /// Make a key, and print it once
    Create {
        /// A name by which you know it again
        #[arg(value_name = "NAME")]
        name: String,
        /// Confine it to read, prompt, administer, or a need such as session.read; repeat it for more [default: all that
        /// you may]
        #[arg(long, value_name = "SCOPE")]
        scope: Vec<String>,
        /// How many days it works, 1 to 366
        #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(i64).range(1..=366))]
        days: i64,
        /// Make it for a service account, which is made if there is none: letters, digits and `-`
        #[arg(long, value_name = "NAME")]
        service: Option<String>,
    },
    /// Give a key a new secret, and print it once; the old one works for a while
    Rotate {
        /// Its id, as `key list` shows it
        #[arg(value_name = "KEY_ID")]
        id: String,
        /// How many hours the old secret works still, 0 to 24
        #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(i64).range(0..=24))]
        hours: i64,
    },
    /// Revoke a key: it stops working within seconds, with the logins that it began
    Revoke {
        /// Its id, as `key list` shows it
        #[arg(value_name = "KEY_ID")]
        id: String,
        /// Stop what it has started too: it is in the wrong hands
        #[arg(long)]
        stop_work: bool,
    },
}

#[derive(Debug, Deserialize)]
struct KeyRow {
    id: String,
    name: String,
    owner: String,
    scopes: Vec<String>,
    expires_at: Option<i64>,
    last_used_at: Option<i64>,
    revoked_at: Option<i64>,
}

/// Runs `key …` and returns its exit code.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: KeyArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let Some(command) = args.command else { return show(&args.client, args.json, screen) };
    let client = Client::new(&args.client)?;
    match command {
        KeyCommand::List { all } => {
            let path = if all { "/platform/key?all=true" } else { "/platform/key" };
            let answer = client.get_json(path, "the list of keys").await?;
            if args.json {
                screen.out.line(&answer["data"].to_string())?;
                return Ok(0);
            }
            let rows: Vec<KeyRow> = parsed(&answer["data"], "the list of keys")?;
            list(&rows, screen)?;
        }
        KeyCommand::Create { name, scope, days, service } => {
            let scopes = (!scope.is_empty()).then_some(scope);
            let body = json!({ "name": name, "scopes": scopes, "days": days, "service": service });
            let made =
                client.call_json(Method::POST, "/platform/key", Some(&body), "the key").await?;
            told(&made, args.json, screen)?;
        }
        KeyCommand::Rotate { id, hours } => {
            let (path, body) = (format!("/platform/key/{id}/rotate"), json!({ "hours": hours }));
            let made =
                client.call_json(Method::POST, &path, Some(&body), &format!("key {id}")).await?;
            told(&made, args.json, screen)?;
        }
        KeyCommand::Revoke { id, stop_work } => {
            let path = format!("/platform/key/{id}?stop_work={stop_work}");
            let gone = client.call_json(Method::DELETE, &path, None, &format!("key {id}")).await?;
            let line = if args.json { gone.to_string() } else { format!("revoked {id}") };
            screen.out.line(&line)?;
        }
    }
    Ok(0)
}

/// Prints the key that client commands would use.
fn show(options: &ClientOptions, json: bool, screen: &mut Screen) -> Result<u8, CliError> {
    let access = options.resolve()?;
    let Some(key) = access.key else {
        return Err(ClientError::unauthorized(&access.url, &access.source).into());
    };
    let line = if json { json!({ "url": access.url, "key": key }).to_string() } else { key };
    screen.out.line(&line)?;
    Ok(0)
}

/// Prints a key that was made. Its text alone is on standard output, for a pipe.
fn told(made: &Value, json: bool, screen: &mut Screen) -> Result<(), CliError> {
    if json {
        screen.out.line(&made.to_string())?;
        return Ok(());
    }
    screen.out.line(made["key"].as_str().unwrap_or_default())?;
    let row: KeyRow = parsed(made, "the key")?;
    let end = row.expires_at.map_or_else(|| "no end".to_owned(), local_time);
    screen.err.say(&format!(
        "{} of {}, until {end}; it is not shown again",
        printable::line(&row.id, 80),
        printable::line(&row.owner, 80)
    ))?;
    Ok(())
}

fn list(rows: &[KeyRow], screen: &mut Screen) -> Result<(), CliError> {
    if rows.is_empty() {
        screen.out.say("no keys yet; `opencode-cloud key create NAME` makes one")?;
        return Ok(());
    }
    let now = SystemClock::new().now_ms();
    let mut table =
        vec![["KEY", "NAME", "OWNER", "SCOPES", "LAST USED", "WORKS UNTIL"].map(str::to_owned)];
    table.extend(rows.iter().map(|row| {
        let until = match (row.revoked_at, row.expires_at) {
            (Some(_), _) => "revoked".to_owned(),
            (None, Some(end)) if end <= now => "expired".to_owned(),
            (None, Some(end)) => local_time(end),
            (None, None) => "for ever".to_owned(),
        };
        [
            printable::line(&row.id, 40),
            printable::line(&row.name, 40),
            printable::line(&row.owner, 40),
            printable::line(&row.scopes.join(" "), 60),
            row.last_used_at.map_or_else(|| "-".to_owned(), |used| ago(used, now)),
            until,
        ]
    }));
    screen.out.print_paged(&fitted(&table, screen.out.width()))?;
    Ok(())
}
