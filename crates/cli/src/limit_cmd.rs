//! `opencode-cloud limit list|set|remove`: monthly limits of cost.

use clap::Subcommand;
use client::{Client, ClientOptions, parsed};
use domain::TimestampMs;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;
use crate::table::{count, fitted};
use crate::usage_cmd::dollars;

/// Arguments of `limit`.
#[derive(Debug, clap::Args)]
pub struct LimitArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: LimitCommand,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// The subcommands of `limit`.
#[derive(Debug, Subcommand)]
pub enum LimitCommand {
    /// The limits, and what is spent of them this month
    List,
    /// Stop further turns once so much is spent in a calendar month (UTC)
    Set {
        /// Dollars, such as `200` or `19.50`
        #[arg(value_name = "USD", value_parser = usd)]
        monthly: f64,
        #[command(flatten)]
        whose: Whose,
    },
    /// Remove a limit
    Remove {
        #[command(flatten)]
        whose: Whose,
    },
}

/// Whose limit it is: the organisation's, unless something else is said.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub struct Whose {
    /// Of each person without a limit of their own
    #[arg(long)]
    pub each: bool,
    /// Of this person or service account, by the id that `user list` shows
    #[arg(long, value_name = "ID")]
    pub person: Option<String>,
}

impl Whose {
    fn word(&self) -> &str {
        match &self.person {
            Some(person) => person,
            None if self.each => "each",
            None => "organisation",
        }
    }
}

fn usd(text: &str) -> Result<f64, String> {
    let wrong = || "an amount is like 200 or 19.50".to_owned();
    let amount: f64 = text.parse().map_err(|_| wrong())?;
    if amount.is_finite() && amount >= 0.0 { Ok(amount) } else { Err(wrong()) }
}

#[derive(Debug, Deserialize)]
struct Limits {
    to: TimestampMs,
    limits: Vec<Limit>,
    running: Running,
}

#[derive(Debug, Deserialize)]
struct Limit {
    whose: String,
    name: Option<String>,
    monthly_nanos: i64,
    spent_nanos: Option<i64>,
    reached: bool,
}

#[derive(Debug, Deserialize)]
struct Running {
    requests: u64,
    most_nanos: i64,
}

/// Runs `limit …` and returns its exit code.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: LimitArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    let answer = match &args.command {
        LimitCommand::List => client.get_json("/platform/limit", "the limits").await?,
        LimitCommand::Set { monthly, whose } => put(&client, whose, Some(*monthly)).await?,
        LimitCommand::Remove { whose } => put(&client, whose, None).await?,
    };
    if args.json {
        screen.out.line(&answer.to_string())?;
        return Ok(0);
    }
    let limits: Limits = parsed(&answer, "the limits")?;
    let text = shown(&limits, screen.out.width());
    screen.out.prose(&text)?;
    Ok(0)
}

async fn put(client: &Client, whose: &Whose, monthly: Option<f64>) -> Result<Value, CliError> {
    let body = json!({ "whose": whose.word(), "monthly_usd": monthly });
    Ok(client.call_json(Method::PUT, "/platform/limit", Some(&body), "the limits").await?)
}

fn shown(limits: &Limits, width: Option<usize>) -> String {
    if limits.limits.is_empty() {
        return "there is no limit\n".to_owned();
    }
    let mut rows = vec![["WHOSE", "A MONTH", "SPENT", "STATE"].map(str::to_owned)];
    rows.extend(limits.limits.iter().map(|limit| {
        let whose = limit.name.as_deref().unwrap_or(&limit.whose);
        [
            printable::line(whose, 40),
            dollars(limit.monthly_nanos),
            limit.spent_nanos.map_or_else(|| "-".to_owned(), dollars),
            if limit.reached { "reached".to_owned() } else { "open".to_owned() },
        ]
    }));
    let next = jiff::Timestamp::from_millisecond(limits.to)
        .map_or_else(|_| "-".to_owned(), |at| at.strftime("%Y-%m-%d").to_string());
    let running = match limits.running.requests {
        0 => "No request runs now.".to_owned(),
        requests => format!(
            "{} may add {} to what is spent, and pass a limit by it.",
            count(requests, "running request"),
            dollars(limits.running.most_nanos)
        ),
    };
    format!("{}\nA new month begins on {next} (UTC). {running}\n", fitted(&rows, width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shown_with_what_may_still_come() {
        let limits: Limits = serde_json::from_value(json!({
            "from": 1_793_491_200_000_i64, "to": 1_796_083_200_000_i64,
            "limits": [
                { "whose": "organisation", "monthly_nanos": 200_000_000_000_i64, "spent_nanos": 5_000_000_000_i64, "reached": false },
                { "whose": "key_1", "name": "laptop", "monthly_nanos": 1_000_000_000, "spent_nanos": 1_000_000_000, "reached": true },
                { "whose": "each", "monthly_nanos": 20_000_000_000_i64, "reached": false },
            ],
            "running": { "requests": 2, "most_nanos": 500_000_000 },
        }))
        .expect("limits");
        let text = shown(&limits, None);
        assert!(text.contains("organisation  200.0000 USD  5.0000 USD  open\n"), "{text}");
        assert!(text.contains("laptop        1.0000 USD    1.0000 USD  reached\n"), "{text}");
        let end = "A new month begins on 2026-12-01 (UTC). 2 running requests may add 0.5000 USD to what is spent, and pass a limit by it.\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn an_amount_is_a_number_of_dollars() {
        assert_eq!(usd("19.50"), Ok(19.5));
        for wrong in ["", "-1", "NaN", "inf", "ten"] {
            assert!(usd(wrong).is_err(), "{wrong}");
        }
    }
}
