//! `opencode-cloud provider list`: the model providers, and what each is set up with.

use clap::Subcommand;
use client::{Client, ClientOptions, parsed};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;
use crate::table::fitted;

/// Arguments of `provider`.
#[derive(Debug, clap::Args)]
pub struct ProviderArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: ProviderCommand,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// The subcommands of `provider`.
#[derive(Debug, Subcommand)]
pub enum ProviderCommand {
    /// The providers whose models can be used
    List {
        /// Also those that are not set up
        #[arg(long)]
        all: bool,
        /// Only providers with this text in their id or name
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
    },
}

#[derive(Debug, Deserialize)]
struct ProvidersView {
    all: Vec<ProviderView>,
    connected: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct ProviderView {
    id: String,
    name: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    models: serde_json::Map<String, Value>,
}

/// Runs `provider …` and returns its exit code.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: ProviderArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let ProviderCommand::List { all, search } = args.command;
    let answer = Client::new(&args.client)?.get_json("/provider", "the list of providers").await?;
    let view: ProvidersView = parsed(&answer, "the list of providers")?;
    let is_connected = |provider: &ProviderView| view.connected.contains(&provider.id);
    let search = search.map(|text| text.to_lowercase());
    let is_searched = |provider: &ProviderView| {
        let text = format!("{} {}", provider.id, provider.name).to_lowercase();
        search.as_ref().is_none_or(|search| text.contains(search))
    };
    let shown: Vec<&ProviderView> = view
        .all
        .iter()
        .filter(|provider| (all || is_connected(provider)) && is_searched(provider))
        .collect();
    if args.json {
        let lines: Vec<Value> = shown
            .iter()
            .map(|provider| {
                json!({
                    "id": provider.id, "name": provider.name, "connected": is_connected(provider),
                    "source": provider.source, "env": provider.env, "models": provider.models.len(),
                })
            })
            .collect();
        screen.out.line(&json!(lines).to_string())?;
        return Ok(0);
    }
    if shown.is_empty() {
        screen.err.say("no provider of that kind is set up; `--all` lists the others too")?;
        return Ok(0);
    }
    let mut rows =
        vec![["PROVIDER", "NAME", "MODELS", "SET UP BY", "VARIABLES"].map(str::to_owned)];
    rows.extend(shown.iter().map(|provider| {
        [
            printable::line(&provider.id, 60),
            printable::line(&provider.name, 40),
            provider.models.len().to_string(),
            if is_connected(provider) { origin(&provider.source) } else { "-" }.to_owned(),
            printable::line(&provider.env.join(" "), 120),
        ]
    }));
    let text = fitted(&rows, screen.out.width());
    screen.out.print_paged(&text)?;
    if !all {
        screen.err.say("set another one up with: opencode-cloud credential add PROVIDER")?;
    }
    Ok(0)
}

/// Returns where a provider's key or address comes from, for people.
fn origin(source: &str) -> &str {
    match source {
        "api" => "credential",
        "env" => "environment",
        "config" => "settings",
        _ => "service",
    }
}
