//! The frames of an answer's stream, with the fields that we read. Each may be absent or null.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::decode_error::DecodeError;
use crate::error::truncate;
use crate::event::Usage;
use crate::json::{Count, read_counts, read_index};
use crate::text::Text;

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Frame<'a> {
    #[serde(borrow)]
    pub(super) candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow)]
    pub(super) prompt_feedback: Option<PromptFeedback<'a>>,
    #[serde(deserialize_with = "read_counts")]
    pub(super) usage_metadata: Option<WireUsage>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    #[serde(deserialize_with = "read_index")]
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) content: Option<Content<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) finish_message: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Content<'a> {
    #[serde(borrow)]
    pub(super) parts: Option<Vec<WirePart<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WirePart<'a> {
    #[serde(borrow)]
    pub(super) text: Option<Text<'a>>,
    pub(super) thought: Option<bool>,
    /// In base64, verbatim.
    #[serde(borrow)]
    pub(super) thought_signature: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) function_call: Option<FunctionCall<'a>>,
    #[serde(borrow)]
    pub(super) executable_code: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) code_execution_result: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct FunctionCall<'a> {
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) args: Option<&'a RawValue>,
}

/// The content of a `codeExecutionResult`.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct CodeResult<'a> {
    #[serde(borrow)]
    pub(super) outcome: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) output: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PromptFeedback<'a> {
    #[serde(borrow)]
    pub(super) block_reason: Option<Text<'a>>,
}

impl<'a> Frame<'a> {
    /// Parses a frame. JSON that is not an object gives an empty one. Text that is not JSON, or a field of a
    /// wrong type, is not this protocol.
    pub(super) fn parse(data: &'a str) -> Result<Self, DecodeError> {
        let error = match serde_json::from_str(data) {
            Ok(frame) => return Ok(frame),
            Err(error) => error,
        };
        if !data.starts_with('{') && serde_json::from_str::<IgnoredAny>(data).is_ok() {
            return Ok(Self::default());
        }
        Err(DecodeError::malformed(format!("{error} in frame: {}", truncate(data, 256))))
    }
}

impl Frame<'_> {
    /// Returns whether the frame holds values that we keep as text.
    pub(super) fn keeps_raw(&self) -> bool {
        let candidates = self.candidates.iter().flatten();
        let content = candidates.filter_map(|candidate| candidate.content.as_ref());
        let mut parts = content.flat_map(|content| content.parts.iter().flatten());
        self.error.is_some()
            || parts.any(|part| {
                part.function_call.is_some()
                    || part.executable_code.is_some()
                    || part.code_execution_result.is_some()
            })
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireUsage {
    prompt_token_count: Count,
    /// Tokens that results of hosted tools added; not part of the prompt's count.
    tool_use_prompt_token_count: Count,
    cached_content_token_count: Count,
    candidates_token_count: Count,
    thoughts_token_count: Count,
    total_token_count: Count,
}

impl WireUsage {
    /// Converts the counts. Google counts thoughts beside the answer, we count them in it. `None` if nothing
    /// was counted (Vertex's first frames).
    pub(super) fn into_usage(self) -> Option<Usage> {
        let count = |tokens: Count| tokens.0.unwrap_or(0);
        let input_tokens =
            count(self.prompt_token_count).saturating_add(count(self.tool_use_prompt_token_count));
        let reasoning_tokens = count(self.thoughts_token_count);
        let output_tokens = count(self.candidates_token_count).saturating_add(reasoning_tokens);
        let total = input_tokens.saturating_add(output_tokens);
        let usage = Usage {
            input_tokens,
            output_tokens,
            cache_read_tokens: count(self.cached_content_token_count),
            cache_write_tokens: 0, // Gemini does not count its own caching
            reasoning_tokens,
            total_tokens: self.total_token_count.0.unwrap_or(total),
            estimated: false,
        };
        (usage != Usage::default()).then_some(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_counts_thoughts_and_hosted_tools_in() {
        let read = |text| serde_json::from_str::<WireUsage>(text).unwrap().into_usage();
        let usage = read(
            r#"{"promptTokenCount":10,"toolUsePromptTokenCount":5,"cachedContentTokenCount":4,"candidatesTokenCount":2,"thoughtsTokenCount":16,"totalTokenCount":33}"#,
        );
        let expected = Usage {
            input_tokens: 15,
            output_tokens: 18,
            cache_read_tokens: 4,
            cache_write_tokens: 0,
            reasoning_tokens: 16,
            total_tokens: 33,
            estimated: false,
        };
        assert_eq!(usage, Some(expected));
        assert_eq!(read(r#"{"trafficType":"ON_DEMAND"}"#), None);
        assert_eq!(read(r#"{"promptTokenCount":3}"#).map(|usage| usage.total_tokens), Some(3));
    }
}
