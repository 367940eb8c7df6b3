//! `opencode-cloud user list|role|disable|enable`: the people of the organisation.

use clap::Subcommand;
use client::{Client, ClientOptions, parsed};
use domain::{Clock, SystemClock};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;
use crate::table::{ago, fitted};

/// Arguments of `user`.
#[derive(Debug, clap::Args)]
pub struct UserArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: UserCommand,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// The subcommands of `user`.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// List people
    List {
        /// Service accounts in place of people
        #[arg(long)]
        services: bool,
    },
    /// Give somebody another role
    Role {
        /// Their id, as `user list` shows it; a service account's is `svc_NAME`
        #[arg(value_name = "USER_ID")]
        id: String,
        /// viewer (reads), member (works), admin (sets up) or owner
        #[arg(value_name = "ROLE", value_parser = ["viewer", "member", "admin", "owner"])]
        role: String,
    },
    /// Disable somebody: logins and keys stop working within seconds, and so does their work
    Disable {
        /// Their id
        #[arg(value_name = "USER_ID")]
        id: String,
    },
    /// Enable somebody again
    Enable {
        /// Their id
        #[arg(value_name = "USER_ID")]
        id: String,
    },
}

#[derive(Debug, Deserialize)]
struct PersonRow {
    id: String,
    name: Option<String>,
    email: Option<String>,
    role: String,
    disabled: bool,
    last_seen_at: Option<i64>,
}

/// Runs `user …` and returns its exit code.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: UserArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    let (id, change) = match args.command {
        UserCommand::List { services } => {
            let path = format!("/platform/user?services={services}");
            let answer = client.get_json(&path, "the list of people").await?;
            if args.json {
                screen.out.line(&answer["data"].to_string())?;
            } else {
                let rows: Vec<PersonRow> = parsed(&answer["data"], "the list of people")?;
                list(&rows, screen)?;
            }
            return Ok(0);
        }
        UserCommand::Role { id, role } => (id, json!({ "role": role })),
        UserCommand::Disable { id } => (id, json!({ "disabled": true })),
        UserCommand::Enable { id } => (id, json!({ "disabled": false })),
    };
    let path = format!("/platform/user/{id}");
    let changed: Value = client.call_json(Method::PATCH, &path, Some(&change), &id).await?;
    if args.json {
        screen.out.line(&changed.to_string())?;
        return Ok(0);
    }
    let row: PersonRow = parsed(&changed, "the person")?;
    let state = if row.disabled { "disabled" } else { "enabled" };
    screen.out.line(&format!("{}: {}, {state}", printable::line(&row.id, 80), row.role))?;
    Ok(0)
}

fn list(rows: &[PersonRow], screen: &mut Screen) -> Result<(), CliError> {
    let now = SystemClock::new().now_ms();
    let mut table = vec![["USER", "NAME", "E-MAIL", "ROLE", "LAST SEEN"].map(str::to_owned)];
    table.extend(rows.iter().map(|row| {
        let role = if row.disabled { format!("{} (disabled)", row.role) } else { row.role.clone() };
        [
            printable::line(&row.id, 60),
            printable::line(row.name.as_deref().unwrap_or("-"), 60),
            printable::line(row.email.as_deref().unwrap_or("-"), 80),
            role,
            row.last_seen_at.map_or_else(|| "-".to_owned(), |seen| ago(seen, now)),
        ]
    }));
    screen.out.print_paged(&fitted(&table, screen.out.width()))?;
    Ok(())
}
