//! Scripts: a test's instructions for the model in place of its plain behaviour.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::answer::{Draft, DraftCall, prose, words};
use crate::phrase::MAX_WORDS;

/// The longest `delay_ms`: ten minutes.
pub const MAX_DELAY_MS: u64 = 600_000;
/// The longest `chunk_delay_ms`: one minute.
pub const MAX_CHUNK_DELAY_MS: u64 = 60_000;
/// The longest name of a gate, in bytes.
pub const MAX_GATE_NAME_BYTES: usize = 200;

/// The answer to the requests that it matches. It is followed to the letter: a scripted call is made even if its tool
/// is not offered. A script without content (`text`, `words`, `reasoning`, `tool_calls`) keeps the plain answer and
/// only changes how that is sent.
///
/// Its members take effect in this order: `gate`, `delay_ms`, then the first of `hang`, `cut_before_headers`,
/// `overflow` and `status` that is set, then the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Script {
    /// Matches if the last user message (or the prompt before a notice) contains this text. An empty text matches
    /// every request.
    #[serde(rename = "match")]
    pub matches: String,
    /// Matches only after this many tool rounds since that message.
    pub round: Option<u32>,
    /// How many requests may use it, at least 1. Without it every request may.
    pub times: Option<u32>,
    /// Waits this long before the headers, at most [`MAX_DELAY_MS`].
    pub delay_ms: u64,
    /// Waits this long between the events of a stream, at most [`MAX_CHUNK_DELAY_MS`].
    pub chunk_delay_ms: u64,
    /// The answer's text, streamed a word at a time.
    pub text: Option<String>,
    /// Instead of `text`: this many words `w0 w1 …`, at most 100,000.
    pub words: Option<u32>,
    /// Reasoning before the text, as `reasoning_content` in chat; signed in the other protocols.
    pub reasoning: Option<String>,
    /// Tool calls after the text.
    pub tool_calls: Vec<ScriptedCall>,
    /// Sends every call's arguments without their last character, so that they are not valid JSON.
    pub malformed_arguments: bool,
    /// The finish reason in place of `stop` or `tool_calls`.
    pub finish_reason: Option<String>,
    /// Drops the connection after this many events, and always before the finish. The first event only names the
    /// role. Without streaming it drops in the middle of the body. The events of another protocol for one event of
    /// chat count as one.
    pub cut_after_chunks: Option<u32>,
    /// Sends nothing after this many events, and never the finish, until the client disconnects.
    pub hang_after_chunks: Option<u32>,
    /// Drops the connection without an answer.
    pub cut_before_headers: bool,
    /// Never answers, until the client disconnects.
    pub hang: bool,
    /// Answers with this error status, 400 to 599.
    pub status: Option<u16>,
    /// Answers like the protocol's owner for a request larger than the model's context.
    pub overflow: bool,
    /// Answers like that if the prompt has more tokens than this, otherwise as the rest of the script says. A refused
    /// request also counts for `times`.
    pub input_limit: Option<u64>,
    /// With `status`: the header `retry-after`, in seconds.
    pub retry_after: Option<u64>,
    /// With `status`: the header `retry-after-ms`, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// With `status`: the body. A string is sent unchanged, anything else as JSON.
    pub body: Option<Value>,
    /// Reports this instead of the counted usage, even `null`, unchanged and in the protocol's place for usage. The
    /// log records no usage for the answer.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub usage: Option<Value>,
    /// Waits until the gate of this name is open.
    pub gate: Option<String>,
    /// Waits at the gate after this many events, instead of before the headers.
    pub gate_after_chunks: Option<u32>,
}

/// A tool call of a script.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// The name of the tool.
    pub name: String,
    /// The arguments. A string is sent unchanged, anything else as JSON.
    #[serde(default = "no_arguments")]
    pub arguments: Value,
    /// The call's id; without it, one made from the request's hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Deserialises a present value, even `null`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn no_arguments() -> Value {
    Value::Object(serde_json::Map::new())
}

/// The reason why scripts were rejected. Then none of them is in use.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ScriptError {
    /// The body is not a list of scripts.
    #[error("send a JSON array of scripts, or {{\"scripts\": […]}}: {0}")]
    NotAList(String),
    /// A script is wrong and must be corrected.
    #[error("script {index}: {problem}")]
    Invalid {
        /// Its index, from 0.
        index: usize,
        /// The mistake, and the correction.
        problem: String,
    },
    /// There are too many scripts or gates: delete old ones first.
    #[error("more than {limit} {what}: delete the old ones first")]
    TooMany {
        /// Scripts or gates.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ScriptList {
    Bare(Vec<Value>),
    Wrapped { scripts: Vec<Value> },
}

/// Reads the body of `PUT /sim/scripts`.
pub(crate) fn parse(body: &[u8]) -> Result<Vec<Script>, ScriptError> {
    let value: Value =
        serde_json::from_slice(body).map_err(|error| ScriptError::NotAList(error.to_string()))?;
    let list = serde_json::from_value(value)
        .map_err(|_| ScriptError::NotAList("this is neither".to_owned()))?;
    let (ScriptList::Bare(values) | ScriptList::Wrapped { scripts: values }) = list;
    let read = |(index, value)| {
        serde_json::from_value(value)
            .map_err(|error| ScriptError::Invalid { index, problem: error.to_string() })
    };
    values.into_iter().enumerate().map(read).collect()
}

impl Script {
    /// Returns the script's mistake, if it has one.
    pub(crate) fn check(&self) -> Result<(), String> {
        let within = |field: &str, value: u64, limit: u64| {
            if value <= limit {
                Ok(())
            } else {
                Err(format!("`{field}` is {value}: give at most {limit}"))
            }
        };
        within("delay_ms", self.delay_ms, MAX_DELAY_MS)?;
        within("chunk_delay_ms", self.chunk_delay_ms, MAX_CHUNK_DELAY_MS)?;
        within("words", self.words.unwrap_or(0).into(), MAX_WORDS.into())?;
        let wrong: &[(bool, &str)] = &[
            (self.times == Some(0), "`times` is 0: give at least 1, or leave it out"),
            (
                self.text.is_some() && self.words.is_some(),
                "`text` and `words` exclude each other: give one of them",
            ),
            (
                self.status.is_some_and(|status| !(400..=599).contains(&status)),
                "`status` is not an error status: give 400 to 599",
            ),
            (
                self.status.is_none()
                    && (self.retry_after.is_some()
                        || self.retry_after_ms.is_some()
                        || self.body.is_some()),
                "`retry_after`, `retry_after_ms` and `body` go with `status`: give one",
            ),
            (
                self.overflow && self.status.is_some(),
                "`overflow` and `status` exclude each other: give one of them",
            ),
            (
                self.cut_after_chunks.is_some() && self.hang_after_chunks.is_some(),
                "`cut_after_chunks` and `hang_after_chunks` exclude each other: give one of them",
            ),
            (
                self.gate_after_chunks.is_some() && self.gate.is_none(),
                "`gate_after_chunks` goes with `gate`: name the gate",
            ),
            (
                self.gate.as_ref().is_some_and(|name| !is_gate_name(name)),
                "`gate` is not a name: give 1 to 200 letters, digits, `-`, `_` or `.`",
            ),
            (
                self.finish_reason.as_ref().is_some_and(String::is_empty),
                "`finish_reason` is empty: give one, or leave it out",
            ),
            (
                self.tool_calls.iter().any(|call| call.name.is_empty()),
                "a tool call has an empty `name`: give the tool's name",
            ),
            (
                self.malformed_arguments && self.tool_calls.is_empty(),
                "`malformed_arguments` goes with `tool_calls`: give some",
            ),
        ];
        match wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, problem)) => Err((*problem).to_owned()),
            None => Ok(()),
        }
    }

    /// Returns whether it refuses a prompt of so many tokens as too large.
    pub(crate) fn overflows(&self, tokens: u64) -> bool {
        self.overflow || self.input_limit.is_some_and(|most| tokens > most)
    }

    /// Returns whether it answers the request with an error, or not at all.
    pub(crate) fn refuses(&self, tokens: u64) -> bool {
        self.overflows(tokens) || self.hang || self.cut_before_headers || self.status.is_some()
    }

    /// Returns its text and calls, or `plain` if it has no content.
    pub(crate) fn draft(&self, plain: impl FnOnce() -> Draft) -> Draft {
        let has_content = self.text.is_some()
            || self.words.is_some()
            || self.reasoning.is_some()
            || !self.tool_calls.is_empty();
        let draft = if has_content { self.content() } else { plain() };
        let finish_reason = self.finish_reason.clone().or(draft.finish_reason);
        Draft { finish_reason, ..draft }
    }

    fn content(&self) -> Draft {
        let text = self.text.as_deref().map(prose).or(self.words.map(words)).unwrap_or_default();
        let reasoning = self.reasoning.as_deref().map(prose).unwrap_or_default();
        let calls = self.tool_calls.iter().map(|call| self.call(call)).collect();
        Draft { reasoning, text, calls, finish_reason: None }
    }

    fn call(&self, call: &ScriptedCall) -> DraftCall {
        let mut arguments = as_text(&call.arguments);
        if self.malformed_arguments && arguments.pop().is_none() {
            arguments.push('{');
        }
        DraftCall { name: call.name.clone(), arguments, id: call.id.clone() }
    }
}

/// Returns a string unchanged, and anything else as JSON.
pub(crate) fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(crate) fn is_gate_name(name: &str) -> bool {
    (1..=MAX_GATE_NAME_BYTES).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_script_says_what_would_be_right() {
        let problem = |json: &str| match parse(json.as_bytes()) {
            Ok(scripts) => scripts[0].check().expect_err("it is wrong"),
            Err(error) => error.to_string(),
        };
        assert!(problem(r#"[{"mtach":"x"}]"#).starts_with("script 0: unknown field `mtach`"));
        assert!(problem(r#"[{"status":200}]"#).contains("400 to 599"));
        assert!(problem(r#"[{"times":0}]"#).contains("at least 1"));
        assert!(problem(r#"[{"text":"a","words":2}]"#).contains("one of them"));
        assert!(problem(r#"[{"delay_ms":600001}]"#).contains("at most 600000"));
        assert!(problem(r#"[{"retry_after":1}]"#).contains("`status`"));
        assert!(problem(r#"[{"gate":"a b"}]"#).contains("letters"));
        assert!(problem(r#"{"script":[]}"#).contains("JSON array"));
        assert!(problem("[").contains("JSON array"));
    }
}
