//! The commands of a person: one variant and one module per subcommand.

use clap::Subcommand;

use crate::output::Screen;
use crate::{
    CliError, ask_cmd, attach_cmd, credential_cmd, explain_cmd, key_cmd, limit_cmd, llm_cmd,
    login_cmd, models_cmd, open_cmd, permission_cmd, project_cmd, provider_cmd, ready_cmd,
    rebuild_cmd, recovery_cmd, run, session_cmd, sso_cmd, transfer, unreached, usage_cmd, user_cmd,
};

/// The subcommands. The module of each has its arguments and its `execute`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Log in to a service elsewhere: check its API key, and store both for the other commands
    Login(login_cmd::LoginArgs),
    /// Forget a service and its key
    Logout(login_cmd::LogoutArgs),
    /// List the services that commands know; `*` is the one that they use
    Services(login_cmd::ServicesArgs),
    /// Choose the service that commands use
    Use(login_cmd::UseArgs),
    /// Give a session a prompt and show what it does
    Run(run::RunArgs),
    /// Open the terminal interface of the released client `opencode` at the service
    Attach(attach_cmd::AttachArgs),
    /// See, continue, change and delete sessions, and get what they did
    Session(session_cmd::SessionArgs),
    /// Write an idle session to a file: its log, files and requests
    Export(transfer::ExportArgs),
    /// Make a session of what `export` wrote at another service, or the released `opencode export`
    Import(transfer::ImportArgs),
    /// List calls that wait for a person, and answer them
    Ask(ask_cmd::AskArgs),
    /// List what was allowed for always, and take it back
    Permission(permission_cmd::PermissionArgs),
    /// List projects, or show one with its sessions
    Project(project_cmd::ProjectArgs),
    /// List model providers
    Provider(provider_cmd::ProviderArgs),
    /// Keep, list and forget keys and sign-ins at model providers
    Credential(credential_cmd::CredentialArgs),
    /// Show what sessions used: tokens, costs, tools, by day, person, project or model
    Usage(usage_cmd::UsageArgs),
    /// Show, set and remove monthly limits of cost
    Limit(limit_cmd::LimitArgs),
    /// Stop what a session is doing
    Abort(session_cmd::AbortArgs),
    /// Show the exact request that was sent to a model, rebuilt from rows and proved by its hash
    Explain(explain_cmd::ExplainArgs),
    /// Rebuild the rows of sessions from their events, or check that they agree
    Rebuild(rebuild_cmd::RebuildArgs),
    /// Check the invariants of the stored rows
    Check(rebuild_cmd::CheckArgs),
    /// Print the API key of the service, for other clients: `opencode attach … --password "$(opencode-cloud key)"`; or
    /// list, make, rotate and revoke keys
    Key(key_cmd::KeyArgs),
    /// List the people of the organisation, change a role, disable or enable somebody
    User(user_cmd::UserArgs),
    /// Set up sign-in at identity providers: add, test, activate, remove
    Sso(Box<sso_cmd::SsoArgs>),
    /// Make codes with which you, an owner, sign in when nothing else works
    Recovery(recovery_cmd::RecoveryArgs),
    /// Open the service in the browser, signed in
    Open(open_cmd::OpenArgs),
    /// Ask a role whether it is ready: for health checks and scripts
    Ready(ready_cmd::ReadyArgs),
    /// List the models that can be used, with their limits and prices
    Models(models_cmd::ModelsArgs),
    /// Call a model in neutral JSON: a request on standard input, events on standard output
    Llm(llm_cmd::LlmArgs),
}

/// Runs a subcommand, and returns its exit code.
///
/// # Errors
/// [`CliError`].
pub fn execute(command: Command, screen: &mut Screen) -> Result<u8, CliError> {
    match command {
        Command::Login(args) => client(login_cmd::login(args, screen)),
        Command::Logout(args) => login_cmd::logout(&args, screen),
        Command::Services(args) => login_cmd::services(&args, screen),
        Command::Use(args) => login_cmd::choose(&args, screen),
        Command::Run(args) => client(run::execute(args, screen)),
        Command::Attach(args) => client(attach_cmd::execute(args, screen)),
        Command::Session(args) => client(session_cmd::execute(args, screen)),
        Command::Export(args) => client(transfer::export(args, screen)),
        Command::Import(args) => client(transfer::import(args, screen)),
        Command::Ask(args) => client(ask_cmd::execute(args, screen)),
        Command::Permission(args) => client(permission_cmd::execute(args, screen)),
        Command::Project(args) => client(project_cmd::execute(args, screen)),
        Command::Provider(args) => client(provider_cmd::execute(args, screen)),
        Command::Credential(args) => client(credential_cmd::execute(args, screen)),
        Command::Limit(args) => client(limit_cmd::execute(args, screen)),
        Command::Usage(args) => client(usage_cmd::execute(args, screen)),
        Command::Abort(args) => client(session_cmd::abort(args, screen)),
        Command::Explain(args) => client(explain_cmd::execute(args, screen)),
        Command::Rebuild(args) => client(rebuild_cmd::execute(args, screen)),
        Command::Check(args) => client(rebuild_cmd::check(args, screen)),
        Command::Key(args) => client(key_cmd::execute(args, screen)),
        Command::User(args) => client(user_cmd::execute(args, screen)),
        Command::Sso(args) => client(sso_cmd::execute(*args, screen)),
        Command::Recovery(args) => client(recovery_cmd::execute(args, screen)),
        Command::Open(args) => client(open_cmd::execute(args, screen)),
        Command::Ready(args) => client(ready_cmd::execute(args, screen)),
        Command::Models(args) => client(models_cmd::execute(args, screen)),
        Command::Llm(args) => {
            let env =
                |name: &str| std::env::var_os(name).and_then(|value| value.into_string().ok());
            client(llm_cmd::execute(args, &env, std::io::stdin(), screen))
        }
    }
}

/// Runs a client subcommand. It waits for one service, so one thread is enough.
fn client(work: impl Future<Output = Result<u8, CliError>>) -> Result<u8, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| CliError::Io { doing: "cannot start", source })?;
    runtime.block_on(async {
        match work.await {
            Err(CliError::Client(error)) => Err(unreached::explain_error(error).await),
            ended => ended,
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "opencode-cloud")]
    struct Cli {
        #[command(subcommand)]
        _command: Command,
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn url_and_key_are_taken_by_every_client_subcommand() {
        for line in [
            "run hello --directory .",
            "run - --json --session ses_1 --model gpt --agent plan",
            "attach .",
            "session list",
            "session show ses_1",
            "session log ses_1 --follow --after 3",
            "session show",
            "session diff --stat",
            "session revert --last",
            "session context ses_1 plan {}",
            "session delete ses_1 ses_2 --yes",
            "session pull",
            "open ses_1",
            "permission list",
            "permission remove pms_1",
            "abort",
            "abort ses_1",
            "explain trn_1 --body",
            "rebuild --check",
            "check --settled",
            "models anthropic --json",
            "models --all",
            "models anthropic --all",
            "key",
            "key list --all",
            "key create ci --scope read --scope prompt --days 30 --service builds",
            "key rotate key_1 --hours 1",
            "key revoke key_1 --stop-work",
            "sso list --json",
            "sso add Okta --issuer https://x --client-id y --secret-file - --group it=admin --domain x.example",
            "sso change Okta --no-groups --default-role member",
            "sso change Okta --client-id -rabc --secret-file -",
            "sso test Okta --no-wait",
            "sso activate Okta",
            "sso remove Okta",
            "recovery show --json",
            "recovery create",
            "user list",
            "user role usr_1 admin",
            "user disable usr_1",
            "open --print",
            "session delete ses_1",
            "export ses_1 --output ses_1.jsonl --json",
            "import - --directory . --json",
            "project list",
            "project show prj_1",
            "usage --by model --csv",
            "limit set 20 --each",
            "provider list --all",
            "credential list",
            "credential add openai --label team",
            "credential login acme --method device",
            "credential remove crd_1",
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
        // Finding trial 17: the message named only turns, although attempts are accepted too.
        let error = Cli::try_parse_from(["opencode-cloud", "explain", "ses_1"]);
        let error = error.expect_err("not a request's id").to_string();
        assert!(error.contains("trn_") && error.contains("att_"), "{error}");
        let error = Cli::try_parse_from(["opencode-cloud", "session", "show", "msg_1"]);
        assert_eq!(error.expect_err("not a session's id").exit_code(), 2);
    }

    // A newcomer was told that `<ID> <MESSAGE>` were missing, and nothing of `--last`.
    #[test]
    fn a_revert_of_nothing_names_its_three_targets() {
        for words in [&["session", "revert"][..], &["session", "revert", "ses_1"]] {
            let words = [&["opencode-cloud"], words].concat();
            let error = Cli::try_parse_from(words).expect_err("no target");
            assert_eq!(error.exit_code(), 2);
            let error = error.to_string();
            assert!(error.contains("MESSAGE|--last|--commit"), "{error}");
        }
    }
}
