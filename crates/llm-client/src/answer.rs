//! A whole answer, for callers that do not need its events.

use futures::StreamExt;
use llm_protocol::{FinishReason, LlmEvent, LlmRequest, Message, Part, Role, ToolCall, Usage};
use serde::Serialize;

use crate::error::LlmError;
use crate::llm::Llm;
use crate::said::Said;
use crate::stream::LlmStream;

/// The complete answer to one request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The model's message, ready for the next request.
    pub message: Message,
    /// The reason for its end.
    pub reason: FinishReason,
    /// Tokens used; none if the provider did not say.
    pub usage: Option<Usage>,
}

impl Answer {
    /// Returns the text, without reasoning.
    #[must_use]
    pub fn text(&self) -> String {
        let text = |part: &Part| match part {
            Part::Text(part) => Some(part.text.clone()),
            Part::Reasoning(_) | Part::Media(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
        };
        self.message.content.iter().filter_map(text).collect()
    }

    /// Returns the calls that wait for our results, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.message.content.iter().filter_map(|part| match part {
            Part::ToolCall(call) if !call.provider_executed => Some(call),
            Part::ToolCall(_)
            | Part::Text(_)
            | Part::Reasoning(_)
            | Part::Media(_)
            | Part::ToolResult(_) => None,
        })
    }
}

impl Llm {
    /// Sends the request like [`Llm::stream`] and reads the answer to its end.
    ///
    /// # Errors
    /// Those of [`Llm::stream`], or the answer did not come whole; the part that came is dropped.
    pub async fn answer(&self, request: &LlmRequest) -> Result<Answer, LlmError> {
        self.stream(request).await?.collected().await
    }
}

impl LlmStream {
    /// Reads the stream to its end and returns the whole answer.
    ///
    /// # Errors
    /// The first error of the stream; events before it are dropped.
    pub async fn collected(mut self) -> Result<Answer, LlmError> {
        let mut said = Said::default();
        let (mut reason, mut usage) = (FinishReason::Unknown, None);
        while let Some(event) = self.next().await {
            let event = event?;
            said.take(&event);
            if let LlmEvent::Finish { reason: why, usage: counted } = event {
                (reason, usage) = (why, counted);
            }
        }
        let (content, _) = said.into_parts();
        Ok(Answer { message: Message { role: Role::Assistant, content }, reason, usage })
    }
}
