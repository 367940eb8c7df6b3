//! The command line: the commands of a person, and one variant and one module per subcommand of a server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use boot::telemetry::LogFormat;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use cli::CliError;
use cli::help::{self, Group};
use cli::output::{Screen, Style};
use tasks::CancellationToken;

use crate::serve::credentials_cmd::{self, CredentialsCommand};
use crate::serve::placement_cmd::{PlacementCommand, What};
use crate::serve::rights::RightsOfRoot;
use crate::serve::up::Hints;
use crate::serve::{
    ServeError, cluster, doctor_cmd, level_cmd, migrate, owner_link_cmd, placement_cmd, roles,
    secrets_cmd, up,
};
use crate::{Failure, config, simulated};

/// OpenCode sessions as a service.
#[derive(Debug, Parser)]
#[command(name = "opencode-cloud", version, max_term_width = 100, args_override_self = true)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The groups of the subcommands in the help.
const GROUPS: &[Group] = &[
    (
        "Work",
        &["run", "session", "ask", "permission", "attach", "open", "abort", "export", "import"],
    ),
    ("Models and costs", &["models", "provider", "credential", "usage", "limit", "llm"]),
    ("Services", &["up", "login", "logout", "services", "use", "key", "doctor", "ready"]),
    ("The organisation", &["user", "sso", "recovery", "project"]),
    (
        "Run a cluster",
        &[
            "serve",
            "gateway",
            "worker",
            "placement",
            "dev-cluster",
            "migrate",
            "feature-level",
            "secrets",
            "credentials",
            "owner-link",
        ],
    ),
    ("Look closer", &["explain", "check", "rebuild", "simulated-model", "completions", "man"]),
];

/// Returns the command line, whose help has its commands in groups.
fn command() -> clap::Command {
    help::group_commands(Cli::command(), GROUPS)
}

/// The subcommands: those of a person are [`cli::Command`], those of a server are here.
///
/// [`TOOL_SUPERVISOR`](crate::TOOL_SUPERVISOR) and [`TOOL_LAUNCHER`](crate::TOOL_LAUNCHER) are not among them: they are
/// answered before this is parsed.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the service: all roles in one process, with a Postgres of its own
    Up(Box<up::UpArgs>),
    /// Start the service without hints for people
    Serve(Box<up::UpArgs>),
    /// A command of a person.
    #[command(flatten)]
    Person(Box<cli::Command>),
    /// Run the simulated model: a deterministic program that speaks the OpenAI chat protocol
    SimulatedModel(simulated::SimulatedArgs),
    /// Print completions for a shell: `source <(opencode-cloud completions bash)`
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write those of all subcommands to a folder
    Man {
        /// Write a page for each subcommand there, to be read with `man -l FILE`
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Create or update the roles and the schema in the Postgres of a cluster
    Migrate(migrate::MigrateArgs),
    /// Show the feature level of a cluster, or raise it at the end of an upgrade
    FeatureLevel(level_cmd::LevelArgs),
    /// Say which sandbox this machine gives to commands, and why not a better one
    Doctor(Box<doctor_cmd::DoctorArgs>),
    /// Make a link that logs an owner in, from the database: when nobody can sign in any more
    OwnerLink(owner_link_cmd::OwnerLinkArgs),
    /// Manage the keys that seal credentials in the database
    Credentials(CredentialsCommand),
    /// Make the secrets of a new cluster
    Secrets(secrets_cmd::SecretsCommand),
    /// Run a gateway of a cluster
    Gateway(Box<roles::GatewayArgs>),
    /// Run a worker of a cluster
    Worker(Box<roles::WorkerArgs>),
    /// Run or manage placement
    Placement(placement_cmd::PlacementCommand),
    /// Run a whole cluster on this machine, each role a process
    DevCluster(Box<cluster::ClusterCommand>),
}

/// Parses the command line and runs the subcommand. A wrong command line exits with 2 and says what is right.
#[must_use]
pub fn main() -> ExitCode {
    // Several crates bring a TLS provider; without a choice the first handshake would panic. This call only fails if
    // one is already installed, which is just as good.
    let _already_installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match config::expand(&Cli::command(), std::env::args_os().collect(), |name| {
        std::env::var_os(name)
    }) {
        Ok(words) => {
            let matches = command().get_matches_from(words);
            match Cli::from_arg_matches(&matches) {
                Ok(cli) => dispatch(cli.command),
                Err(error) => error.exit(),
            }
        }
        Err(error) => failed(&mut Screen::standard(), &error.into()),
    }
}

fn dispatch(command: Command) -> ExitCode {
    let mut screen = Screen::standard();
    let ended = match command {
        Command::Person(command) => cli::execute(*command, &mut screen).map_err(Failure::from),
        Command::Completions { shell } => completions(shell, &mut screen).map_err(Failure::from),
        Command::Man { dir } => manual(dir.as_deref(), &mut screen).map_err(Failure::from),
        Command::SimulatedModel(args) => {
            simulated::execute(&args, &mut screen).map_err(Failure::from)
        }
        Command::Up(args) => {
            let rights = RightsOfRoot::to_run_commands(args.drains.trust_tools);
            server_with(rights, QUIET_LOG_FILTER, |stop| {
                up::execute(*args, Hints::Shown, stop, &mut screen)
            })
        }
        Command::Serve(args) => {
            let rights = RightsOfRoot::to_run_commands(args.drains.trust_tools);
            server(rights, |stop| up::execute(*args, Hints::Left, stop, &mut screen))
        }
        Command::Migrate(args) => {
            server(RightsOfRoot::Needed, |_| migrate::execute(args, &mut screen))
        }
        Command::FeatureLevel(args) => {
            server(RightsOfRoot::Needed, |_| level_cmd::execute(args, &mut screen))
        }
        Command::Doctor(args) => {
            server(RightsOfRoot::Needed, |_| doctor_cmd::execute(*args, &mut screen))
        }
        Command::OwnerLink(args) => {
            server(RightsOfRoot::Needed, |_| owner_link_cmd::execute(args, &mut screen))
        }
        Command::Credentials(command) => {
            server(RightsOfRoot::Needed, |_| credentials_cmd::execute(command, &mut screen))
        }
        Command::Secrets(command) => {
            server(RightsOfRoot::Needed, |_| secrets_cmd::execute(command, &mut screen))
        }
        Command::Gateway(args) => server(RightsOfRoot::Files, |stop| roles::gateway(*args, stop)),
        Command::Worker(args) => {
            let rights = RightsOfRoot::to_run_commands(args.drains.trust_tools);
            server(rights, |stop| roles::worker(*args, stop))
        }
        Command::Placement(PlacementCommand { what: What::Serve(args) }) => {
            server(RightsOfRoot::Files, |stop| roles::placement(*args, stop))
        }
        Command::Placement(PlacementCommand { what }) => {
            server(RightsOfRoot::Needed, |_| placement_cmd::execute(what, &mut screen))
        }
        Command::DevCluster(args) => {
            server(RightsOfRoot::Needed, |stop| cluster::execute(*args, stop, &mut screen))
        }
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => failed(&mut screen, &error),
    }
}

fn completions(shell: clap_complete::Shell, screen: &mut Screen) -> Result<u8, CliError> {
    screen.out.write(completion_script(shell).as_bytes())?;
    Ok(0)
}

fn completion_script(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "opencode-cloud", &mut script);
    // For bash it calls a program with a hyphen by two names, and so completes no subcommand's words.
    String::from_utf8_lossy(&script).replace("opencode__subcmd__cloud", "opencode__cloud")
}

fn manual(dir: Option<&Path>, screen: &mut Screen) -> Result<u8, CliError> {
    let Some(dir) = dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        screen.out.write(&page)?;
        return Ok(0);
    };
    let written =
        std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
    written.map_err(|source| CliError::Io { doing: "cannot write the manual pages", source })?;
    Ok(0)
}

fn failed(screen: &mut Screen, error: &Failure) -> ExitCode {
    // If standard error cannot be written, there is nowhere left to say so.
    let word = match screen.err.style() {
        Style::Plain => "error:",
        Style::Fancy => "\x1b[1;31merror:\x1b[0m",
    };
    let _unwritable = screen.err.say(&format!("{word} {error}"));
    ExitCode::from(error.exit_code())
}

/// The filter of the log, unless `OPENCODE_CLOUD_LOG` sets another. openraft logs several lines a second while a
/// member is away; placement logs that itself, as well as the error that ends Raft.
const LOG_FILTER: &str = "warn,opencode_cloud=info,worker=info,placement=info,openraft=off";
/// The filter for `up`, whose terminal is for people: it reports its progress itself. After each hard stop its only worker
/// is declared dead, which nobody needs to know: its successor is there already.
const QUIET_LOG_FILTER: &str = "warn,openraft=off,placement::host::writer=error";
/// The variable for the log's format: `json` for machines, anything else for people.
const LOG_FORMAT: &str = "OPENCODE_CLOUD_LOG_FORMAT";

/// Runs a server subcommand: logs to standard error, and cancels the token on SIGINT and SIGTERM. Before that it
/// closes its memory and environment, which hold secrets, to other processes, and gives up rights that it does not need.
fn server<F>(rights: RightsOfRoot, work: impl FnOnce(CancellationToken) -> F) -> Result<u8, Failure>
where
    F: Future<Output = Result<u8, ServeError>>,
{
    server_with(rights, LOG_FILTER, work)
}

fn server_with<F>(
    rights: RightsOfRoot,
    default_filter: &str,
    work: impl FnOnce(CancellationToken) -> F,
) -> Result<u8, Failure>
where
    F: Future<Output = Result<u8, ServeError>>,
{
    let closed = sandbox::close_to_other_processes();
    closed.map_err(|source| CliError::Io { doing: "cannot close its memory to others", source })?;
    rights
        .give_up_others()
        .map_err(|source| CliError::Io { doing: "cannot give up rights", source })?;
    let filter = std::env::var_os(boot::telemetry::LOG_VARIABLE);
    let filter = filter.as_ref().and_then(|filter| filter.to_str()).unwrap_or(default_filter);
    let json = std::env::var_os(LOG_FORMAT).is_some_and(|format| format == "json");
    let format = if json { LogFormat::Json } else { LogFormat::Compact };
    boot::telemetry::init(format, filter).map_err(ServeError::from)?;
    let stop = boot::signals::watch().map_err(ServeError::from)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|source| CliError::Io { doing: "cannot start", source })?;
    Ok(runtime.block_on(work(stop))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    // Finding security 1: a tool read the worker's environment and memory, and with them every tenant's secrets.
    #[test]
    fn a_server_is_closed_to_other_processes_from_its_start() {
        use rustix::process::{DumpableBehavior, dumpable_behavior};
        assert_eq!(dumpable_behavior().expect("a state"), DumpableBehavior::Dumpable);
        let closed = server(RightsOfRoot::Needed, |_| async {
            let state = dumpable_behavior().expect("a state");
            Ok(u8::from(state == DumpableBehavior::NotDumpable))
        });
        assert_eq!(closed.expect("it runs"), 1);
    }

    #[test]
    fn a_server_gives_up_rights_that_it_does_not_need() {
        use rustix::thread::no_new_privs;
        use rustix::thread::{CapabilitySet, capabilities, capability_is_in_bounding_set};
        let gives_up = |rights, right| {
            let kept = server(rights, |_| async move {
                let has_it = capabilities(None).expect("known").permitted.contains(right);
                // Only who had it can give it up for children.
                let is_root = rustix::process::geteuid().is_root();
                let children = is_root && capability_is_in_bounding_set(right).expect("known");
                Ok(u8::from(no_new_privs().expect("known") && !has_it && !children))
            });
            kept.expect("it runs") == 1
        };
        assert!(gives_up(RightsOfRoot::Needed, CapabilitySet::SYS_MODULE));
        assert!(gives_up(RightsOfRoot::Files, CapabilitySet::SYS_ADMIN));
    }

    #[test]
    fn completions_and_manual_pages_know_the_subcommands() {
        for shell in <clap_complete::Shell as clap::ValueEnum>::value_variants() {
            let script = completion_script(*shell);
            assert!(script.contains("dev-cluster"), "{shell}");
            assert!(!script.contains(crate::TOOL_SUPERVISOR), "{shell}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        clap_mangen::generate_to(Cli::command(), folder.path()).expect("written");
        for page in ["opencode-cloud.1", "opencode-cloud-session-revert.1"] {
            assert!(folder.path().join(page).is_file(), "{page}");
        }
    }

    // Bash knew no word after a subcommand.
    #[test]
    fn each_state_of_bash_completions_has_its_words() {
        let script = completion_script(clap_complete::Shell::Bash);
        let states = script.lines().filter_map(|line| line.trim().strip_prefix("cmd=\""));
        let states: Vec<_> = states.filter_map(|rest| rest.strip_suffix('"')).collect();
        assert!(states.len() > 50, "{states:?}");
        for state in states.into_iter().filter(|state| !state.is_empty()) {
            assert!(script.contains(&format!("        {state})\n")), "{state}");
        }
    }

    // Finding trial-3 polish: 42 commands without groups.
    #[test]
    fn the_commands_are_in_groups() {
        let cli = Cli::command();
        assert_eq!(help::find_ungrouped(&cli, GROUPS), [] as [String; 0]);
        let help = command().render_help().to_string();
        for (heading, names) in GROUPS {
            let rest = help.split(&format!("\n{heading}:\n")).nth(1);
            let rest = rest.unwrap_or_else(|| panic!("no {heading} in {help}"));
            let below: Vec<&str> = rest.lines().take_while(|line| line.starts_with("  ")).collect();
            for name in *names {
                assert!(below.iter().any(|line| line.trim().starts_with(name)), "{name}: {help}");
            }
        }
        assert!(
            help.starts_with("OpenCode sessions as a service") && help.contains("--version"),
            "{help}"
        );
        assert!(!help.contains("\nCommands:\n"), "{help}");
    }

    // `up --help` used to show 30 options in one list.
    #[test]
    fn the_options_of_up_are_in_groups() {
        let mut cli = Cli::command();
        let up = cli.find_subcommand_mut("up").expect("there");
        let help = up.render_long_help().to_string();
        for heading in [
            "Listening:",
            "Data:",
            "Model:",
            "Catalog of models:",
            "Sessions:",
            "Keys and secrets:",
        ] {
            assert!(help.contains(&format!("\n{heading}\n")), "no {heading} in {help}");
        }
        let ungrouped = help.split("\nOptions:\n").nth(1).unwrap_or_default().lines();
        let ungrouped = ungrouped.take_while(|line| line.is_empty() || line.starts_with(' '));
        let flags: Vec<&str> =
            ungrouped.map(str::trim).filter(|line| line.starts_with('-')).collect();
        assert!(flags.len() <= 1, "only --help: {flags:?}");
    }
}
