//! `opencode-cloud session fork|move|revert|unrevert|diff`: copies of sessions, other directories, and changes of
//! files.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use client::{Client, ClientError, SessionView, parsed};
use domain::{Clock, IdMint, LocationId, MessageId, SessionId, Stamp, SystemClock};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::CliError;
use crate::output::{Screen, Style};
use crate::render::{self, printable};
use crate::session_change::Delivery;
use crate::session_name::find_session;
use crate::table::{count, fitted};
use crate::wrap::wrapped;

/// The subcommands for forks, Moves, Reverts and files.
#[derive(Debug, Subcommand)]
pub enum SessionFiles {
    /// Begin a new session with a copy of a session's conversation
    Fork {
        /// The session, or the beginning of its id [default: the last one of this directory]
        #[arg(value_name = "ID")]
        id: Option<SessionId>,
        /// Copy what came before this message [default: everything]
        #[arg(long, value_name = "MESSAGE")]
        before: Option<MessageId>,
        /// Give it the files as they were then, in a workspace of its own, instead of sharing the session's
        #[arg(long)]
        copy_files: bool,
        /// The new session's id [default: a fresh one]
        #[arg(long = "id", value_name = "SESSION")]
        fork: Option<SessionId>,
    },
    /// Continue a session in another directory, at its turn in the inbox
    Move(MoveArgs),
    /// Go back to before a message, files included; the next prompt makes that final, `unrevert` undoes it
    #[command(
        group(ArgGroup::new("target").required(true).args(["message", "last", "commit"])),
        override_usage = "opencode-cloud session revert [OPTIONS] [ID] <MESSAGE|--last|--commit>"
    )]
    Revert {
        /// The session, or the beginning of its id [default: the last one of this directory]
        #[arg(value_name = "ID")]
        id: Option<SessionId>,
        /// The first message that is taken back
        #[arg(value_name = "MESSAGE", conflicts_with_all = ["commit", "last"])]
        message: Option<MessageId>,
        /// Take back the last prompt and all that followed it
        #[arg(long, conflicts_with = "commit")]
        last: bool,
        /// Leave the files as they are
        #[arg(long, conflicts_with = "commit")]
        keep_files: bool,
        /// Make a revert final without a new prompt
        #[arg(long)]
        commit: bool,
    },
    /// Undo a revert that is not final
    Unrevert {
        /// The session, or the beginning of its id [default: the last one of this directory]
        #[arg(value_name = "ID")]
        id: Option<SessionId>,
    },
    /// Show what a session changed in files
    Diff {
        /// The session, or the beginning of its id [default: the last one of this directory]
        #[arg(value_name = "ID")]
        id: Option<SessionId>,
        /// Only what the work on this message changed
        #[arg(long, value_name = "MESSAGE")]
        message: Option<MessageId>,
        /// Count lines only
        #[arg(long)]
        stat: bool,
    },
}

/// Arguments of `session move`.
#[derive(Debug, Args)]
pub struct MoveArgs {
    /// The session, or the beginning of its id [default: the last one of this directory]
    #[arg(value_name = "ID")]
    pub id: Option<SessionId>,
    /// The destination
    #[command(flatten)]
    pub to: Destination,
    /// Take the files along, to a new workspace
    #[arg(long, conflicts_with_all = ["directory", "location"])]
    pub carry: bool,
    /// When it joins running work
    #[arg(long, value_enum, default_value_t = Delivery::Steer)]
    pub delivery: Delivery,
}

/// The destination of a Move.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct Destination {
    /// A directory of the service's machine, or one beneath /workspace
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// A Location, by its id
    #[arg(long, value_name = "LOCATION")]
    pub location: Option<LocationId>,
}

#[derive(Debug, Deserialize)]
struct DiffView {
    files: Vec<FileView>,
    #[serde(default)]
    more: u64,
}

#[derive(Debug, Deserialize)]
struct FileView {
    file: String,
    status: String,
    additions: u64,
    deletions: u64,
    #[serde(default)]
    patch: Option<String>,
    #[serde(default)]
    partial: bool,
}

/// Runs the subcommand, prints its result, and returns the exit code.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(
    client: &Client,
    asked: SessionFiles,
    as_json: bool,
    screen: &mut Screen,
) -> Result<u8, CliError> {
    let mut mint = IdMint::after(Stamp::default(), SystemClock::new().now_ms());
    let (answer, told) = match asked {
        SessionFiles::Fork { id, before, copy_files, fork } => {
            let id = find_session(client, id.as_ref()).await?;
            let fork = fork.unwrap_or_else(|| SessionId::mint(&mut mint));
            let files = if copy_files { "copy" } else { "shared" };
            let body = json!({ "id": fork, "messageID": before, "files": files });
            let answer = client.persist_of_session(&id, "/fork", &body).await?;
            let view: SessionView = parsed(&answer, "the session")?;
            let directory = printable::line(&view.directory, 200);
            let told = format!("{} continues from there, in {directory}\n", view.id);
            (answer, told)
        }
        SessionFiles::Move(MoveArgs { id, to, carry, delivery }) => {
            let mut body = json!({
                "id": MessageId::mint(&mut mint), "carry": carry, "delivery": delivery.as_str(),
            });
            match to {
                Destination { directory: Some(directory), .. } => {
                    body["directory"] = json!(directory);
                }
                Destination { location: Some(location), .. } => body["location"] = json!(location),
                Destination { directory: None, location: None } if carry => {}
                Destination { directory: None, location: None } => {
                    let what = "say where to with --directory or --location, or take the files to a new \
                                workspace with --carry";
                    return Err(CliError::Usage(what.to_owned()));
                }
            }
            let id = find_session(client, id.as_ref()).await?;
            let answer = client.persist_of_session(&id, "/move", &body).await?;
            let told = "it waits in the inbox; `opencode-cloud session log` shows when it moves\n";
            (answer, told.to_owned())
        }
        SessionFiles::Revert { id, message, last, keep_files, commit: false } => {
            let id = find_session(client, id.as_ref()).await?;
            let message = match message {
                Some(message) if !last => message,
                Some(_) | None => last_prompt(client, &id).await?,
            };
            let body = json!({
                "id": MessageId::mint(&mut mint), "messageID": message, "files": !keep_files,
            });
            let answer = client.persist_of_session(&id, "/revert", &body).await?;
            let mut told = reverted(&answer);
            if !keep_files && has_repository(client, &id).await? {
                told.push_str(COMMITS_STAY);
            }
            (answer, told)
        }
        SessionFiles::Revert { id, commit: true, .. } => {
            let id = find_session(client, id.as_ref()).await?;
            let answer = client.persist_of_session(&id, "/revert/commit", &json!({})).await?;
            (answer, "the revert is final\n".to_owned())
        }
        SessionFiles::Unrevert { id } => {
            let id = find_session(client, id.as_ref()).await?;
            let before = client.session_json(&id).await?;
            if before["revert"].is_null() {
                (before, "no revert is staged, so there is nothing to undo\n".to_owned())
            } else {
                let body = json!({ "id": MessageId::mint(&mut mint) });
                let answer = client.persist_of_session(&id, "/unrevert", &body).await?;
                (answer, "the revert is undone\n".to_owned())
            }
        }
        SessionFiles::Diff { id, message, stat } => {
            let id = find_session(client, id.as_ref()).await?;
            let query = message.map_or_else(String::new, |id| format!("?messageID={id}"));
            let (below, limit) = (format!("/diff{query}"), client.pace().answer);
            let answer = client.of_session(&id, Method::GET, &below, None, limit).await?;
            if !as_json {
                let view = parsed(&answer, "the diff")?;
                // Lines of patches stay as they are, whatever the terminal's width.
                screen.out.print(&diff(&view, stat, screen.out.style(), screen.out.width()))?;
                return Ok(0);
            }
            (answer, String::new())
        }
    };
    if as_json {
        screen.out.line(&answer.to_string())?;
    } else {
        screen.out.prose(&told)?;
    }
    Ok(0)
}

/// Told after a Revert of files in a repository's workspace.
const COMMITS_STAY: &str = "commits stay: only files went back; to take the last commit back too, let the session run \
                            `git reset --soft HEAD~1`\n";

async fn has_repository(client: &Client, id: &SessionId) -> Result<bool, CliError> {
    match client.repository(id).await {
        Ok(_) => Ok(true),
        Err(ClientError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the user's last prompt that is not reverted.
async fn last_prompt(client: &Client, id: &SessionId) -> Result<MessageId, CliError> {
    let session = client.session_json(id).await?;
    let messages = client.messages_json(id).await?;
    let staged = session.pointer("/revert/messageID").and_then(Value::as_str);
    last_of(&messages, staged).ok_or_else(|| {
        CliError::Usage(format!("session {id} has no prompt that could be taken back"))
    })
}

fn last_of(messages: &Value, staged: Option<&str>) -> Option<MessageId> {
    let messages = messages.as_array()?.iter().map(|message| &message["info"]);
    let left = messages.take_while(|info| staged.is_none_or(|staged| info["id"] != staged));
    left.filter(|info| info["role"] == "user").last()?["id"].as_str()?.parse().ok()
}

/// Describes a staged Revert in a session's view.
fn reverted(session: &Value) -> String {
    let files = session["revert"]["files"].as_array().map_or(0, Vec::len);
    let mut text = format!("reverted, with {}", count(files as u64, "file"));
    for file in session["revert"]["files"].as_array().into_iter().flatten() {
        let name = printable::line(file["file"].as_str().unwrap_or_default(), 200);
        write!(text, "\n  {name}").expect("writing to a string cannot fail");
    }
    text.push_str("\na new prompt makes this final; `session unrevert` undoes it\n");
    text
}

/// Colours a patch for a terminal: added lines green, removed ones red.
fn coloured(patch: &str, style: Style) -> String {
    let patch = printable::block(patch);
    if style == Style::Plain {
        return patch;
    }
    let lines = patch
        .lines()
        .map(|line| format!("\x1b[{}m{line}\x1b[0m\n", render::choose_diff_colour(line)));
    lines.collect()
}

/// Formats a diff for people: patches or one line per file, and a total.
fn diff(diff: &DiffView, stat: bool, style: Style, width: Option<usize>) -> String {
    if diff.files.is_empty() {
        return "no files were changed\n".to_owned();
    }
    let mut text = String::new();
    if stat {
        let mut rows = vec![["STATUS", "+", "-", "FILE"].map(str::to_owned)];
        rows.extend(diff.files.iter().map(|file| {
            [
                printable::line(&file.status, 20),
                file.additions.to_string(),
                file.deletions.to_string(),
                printable::line(&file.file, 120),
            ]
        }));
        text.push_str(&fitted(&rows, width));
    } else {
        for file in &diff.files {
            let name = printable::line(&file.file, 1_000);
            match &file.patch {
                Some(patch) => {
                    text.push_str(&coloured(patch, style));
                    if style == Style::Plain && !patch.ends_with('\n') {
                        text.push('\n');
                    }
                }
                None => {
                    let (status, plus, minus) = (&file.status, file.additions, file.deletions);
                    let status = printable::line(status, 20);
                    // A file that several steps changed, or files of several directories after a Move, have no single
                    // patch.
                    let why = if file.partial { " (no patch: counted step by step)" } else { "" };
                    let line = format!("{name}: {status}, {plus} added, {minus} removed{why}\n");
                    text.push_str(&wrapped(&line, width));
                }
            }
        }
    }
    let sum = |of: fn(&FileView) -> u64| diff.files.iter().map(of).sum::<u64>();
    let (plus, minus) = (sum(|file| file.additions), sum(|file| file.deletions));
    let (files, plus) = (count(diff.files.len() as u64, "file"), count(plus, "line"));
    let mut sums = format!("{files}, {plus} added, {minus} removed");
    if diff.more > 0 {
        write!(sums, ", and {}", count(diff.more, "more file"))
            .expect("writing to a string cannot fail");
    }
    if diff.files.iter().any(|file| file.partial) {
        sums.push_str("; some files have no patch, since several steps or directories changed them, and a line may count more than once");
    }
    sums.push('\n');
    text.push_str(&wrapped(&sums, width));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> DiffView {
        let answer = json!({ "files": [
            { "file": "a.txt", "status": "modified", "additions": 1, "deletions": 1,
              "patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+t\u{1b}[2Jwo" },
            { "file": "b\u{1b}.bin", "status": "added", "additions": 0, "deletions": 0 },
        ], "more": 3 });
        parsed(&answer, "the diff").expect("a diff")
    }

    #[test]
    fn a_diff_is_its_patches_and_what_they_add_up_to() {
        let text = diff(&answer(), false, Style::Plain, None);
        assert_eq!(
            text,
            "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+t[2Jwo\n\
             b .bin: added, 0 added, 0 removed\n\
             2 files, 1 line added, 1 removed, and 3 more files\n"
        );
        assert_eq!(
            diff(&DiffView { files: Vec::new(), more: 0 }, false, Style::Plain, None),
            "no files were changed\n"
        );
    }

    #[test]
    fn a_diff_can_be_counted_only_and_says_when_lines_may_count_twice() {
        let mut view = answer();
        view.files[0].partial = true;
        let text = diff(&view, true, Style::Plain, None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["STATUS    +  -  FILE", "modified  1  1  a.txt"], "{text}");
        assert!(lines[3].contains("more than once"), "{text}");
    }

    // Finding trial 21: a diff had no colours.
    #[test]
    fn a_terminal_shows_what_was_added_and_removed() {
        let text = diff(&answer(), false, Style::Fancy, None);
        assert!(text.contains("\x1b[31m-one\x1b[0m\n\x1b[32m+t[2Jwo\x1b[0m\n"), "{text:?}");
    }

    // Finding trial 10: no command showed which message to revert.
    #[test]
    fn the_last_prompt_is_found_before_what_is_taken_back_already() {
        let message = |id: &str, role: &str| json!({ "info": { "id": id, "role": role } });
        let messages = json!([
            message("msg_1", "user"),
            message("msg_2", "assistant"),
            message("msg_3", "user"),
            message("msg_4", "assistant"),
        ]);
        let last = |staged| last_of(&messages, staged).map(|id| id.to_string());
        assert_eq!(last(None).as_deref(), Some("msg_3"));
        assert_eq!(last(Some("msg_3")).as_deref(), Some("msg_1"));
        assert_eq!(last(Some("msg_1")), None);
    }

    #[test]
    fn a_revert_tells_which_files_it_changed() {
        let session =
            json!({ "revert": { "messageID": "msg_a", "files": [{ "file": "a\u{7}.txt" }] } });
        let text = reverted(&session);
        assert!(text.starts_with("reverted, with 1 file\n  a .txt\n"), "{text}");
        assert!(reverted(&json!({})).starts_with("reverted, with 0 files\n"));
    }
}
