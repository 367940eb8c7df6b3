use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AskId, Author, CallId, TimestampMs, TurnId};

/// The question of an ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Ask {
    /// Whether a call may do something.
    Permission {
        /// The permission, as rules name it: a tool's name, or `external_directory` or `doom_loop`.
        action: String,
        /// The things that it is about, as rules' patterns are compared with them: paths, commands.
        resources: Vec<String>,
        /// The patterns that *always* saves; empty if it cannot be saved.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        save: Vec<String>,
    },
    /// Questions of the model, whose answers are the call's result.
    Question {
        /// At least one.
        questions: Vec<Question>,
    },
}

/// A question of the model to a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// The whole question.
    pub question: String,
    /// A short name for it.
    pub header: String,
    /// The answers to choose from. A person may answer with other words.
    #[serde(default)]
    pub options: Vec<QuestionOption>,
    /// Whether several options may be chosen.
    #[serde(default, skip_serializing_if = "crate::event::is_false")]
    pub multiple: bool,
}

/// An answer to choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionOption {
    /// The answer.
    pub label: String,
    /// Its meaning.
    #[serde(default)]
    pub description: String,
}

/// Payload of `tool.asked`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolAsked {
    /// The turn.
    pub turn: TurnId,
    /// The call, whose body waits for the answer.
    pub call: CallId,
    /// The id that an answer names.
    pub ask: AskId,
    /// The question.
    pub about: Ask,
    /// The time after which nobody is waited for. The first commit decides, not the clock.
    pub expires: TimestampMs,
}

/// An answer to an ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Answer {
    /// The call may do it.
    Once,
    /// The call may do it, and so may later ones of the project whose patterns these cover.
    Always {
        /// The saved patterns.
        patterns: Vec<String>,
    },
    /// It may, since somebody has answered another ask with *always* meanwhile.
    Granted,
    /// It may not.
    Reject {
        /// Words for the model, which goes on with them. Without any the drain ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// The chosen labels or other words, for each question.
    Answers {
        /// As many as there are questions.
        answers: Vec<Vec<String>>,
    },
    /// Nobody wants to answer the questions.
    Dismissed,
    /// Nobody has answered in time.
    Expired,
}

impl Answer {
    /// Returns whether it lets the call's body run.
    #[must_use]
    pub fn is_leave(&self) -> bool {
        match self {
            Self::Once | Self::Always { .. } | Self::Granted => true,
            Self::Reject { .. } | Self::Answers { .. } | Self::Dismissed | Self::Expired => false,
        }
    }
}

/// Payload of `tool.answered`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolAnswered {
    /// The call.
    pub call: CallId,
    /// The ask.
    pub ask: AskId,
    /// The answer.
    pub answer: Answer,
    /// Who gave it; `None` if nobody did: it has expired, or another answer covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Author>,
}
