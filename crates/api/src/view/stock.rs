use serde_json::json;

use super::message::{MessageInfo, MessageView, PartBody, PartView, SessionContext};
use super::stock_tool::as_stock_tool;

/// Turns messages that stock clients do not have into ones that they do: a notice into a user's message with a
/// synthetic text, and a checkpoint into a user's message with one compaction part. The checkpoint's text is only for
/// the model. Tools get the names and shapes of the released ones.
pub(crate) fn as_stock(context: &SessionContext, mut view: MessageView) -> MessageView {
    let (agent, model) = (context.agent.clone(), (&context.model).into());
    match view.info {
        MessageInfo::Notice { id, session_id, time, .. } => {
            view.info = MessageInfo::User { id, session_id, time, agent, model };
            for part in &mut view.parts {
                if let PartBody::Text { synthetic, .. } = &mut part.body {
                    *synthetic = Some(true);
                }
            }
        }
        MessageInfo::Checkpoint { id, session_id, time, reason, .. } => {
            view.info = MessageInfo::User { id, session_id, time, agent, model };
            for part in &mut view.parts {
                part.body = PartBody::Compaction { auto: reason != "manual" };
            }
        }
        MessageInfo::Assistant { ref mut error, ref time, .. } => {
            // An interrupt in a tool ends the message, though the model had finished.
            if error.is_none() && time.is_complete() && view.parts.iter().any(is_interrupted) {
                *error = Some(
                    json!({ "name": "MessageAbortedError", "data": { "message": "Aborted" } }),
                );
            }
            for part in &mut view.parts {
                if let PartBody::Tool { tool, state, .. } = &mut part.body
                    && let Some(name) = as_stock_tool(tool, state)
                {
                    name.clone_into(tool);
                }
            }
        }
        MessageInfo::User { .. } => {}
    }
    view
}

fn is_interrupted(part: &PartView) -> bool {
    matches!(&part.body, PartBody::Tool { state, .. } if state["metadata"]["outcome"] == "interrupted")
}
