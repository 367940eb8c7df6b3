//! The command line: one variant and one module per subcommand.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use boot::telemetry::LogFormat;
use tasks::CancellationToken;

use crate::output::Screen;
use crate::serve::credentials_cmd::{self, CredentialsCommand};
use crate::serve::placement_cmd::{PlacementCommand, What};
use crate::serve::up::Hints;
use crate::serve::{ServeError, cluster, level_cmd, migrate, placement_cmd, roles, up};
use crate::{
    CliError, config, explain_cmd, llm_cmd, models_cmd, rebuild_cmd, run, session_cmd, simulated,
};

/// OpenCode sessions as a service.
#[derive(Debug, Parser)]
#[command(name = "opencode-cloud", version, max_term_width = 100, args_override_self = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands. Each one's module has its arguments and its `execute`.
///
/// [`TOOL_SUPERVISOR`](crate::TOOL_SUPERVISOR) is not among them: it is answered before this is parsed.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the service: all roles in one process, with a Postgres of its own
    Up(Box<up::UpArgs>),
    /// Start the service without hints for people
    Serve(Box<up::UpArgs>),
    /// Give a session a prompt and show what it does
    Run(run::RunArgs),
    /// List sessions, show one, or read its log
    Session(session_cmd::SessionArgs),
    /// Stop what a session is doing
    Abort(session_cmd::AbortArgs),
    /// Show what a request to a model was made of, rebuilt from rows and proved by its hash
    Explain(explain_cmd::ExplainArgs),
    /// Rebuild sessions' projections from their events, or check that they are exact
    Rebuild(rebuild_cmd::RebuildArgs),
    /// Check the invariants that the stored rows show
    Check(rebuild_cmd::CheckArgs),
    /// List the models that can be used, with what they take and cost
    Models(models_cmd::ModelsArgs),
    /// Call a model in neutral JSON: a request on standard input, events on standard output
    Llm(llm_cmd::LlmArgs),
    /// Run the simulated model: a deterministic program that speaks the OpenAI chat protocol
    SimulatedModel(simulated::SimulatedArgs),
    /// Make the roles and the schema in a Postgres for a cluster
    Migrate(migrate::MigrateArgs),
    /// Show the feature level, below which nothing newer is written, or raise it to end an upgrade
    FeatureLevel(level_cmd::LevelArgs),
    /// Manage what credentials for model providers are sealed under
    Credentials(CredentialsCommand),
    /// Run a gateway of a cluster
    Gateway(Box<roles::GatewayArgs>),
    /// Run a worker of a cluster
    Worker(Box<roles::WorkerArgs>),
    /// Run or manage placement
    Placement(placement_cmd::PlacementCommand),
    /// Run a whole cluster on this machine, as separate processes
    DevCluster(Box<cluster::ClusterCommand>),
}

/// Parses the command line and does what it says. A wrong one exits with 2 and says what is right.
#[must_use]
pub fn main() -> ExitCode {
    // Several crates bring a TLS provider; without a choice the first handshake would panic. Only fails
    // when one is installed already, which is as good.
    let _already_installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match config::expand(std::env::args_os().collect(), |name| std::env::var_os(name)) {
        Ok(words) => dispatch(Cli::parse_from(words).command),
        Err(error) => failed(&mut Screen::standard(), &error),
    }
}

fn dispatch(command: Command) -> ExitCode {
    let mut screen = Screen::standard();
    let ended = match command {
        Command::Run(args) => client(run::execute(args, &mut screen)),
        Command::Session(args) => client(session_cmd::execute(args, &mut screen)),
        Command::Abort(args) => client(session_cmd::abort(args, &mut screen)),
        Command::Explain(args) => client(explain_cmd::execute(args, &mut screen)),
        Command::Rebuild(args) => client(rebuild_cmd::execute(args, &mut screen)),
        Command::Check(args) => client(rebuild_cmd::check(args, &mut screen)),
        Command::Models(args) => client(models_cmd::execute(args, &mut screen)),
        Command::Llm(args) => {
            let env =
                |name: &str| std::env::var_os(name).and_then(|value| value.into_string().ok());
            client(llm_cmd::execute(args, &env, std::io::stdin(), &mut screen))
        }
        Command::SimulatedModel(args) => simulated::execute(&args, &mut screen),
        Command::Up(args) => server(|stop| up::execute(*args, Hints::Shown, stop, &mut screen)),
        Command::Serve(args) => server(|stop| up::execute(*args, Hints::Left, stop, &mut screen)),
        Command::Migrate(args) => server(|_| migrate::execute(args, &mut screen)),
        Command::FeatureLevel(args) => server(|_| level_cmd::execute(args, &mut screen)),
        Command::Credentials(command) => server(|_| credentials_cmd::execute(command, &mut screen)),
        Command::Gateway(args) => server(|stop| roles::gateway(*args, stop)),
        Command::Worker(args) => server(|stop| roles::worker(*args, stop)),
        Command::Placement(PlacementCommand { what: What::Serve(args) }) => {
            server(|stop| roles::placement(*args, stop))
        }
        Command::Placement(PlacementCommand { what }) => {
            server(|_| placement_cmd::execute(what, &mut screen))
        }
        Command::DevCluster(args) => server(|stop| cluster::execute(*args, stop, &mut screen)),
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => failed(&mut screen, &error),
    }
}

fn failed(screen: &mut Screen, error: &CliError) -> ExitCode {
    // Nowhere is left to tell of a standard error that cannot be written.
    let _unwritable = screen.err.line(&format!("error: {error}"));
    ExitCode::from(error.exit_code())
}

/// What is logged unless `OPENCODE_CLOUD_LOG` says otherwise.
const LOG_FILTER: &str = "warn,opencode_cloud=info,worker=info,placement=info";
/// `json` for machines; anything else is for people.
const LOG_FORMAT: &str = "OPENCODE_CLOUD_LOG_FORMAT";

/// Runs a server subcommand: logs to standard error, and a token that SIGINT and SIGTERM cancel.
fn server<F>(work: impl FnOnce(CancellationToken) -> F) -> Result<u8, CliError>
where
    F: Future<Output = Result<u8, ServeError>>,
{
    let filter = std::env::var_os(boot::telemetry::LOG_VARIABLE);
    let filter = filter.as_ref().and_then(|filter| filter.to_str()).unwrap_or(LOG_FILTER);
    let json = std::env::var_os(LOG_FORMAT).is_some_and(|format| format == "json");
    let format = if json { LogFormat::Json } else { LogFormat::Compact };
    boot::telemetry::init(format, filter).map_err(ServeError::from)?;
    let stop = boot::signals::watch().map_err(ServeError::from)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|source| CliError::Io { doing: "cannot start", source })?;
    Ok(runtime.block_on(work(stop))?)
}

/// Runs a client subcommand: it waits for one service, so one thread is enough.
fn client(work: impl Future<Output = Result<u8, CliError>>) -> Result<u8, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| CliError::Io { doing: "cannot start", source })?;
    runtime.block_on(work)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn url_and_key_are_taken_by_every_client_subcommand() {
        for line in [
            "run hello --directory .",
            "run - --json --session ses_1 --model gpt --agent plan",
            "session list",
            "session show ses_1",
            "session log ses_1 --follow --after 3",
            "abort ses_1",
            "explain trn_1 --body",
            "rebuild --check",
            "check --settled",
            "models anthropic --json",
            "models --all",
            "models anthropic --all",
        ] {
            let words = format!("opencode-cloud {line} --url http://x:1 --key k");
            let parsed = Cli::try_parse_from(words.split(' '));
            if let Err(error) = parsed {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn a_wrong_id_is_a_usage_error() {
        let error = Cli::try_parse_from(["opencode-cloud", "session", "show", "msg_1"]);
        assert_eq!(error.expect_err("not a session's id").exit_code(), 2);
    }
}
