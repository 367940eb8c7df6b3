use domain::ToolOutcomeKind;
use history::summary_text;

use super::message::{
    MessageInfo, MessageView, PartBody, PartView, PathView, RunView, SessionContext,
    interrupted_view,
};
use super::reference::is_file_reference;
use super::stock_tool::as_stock_tool;

/// The end of the ids of a checkpoint's text.
const SUMMARY: char = 's';

/// Turns a message into those that stock clients have instead: a checkpoint into a user's message with a compaction
/// part and an answer that is its text, every other message as [`as_stock`] does.
pub(crate) fn all_as_stock(context: &SessionContext, view: MessageView) -> Vec<MessageView> {
    let MessageInfo::Checkpoint { id, session_id, reason, cost, tokens, time } = view.info else {
        return vec![as_stock(context, view)];
    };
    let (agent, model) = (context.agent.clone(), (&context.model).into());
    // It sorts right after the message that it belongs to.
    let summary = format!("{id}{SUMMARY}");
    let asked = |part: &PartView| PartView {
        body: PartBody::Compaction { auto: reason != "manual" },
        ..part.clone()
    };
    let told = |part: &PartView| {
        let mut body = part.body.clone();
        if let PartBody::Text { text, .. } = &mut body {
            *text = summary_text(text);
        }
        let id = format!("{}{SUMMARY}", part.id);
        PartView { id, message_id: summary.clone(), body, ..part.clone() }
    };
    let answer = MessageInfo::Assistant {
        id: summary.clone(),
        session_id: session_id.clone(),
        parent_id: id.clone(),
        model_id: context.model.model.clone(),
        provider_id: context.model.provider.clone(),
        variant: None,
        summary: Some(true),
        mode: "compaction".to_owned(),
        agent: "compaction".to_owned(),
        path: PathView::of(&context.directory).into(),
        cost,
        tokens,
        time: RunView::at_once(time.created),
        finish: Some("stop".to_owned()),
        error: None,
    };
    let question = MessageView {
        info: MessageInfo::User { id, session_id, time, agent, model, summary: None },
        parts: view.parts.iter().map(asked).collect(),
    };
    let answer = MessageView { info: answer, parts: view.parts.iter().map(told).collect() };
    vec![question, answer]
}

/// Turns a notice into a user's message with a synthetic text, hides our parts of a prompt, and gives tools the names
/// and shapes of the released ones. A checkpoint becomes more than one message, so it stays as it is.
pub(crate) fn as_stock(context: &SessionContext, mut view: MessageView) -> MessageView {
    let (agent, model) = (context.agent.clone(), (&context.model).into());
    match view.info {
        MessageInfo::Notice { id, session_id, time, .. } => {
            view.info = MessageInfo::User { id, session_id, time, agent, model, summary: None };
            for part in &mut view.parts {
                if let PartBody::Text { synthetic, .. } = &mut part.body {
                    *synthetic = Some(true);
                }
            }
        }
        MessageInfo::Checkpoint { .. } => {}
        MessageInfo::Assistant { ref mut error, ref time, .. } => {
            // An interrupt in a tool ends the message, though the model had finished.
            if error.is_none() && time.is_complete() && view.parts.iter().any(is_interrupted) {
                *error = Some(interrupted_view());
            }
            view.parts = view.parts.into_iter().map(part_as_stock).collect();
        }
        MessageInfo::User { .. } => hide_references(&mut view.parts),
    }
    view
}

/// Marks our references to files in a prompt as synthetic, so that clients neither show them nor put them into a draft.
/// One that is the whole prompt stays: somebody sent it.
fn hide_references(parts: &mut [PartView]) {
    if parts.iter().all(is_our_reference) {
        return;
    }
    for part in parts.iter_mut().filter(|part| is_our_reference(part)) {
        if let PartBody::Text { synthetic, .. } = &mut part.body {
            *synthetic = Some(true);
        }
    }
}

fn is_our_reference(part: &PartView) -> bool {
    matches!(&part.body, PartBody::Text { text, .. } if is_file_reference(text))
}

/// Gives the part of a tool the name and the shape of the released one. Any other part of an assistant's message stays
/// as it is.
pub(crate) fn part_as_stock(mut part: PartView) -> PartView {
    if let PartBody::Tool { tool, state, .. } = &mut part.body
        && let Some(name) = as_stock_tool(tool, state)
    {
        name.clone_into(tool);
    }
    part
}

fn is_interrupted(part: &PartView) -> bool {
    let interrupted = ToolOutcomeKind::Interrupted.as_str();
    matches!(&part.body, PartBody::Tool { state, .. } if state["metadata"]["outcome"] == interrupted)
}
