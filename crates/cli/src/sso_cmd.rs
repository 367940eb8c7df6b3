//! `opencode-cloud sso add|change|list|test|activate|remove`: sign-in at identity providers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use client::{Client, ClientOptions, parsed};
use domain::{Clock, SystemClock};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;
use crate::secret_input;
use crate::table::fitted;

/// Arguments of `sso`.
#[derive(Debug, clap::Args)]
pub struct SsoArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: SsoCommand,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// The subcommands of `sso`.
#[derive(Debug, Subcommand)]
pub enum SsoCommand {
    /// List the connections to identity providers
    List,
    /// Add a connection; people can sign in once it is tested and activated
    Add(AddArgs),
    /// Change a connection; its issuer never changes
    Change(ChangeArgs),
    /// Sign in once in a browser, and show the claims and what would happen; nobody is logged in
    Test {
        /// Its name or id
        #[arg(value_name = "CONNECTION")]
        connection: String,
        /// Print the address and do not wait for the result
        #[arg(long)]
        no_wait: bool,
    },
    /// Let people sign in by a connection that was tested
    Activate {
        /// Its name or id
        #[arg(value_name = "CONNECTION")]
        connection: String,
    },
    /// Remove a connection: logins that began there end, the people stay
    Remove {
        /// Its name or id
        #[arg(value_name = "CONNECTION")]
        connection: String,
    },
}

/// Arguments of `sso add`.
#[derive(Debug, clap::Args)]
pub struct AddArgs {
    /// Its name, as people see it on the login page
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The provider's issuer, word for word
    #[arg(long, value_name = "URL")]
    pub issuer: String,
    /// Our client at the provider
    // Providers make ids at random, and one may begin with a hyphen.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub client_id: String,
    /// The client has no secret
    #[arg(long, conflicts_with = "secret_file")]
    pub public: bool,
    /// File with the client's secret; `-` is standard input [default: standard input; at a terminal, it asks]
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// The rules of joining.
    #[command(flatten)]
    pub rules: RulesArgs,
}

/// Arguments of `sso change`.
#[derive(Debug, clap::Args)]
pub struct ChangeArgs {
    /// Its name or id
    #[arg(value_name = "CONNECTION")]
    pub connection: String,
    /// Another name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Another client, while the connection is not active
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub client_id: Option<String>,
    /// File with another secret of the client; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// The rules of joining.
    #[command(flatten)]
    pub rules: RulesArgs,
}

/// The rules of joining by a connection. An absent option keeps the present value, or the default.
#[derive(Debug, clap::Args)]
pub struct RulesArgs {
    /// Role of a group; may be repeated. With groups, they decide the role at every sign-in
    #[arg(long, value_name = "NAME=ROLE", value_parser = group)]
    pub group: Vec<(String, String)>,
    /// Forget all groups
    #[arg(long, conflicts_with = "group")]
    pub no_groups: bool,
    /// The claim that has a person's groups [default: groups]
    #[arg(long, value_name = "CLAIM")]
    pub groups_claim: Option<String>,
    /// Role of everybody else: viewer, member or admin [default: viewer]
    #[arg(long, value_name = "ROLE", value_parser = ["viewer", "member", "admin"])]
    pub default_role: Option<String>,
    /// E-mail domain whose people may join; may be repeated [default: everybody whom the provider signs in]
    #[arg(long, value_name = "DOMAIN")]
    pub domain: Vec<String>,
    /// Scope to ask for besides `openid`; may be repeated [default: email, profile]
    #[arg(long, value_name = "SCOPE")]
    pub scope: Vec<String>,
}

fn group(text: &str) -> Result<(String, String), String> {
    match text.rsplit_once('=') {
        Some((name, role)) if !name.is_empty() && ["viewer", "member", "admin"].contains(&role) => {
            Ok((name.to_owned(), role.to_owned()))
        }
        _ => Err("write it as NAME=ROLE, with the role viewer, member or admin".to_owned()),
    }
}

impl RulesArgs {
    fn write(&self, body: &mut Map<String, Value>) {
        let mut put = |name: &str, value: Value| body.insert(name.to_owned(), value);
        if !self.group.is_empty() || self.no_groups {
            let groups: BTreeMap<_, _> = self.group.iter().cloned().collect();
            put("groups", json!(groups));
        }
        if let Some(claim) = &self.groups_claim {
            put("groups_claim", json!(claim));
        }
        if let Some(role) = &self.default_role {
            put("default_role", json!(role));
        }
        if !self.domain.is_empty() {
            put("domains", json!(self.domain));
        }
        if !self.scope.is_empty() {
            put("scopes", json!(self.scope));
        }
    }
}

#[derive(Debug, Deserialize)]
struct ConnectionRow {
    id: String,
    name: String,
    state: String,
    issuer: String,
    redirect_url: String,
    #[serde(default)]
    report: Option<Report>,
}

#[derive(Debug, Deserialize)]
struct Report {
    is_good: bool,
    message: String,
    #[serde(default)]
    clock_ms: Option<i64>,
    #[serde(default)]
    claims: BTreeMap<String, Value>,
}

const LIST: &str = "/platform/sso";
/// How often a waiting test looks for its result.
const LOOK: Duration = Duration::from_secs(1);

/// Runs `sso …` and returns its exit code: 1 for a test that has failed.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: SsoArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    let (answer, told) = match args.command {
        SsoCommand::List => {
            let answer = client.get_json(LIST, "the list of connections").await?;
            let rows: Vec<ConnectionRow> = parsed(&answer["data"], "the list of connections")?;
            (answer["data"].clone(), list(&rows, screen.out.width()))
        }
        SsoCommand::Add(add) => {
            let mut body = Map::new();
            body.insert("name".into(), json!(add.name));
            body.insert("issuer".into(), json!(add.issuer));
            body.insert("client_id".into(), json!(add.client_id));
            if !add.public {
                let secret =
                    secret_input::read(add.secret_file.as_deref(), "Client secret: ", screen)?;
                body.insert("client_secret".into(), json!(secret));
            }
            add.rules.write(&mut body);
            let answer =
                client.call_json(Method::POST, LIST, Some(&body.into()), "the connection").await?;
            let told = added(&parsed(&answer, "the connection")?);
            (answer, told)
        }
        SsoCommand::Change(change) => {
            let id = found(&client, &change.connection).await?.id;
            let mut body = Map::new();
            if let Some(name) = change.name {
                body.insert("name".into(), json!(name));
            }
            if let Some(client) = change.client_id {
                body.insert("client_id".into(), json!(client));
            }
            if let Some(file) = &change.secret_file {
                let secret = secret_input::read(Some(file), "", screen)?;
                body.insert("client_secret".into(), json!(secret));
            }
            change.rules.write(&mut body);
            if body.is_empty() {
                return Err(CliError::Usage(
                    "nothing to change: see `sso change --help`".to_owned(),
                ));
            }
            let answer = call(&client, Method::PATCH, &id, "", Some(&body.into())).await?;
            let told = state_of(&parsed(&answer, "the connection")?);
            (answer, told)
        }
        SsoCommand::Test { connection, no_wait } => {
            return test(&client, &connection, no_wait, args.json, screen).await;
        }
        SsoCommand::Activate { connection } => {
            let id = found(&client, &connection).await?.id;
            let answer = call(&client, Method::POST, &id, "/activate", None).await?;
            let row: ConnectionRow = parsed(&answer, "the connection")?;
            let name = printable::line(&row.name, 80);
            (answer, format!("{name} is active: the login page offers it from now on\n"))
        }
        SsoCommand::Remove { connection } => {
            let row = found(&client, &connection).await?;
            call(&client, Method::DELETE, &row.id, "", None).await?;
            let name = printable::line(&row.name, 80);
            let told = format!("{name} is removed; logins that began there end within seconds\n");
            (json!({ "removed": row.id }), told)
        }
    };
    if args.json {
        screen.out.line(&answer.to_string())?;
    } else {
        screen.out.prose(&told)?;
    }
    Ok(0)
}

/// Finds a connection by its id or name.
async fn found(client: &Client, wanted: &str) -> Result<ConnectionRow, CliError> {
    let answer = client.get_json(LIST, "the list of connections").await?;
    let rows: Vec<ConnectionRow> = parsed(&answer["data"], "the list of connections")?;
    let row = rows.into_iter().find(|row| row.id == wanted || row.name == wanted);
    row.ok_or_else(|| {
        let wanted = printable::line(wanted, 80);
        CliError::Usage(format!(
            "there is no connection `{wanted}`; `opencode-cloud sso list` shows them"
        ))
    })
}

async fn call(
    client: &Client,
    method: Method,
    id: &str,
    end: &str,
    body: Option<&Value>,
) -> Result<Value, CliError> {
    Ok(client.call_json(method, &format!("{LIST}/{id}{end}"), body, "the connection").await?)
}

async fn test(
    client: &Client,
    connection: &str,
    no_wait: bool,
    as_json: bool,
    screen: &mut Screen,
) -> Result<u8, CliError> {
    let id = found(client, connection).await?.id;
    let ticket = call(client, Method::POST, &id, "/test", None).await?;
    let url = printable::line(ticket["url"].as_str().unwrap_or_default(), 1_000);
    let until = ticket["expires_at"].as_i64().unwrap_or_default();
    if as_json && no_wait {
        screen.out.line(&ticket.to_string())?;
        return Ok(0);
    }
    let told = format!(
        "Open this in a browser, and sign in there (it works once, for ten minutes):\n\n  {url}\n"
    );
    if as_json {
        screen.err.prose(&told)?
    } else {
        screen.out.prose(&told)?
    }
    if no_wait {
        return Ok(0);
    }
    let clock = SystemClock::new();
    while clock.now_ms() < until {
        tokio::time::sleep(LOOK).await;
        let answer = client.get_json(&format!("{LIST}/{id}"), "the connection").await?;
        let row: ConnectionRow = parsed(&answer, "the connection")?;
        let Some(report) = &row.report else { continue };
        if as_json {
            screen.out.line(&answer["report"].to_string())?;
        } else {
            screen.out.prose(&reported(&row, report))?;
        }
        return Ok(u8::from(!report.is_good));
    }
    Err(CliError::Usage("nobody has come back from the provider: begin another test".to_owned()))
}

fn reported(row: &ConnectionRow, report: &Report) -> String {
    let message = printable::line(&report.message, 600);
    if !report.is_good {
        let redirect = printable::line(&row.redirect_url, 300);
        return format!(
            "\nThe test has failed: {message}\n\nThe provider must know this redirect address, word for word:\n  {redirect}\n"
        );
    }
    let claims = report.claims.iter().map(|(name, value)| {
        format!("  {}: {}\n", printable::line(name, 80), printable::line(&value.to_string(), 300))
    });
    let claims: String = claims.collect();
    let seconds = report.clock_ms.unwrap_or_default().div_euclid(1_000);
    let name = printable::line(&row.name, 80);
    format!(
        "\nThe test has succeeded; nobody was logged in. The provider's clock is {seconds:+} s against ours.\n\nClaims:\n\
         {claims}\nA real sign-in: {message}.\n\nNext: opencode-cloud sso activate \"{name}\"\n"
    )
}

fn added(row: &ConnectionRow) -> String {
    let (name, redirect) =
        (printable::line(&row.name, 80), printable::line(&row.redirect_url, 300));
    format!(
        "{name} is added, as a draft. Enter this redirect address at the provider:\n\n  {redirect}\n\n\
         Next: opencode-cloud sso test \"{name}\"\n"
    )
}

fn state_of(row: &ConnectionRow) -> String {
    let name = printable::line(&row.name, 80);
    match row.state.as_str() {
        "draft" => {
            format!("{name} is changed, and has to be tested: opencode-cloud sso test \"{name}\"\n")
        }
        state => format!("{name} is changed, and {}\n", printable::line(state, 40)),
    }
}

fn list(rows: &[ConnectionRow], width: Option<usize>) -> String {
    if rows.is_empty() {
        return "no connections; add one with: opencode-cloud sso add NAME --issuer URL --client-id ID\n".to_owned();
    }
    let mut table = vec![["NAME", "STATE", "ISSUER", "CONNECTION"].map(str::to_owned)];
    table.extend(rows.iter().map(|row| {
        [
            printable::line(&row.name, 40),
            printable::line(&row.state, 40),
            printable::line(&row.issuer, 200),
            printable::line(&row.id, 80),
        ]
    }));
    fitted(&table, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_written_with_its_role() {
        assert_eq!(group("eng=admin"), Ok(("eng".into(), "admin".into())));
        assert_eq!(group("a=b=viewer"), Ok(("a=b".into(), "viewer".into())));
        for bad in ["eng", "=admin", "eng=owner", "eng="] {
            assert!(group(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_test_says_what_would_happen_or_what_to_enter() {
        let row: ConnectionRow = serde_json::from_value(json!({
            "id": "idp_1", "name": "Okta", "state": "draft", "issuer": "https://x", "redirect_url": "https://oc/auth/callback/idp_1",
        }))
        .expect("a row");
        let mut report: Report = serde_json::from_value(json!({
            "is_good": true, "message": "the person would join as viewer: x", "clock_ms": -1500, "claims": { "sub": "ada" },
        }))
        .expect("a report");
        let good = reported(&row, &report);
        assert!(
            good.contains("sub: \"ada\"")
                && good.contains("-2 s")
                && good.contains("join as viewer"),
            "{good}"
        );
        report.is_good = false;
        assert!(reported(&row, &report).contains("https://oc/auth/callback/idp_1"));
    }
}
