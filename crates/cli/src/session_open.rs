//! `opencode-cloud session open`: the session in the released client's terminal interface, or where it is and how to go on.

use std::ffi::OsString;
use std::fmt::Write as _;

use client::{Client, ClientError, ClientOptions, RepositoryView, SessionView};
use domain::SessionId;

use crate::CliError;
use crate::attach_cmd;
use crate::output::Screen;
use crate::program;
use crate::render::printable;
use crate::session_name::find_session;

/// Arguments of `session open`.
#[derive(Debug, clap::Args)]
pub struct OpenArgs {
    /// The session, or the beginning of its id [default: the last one of this directory]
    #[arg(value_name = "ID")]
    pub id: Option<SessionId>,
    /// Only say where it is, and how to go on
    #[arg(long)]
    pub print: bool,
}

pub(crate) async fn execute(
    client: &Client,
    options: &ClientOptions,
    args: OpenArgs,
    screen: &mut Screen,
) -> Result<u8, CliError> {
    let session = client.session(&find_session(client, args.id.as_ref()).await?).await?;
    let repository = match client.repository(&session.id).await {
        Ok(repository) => Some(repository),
        Err(ClientError::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    screen.err.prose(&told(&session, repository.as_ref(), client.url(), &program()))?;
    if args.print || !screen.out.is_terminal() || !attach_cmd::is_installed() {
        return Ok(0);
    }
    let words = ["--session", session.id.as_str()].map(OsString::from);
    let code = attach_cmd::start(options, session.directory.into(), words.into()).await?;
    attach_cmd::tell_return(&session.id, screen)?;
    Ok(code)
}

fn told(
    session: &SessionView,
    repository: Option<&RepositoryView>,
    url: &str,
    program: &str,
) -> String {
    let mut text = String::new();
    let mut line = |name: &str, told: &str| {
        let told = printable::line(told, 1_000);
        writeln!(text, "{name:<10} {told}").expect("writing to a string cannot fail");
    };
    let id = &session.id;
    line("session", &session.title);
    line("at", &format!("{url}, in {}", session.directory));
    if let Some(RepositoryView { url, commit, branch, state, .. }) = repository {
        let commit =
            commit.as_deref().map_or("no commit yet", |commit| &commit[..commit.len().min(12)]);
        let branch = branch.as_deref().and_then(|name| name.strip_prefix("refs/heads/"));
        let on = branch.map(|name| format!(" on {name}")).unwrap_or_default();
        line("repository", &format!("{url} at {commit}{on}, {state}"));
        line("its work", &format!("{program} session pull {id} --worktree DIR"));
    }
    line("go on", &format!("{program} run --session {id} \"…\""));
    line("browser", &format!("{program} open {id}"));
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use client::parsed;

    #[test]
    fn it_says_where_the_session_is_and_how_to_go_on() {
        let answer = json!({
            "id": "ses_1", "projectID": "prj_1", "directory": "/h.org/r", "title": "Fix it", "agent": "build",
            "busy": false, "seq": 1, "time": {"created": 0},
        });
        let session: SessionView = parsed(&answer, "the session").expect("a session");
        let repository = RepositoryView {
            url: "https://h.org/r".into(),
            commit: Some("a".repeat(40)),
            branch: Some("refs/heads/main".into()),
            state: "filled".into(),
            stage: None,
            bytes: 0,
            fault: None,
        };
        let text = told(&session, Some(&repository), "http://x", "oc");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2], "repository https://h.org/r at aaaaaaaaaaaa on main, filled");
        assert_eq!(lines[3], "its work   oc session pull ses_1 --worktree DIR");
        assert_eq!(lines[5], "browser    oc open ses_1");
        assert_eq!(told(&session, None, "http://x", "oc").lines().count(), 4);
    }
}
