//! `opencode-cloud ask list|reply`: calls that wait for a person.

use std::collections::BTreeSet;

use clap::Subcommand;
use client::{Client, ClientOptions, parsed};
use domain::{AskId, Clock, SystemClock};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;
use crate::table::{ago, fitted, local_time};

/// Arguments of `ask`.
#[derive(Debug, clap::Args)]
pub struct AskArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: AskCommand,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// The subcommands of `ask`.
#[derive(Debug, Subcommand)]
pub enum AskCommand {
    /// The calls that wait for an answer, the oldest first
    List,
    /// Answer one: let the call run, or refuse it
    Reply {
        /// Its id
        #[arg(value_name = "ASK")]
        ask: AskId,
        /// `once`, `always` (also later calls like it, in this project) or `reject`
        #[arg(value_name = "REPLY", value_enum)]
        reply: ReplyWord,
        /// With `reject`: words for the model, which goes on with them
        #[arg(long, short = 'm', value_name = "TEXT")]
        message: Option<String>,
    },
    /// Answer questions: one answer for each
    Answer {
        /// Its id
        #[arg(value_name = "ASK")]
        ask: AskId,
        /// The answer to each question, in order
        #[arg(value_name = "ANSWER", required = true)]
        answers: Vec<String>,
    },
}

/// A reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ReplyWord {
    Once,
    Always,
    Reject,
}

#[derive(Debug, Deserialize)]
struct AskRow {
    id: String,
    #[serde(rename = "sessionID")]
    session: String,
    action: Option<String>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    questions: Vec<QuestionRow>,
    time: AskTimes,
}

#[derive(Debug, Deserialize)]
struct QuestionRow {
    question: String,
}

#[derive(Debug, Deserialize)]
struct AskTimes {
    asked: i64,
}

/// Runs `ask …` and returns its exit code.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: AskArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    let (ask, body) = match args.command {
        AskCommand::List => return list(&client, args.json, screen).await,
        AskCommand::Reply { ask, reply, message } => {
            let reply = match reply {
                ReplyWord::Once => "once",
                ReplyWord::Always => "always",
                ReplyWord::Reject => "reject",
            };
            (ask, json!({ "reply": reply, "message": message }))
        }
        AskCommand::Answer { ask, answers } => {
            let answers: Vec<[String; 1]> = answers.into_iter().map(|answer| [answer]).collect();
            (ask, json!({ "answers": answers }))
        }
    };
    send(&client, &ask, &body).await?;
    if !args.json {
        screen.err.say("answered")?;
    }
    Ok(0)
}

/// Sends the answer to an ask.
pub(crate) async fn send(client: &Client, ask: &AskId, body: &Value) -> Result<(), CliError> {
    let path = format!("/platform/ask/{ask}");
    client.call_json(Method::POST, &path, Some(body), &format!("ask {ask}")).await?;
    Ok(())
}

/// Reads which sessions wait for somebody's answer.
pub(crate) async fn read_waiting_sessions(client: &Client) -> Result<BTreeSet<String>, CliError> {
    let answer = client.get_json("/platform/ask", "the list of asks").await?;
    let asks: Vec<AskRow> = parsed(&answer, "the list of asks")?;
    Ok(asks.into_iter().map(|ask| ask.session).collect())
}

async fn list(client: &Client, is_json: bool, screen: &mut Screen) -> Result<u8, CliError> {
    let answer = client.get_json("/platform/ask", "the list of asks").await?;
    if is_json {
        screen.out.line(&answer.to_string())?;
        return Ok(0);
    }
    let asks: Vec<AskRow> = parsed(&answer, "the list of asks")?;
    if asks.is_empty() {
        screen.out.say("nothing waits for an answer")?;
        return Ok(0);
    }
    let now = screen.out.is_terminal().then(|| SystemClock::new().now_ms());
    let mut rows = vec![["ASK", "ASKED", "ABOUT", "SESSION"].map(str::to_owned)];
    rows.extend(asks.iter().map(|ask| {
        let about = match &ask.action {
            Some(action) => format!("{action} {}", ask.resources.join(", ")),
            None => {
                let texts = ask.questions.iter().map(|asked| asked.question.as_str());
                texts.collect::<Vec<_>>().join(" ")
            }
        };
        let asked = ask.time.asked;
        [
            printable::line(&ask.id, 80),
            now.map_or_else(|| local_time(asked), |now| ago(asked, now)),
            printable::line(&about, 300),
            printable::line(&ask.session, 80),
        ]
    }));
    let text = fitted(&rows, screen.out.width());
    screen.out.print_paged(&text)?;
    Ok(0)
}
