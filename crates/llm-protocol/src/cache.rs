//! The places in a request that carry prompt-cache marks: one policy for all protocols that use marks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::message::Role;
use crate::request::LlmRequest;

/// The parts of a request that the provider should cache. In JSON `"auto"`, `"none"` or an object of
/// [`CacheMarks`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "CacheJson", into = "CacheJson")]
pub enum CachePolicy {
    /// The last tool, the first and last piece of instructions, and the last message ([`CacheMarks::AUTO`]).
    Auto,
    /// No marks.
    #[default]
    None,
    /// Exactly these.
    Marks(CacheMarks),
}

impl CachePolicy {
    /// Returns whether nothing is marked.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// The marked places. A field that is absent marks nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CacheMarks {
    /// The last tool.
    pub tools: bool,
    /// The first and the last piece of instructions.
    pub system: bool,
    /// Messages.
    pub messages: MessageMarks,
    /// The time that the provider should keep the marked parts, in seconds. Providers may support only some times
    /// (300 and 3,600).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

impl CacheMarks {
    /// The marks of [`CachePolicy::Auto`]: a prefix that the conversation's next request shares.
    pub const AUTO: Self =
        Self { tools: true, system: true, messages: MessageMarks::Tail(1), ttl_seconds: None };
}

/// The marked messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MessageMarks {
    /// None.
    #[default]
    None,
    /// This many at the end; in JSON `{"tail": 1}`.
    Tail(u8),
    /// The newest user message.
    LatestUserMessage,
    /// The newest message of the model.
    LatestAssistant,
}

#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Word {
    Auto,
    None,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum CacheJson {
    Word(Word),
    Marks(CacheMarks),
}

impl From<CacheJson> for CachePolicy {
    fn from(json: CacheJson) -> Self {
        match json {
            CacheJson::Word(Word::Auto) => Self::Auto,
            CacheJson::Word(Word::None) => Self::None,
            CacheJson::Marks(marks) => Self::Marks(marks),
        }
    }
}

impl From<CachePolicy> for CacheJson {
    fn from(policy: CachePolicy) -> Self {
        match policy {
            CachePolicy::Auto => Self::Word(Word::Auto),
            CachePolicy::None => Self::Word(Word::None),
            CachePolicy::Marks(marks) => Self::Marks(marks),
        }
    }
}

/// A mark in Anthropic's form, which gateways to its models use too.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl CacheControl {
    /// Makes a mark that lasts `ttl_seconds`.
    pub(crate) fn of(ttl_seconds: Option<u32>) -> Self {
        Self { kind: "ephemeral", ttl: wire_ttl(ttl_seconds) }
    }
}

/// Returns the wire form of a mark's lifetime. Providers know five minutes, their default, and an hour.
pub(crate) fn wire_ttl(seconds: Option<u32>) -> Option<&'static str> {
    seconds.filter(|seconds| *seconds >= 3600).map(|_| "1h")
}

/// The marked places of a request: indexes into its lists, ascending, at most [`Breakpoints::MAX`] in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakpoints {
    /// Index of the marked tool.
    pub tool: Option<usize>,
    /// Indexes of the marked instructions.
    pub system: Vec<usize>,
    /// Indexes of the marked messages. The mark goes to the last part that the protocol sends.
    pub messages: Vec<usize>,
    /// Lifetime of the marks in seconds, if the request gives one.
    pub ttl_seconds: Option<u32>,
}

impl Breakpoints {
    /// The most marks that a provider accepts (Anthropic, Bedrock).
    pub const MAX: usize = 4;

    /// Returns the places that the request's policy marks. If there are too many, the newest messages keep
    /// theirs.
    #[must_use]
    pub fn of(request: &LlmRequest) -> Self {
        let marks = match &request.cache {
            CachePolicy::None => return Self::default(),
            CachePolicy::Auto => CacheMarks::AUTO,
            CachePolicy::Marks(marks) => *marks,
        };
        let tool = request.tools.len().checked_sub(1).filter(|_| marks.tools);
        let mut system = Vec::new();
        if marks.system && !request.system.is_empty() {
            system.push(0);
            if request.system.len() > 1 {
                system.push(request.system.len() - 1);
            }
        }
        let left = Self::MAX - usize::from(tool.is_some()) - system.len();
        let newest = |role: Role| request.messages.iter().rposition(|said| said.role == role);
        let messages = match marks.messages {
            MessageMarks::None => Vec::new(),
            MessageMarks::Tail(count) => {
                let count = usize::from(count).min(left).min(request.messages.len());
                (request.messages.len() - count..request.messages.len()).collect()
            }
            MessageMarks::LatestUserMessage => newest(Role::User).into_iter().collect(),
            MessageMarks::LatestAssistant => newest(Role::Assistant).into_iter().collect(),
        };
        Self { tool, system, messages, ttl_seconds: marks.ttl_seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, RawJson, SystemPart, ToolDefinition};

    fn request(tools: usize, system: usize, messages: usize) -> LlmRequest {
        let said = (0..messages).map(|at| Message::user(at.to_string())).collect();
        let mut request = LlmRequest::new("m", said);
        request.system = (0..system).map(|at| SystemPart::text(at.to_string())).collect();
        request.tools = (0..tools)
            .map(|at| ToolDefinition {
                name: at.to_string(),
                description: String::new(),
                input_schema: RawJson::parse("{}").unwrap(),
            })
            .collect();
        request
    }

    #[test]
    fn there_are_never_more_than_four_marks_and_the_newest_messages_stay() {
        let mut request = request(3, 3, 9);
        assert_eq!(Breakpoints::of(&request), Breakpoints::default());
        let mut marked = |policy: &str| {
            request.cache = serde_json::from_str(policy).unwrap();
            let marks = Breakpoints::of(&request);
            (marks.tool, marks.system, marks.messages, marks.ttl_seconds)
        };
        assert_eq!(marked(r#""auto""#), (Some(2), vec![0, 2], vec![8], None));
        assert_eq!(marked(r#"{"system":true}"#), (None, vec![0, 2], vec![], None));
        let many = r#"{"tools":true,"system":true,"messages":{"tail":9},"ttlSeconds":3600}"#;
        assert_eq!(marked(many), (Some(2), vec![0, 2], vec![8], Some(3600)));
        let tail = r#"{"messages":{"tail":9}}"#;
        assert_eq!(marked(tail), (None, vec![], vec![5, 6, 7, 8], None));
        assert_eq!(marked(r#"{"messages":"latest-assistant"}"#), (None, vec![], vec![], None));
    }

    #[test]
    fn one_piece_of_instructions_is_marked_once_and_nothing_where_there_is_nothing() {
        let mut request = request(0, 1, 0);
        request.cache = CachePolicy::Auto;
        let marks = Breakpoints::of(&request);
        assert_eq!((marks.tool, marks.system, marks.messages), (None, vec![0], vec![]));
    }

    #[test]
    fn a_policy_is_a_word_or_an_object() {
        for text in [
            r#""auto""#,
            r#""none""#,
            r#"{"tools":false,"system":true,"messages":"latest-user-message"}"#,
        ] {
            let policy: CachePolicy = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&policy).unwrap(), text);
        }
        assert!(serde_json::from_str::<CachePolicy>(r#""often""#).is_err());
    }
}
