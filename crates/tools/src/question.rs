//! `question`: asks the user. A person's answers are the result, so there is a body only where nobody can be asked.

use async_trait::async_trait;
use domain::{Question, ToolClass};
use serde::Deserialize;
use serde_json::json;

use crate::arguments;
use crate::call::{Stopped, ToolCall, ToolContext, ToolDefinition, ToolOutcome, fields};
use crate::set::Tool;

/// The most questions of one call; the rules of asks have the same bound.
const MAX_QUESTIONS: usize = 16;

pub(crate) struct AskUser;

#[derive(Deserialize)]
struct Arguments {
    questions: Vec<Question>,
}

#[async_trait]
impl Tool for AskUser {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "question".into(),
            description: "Asks the user, and waits for the answers. Use it when the work depends on a choice that only the user \
                          can make, and that you cannot find out yourself. Ask all that you need to know in one call. Put the \
                          option that you recommend first. The user may always answer in words of their own."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "questions": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": MAX_QUESTIONS,
                        "description": "The questions, in order",
                        "items": {
                            "type": "object",
                            "properties": {
                                "question": {"type": "string", "description": "The whole question"},
                                "header": {"type": "string", "description": "The question in at most 30 characters"},
                                "options": {
                                    "type": "array",
                                    "description": "The answers to choose from",
                                    "items": {
                                        "type": "object",
                                        "properties": {
                                            "label": {"type": "string", "description": "The answer in one to five words"},
                                            "description": {"type": "string", "description": "The effect of this choice"}
                                        },
                                        "required": ["label", "description"]
                                    }
                                },
                                "multiple": {"type": "boolean", "description": "Whether several answers may be chosen"}
                            },
                            "required": ["question", "header", "options"]
                        }
                    }
                },
                "required": ["questions"]
            }),
            result_schema: Some(fields(&["answers"], &json!({
                "answers": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}
            }))),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Pure
    }

    async fn run(&self, call: &ToolCall, _context: &ToolContext) -> Result<ToolOutcome, Stopped> {
        let Arguments { questions } = arguments::parse(call)?;
        if questions.is_empty() || questions.len() > MAX_QUESTIONS {
            return Err(Stopped::because(format!(
                "a call has 1 to {MAX_QUESTIONS} questions, and this one has {}",
                questions.len()
            )));
        }
        Err(Stopped::because(
            "nobody can be asked here: decide yourself, and tell the user what you took for granted",
        ))
    }
}
