//! `opencode-cloud project list|show`: the directories that sessions work on.

use clap::Subcommand;
use client::{Client, ClientOptions, SessionView, TimesView, parsed};
use domain::{Clock, SystemClock};
use serde::Deserialize;
use serde_json::json;

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;
use crate::session_cmd::{list as sessions, read_waiting};
use crate::table::{ago, fitted, local_time};

/// Arguments of `project`.
#[derive(Debug, clap::Args)]
pub struct ProjectArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: ProjectCommand,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// The subcommands of `project`.
#[derive(Debug, Subcommand)]
pub enum ProjectCommand {
    /// The projects of the organisation
    List,
    /// One project with its newest sessions
    Show {
        /// Its id, or its directory
        #[arg(value_name = "PROJECT", default_value = ".")]
        project: String,
        /// Number of sessions at most
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
}

#[derive(Debug, Deserialize)]
struct ProjectRow {
    id: String,
    worktree: String,
    time: TimesView,
}

/// Runs `project …` and returns its exit code.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: ProjectArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    let answer = client.get_json("/project", "the list of projects").await?;
    let projects: Vec<ProjectRow> = parsed(&answer, "the list of projects")?;
    match args.command {
        ProjectCommand::List if args.json => screen.out.line(&answer.to_string())?,
        ProjectCommand::List if projects.is_empty() => {
            screen.out.say("no projects yet; a first session in a directory makes one")?;
        }
        ProjectCommand::List => {
            let now = screen.out.is_terminal().then(|| SystemClock::new().now_ms());
            let mut rows = vec![["PROJECT", "CREATED", "DIRECTORY"].map(str::to_owned)];
            rows.extend(projects.iter().map(|project| {
                let created = project.time.created;
                [
                    printable::line(&project.id, 80),
                    now.map_or_else(|| local_time(created), |now| ago(created, now)),
                    printable::line(&project.worktree, 200),
                ]
            }));
            let text = fitted(&rows, screen.out.width());
            screen.out.print_paged(&text)?;
        }
        ProjectCommand::Show { project, limit } => {
            let found = find(&projects, &project)?;
            let path = format!("/project/{}/session?limit={limit}", found.id);
            let list = client.get_json(&path, "the list of sessions").await?;
            if args.json {
                let line = json!({
                    "id": found.id, "worktree": found.worktree,
                    "time": { "created": found.time.created }, "sessions": list,
                });
                screen.out.line(&line.to_string())?;
                return Ok(0);
            }
            let mut text = format!(
                "project    {}\ndirectory  {}\ncreated    {}\n",
                printable::line(&found.id, 80),
                printable::line(&found.worktree, 1_000),
                local_time(found.time.created)
            );
            if list.as_array().is_some_and(Vec::is_empty) {
                text.push_str("no sessions\n");
            } else {
                text.push('\n');
                let views: Vec<SessionView> =
                    parsed::<Vec<SessionView>>(&list, "the list of sessions")?;
                let waiting = read_waiting(&client, &views).await?;
                text.push_str(&sessions(&views, &waiting, &screen.out));
            }
            screen.out.print_paged(&text)?;
        }
    }
    Ok(0)
}

/// Finds a project by its id or its directory.
fn find<'p>(projects: &'p [ProjectRow], wanted: &str) -> Result<&'p ProjectRow, CliError> {
    let path = std::path::Path::new(wanted);
    let directory = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_it = |project: &&ProjectRow| {
        project.id == wanted
            || project.worktree == wanted
            || std::path::Path::new(&project.worktree) == directory
    };
    projects.iter().find(is_it).ok_or_else(|| {
        let wanted = printable::line(wanted, 200);
        CliError::Usage(format!(
            "{wanted}: there is no such project; `opencode-cloud project list` shows them"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_found_by_id_or_directory() {
        let answer = json!([
            { "id": "prj_1", "worktree": "/workspace", "time": { "created": 1 } },
            { "id": "prj_2", "worktree": "/", "time": { "created": 1 } },
        ]);
        let projects: Vec<ProjectRow> = parsed(&answer, "the list").expect("a list");
        let id = |wanted: &str| find(&projects, wanted).map(|project| project.id.clone()).ok();
        assert_eq!(id("prj_1").as_deref(), Some("prj_1"));
        assert_eq!(id("/workspace").as_deref(), Some("prj_1"));
        assert_eq!(id("//").as_deref(), Some("prj_2"), "links and dots are resolved");
        let told = find(&projects, "/no").map(|_| ()).expect_err("not there").to_string();
        assert!(told.ends_with("`opencode-cloud project list` shows them"), "{told}");
    }
}
