//! Collects the events of one answer into the message for the next request.

use llm_protocol::{LlmEvent, Part, RawJson, TextPart, ToolCall};

#[derive(Debug, Default)]
pub(crate) struct Said {
    parts: Vec<Part>,
    /// The open part and the id of its events.
    open: Option<(String, usize)>,
}

impl Said {
    pub(crate) fn take(&mut self, event: &LlmEvent) {
        match event {
            LlmEvent::TextStart { id } => self.begin(id, Part::Text),
            LlmEvent::ReasoningStart { id } => self.begin(id, Part::Reasoning),
            LlmEvent::TextDelta { id, text } | LlmEvent::ReasoningDelta { id, text } => {
                if let Some(part) = self.part(id) {
                    part.text.push_str(text);
                }
            }
            LlmEvent::TextEnd { id, provider_metadata }
            | LlmEvent::ReasoningEnd { id, provider_metadata } => self.end(id, provider_metadata),
            LlmEvent::ToolCall(call) => self.parts.push(Part::ToolCall(call.clone())),
            LlmEvent::ToolResult(result) => self.parts.push(Part::ToolResult(result.clone())),
            LlmEvent::ToolInputStart { .. }
            | LlmEvent::ToolInputDelta { .. }
            | LlmEvent::ToolInputEnd { .. }
            | LlmEvent::StepFinish { .. }
            | LlmEvent::Finish { .. } => {}
        }
    }

    /// Returns the message's parts, and the calls among them that wait for us.
    pub(crate) fn into_parts(self) -> (Vec<Part>, Vec<ToolCall>) {
        let calls = self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) if !call.provider_executed => Some(call.clone()),
            Part::ToolCall(_)
            | Part::ToolResult(_)
            | Part::Text(_)
            | Part::Reasoning(_)
            | Part::Media(_) => None,
        });
        let calls = calls.collect();
        (self.parts, calls)
    }

    fn begin(&mut self, id: &str, kind: fn(TextPart) -> Part) {
        self.open = Some((id.to_owned(), self.parts.len()));
        self.parts.push(kind(TextPart { text: String::new(), provider_metadata: None }));
    }

    fn end(&mut self, id: &str, metadata: &Option<RawJson>) {
        if let Some(part) = self.part(id) {
            part.provider_metadata.clone_from(metadata);
        }
        self.open = None;
    }

    fn part(&mut self, id: &str) -> Option<&mut TextPart> {
        let (open, at) = self.open.as_ref()?;
        match self.parts.get_mut(*at)? {
            Part::Text(part) | Part::Reasoning(part) if open == id => Some(part),
            Part::Text(_)
            | Part::Reasoning(_)
            | Part::Media(_)
            | Part::ToolCall(_)
            | Part::ToolResult(_) => None,
        }
    }
}
