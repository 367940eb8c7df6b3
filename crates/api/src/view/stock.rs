use super::message::{MessageInfo, MessageView, PartBody, SessionContext};

/// Turns messages that stock clients do not have into ones that they do: a notice into a user's message with a
/// synthetic text, and a checkpoint into a user's message with one compaction part. The checkpoint's text is only for
/// the model.
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
        MessageInfo::User { .. } | MessageInfo::Assistant { .. } => {}
    }
    view
}
