//! `opencode-cloud recovery show|create`: codes with which an owner signs in when nothing else works.

use clap::Subcommand;
use client::{Client, ClientOptions, parsed};
use domain::{Clock, SystemClock};
use reqwest::Method;
use serde::Deserialize;

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;
use crate::table::ago;

/// Arguments of `recovery`.
#[derive(Debug, clap::Args)]
pub struct RecoveryArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: RecoveryCommand,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// The subcommands of `recovery`.
#[derive(Debug, Subcommand)]
pub enum RecoveryCommand {
    /// Say how many of your codes still work
    Show,
    /// Make eight codes and print them once; the ones before stop working
    Create,
}

#[derive(Debug, Deserialize)]
struct CodesRow {
    made_at: Option<i64>,
    used: i64,
    left: i64,
}

#[derive(Debug, Deserialize)]
struct NewCodes {
    codes: Vec<String>,
}

const PATH: &str = "/platform/recovery";

/// Runs `recovery …` and returns its exit code.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: RecoveryArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    match args.command {
        RecoveryCommand::Show => {
            let answer = client.get_json(PATH, "the recovery codes").await?;
            if args.json {
                screen.out.line(&answer.to_string())?;
            } else {
                let row: CodesRow = parsed(&answer, "the recovery codes")?;
                screen.out.say(&state(&row, SystemClock::new().now_ms()))?;
            }
        }
        RecoveryCommand::Create => {
            let made = client.call_json(Method::POST, PATH, None, "the recovery codes").await?;
            if args.json {
                screen.out.line(&made.to_string())?;
                return Ok(0);
            }
            // The codes alone are on standard output, for a file or a printer.
            let new: NewCodes = parsed(&made, "the recovery codes")?;
            for code in &new.codes {
                screen.out.line(&printable::line(code, 80))?;
            }
            screen.err.say(
                "each of them signs you in once, on the login page; keep them where the service is not, they are not shown \
                 again. Codes that you had before do not work any more",
            )?;
        }
    }
    Ok(0)
}

fn state(row: &CodesRow, now: i64) -> String {
    match row.made_at {
        None => {
            "you have no recovery codes; make some with: opencode-cloud recovery create".to_owned()
        }
        Some(at) => {
            let (left, used, made) = (row.left, row.used, ago(at, now));
            let more =
                if left == 0 { "; make new ones with: opencode-cloud recovery create" } else { "" };
            format!("{left} of {} codes work, made {made}{more}", left + used)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_codes_says_what_to_do() {
        let said = |made_at, used, left| state(&CodesRow { made_at, used, left }, 61_000);
        assert!(said(None, 0, 0).contains("recovery create"));
        assert_eq!(said(Some(0), 1, 7), format!("7 of 8 codes work, made {}", ago(0, 61_000)));
        assert!(said(Some(0), 8, 0).contains("make new ones"));
    }
}
