//! The frames of a chat completion stream, with the fields that we read. Each may be absent or null.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::event::{FinishReason, Usage};
use crate::finish::read_reason;
use crate::json::{CacheWrites, Count, inclusive_input, read_counts, read_index};
use crate::text::Text;

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Frame<'a> {
    /// `chat.completion.chunk`, or `error` if the frame itself is one (vLLM).
    #[serde(borrow)]
    pub(super) object: Option<Text<'a>>,
    pub(super) choices: Option<Vec<Choice>>,
    #[serde(deserialize_with = "read_counts")]
    pub(super) usage: Option<WireUsage>,
    /// Groq's place for the usage.
    #[serde(deserialize_with = "read_counts")]
    pub(super) x_groq: Option<Groq>,
    pub(super) error: Option<Value>,
}

impl Frame<'_> {
    /// Takes the usage of the answer from any of its places. The usual one goes first.
    pub(super) fn take_usage(&mut self) -> Option<WireUsage> {
        let usage = self.usage.take();
        let usage = usage.or_else(|| self.x_groq.take().and_then(|groq| groq.usage));
        let mut choices = self.choices.iter_mut().flatten();
        usage.or_else(|| choices.find_map(|choice| choice.usage.take()))
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Groq {
    #[serde(deserialize_with = "read_counts")]
    usage: Option<WireUsage>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Choice {
    #[serde(deserialize_with = "read_index")]
    pub(super) index: Option<i64>,
    pub(super) delta: Option<Delta>,
    /// Replaces `delta` on servers that send whole answers as one frame.
    pub(super) message: Option<Delta>,
    #[serde(deserialize_with = "read_reason")]
    pub(super) finish_reason: Option<FinishReason>,
    /// Some servers have the reason only here, beside a null.
    #[serde(rename = "finishReason", deserialize_with = "read_reason")]
    pub(super) camel_reason: Option<FinishReason>,
    /// An error of the provider behind OpenRouter.
    pub(super) error: Option<Value>,
    /// Moonshot's place for the usage.
    #[serde(deserialize_with = "read_counts")]
    usage: Option<WireUsage>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Delta {
    pub(super) content: Option<Content>,
    #[serde(deserialize_with = "read_content")]
    pub(super) refusal: Option<String>,
    /// DeepSeek, vLLM, llama.cpp, xAI.
    #[serde(deserialize_with = "read_content")]
    pub(super) reasoning_content: Option<String>,
    /// Groq, OpenRouter, Ollama.
    #[serde(deserialize_with = "read_content")]
    pub(super) reasoning: Option<String>,
    /// GitHub Copilot.
    #[serde(deserialize_with = "read_content")]
    pub(super) reasoning_text: Option<String>,
    /// OpenRouter, beside the text.
    pub(super) reasoning_details: Option<Value>,
    /// GitHub Copilot, which wants it back.
    pub(super) reasoning_opaque: Option<Value>,
    pub(super) tool_calls: Option<Vec<ToolCallDelta>>,
    /// The only call of an answer, in the API of 2023.
    pub(super) function_call: Option<FunctionDelta>,
}

impl Delta {
    /// Takes the reasoning under any of its names. Servers that use several repeat the same text.
    pub(super) fn take_reasoning(&mut self) -> Option<String> {
        let names = [&mut self.reasoning_content, &mut self.reasoning, &mut self.reasoning_text];
        names.into_iter().filter_map(Option::take).find(|text| !text.is_empty())
    }
}

/// Text, or a list of pieces, which Mistral's reasoning models send. Workers AI sends a piece of digits as a number.
/// <https://docs.mistral.ai/capabilities/reasoning/>
pub(super) enum Content {
    Text(String),
    Pieces(Vec<Piece>),
}

/// A piece of a list: text or thoughts. Other pieces, such as references, have neither.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Piece {
    #[serde(deserialize_with = "read_content")]
    pub(super) text: Option<String>,
    pub(super) thinking: Option<Content>,
}

impl Content {
    /// Joins all texts, of either kind.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Pieces(pieces) => {
                let text = |piece: Piece| {
                    let thought = piece.thinking.map(Self::into_text);
                    [thought, piece.text].into_iter().flatten().collect::<String>()
                };
                pieces.into_iter().map(text).collect()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of pieces")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_bool<E: Error>(self, word: bool) -> Result<Content, E> {
                Ok(Content::Text(word.to_string()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Content, E> {
                Ok(Content::Text(number.to_string()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Content, E> {
                Ok(Content::Text(number.to_string()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Content, E> {
                Ok(Content::Text(number.to_string()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content, A::Error> {
                let mut pieces = Vec::new();
                while let Some(piece) = list.next_element()? {
                    pieces.push(piece);
                }
                Ok(Content::Pieces(pieces))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Reads text as [`Content`] does.
fn read_content<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Content>::deserialize(deserializer)?.map(Content::into_text))
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ToolCallDelta {
    /// Signed, because vLLM has sent -1.
    #[serde(deserialize_with = "read_index")]
    pub(super) index: Option<i64>,
    pub(super) id: Option<CallId>,
    pub(super) function: Option<FunctionDelta>,
}

impl ToolCallDelta {
    /// Makes a piece of an answer's only call.
    pub(super) fn only(function: FunctionDelta) -> Self {
        Self { index: Some(0), id: None, function: Some(function) }
    }
}

/// The id of a call: text, or a number on some servers.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum CallId {
    Text(String),
    Number(serde_json::Number),
}

impl CallId {
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Number(number) => number.to_string(),
        }
    }
}

/// Returns whether `error` reports a failure: some servers send `""`, `{}` or `false` when there is none.
pub(super) fn is_failure(error: &Value) -> bool {
    match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Array(_) => true,
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct FunctionDelta {
    pub(super) name: Option<String>,
    pub(super) arguments: Option<Arguments>,
}

/// The arguments of a call: text, or the object itself on some servers.
pub(super) struct Arguments(pub(super) String);

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if raw.get().starts_with('"') {
            return serde_json::from_str(raw.get()).map(Self).map_err(D::Error::custom);
        }
        Ok(Self(raw.get().to_owned()))
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireUsage {
    prompt_tokens: Count,
    completion_tokens: Count,
    total_tokens: Count,
    #[serde(deserialize_with = "read_counts")]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(deserialize_with = "read_counts")]
    completion_tokens_details: Option<CompletionDetails>,
    /// Together's field for it.
    cached_tokens: Count,
    /// DeepSeek's field for it, beside the details.
    prompt_cache_hit_tokens: Count,
    /// Anthropic's field for it, from proxies.
    cache_read_input_tokens: Count,
    #[serde(flatten)]
    written: CacheWrites,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Count,
    #[serde(flatten)]
    written: CacheWrites,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Count,
}

impl WireUsage {
    pub(super) fn into_usage(self) -> Usage {
        let prompt = self.prompt_tokens_details.unwrap_or_default();
        let completion = self.completion_tokens_details.unwrap_or_default();
        let cached = prompt.cached_tokens.0;
        let cached = cached.or(self.prompt_cache_hit_tokens.0).or(self.cached_tokens.0);
        let cached = cached.filter(|count| *count > 0).or(self.cache_read_input_tokens.0);
        let cached = cached.unwrap_or(0);
        let written = self.written.total().max(prompt.written.total()).unwrap_or(0);
        let input = self.prompt_tokens.0.unwrap_or(0);
        let input = inclusive_input(input, cached.saturating_add(written));
        let reasoning = completion.reasoning_tokens.0.unwrap_or(0);
        let output = self.completion_tokens.0.unwrap_or(0);
        let output = inclusive_output(input, output, reasoning, self.total_tokens.0);
        Usage {
            input_tokens: input,
            output_tokens: output,
            cache_read_tokens: cached,
            cache_write_tokens: written,
            reasoning_tokens: reasoning,
            total_tokens: self.total_tokens.0.unwrap_or_else(|| input.saturating_add(output)),
            estimated: false,
        }
    }
}

/// Returns the output with reasoning. xAI counts reasoning beside the completion, OpenAI inside it; the total
/// shows which.
/// <https://docs.x.ai/docs/guides/reasoning>
fn inclusive_output(input: u64, output: u64, reasoning: u64, total: Option<u64>) -> u64 {
    let with_reasoning = output.saturating_add(reasoning);
    if total == Some(input.saturating_add(with_reasoning)) { with_reasoning } else { output }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_includes_reasoning_however_it_is_counted() {
        let usage = |text| serde_json::from_str::<WireUsage>(text).unwrap().into_usage();
        let inside = usage(
            r#"{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":5}}"#,
        );
        let beside = usage(
            r#"{"prompt_tokens":10,"completion_tokens":2,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":5}}"#,
        );
        let expected = Usage {
            input_tokens: 10,
            output_tokens: 7,
            cache_read_tokens: 4,
            cache_write_tokens: 0,
            reasoning_tokens: 5,
            total_tokens: 17,
            estimated: false,
        };
        assert_eq!(inside, expected);
        assert_eq!(beside, expected);
        let bare = usage(r#"{"prompt_tokens":3,"completion_tokens":2,"cached_tokens":1}"#);
        assert_eq!((bare.total_tokens, bare.cache_read_tokens), (5, 1));
        // The public report langfuse#10592: what was read from the cache is beside the prompt.
        let beside = usage(
            r#"{"prompt_tokens":86,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":17817}}"#,
        );
        assert_eq!((beside.input_tokens, beside.total_tokens), (17_903, 17_913));
    }

    // Finding reports 10: what was written to the cache counted 0 in all but one spelling.
    #[test]
    fn cache_writes_are_read_in_every_spelling() {
        let spellings = [
            r#""cache_creation_input_tokens":300,"prompt_tokens_details":{"cached_tokens":600}"#,
            r#""cache_creation_input_tokens":300,"cache_read_input_tokens":600"#,
            r#""prompt_tokens_details":{"cached_tokens":600,"cache_creation_tokens":300}"#,
            r#""prompt_tokens_details":{"cached_tokens":600,"cached_creation_tokens":300}"#,
            r#""prompt_tokens_details":{"cached_tokens":600,"cache_write_tokens":300}"#,
            r#""prompt_tokens_details":{"cached_tokens":600,"cache_creation_input_tokens":300,"cache_type":"ephemeral"}"#,
            r#""prompt_tokens_details":{"cached_tokens":600,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":200}}"#,
            r#""cache_creation":{"ephemeral_5m_input_tokens":300},"cached_tokens":600"#,
            r#""cacheCreationInputTokens":"300","prompt_tokens_details":{"cached_tokens":600}"#,
            r#""cache_creation_input_tokens":300,"prompt_tokens_details":{"cached_tokens":600,"cache_creation_tokens":300,"cache_write_tokens":0}"#,
        ];
        for spelling in spellings {
            for (prompt, input) in [(1000, 1000), (100, 1000)] {
                let text =
                    format!(r#"{{"prompt_tokens":{prompt},"completion_tokens":5,{spelling}}}"#);
                let usage = serde_json::from_str::<WireUsage>(&text).unwrap().into_usage();
                assert_eq!(
                    (usage.cache_read_tokens, usage.cache_write_tokens),
                    (600, 300),
                    "{text}"
                );
                assert_eq!((usage.input_tokens, usage.output_tokens), (input, 5), "{text}");
            }
        }
        let odd = r#"{"prompt_tokens":9,"cache_creation_input_tokens":{},"cache_creation":7}"#;
        let odd = serde_json::from_str::<WireUsage>(odd).unwrap().into_usage();
        assert_eq!((odd.input_tokens, odd.cache_write_tokens), (9, 0));
    }
}
