//! `opencode-cloud llm`: one call of a model in neutral JSON, without a service.
//!
//! ```text
//! request on standard input ─encode→ body ─▶ provider ─▶ events, one JSON object a line
//! ```
//! `docs/llm.md` describes the JSON for people, and `llm schema` for machines.

mod choice;

use std::io::Read;

use futures::StreamExt;
use llm_client::{Client, LlmError, Options};
use llm_protocol::{LlmRequest, schema};
use serde::Serialize;
use serde_json::json;

use crate::CliError;
use crate::output::Screen;
use choice::{Choice, RouteArgs};

/// The most bytes of a request. Providers accept far less.
const MAX_REQUEST_BYTES: u64 = 64 * 1024 * 1024;

/// Arguments of `llm`.
#[derive(Debug, clap::Args)]
pub struct LlmArgs {
    /// The subcommand.
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Print the JSON Schemas of a request and of an event
    Schema,
    /// Send the request on standard input and print the events of the answer, one JSON object a line
    Stream(Box<RouteArgs>),
    /// Print the body that `stream` would send
    Encode(Box<RouteArgs>),
}

/// Runs the subcommand and returns its exit code: 1 if the last line is an error. `env` reads the environment.
///
/// # Errors
/// [`CliError::Usage`] when flags or the request are wrong; [`CliError::Io`] when reading or printing fails.
pub(crate) async fn execute(
    args: LlmArgs,
    env: &dyn Fn(&str) -> Option<String>,
    input: impl Read,
    screen: &mut Screen,
) -> Result<u8, CliError> {
    match args.what {
        What::Schema => {
            let schemas = json!({"request": schema::request(), "event": schema::event()});
            let text = serde_json::to_string_pretty(&schemas).expect("values are always written");
            screen.out.line(&text)?;
            Ok(0)
        }
        What::Encode(args) => {
            let choice = args.choose(read(input)?, screen)?;
            screen.out.write(&choice.encode())?;
            screen.out.line("")?;
            Ok(0)
        }
        What::Stream(args) => {
            let choice = args.choose(read(input)?, screen)?;
            stream(&args, choice, env, screen).await
        }
    }
}

fn read(input: impl Read) -> Result<LlmRequest, CliError> {
    let mut text = String::new();
    let read = input.take(MAX_REQUEST_BYTES + 1).read_to_string(&mut text);
    read.map_err(|source| CliError::Io { doing: "cannot read standard input", source })?;
    if text.len() as u64 > MAX_REQUEST_BYTES {
        let most = MAX_REQUEST_BYTES >> 20;
        return Err(CliError::Usage(format!("the request on standard input exceeds {most} MiB")));
    }
    parse(&text).map_err(|why| {
        CliError::Usage(format!(
            "standard input is no request: {why}; `opencode-cloud llm schema` says what is"
        ))
    })
}

/// Parses a request. An error says where it is wrong: `messages[0].content[1]: unknown part type …`.
fn parse(text: &str) -> Result<LlmRequest, String> {
    let mut json = serde_json::Deserializer::from_str(text);
    let request = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." { String::new() } else { format!("{path}: ") };
        format!("{place}{}", error.into_inner())
    })?;
    json.end().map_err(|error| error.to_string())?;
    Ok(request)
}

async fn stream(
    args: &RouteArgs,
    choice: Choice,
    env: &dyn Fn(&str) -> Option<String>,
    screen: &mut Screen,
) -> Result<u8, CliError> {
    let route = args.route(&choice, env)?;
    let client = Client::new(Options::default()).map_err(|error| CliError::Io {
        doing: "cannot call providers",
        source: std::io::Error::other(error),
    })?;
    let mut events = match client.on(route).stream(&choice.request).await {
        Ok(events) => events,
        Err(error) => return failed(&error, screen),
    };
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => line(&event, screen)?,
            Err(error) => return failed(&error, screen),
        }
        if screen.out.is_closed() {
            break;
        }
    }
    Ok(0)
}

fn failed(error: &LlmError, screen: &mut Screen) -> Result<u8, CliError> {
    line(&error.event(), screen)?;
    Ok(1)
}

fn line(event: &impl Serialize, screen: &mut Screen) -> Result<(), CliError> {
    let text = serde_json::to_string(event).expect("events are always written");
    Ok(screen.out.line(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_in_a_request_is_said_with_its_place() {
        let user = |part: &str| {
            format!(
                r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"a"}},{part}]}}]}}"#
            )
        };
        let assistant =
            |part: &str| format!(r#"{{"messages":[{{"role":"assistant","content":[{part}]}}]}}"#);
        let cases = [
            (user(r#"{"type":"sound"}"#), "messages[0].content[1]: unknown part type `sound`"),
            (user(r#"{"type":"text"}"#), "messages[0].content[1]: a `text` part needs `text`"),
            (
                user(r#"{"type":"text","text":7}"#),
                "messages[0].content[1].text: invalid type: integer `7`",
            ),
            (
                user(r#"{"type":"tool-call","id":"c","name":"t","input":{}}"#),
                "messages[0]: a message of role `user` cannot carry a `tool-call` part",
            ),
            (
                assistant(r#"{"type":"tool-call","id":"c","input":{}}"#),
                "messages[0].content[0]: a `tool-call` part needs `name`",
            ),
            (
                r#"{"messages":[{"role":"owner","content":[]}]}"#.to_owned(),
                "messages[0].role: unknown variant `owner`",
            ),
            (r#"{"model":"m"}"#.to_owned(), "missing field `messages`"),
            (
                r#"{"messages":[],"generation":{"maxTokens":"many"}}"#.to_owned(),
                r#"generation.maxTokens: invalid type: string "many""#,
            ),
            (
                r#"{"messages":[],"toolChoice":{"tool":1}}"#.to_owned(),
                "toolChoice.tool: invalid type: integer `1`",
            ),
            (
                r#"{"messages":[],"tools":[{"name":"t"}]}"#.to_owned(),
                "tools[0]: missing field `inputSchema`",
            ),
            (r#"{"messages":[]} {}"#.to_owned(), "trailing characters"),
            ("hello".to_owned(), "expected value"),
            (String::new(), "EOF while parsing"),
        ];
        for (text, expected) in cases {
            let error = parse(&text).expect_err(&text);
            assert!(error.starts_with(expected), "{error} instead of {expected}");
            assert!(!error.contains('\n'), "{error}");
        }
        let raw = r#"{"name":"t","inputSchema":{"b": 1.0}}"#;
        let read = parse(&format!(r#"{{"messages":[],"tools":[{raw}]}}"#)).expect("a request");
        assert_eq!(read.tools[0].input_schema.get(), r#"{"b": 1.0}"#);
    }
}
