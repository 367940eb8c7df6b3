//! `opencode-cloud session list|show|log` and `opencode-cloud abort`. The other subcommands are in
//! [`crate::session_change`] and [`crate::session_files`].

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::Subcommand;
use client::{Client, ClientOptions, LogEvent, LogFollower, LogItem, SessionView, parsed};
use domain::{Clock, Seq, SessionId, SystemClock, TimestampMs};
use reqwest::Method;
use serde_json::{Value, json};

use crate::CliError;
use crate::ask_cmd;
use crate::output::{Output, Screen, Style};
use crate::render::{printable, summary};
use crate::session_change::{self, SessionChange};
use crate::session_files::{self, SessionFiles};
use crate::session_list::ListArgs;
use crate::session_name::find_session;
use crate::session_open;
use crate::session_pull;
use crate::table::{ago, fitted, local_time};
use crate::wrap::{shortened, wrapped};

/// Arguments of `session`.
#[derive(Debug, clap::Args)]
pub struct SessionArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: SessionCommand,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// The subcommands of `session`.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List the newest sessions of the organisation
    List(ListArgs),
    /// Show a session, or its conversation
    Show {
        /// The session, or the beginning of its id [default: the last one of this directory]
        #[arg(value_name = "ID")]
        id: Option<SessionId>,
        /// Its conversation, with the ids that `revert`, `fork` and `diff` take
        #[arg(long)]
        messages: bool,
    },
    /// Show the events of a session, or follow them
    Log {
        /// The session, or the beginning of its id [default: the last one of this directory]
        #[arg(value_name = "ID")]
        id: Option<SessionId>,
        /// Keep following; with --json, live text too
        #[arg(long)]
        follow: bool,
        /// Begin after this event
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
        after: i64,
    },
    /// Open a session in the released client's terminal interface, or say where it is
    Open(session_open::OpenArgs),
    /// Bring a session's work into the repository here: as a branch, a worktree or changes
    Pull(session_pull::PullArgs),
    /// The subcommands that change a session, or show more of it.
    #[command(flatten)]
    Change(SessionChange),
    /// The subcommands for forks, Moves, Reverts and files.
    #[command(flatten)]
    Files(SessionFiles),
}

/// Arguments of `abort`.
#[derive(Debug, clap::Args)]
pub struct AbortArgs {
    /// The session, or the beginning of its id [default: the last one of this directory]
    #[arg(value_name = "ID")]
    pub id: Option<SessionId>,
    /// Let it continue with steering prompts, or with a control that is next; other input stays parked
    #[arg(long)]
    pub resume: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// Runs `session …` and returns its exit code.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: SessionArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    match args.command {
        SessionCommand::List(asked) => {
            let answer = asked.sessions(&client).await?;
            if args.json {
                screen.out.line(&answer.to_string())?;
            } else {
                let sessions: Vec<SessionView> = parsed(&answer, "the list of sessions")?;
                let text = if sessions.is_empty() && asked.has_filter() {
                    "no session is like that\n".to_owned()
                } else {
                    let waiting = read_waiting(&client, &sessions).await?;
                    list(&sessions, &waiting, &screen.out)
                };
                screen.out.print_paged(&text)?;
            }
        }
        SessionCommand::Show { id, messages: true } => {
            let id = find_session(&client, id.as_ref()).await?;
            let answer = client.messages_json(&id).await?;
            if args.json {
                screen.out.line(&answer.to_string())?;
            } else {
                let text = conversation(&answer, screen.out.style(), screen.out.width());
                screen.out.print_paged(&text)?;
            }
        }
        SessionCommand::Show { id, messages: false } => {
            let id = find_session(&client, id.as_ref()).await?;
            let answer = client.session_json(&id).await?;
            if args.json {
                screen.out.line(&answer.to_string())?;
            } else {
                let staged = staged(&answer);
                let session: SessionView = parsed(&answer, "the session")?;
                let waiting = read_waiting(&client, std::slice::from_ref(&session)).await?;
                screen.out.prose(&show(&session, &waiting, staged.as_deref()))?;
            }
        }
        SessionCommand::Change(change) => {
            return session_change::execute(&client, change, args.json, screen).await;
        }
        SessionCommand::Open(asked) => {
            return session_open::execute(&client, &args.client, asked, screen).await;
        }
        SessionCommand::Pull(asked) => return session_pull::execute(&client, asked, screen).await,
        SessionCommand::Files(asked) => {
            return session_files::execute(&client, asked, args.json, screen).await;
        }
        SessionCommand::Log { id, follow: true, after } => {
            let id = find_session(&client, id.as_ref()).await?;
            let mut log = LogFollower::open(&client, id, Seq(after)).await?;
            // Ends when the reader goes away, or with Ctrl-C.
            while !screen.out.is_closed() {
                match log.next().await? {
                    item if args.json => screen.out.line(&item.json_line())?,
                    LogItem::Event(event) => {
                        let line = event_line(&event, screen.out.width());
                        screen.out.line(&line)?;
                    }
                    LogItem::Delta(_) | LogItem::Workspace(_) => {}
                }
            }
        }
        SessionCommand::Log { id, follow: false, after } => {
            let id = find_session(&client, id.as_ref()).await?;
            let mut last = Seq(after);
            while !screen.out.is_closed() {
                let page = client.log_page(&id, last).await?;
                let Some(newest) = page.last() else { break };
                last = newest.seq;
                for event in page {
                    let line = if args.json {
                        LogItem::Event(event).json_line()
                    } else {
                        event_line(&event, screen.out.width())
                    };
                    screen.out.line(&line)?;
                }
            }
        }
    }
    Ok(0)
}

/// Runs `abort` and returns its exit code.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn abort(args: AbortArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    let id = find_session(&client, args.id.as_ref()).await?;
    let (interrupted, resumed) = if args.resume {
        // Not retried: a second abort would interrupt the resumed work.
        let (body, limit) = (json!({ "resume": true }), client.pace().answer);
        let abort = client.of_session(&id, Method::POST, "/abort", Some(&body), limit);
        let answer = abort.await?;
        (answer["interrupted"] == true, answer["resumed"] == true)
    } else {
        (client.abort(&id).await?.interrupted, false)
    };
    if args.json {
        let line = json!({ "interrupted": interrupted, "resumed": resumed });
        screen.out.line(&line.to_string())?;
        return Ok(0);
    }
    screen.out.say(match (interrupted, resumed) {
        (true, true) => "interrupted; it continues with what steers it",
        (true, false) => "interrupted; `opencode-cloud session log` shows how it settles",
        (false, true) => "nothing was running; it continues with what steers it",
        (false, false) => "nothing was running",
    })?;
    Ok(0)
}

/// Formats sessions as a table. Those in `waiting` wait for an answer. On a terminal it fits the width and has relative times.
pub(crate) fn list(sessions: &[SessionView], waiting: &BTreeSet<String>, to: &Output) -> String {
    let now = to.is_terminal().then(|| SystemClock::new().now_ms());
    list_at(sessions, waiting, now, to.width())
}

fn list_at(
    sessions: &[SessionView],
    waiting: &BTreeSet<String>,
    now: Option<TimestampMs>,
    width: Option<usize>,
) -> String {
    if sessions.is_empty() {
        return "no sessions yet; start one with: opencode-cloud run \"PROMPT\"\n".to_owned();
    }
    let heading = ["SESSION", "UPDATED", "STATE", "TITLE", "DIRECTORY", "MODEL"];
    let is_narrow = width.is_some_and(|width| width < WIDE);
    // Where not all columns fit, the last ones are left out.
    let ordered = |row: [String; 6]| {
        let [session, updated, state, title, directory, model] = row;
        if is_narrow {
            [session, state, title, updated, directory, model]
        } else {
            [session, updated, state, title, directory, model]
        }
    };
    let mut rows = vec![ordered(heading.map(str::to_owned))];
    let ids: Vec<&str> = sessions.iter().map(|session| session.id.as_str()).collect();
    // What a session does and is called says more than the rest of an id whose beginning will do.
    let shown = if is_narrow { count_unique_start(&ids) } else { usize::MAX };
    rows.extend(sessions.iter().map(|session| {
        ordered([
            session.id.as_str().chars().take(shown).collect(),
            when(session.time.updated.unwrap_or(session.time.created), now),
            shown_state(session, waiting)
                + if session.time.archived.is_some() { ", archived" } else { "" },
            printable::line(&session.title, 60),
            printable::line(&session.directory, 60),
            printable::line(&model(session), 40),
        ])
    }));
    fitted(&rows, width)
}

/// The columns from which on a list has whole ids.
const WIDE: usize = 100;
/// The shortest beginning of an id that is shown: its kind, and the first digits of its time.
const SHORTEST: usize = 12;

/// Returns the number of characters with which the beginnings of all these ids differ.
fn count_unique_start(ids: &[&str]) -> usize {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let same = |one: &str, other: &str| {
        one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count()
    };
    let most = sorted.windows(2).map(|pair| same(pair[0], pair[1]) + 1).max();
    most.unwrap_or(0).max(SHORTEST)
}

/// Formats a time: relative for people, absolute for files and scripts.
fn when(time: TimestampMs, now: Option<TimestampMs>) -> String {
    now.map_or_else(|| local_time(time), |now| ago(time, now))
}

/// Describes a staged Revert in a session's answer.
fn staged(answer: &Value) -> Option<String> {
    let revert = answer.get("revert").filter(|revert| !revert.is_null())?;
    let message = printable::line(revert["messageID"].as_str().unwrap_or_default(), 80);
    Some(format!(
        "staged, before {message}; `session unrevert` undoes it, a new prompt makes it final"
    ))
}

/// Formats a conversation: for each message a heading and its texts, which stay as they are.
fn conversation(answer: &Value, style: Style, width: Option<usize>) -> String {
    let mut text = String::new();
    for message in answer.as_array().into_iter().flatten() {
        let word = |at: &str| message.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let heading = printable::line(&format!("{} {}", word("/info/role"), word("/info/id")), 120);
        let heading = match style {
            Style::Plain => format!("--- {heading}"),
            Style::Fancy => format!("\x1b[1m{heading}\x1b[0m"),
        };
        text.push_str(&heading);
        text.push('\n');
        for part in message["parts"].as_array().into_iter().flatten() {
            let line = match part["type"].as_str() {
                Some("text") => printable::block(part["text"].as_str().unwrap_or_default())
                    .trim_end()
                    .to_owned(),
                Some("tool") => {
                    let tool = part["tool"].as_str().unwrap_or_default();
                    let title = part.pointer("/state/title").and_then(Value::as_str);
                    let status = part.pointer("/state/status").and_then(Value::as_str);
                    let title = title.unwrap_or_default();
                    let line = format!("[{}] {tool} {title}", status.unwrap_or("unknown"));
                    shortened(&printable::line(&line, 200), width)
                }
                Some(_) | None => continue,
            };
            text.push_str(&line);
            text.push('\n');
        }
        let error = message.pointer("/info/error/data/message").and_then(Value::as_str);
        if let Some(error) = error {
            let told = format!("error: {}\n", printable::line(error, 400));
            text.push_str(&wrapped(&told, width));
        }
        text.push('\n');
    }
    if text.is_empty() { "no messages yet\n".to_owned() } else { text }
}

fn show(session: &SessionView, waiting: &BTreeSet<String>, staged: Option<&str>) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let value = printable::line(value, 1_000);
        writeln!(text, "{name:<10} {value}").expect("writing to a string cannot fail");
    };
    line("session", session.id.as_str());
    line("project", session.project.as_str());
    line("title", &session.title);
    line("directory", &session.directory);
    line("agent", &session.agent);
    line("model", &model(session));
    line("state", &shown_state(session, waiting));
    line("created", &local_time(session.time.created));
    line("updated", &local_time(session.time.updated.unwrap_or(session.time.created)));
    if let Some(archived) = session.time.archived {
        line("archived", &local_time(archived));
    }
    line("events", &session.seq.to_string());
    let tokens = session.tokens;
    let (input, output) = (tokens.whole_input(), tokens.whole_output());
    line("tokens", &format!("{input} in, {output} out"));
    line("cost", &format!("{:.4} USD", session.cost));
    if let Some(parent) = &session.parent {
        line("parent", parent.as_str());
    }
    if let Some(staged) = staged {
        line("revert", staged);
    }
    for notice in session.notices.iter().flat_map(|notice| notice.message.lines()) {
        line("notice", notice);
    }
    text
}

/// Reads which sessions wait for somebody's answer. Without one at work there is none.
pub(crate) async fn read_waiting(
    client: &Client,
    sessions: &[SessionView],
) -> Result<BTreeSet<String>, CliError> {
    if sessions.iter().any(|session| session.busy) {
        ask_cmd::read_waiting_sessions(client).await
    } else {
        Ok(BTreeSet::new())
    }
}

/// Like [`state`], but a session that waits for an answer does not look as if it worked.
fn shown_state(session: &SessionView, waiting: &BTreeSet<String>) -> String {
    let is_waiting = session.busy && waiting.contains(session.id.as_str());
    if is_waiting { "waiting".to_owned() } else { state(session) }
}

pub(crate) fn state(session: &SessionView) -> String {
    let outcome = session.outcome.clone();
    if session.busy { "busy".to_owned() } else { outcome.unwrap_or_else(|| "new".to_owned()) }
}

fn model(session: &SessionView) -> String {
    let model = session.model.as_ref();
    let told = model.map(|model| {
        let variant = model.variant.as_ref().map_or(String::new(), |name| format!(" ({name})"));
        format!("{}/{}{variant}", model.provider, model.id)
    });
    told.unwrap_or_else(|| "-".to_owned())
}

fn event_line(event: &LogEvent, width: Option<usize>) -> String {
    let told = match &event.event {
        Some(known) => summary(known),
        None => "(newer than this build)".to_owned(),
    };
    let time = local_time(event.time);
    let kind = printable::line(&event.kind, 40);
    shortened(&format!("{:>5}  {time}  {kind:<19}  {told}", event.seq.0), width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(busy: bool) -> SessionView {
        let answer = json!({
            "id": "ses_1", "projectID": "prj_1", "directory": "/work", "title": "a\u{1b}[2Jb",
            "agent": "build", "model": {"id": "m", "providerID": "p", "variant": "high"}, "busy": busy, "seq": 12,
            "outcome": "completed", "time": {"created": 0, "updated": 1}, "newer": {},
            "tokens": {"input": 3, "output": 4, "reasoning": 5, "cache": {"read": 60, "write": 700}}, "cost": 0.5,
            "parentID": "ses_0",
            "notices": [{"providerID": "p", "modelID": "m", "message": "m is old", "time": 1}],
        });
        parsed(&answer, "the session").expect("a session")
    }

    #[test]
    fn a_list_has_a_line_for_each_session_and_tells_what_to_do_without_one() {
        let none = BTreeSet::new();
        let text = list_at(&[session(true), session(false)], &none, None, None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].starts_with("ses_1 ") && lines[1].contains("  busy "), "{text}");
        assert!(lines[2].contains("  completed  a [2Jb  /work "), "{text}");
        assert!(list_at(&[], &none, None, None).contains("opencode-cloud run"));
        let told = list_at(&[session(false)], &none, Some(120_001), Some(80));
        assert!(told.contains("  2 min ago  "), "{told}");
        // Finding: readme 15. A session that waits for a person was said to be busy.
        let asking = BTreeSet::from(["ses_1".to_owned()]);
        let text = list_at(&[session(true)], &asking, None, None);
        assert!(text.contains("  waiting  ") && !text.contains("busy"), "{text}");
    }

    // Finding trial-3 polish: at 50 columns there were ids and times, and neither STATE nor TITLE.
    #[test]
    fn a_narrow_list_keeps_state_and_title() {
        let ids = ["ses_0f52aaaaaaaaABCDEFGHIJKLMN", "ses_0f52aaaaaaabABCDEFGHIJKLMN"];
        let sessions = ids.map(|id| {
            let mut one = session(false);
            one.id = id.parse().expect("an id");
            one.title = "Find the parser".into();
            one
        });
        for width in [50, 60, 80, 99] {
            let text = list_at(&sessions, &BTreeSet::new(), Some(120_001), Some(width));
            let lines: Vec<&str> = text.lines().collect();
            assert!(lines[0].contains("STATE") && lines[0].contains("TITLE"), "{width}: {text}");
            assert!(
                lines[1].contains("completed") && lines[1].contains("Find the p"),
                "{width}: {text}"
            );
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {text}");
            let shown: Vec<&str> =
                lines[1..].iter().filter_map(|line| line.split(' ').next()).collect();
            assert!(
                shown[0] != shown[1]
                    && ids.iter().zip(shown).all(|(id, shown)| id.starts_with(shown))
            );
        }
        assert!(
            list_at(&sessions, &BTreeSet::new(), None, Some(200)).contains(ids[0]),
            "room for all of it"
        );
        assert!(
            list_at(&sessions, &BTreeSet::new(), None, None).contains(ids[0]),
            "a pipe gets it whole"
        );
    }

    #[test]
    fn a_session_is_shown_with_what_it_used() {
        let text = show(&session(false), &BTreeSet::new(), None);
        assert!(text.contains("model      p/m (high)\n"), "{text}");
        assert!(text.ends_with("notice     m is old\n"), "{text}");
        assert!(text.contains("tokens     763 in, 9 out\n"), "{text}");
        assert!(text.contains("cost       0.5000 USD\nparent     ses_0\n"), "{text}");
    }

    // Finding trial 10: no command showed a message's id, or that a Revert was staged.
    #[test]
    fn a_conversation_has_the_ids_that_other_commands_take() {
        let answer = json!([
            { "info": { "id": "msg_1", "role": "user" },
              "parts": [{ "type": "text", "text": "hi\u{1b}[2J" }] },
            { "info": { "id": "msg_2", "role": "assistant", "error": { "data": { "message": "no" } } },
              "parts": [{ "type": "step-start" }, { "type": "tool", "tool": "read",
                "state": { "status": "completed", "title": "a.txt" } }] },
        ]);
        assert_eq!(
            conversation(&answer, Style::Plain, None),
            "--- user msg_1\nhi[2J\n\n--- assistant msg_2\n[completed] read a.txt\nerror: no\n\n"
        );
        assert_eq!(conversation(&json!([]), Style::Plain, None), "no messages yet\n");
        let told = staged(&json!({ "revert": { "messageID": "msg_1" } })).expect("staged");
        assert!(
            show(&session(false), &BTreeSet::new(), Some(&told))
                .contains("revert     staged, before msg_1; ")
        );
        assert_eq!(staged(&json!({ "revert": null })), None);
    }
}
