//! `opencode-cloud session rename|compact|inbox|…`: one call each, reported in one line or as JSON.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use client::{Client, SessionView, TokensView, parsed};
use domain::{MessageId, SessionId};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;
use crate::run_ask::is_yes;
use crate::session_cmd::{list, read_waiting};
use crate::session_name::{find_session, find_sessions};
use crate::table::{count, fitted, local_time};

/// How an input joins running work.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Delivery {
    /// At the next boundary
    Steer,
    /// After the work, one at a time
    Queue,
}

impl Delivery {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Steer => "steer",
            Self::Queue => "queue",
        }
    }
}

/// The subcommands that change a session, or show more of it.
#[derive(Debug, Subcommand)]
pub enum SessionChange {
    /// Delete sessions with their logs, for good; their files stay
    Delete {
        /// The sessions, or the beginnings of their ids
        #[arg(value_name = "ID", required = true)]
        ids: Vec<SessionId>,
        /// Do not ask first
        #[arg(long, short)]
        yes: bool,
    },
    /// Give a session a title
    Rename {
        /// The session, or the beginning of its id
        #[arg(value_name = "ID")]
        id: SessionId,
        /// Its title from now on
        title: String,
    },
    /// Leave sessions out of lists; they go on working
    Archive {
        /// The sessions, or the beginnings of their ids
        #[arg(value_name = "ID", required = true)]
        ids: Vec<SessionId>,
    },
    /// List archived sessions again
    Unarchive {
        /// The sessions, or the beginnings of their ids
        #[arg(value_name = "ID", required = true)]
        ids: Vec<SessionId>,
    },
    /// Replace the older part of a session's conversation with a summary, at its turn in the inbox
    Compact {
        /// The session, or the beginning of its id [default: the last one of this directory]
        #[arg(value_name = "ID")]
        id: Option<SessionId>,
        /// When it joins running work
        #[arg(long, value_enum, default_value_t = Delivery::Steer)]
        delivery: Delivery,
    },
    /// Show the inputs that wait in a session's inbox
    Inbox {
        /// The session, or the beginning of its id [default: the last one of this directory]
        #[arg(value_name = "ID")]
        id: Option<SessionId>,
    },
    /// Take an input out of a session's inbox
    Cancel {
        /// The session, or the beginning of its id
        #[arg(value_name = "ID")]
        id: SessionId,
        /// The input, as `session inbox` names it
        #[arg(value_name = "INPUT")]
        input: MessageId,
    },
    /// Change how an input in a session's inbox joins running work
    Deliver {
        /// The session, or the beginning of its id
        #[arg(value_name = "ID")]
        id: SessionId,
        /// The input, as `session inbox` names it
        #[arg(value_name = "INPUT")]
        input: MessageId,
        /// How it joins from now on; to steer wakes the session
        #[arg(value_enum)]
        delivery: Delivery,
    },
    /// Continue a session: start its waiting inputs, or answer a prompt that has no answer
    Resume {
        /// The session, or the beginning of its id [default: the last one of this directory]
        #[arg(value_name = "ID")]
        id: Option<SessionId>,
    },
    /// Wait until a session has nothing to do; exits with 1 when the time is up first
    Wait {
        /// The session, or the beginning of its id [default: the last one of this directory]
        #[arg(value_name = "ID")]
        id: Option<SessionId>,
        /// Seconds to wait at most
        #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=600))]
        seconds: u64,
    },
    /// List a session's children
    Children {
        /// The session, or the beginning of its id [default: the last one of this directory]
        #[arg(value_name = "ID")]
        id: Option<SessionId>,
    },
    /// Show the tokens and the cost of a session and of all sessions below it
    Usage {
        /// The session, or the beginning of its id [default: the last one of this directory]
        #[arg(value_name = "ID")]
        id: Option<SessionId>,
    },
    /// Show a session's context entries, or set one: a JSON value for the model to know
    Context {
        /// The session, or the beginning of its id [default: the last one of this directory]
        #[arg(value_name = "ID")]
        id: Option<SessionId>,
        /// The entry's key
        #[arg(value_name = "KEY", requires = "change")]
        entry: Option<String>,
        /// Its value from now on, as JSON
        #[arg(value_name = "JSON", group = "change")]
        value: Option<String>,
        /// Remove it
        #[arg(long, group = "change", requires = "entry")]
        remove: bool,
    },
}

#[derive(Debug, Deserialize)]
struct InboxView {
    id: String,
    kind: String,
    delivery: String,
    time: InboxTime,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    texts: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct InboxTime {
    created: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UsedView {
    tokens: TokensView,
    cost: f64,
    /// Older services omit it.
    #[serde(default)]
    estimate: f64,
    #[serde(default)]
    price_versions: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct UsageView {
    session: UsedView,
    tree: UsedView,
    sessions: i64,
}

/// Runs the subcommand, prints its result, and returns the exit code.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(
    client: &Client,
    change: SessionChange,
    as_json: bool,
    screen: &mut Screen,
) -> Result<u8, CliError> {
    let usual = client.pace().answer;
    let call = async |id: &SessionId, method: Method, below: &str, body: Option<Value>| {
        client.of_session(id, method, below, body.as_ref(), usual).await
    };
    let mut code = 0;
    let (answer, told) = match change {
        SessionChange::Delete { ids, yes } => {
            let ids = find_sessions(client, &ids).await?;
            if !yes && !as_json && !confirm_deletion(client, &ids, screen).await? {
                screen.err.say("nothing was deleted")?;
                return Ok(1);
            }
            let mut told = String::new();
            for id in &ids {
                client.delete_session(id).await?;
                writeln!(told, "{id} is deleted").expect("writing to a string cannot fail");
            }
            (json!(ids), told)
        }
        SessionChange::Rename { id, title } => {
            let id = find_session(client, Some(&id)).await?;
            let body = Some(json!({ "title": title }));
            let answer = call(&id, Method::PATCH, "", body).await?;
            let view: SessionView = parsed(&answer, "the session")?;
            let told = format!("the title is now `{}`\n", printable::line(&view.title, 200));
            (answer, told)
        }
        SessionChange::Archive { ids } => {
            archive(client, &ids, true).await?;
            (json!(ids), "archived; `session list --archived` shows it\n".to_owned())
        }
        SessionChange::Unarchive { ids } => {
            archive(client, &ids, false).await?;
            (json!(ids), "listed again\n".to_owned())
        }
        SessionChange::Compact { id, delivery } => {
            let id = find_session(client, id.as_ref()).await?;
            let body = Some(json!({ "delivery": delivery.as_str() }));
            let answer = call(&id, Method::POST, "/compact", body).await?;
            let is_first = answer["first"] == true;
            let told = if is_first { "it waits in the inbox" } else { "one waits already" };
            (answer, format!("{told}; `opencode-cloud session log` shows how it ends\n"))
        }
        SessionChange::Inbox { id } => {
            let id = find_session(client, id.as_ref()).await?;
            let answer = call(&id, Method::GET, "/inbox", None).await?;
            let told = inbox(&parsed::<Vec<InboxView>>(&answer, "the inbox")?, screen.out.width());
            (answer, told)
        }
        SessionChange::Cancel { id, input } => {
            let id = find_session(client, Some(&id)).await?;
            let answer = call(&id, Method::DELETE, &format!("/inbox/{input}"), None).await?;
            (answer, "it no longer waits\n".to_owned())
        }
        SessionChange::Deliver { id, input, delivery } => {
            let id = find_session(client, Some(&id)).await?;
            let body = Some(json!({ "delivery": delivery.as_str() }));
            let answer = call(&id, Method::PATCH, &format!("/inbox/{input}"), body).await?;
            (answer, format!("its delivery is now `{}`\n", delivery.as_str()))
        }
        SessionChange::Resume { id } => {
            let id = find_session(client, id.as_ref()).await?;
            let answer = call(&id, Method::POST, "/resume", None).await?;
            let woken = answer["resumed"] == true;
            let told = if woken { "it continues\n" } else { "it is running already\n" };
            (answer, told.to_owned())
        }
        SessionChange::Wait { id, seconds } => {
            let id = find_session(client, id.as_ref()).await?;
            let body = json!({ "seconds": seconds });
            let limit = Duration::from_secs(seconds) + usual;
            let wait = client.of_session(&id, Method::POST, "/wait", Some(&body), limit);
            let answer = wait.await?;
            let busy = answer["busy"] == true;
            code = u8::from(busy);
            let told = match answer["outcome"].as_str() {
                _ if busy => "it is still busy\n".to_owned(),
                Some(outcome) => format!("{}\n", printable::line(outcome, 40)),
                None => "it has done nothing yet\n".to_owned(),
            };
            (answer, told)
        }
        SessionChange::Children { id } => {
            let id = find_session(client, id.as_ref()).await?;
            let answer = call(&id, Method::GET, "/children", None).await?;
            let children: Vec<SessionView> = parsed(&answer, "the list of children")?;
            let none = || "it has no children\n".to_owned();
            let waiting = read_waiting(client, &children).await?;
            let told =
                if children.is_empty() { none() } else { list(&children, &waiting, &screen.out) };
            (answer, told)
        }
        SessionChange::Usage { id } => {
            let id = find_session(client, id.as_ref()).await?;
            let answer = call(&id, Method::GET, "/usage", None).await?;
            let told = usage(&parsed(&answer, "the usage")?);
            (answer, told)
        }
        SessionChange::Context { id, entry: Some(key), remove: true, .. } => {
            let id = find_session(client, id.as_ref()).await?;
            let answer = call(&id, Method::DELETE, &entry_path(&key)?, None).await?;
            (
                answer,
                "removed; the model learns at its next step that it no longer applies\n".to_owned(),
            )
        }
        SessionChange::Context { id, entry: Some(key), value: Some(value), .. } => {
            let value: Value = serde_json::from_str(&value)
                .map_err(|error| CliError::Usage(format!("the value is not JSON: {error}")))?;
            let id = find_session(client, id.as_ref()).await?;
            let answer = call(&id, Method::PUT, &entry_path(&key)?, Some(value)).await?;
            (answer, "set; the model sees it at its next step\n".to_owned())
        }
        SessionChange::Context { id, .. } => {
            let id = find_session(client, id.as_ref()).await?;
            let answer = call(&id, Method::GET, "/context", None).await?;
            let told = entries(&answer);
            (answer, told)
        }
    };
    if as_json {
        screen.out.line(&answer.to_string())?;
    } else {
        screen.out.prose(&told)?;
    }
    Ok(code)
}

/// Asks the person at the terminal about sessions that go for good. Elsewhere the command itself is the decision.
async fn confirm_deletion(
    client: &Client,
    ids: &[SessionId],
    screen: &mut Screen,
) -> Result<bool, CliError> {
    if !(screen.err.is_terminal() && io::stdin().is_terminal()) {
        return Ok(true);
    }
    for id in ids {
        let session = client.session(id).await?;
        screen.err.say(&printable::line(&format!("{id}  {}", session.title), 200))?;
    }
    let what = count(ids.len() as u64, "session");
    screen.err.print(&format!("delete {what} with the whole conversation, for good? [y/N] "))?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(is_yes(&answer))
}

async fn archive(client: &Client, ids: &[SessionId], archived: bool) -> Result<(), CliError> {
    let body = json!({ "archived": archived });
    for id in &find_sessions(client, ids).await? {
        client.of_session(id, Method::PATCH, "", Some(&body), client.pace().answer).await?;
    }
    Ok(())
}

/// Returns the path of an entry. Its key must not change the path.
fn entry_path(key: &str) -> Result<String, CliError> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if key.is_empty() || !key.chars().all(good) {
        return Err(CliError::Usage("a key is letters, digits, `.`, `_` or `-`".to_owned()));
    }
    Ok(format!("/context/{key}"))
}

fn inbox(items: &[InboxView], width: Option<usize>) -> String {
    if items.is_empty() {
        return "nothing waits\n".to_owned();
    }
    let mut rows = vec![["INPUT", "KIND", "DELIVERY", "SINCE", "TEXT"].map(str::to_owned)];
    rows.extend(items.iter().map(|item| {
        let text = item.description.clone().unwrap_or_else(|| item.texts.join(" "));
        [
            printable::line(&item.id, 80),
            printable::line(&item.kind, 20),
            printable::line(&item.delivery, 20),
            local_time(item.time.created),
            printable::line(&text, 60),
        ]
    }));
    fitted(&rows, width)
}

fn usage(used: &UsageView) -> String {
    let mut text = String::new();
    let mut line = |name: &str, used: &UsedView| {
        let UsedView { tokens, cost, estimate, price_versions } = used;
        let expected = if price_versions.is_empty() {
            String::new()
        } else {
            let versions = printable::line(&price_versions.join(", "), 200);
            format!("; at most {estimate:.4} USD expected, by {versions}")
        };
        let (input, output) = (tokens.whole_input(), tokens.whole_output());
        writeln!(text, "{name:<10} {input} in, {output} out, {cost:.4} USD{expected}")
            .expect("writing to a string cannot fail");
    };
    line("session", &used.session);
    line(&format!("tree of {}", used.sessions), &used.tree);
    text
}

fn entries(answer: &Value) -> String {
    let Some(entries) = answer.as_object().filter(|entries| !entries.is_empty()) else {
        return "no entries\n".to_owned();
    };
    let line = |(key, value): (&String, &Value)| {
        format!("{}  {}\n", printable::line(key, 64), printable::line(&value.to_string(), 200))
    };
    entries.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_a_line_each_whose_text_cannot_steer_a_terminal() {
        let answer = json!([
            { "id": "msg_a", "kind": "prompt", "delivery": "queue", "seq": 2, "time": { "created": 0 },
              "texts": ["a\u{1b}[2Jb", "c"] },
            { "id": "msg_b", "kind": "compaction", "delivery": "steer", "seq": 3, "time": { "created": 1 } },
        ]);
        let text = inbox(&parsed::<Vec<InboxView>>(&answer, "the inbox").expect("an inbox"), None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].starts_with("msg_a ") && lines[1].ends_with("a [2Jb c"), "{text}");
        assert!(lines[2].contains("compaction"), "{text}");
        assert_eq!(inbox(&[], None), "nothing waits\n");
    }

    #[test]
    fn usage_is_told_for_the_session_and_its_tree() {
        let answer = json!({
            "session": { "tokens": { "input": 1, "output": 2 }, "cost": 0 },
            "tree": { "tokens": { "input": 1, "output": 3, "reasoning": 1, "cache": { "read": 2 } }, "cost": 0.25, "estimate": 0.5,
                      "priceVersions": ["a", "b"] }, "sessions": 2,
        });
        let text = usage(&parsed(&answer, "the usage").expect("usage"));
        assert_eq!(
            text,
            "session    1 in, 2 out, 0.0000 USD\n\
             tree of 2  3 in, 4 out, 0.2500 USD; at most 0.5000 USD expected, by a, b\n"
        );
    }

    #[test]
    fn a_key_cannot_leave_its_path() {
        assert_eq!(entry_path("plan.v1").expect("a key"), "/context/plan.v1");
        for bad in ["", "../../x", "a b", "a?b"] {
            assert!(entry_path(bad).is_err(), "{bad:?}");
        }
    }
}
