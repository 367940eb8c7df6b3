//! New rows of messages, parts and calls.

use domain::{
    CompactionEnded, CompactionReason, CompactionStarted, MessageId, MessageRole, NoticeRecorded,
    PartId, PartKind, PromptPart, PromptPromoted, Seq, TimestampMs, ToolCalled, TurnStarted,
    TurnUsage,
};
use store::{CallRow, MessageRow, PartRow};

fn blank(id: &MessageId, role: MessageRole, seq: Seq, time: TimestampMs) -> MessageRow {
    MessageRow {
        id: id.clone(),
        seq,
        role: role.into(),
        parent: None,
        turn: None,
        agent: None,
        model: None,
        created_ms: time,
        completed_ms: None,
        finish: None,
        error: None,
        usage: TurnUsage::default(),
        synthetic: None,
        parts: Vec::new(),
    }
}

/// Returns the user message of a prompt that was admitted at `time`, without agent and model.
pub(crate) fn user_row(
    id: &MessageId,
    seq: Seq,
    time: TimestampMs,
    parts: &[PromptPart],
    synthetic: Option<&String>,
) -> MessageRow {
    let part = |part: &PromptPart| match part {
        PromptPart::Text { id, text } => text_part(id.clone(), PartKind::Text, text.clone()),
    };
    MessageRow {
        synthetic: synthetic.cloned(),
        parts: parts.iter().map(part).collect(),
        ..blank(id, MessageRole::User, seq, time)
    }
}

/// Returns the user message of a prompt that was promoted at `time`.
pub(super) fn promoted_row(prompt: &PromptPromoted, seq: Seq, time: TimestampMs) -> MessageRow {
    let synthetic = prompt.synthetic.as_ref();
    MessageRow {
        agent: Some(prompt.agent.clone()),
        model: Some(prompt.model.clone()),
        completed_ms: Some(time),
        ..user_row(&prompt.message, seq, prompt.admitted, &prompt.parts, synthetic)
    }
}

/// Returns the message of a turn that begins at `time`.
pub(super) fn turn_row(turn: &TurnStarted, seq: Seq, time: TimestampMs) -> MessageRow {
    MessageRow {
        parent: Some(turn.parent.clone()),
        turn: Some(turn.turn.clone()),
        agent: Some(turn.agent.clone()),
        model: Some(turn.model.clone()),
        ..blank(&turn.message, MessageRole::Assistant, seq, time)
    }
}

pub(super) fn notice_row(notice: &NoticeRecorded, seq: Seq, time: TimestampMs) -> MessageRow {
    MessageRow {
        completed_ms: Some(time),
        finish: Some(notice.kind.to_string()),
        parts: only_text(&notice.message, notice.text.clone()),
        ..blank(&notice.message, MessageRole::Notice, seq, time)
    }
}

/// Returns the checkpoint message of a Compaction that ended at `time`. Without its start, it begins with its end and
/// counts as requested by somebody.
pub(super) fn checkpoint_row(
    started: Option<(CompactionStarted, TimestampMs)>,
    ended: &CompactionEnded,
    seq: Seq,
    time: TimestampMs,
) -> MessageRow {
    let reason = started.as_ref().map_or(CompactionReason::Manual, |(started, _)| started.reason);
    let began = started.as_ref().map_or(time, |(_, began)| *began);
    let (agent, model) = started.map(|(started, _)| (started.agent, started.model)).unzip();
    MessageRow {
        turn: Some(ended.turn.clone()),
        agent,
        model: model.map(|model| domain::ModelRef { variant: None, ..model }),
        completed_ms: Some(time),
        finish: Some(reason.to_string()),
        usage: ended.usage,
        parts: only_text(&ended.message, ended.checkpoint.clone().unwrap_or_default()),
        ..blank(&ended.message, MessageRole::Checkpoint, seq, began)
    }
}

/// Returns the one part of a message of ours. Its id is the message's with another prefix.
fn only_text(message: &MessageId, text: String) -> Vec<PartRow> {
    let own = message.as_str().get(MessageId::PREFIX.len()..).unwrap_or_default();
    let id = format!("{}{own}", PartId::PREFIX).parse();
    id.map(|id| text_part(id, PartKind::Text, text)).into_iter().collect()
}

pub(super) fn text_part(id: PartId, kind: PartKind, text: String) -> PartRow {
    PartRow { id, kind: kind.into(), text: Some(text), call: None }
}

pub(super) fn call_part(id: PartId, call: CallRow) -> PartRow {
    PartRow { id, kind: PartKind::Tool.into(), text: None, call: Some(call) }
}

/// Returns the row of a call that the model requested at `time`.
pub(super) fn call_row(called: &ToolCalled, time: TimestampMs) -> CallRow {
    CallRow {
        id: called.intent.call.clone(),
        provider_call: called.intent.provider_call.clone(),
        tool: called.intent.tool.clone(),
        state: called.state.into(),
        arguments: called.intent.arguments.clone(),
        called_ms: time,
        outcome: None,
        title: None,
        output: None,
        structured: None,
        managed_path: None,
        truncated: None,
        started_ms: None,
        ended_ms: None,
        hosted: false,
    }
}
