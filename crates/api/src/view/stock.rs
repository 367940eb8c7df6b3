use super::message::{MessageInfo, MessageView, PartBody, SessionContext};

/// Shows a notice as stock clients know such texts: a user's message whose text is synthetic. And a
/// checkpoint as a user's message whose one part is the compaction; its text is the model's.
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
