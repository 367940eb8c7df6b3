//! Asks: calls that wait for somebody's answer.

use domain::{Ask, AskId, MessageId, Question, SessionId, TimestampMs, ToolAsked};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use store::AskRow;

use super::stock_tool::stock_name;

/// An ask, as the service's own routes show it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct AskView {
    id: String,
    #[serde(rename = "sessionID")]
    session: String,
    #[serde(rename = "messageID")]
    message: String,
    #[serde(rename = "callID")]
    call: String,
    directory: String,
    #[serde(flatten)]
    about: AboutView,
    time: AskTimes,
}

/// The question of an ask.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
enum AboutView {
    /// Whether a call may do something.
    Permission {
        /// The permission's name, such as `shell` or `edit`.
        action: String,
        /// The things that it is about: commands, paths.
        resources: Vec<String>,
        /// The patterns that `always` saves for the project; empty if it cannot.
        save: Vec<String>,
    },
    /// Questions of the model.
    Question { questions: Vec<Question> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
struct AskTimes {
    asked: TimestampMs,
    expires: TimestampMs,
}

impl From<AskRow> for AskView {
    fn from(row: AskRow) -> Self {
        let ToolAsked { call, ask, about, expires, .. } = row.asked;
        Self {
            id: ask.to_string(),
            session: row.session.session.to_string(),
            message: row.message.to_string(),
            call: call.to_string(),
            directory: row.directory,
            about: match about {
                Ask::Permission { action, resources, save } => {
                    AboutView::Permission { action, resources, save }
                }
                Ask::Question { questions } => AboutView::Question { questions },
            },
            time: AskTimes { asked: row.asked_ms, expires },
        }
    }
}

/// Returns the request for a permission, or the questions, as stock clients know them. `message` has the call.
pub(crate) fn stock_ask(session: &SessionId, message: &MessageId, asked: &ToolAsked) -> Value {
    let tool = json!({ "messageID": message, "callID": asked.call });
    match &asked.about {
        Ask::Permission { action, resources, save } => json!({
            "id": asked.ask,
            "sessionID": session,
            "permission": stock_name(action),
            "patterns": resources,
            "metadata": {},
            "always": save,
            "tool": tool,
        }),
        Ask::Question { questions } => json!({
            "id": asked.ask, "sessionID": session, "questions": questions, "tool": tool,
        }),
    }
}

/// Returns the same in the newer shape of stock clients.
pub(crate) fn second_ask(session: &SessionId, message: &MessageId, asked: &ToolAsked) -> Value {
    match &asked.about {
        Ask::Permission { action, resources, save } => json!({
            "id": asked.ask,
            "sessionID": session,
            "action": stock_name(action),
            "resources": resources,
            "save": save,
            "metadata": {},
            "source": { "type": "tool", "messageID": message, "callID": asked.call },
        }),
        Ask::Question { .. } => stock_ask(session, message, asked),
    }
}

/// Returns whether an ask is a request for a permission.
pub(crate) fn is_permission(ask: &AskId) -> bool {
    matches!(ask, AskId::Permission(_))
}
