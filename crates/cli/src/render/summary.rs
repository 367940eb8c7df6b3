//! Summarises durable events in a few words, for `session log`.

use domain::{
    Answer, Ask, InterruptTarget, ModelRef, PromptPart, ReplyPart, SessionError, SessionEvent,
    ToolOutcomeKind, TurnOutcome,
};
use serde::Serialize;

use super::printable;

const MAX_WORDS: usize = 100;

/// Summarises an event in one line without control characters.
#[must_use]
pub fn summary(event: &SessionEvent) -> String {
    let text = match event {
        SessionEvent::SessionCreated(created) => {
            format!("in {} with agent {}", created.directory, created.agent)
        }
        SessionEvent::PromptAdmitted(admitted) => {
            let how = admitted.delivery.as_str();
            format!("{} ({how}): {}", admitted.message, prompt(&admitted.parts))
        }
        SessionEvent::PromptPromoted(promoted) => {
            format!("{}: {}", promoted.message, prompt(&promoted.parts))
        }
        SessionEvent::EpochStarted(started) => {
            format!("epoch {}, baseline of {} bytes", started.epoch, started.baseline.len())
        }
        SessionEvent::ContextUpdated(updated) => updated.rendered.clone(),
        SessionEvent::TurnStarted(started) => {
            let ModelRef { provider, model, variant } = &started.model;
            let variant = variant.as_ref().map_or(String::new(), |name| format!(" ({name})"));
            let notice = started.notice.as_ref().map_or(String::new(), |told| format!(": {told}"));
            let (turn, step) = (&started.turn, started.step);
            format!("{turn} step {step}, {provider}/{model}{variant}{notice}")
        }
        SessionEvent::AttemptStarted(started) => {
            let hash = started.body_hash.get(..12).unwrap_or(&started.body_hash);
            format!("{} try {}, body {hash}", started.attempt, started.ordinal)
        }
        SessionEvent::AttemptEnded(ended) => {
            let tokens = ended.usage.map_or(String::new(), |usage| {
                format!(", {} tokens in, {} out", usage.input, usage.output)
            });
            format!("{} {}{tokens}{}", ended.attempt, word(&ended.outcome), why(&ended.error))
        }
        SessionEvent::RetryScheduled(retry) => {
            format!("try {} of {}: {}", retry.ordinal, retry.turn, retry.error.message)
        }
        SessionEvent::TextCheckpointed(piece) => {
            format!("{} bytes of {} kept", piece.offset + piece.text.len() as i64, piece.part)
        }
        SessionEvent::ToolCalled(called) => {
            let intent = &called.intent;
            let state = word(&called.state);
            format!("{} {state}: {} {}", intent.call, intent.tool, intent.arguments)
        }
        SessionEvent::ToolAsked(asked) => match &asked.about {
            Ask::Permission { action, resources, .. } => {
                format!("{} waits for {}: {action} {}", asked.call, asked.ask, resources.join(", "))
            }
            Ask::Question { questions } => {
                let texts = questions.iter().map(|asked| asked.question.as_str());
                let texts = texts.collect::<Vec<_>>().join(" ");
                format!("{} waits for {}: {texts}", asked.call, asked.ask)
            }
        },
        SessionEvent::ToolAnswered(answered) => {
            let how = match &answered.answer {
                Answer::Once => "once".to_owned(),
                Answer::Always { patterns } => format!("always {}", patterns.join(", ")),
                Answer::Granted => "granted by a saved permission".to_owned(),
                Answer::Reject { message } => {
                    format!("rejected {}", message.as_deref().unwrap_or_default())
                }
                Answer::Answers { answers } => format!("{} answers", answers.len()),
                Answer::Dismissed => "dismissed".to_owned(),
                Answer::Expired => "expired".to_owned(),
            };
            format!("{} of {}: {how}", answered.ask, answered.call)
        }
        SessionEvent::ToolStarted(started) => format!("{} body {}", started.call, started.body),
        SessionEvent::ToolSettled(settled) => {
            let how = match settled.outcome {
                ToolOutcomeKind::Completed => "completed",
                ToolOutcomeKind::Failed => "failed",
                ToolOutcomeKind::Interrupted => "interrupted",
                ToolOutcomeKind::Unknown => "interrupted, outcome unknown",
            };
            format!("{} {how}: {}", settled.call, settled.title)
        }
        SessionEvent::TurnReplied(replied) => {
            let calls = replied.parts.iter();
            let calls = calls.filter(|part| matches!(part, ReplyPart::ToolCall { .. })).count();
            let hosted = replied.parts.iter().filter_map(|part| match part {
                ReplyPart::HostedCall { name, .. } => Some(format!(", {name} by the provider")),
                ReplyPart::Text { .. }
                | ReplyPart::Reasoning { .. }
                | ReplyPart::ToolCall { .. }
                | ReplyPart::HostedResult { .. } => None,
            });
            let hosted: String = hosted.collect();
            let said = replied.parts.iter().find_map(|part| match part {
                ReplyPart::Text { text, .. } => Some(text.as_str()),
                ReplyPart::Reasoning { .. }
                | ReplyPart::ToolCall { .. }
                | ReplyPart::HostedCall { .. }
                | ReplyPart::HostedResult { .. } => None,
            });
            let turn = &replied.turn;
            let said = said.unwrap_or_default();
            format!("{turn} {}, {calls} calls{hosted}: {said}", replied.finish)
        }
        SessionEvent::TurnSettled(settled) => {
            let how = match settled.outcome {
                TurnOutcome::Completed => "completed",
                TurnOutcome::Cut => "cut, goes on",
                TurnOutcome::Failed => "failed",
                TurnOutcome::Interrupted => "interrupted",
                TurnOutcome::Lost => "lost, starts over",
                TurnOutcome::Overflowed => "too long for the model",
            };
            format!("{} {how}{}", settled.turn, why(&settled.error))
        }
        SessionEvent::NoticeRecorded(notice) => notice.text.clone(),
        SessionEvent::InterruptRequested(asked) => match &asked.target {
            InterruptTarget::Turn { turn } => format!("of {turn}"),
            InterruptTarget::Drain => "between two turns".to_owned(),
            InterruptTarget::Parked => "of waiting prompts".to_owned(),
        },
        SessionEvent::DrainEnded(ended) => format!("{}{}", word(&ended.outcome), why(&ended.error)),
        SessionEvent::SessionRenamed(renamed) => renamed.title.clone(),
        SessionEvent::SessionArchived(said) if said.archived.is_none() => "no more".into(),
        SessionEvent::SessionArchived(_) => String::new(),
        SessionEvent::SessionDescribed(said) => said.metadata.clone(),
        SessionEvent::EntrySet(entry) => format!("{} = {}", entry.key, entry.value),
        SessionEvent::EntryRemoved(entry) => entry.key.clone(),
        SessionEvent::ControlAdmitted(control) => {
            format!("{} {}", control.message, control.delivery.as_str())
        }
        SessionEvent::ControlDelivered(delivered) => {
            format!("{}{}", delivered.message, why(&delivered.error))
        }
        SessionEvent::InputCancelled(cancelled) => cancelled.message.to_string(),
        SessionEvent::DeliveryChanged(changed) => {
            format!("{} {}", changed.message, changed.delivery.as_str())
        }
        SessionEvent::WakeRequested(_) => String::new(),
        SessionEvent::CompactionStarted(started) => {
            format!("{} {}", started.turn, word(&started.reason))
        }
        SessionEvent::CompactionReminded(reminded) => format!("{} asked again", reminded.turn),
        SessionEvent::CompactionEnded(ended) => {
            format!("{} {}{}", ended.turn, word(&ended.outcome), why(&ended.error))
        }
        SessionEvent::TitleStarted(started) => started.turn.to_string(),
        SessionEvent::TitleEnded(ended) => {
            format!("{} {}{}", ended.turn, word(&ended.outcome), why(&ended.error))
        }
        SessionEvent::SessionMoved(moved) => format!("{} to {}", moved.from, moved.to),
        SessionEvent::SessionForked(forked) => {
            format!("of {} up to {}", forked.parent, forked.through)
        }
        SessionEvent::WorkspaceSnapshotted(captured) => {
            let more = usize::try_from(captured.more).unwrap_or(0);
            format!("{} files, tree {}", captured.files.len() + more, captured.tree)
        }
        SessionEvent::WorkspaceRestored(restored) => {
            format!("without the effects of {} calls", restored.lost.len())
        }
        SessionEvent::RevertStaging(staging) => staging.message.to_string(),
        SessionEvent::RevertStaged(staged) => staged.message.to_string(),
        SessionEvent::RevertCleared(cleared) => why(&cleared.error),
        SessionEvent::RevertCommitted(committed) => committed.message.to_string(),
    };
    printable::line(&text, MAX_WORDS)
}

fn prompt(parts: &[PromptPart]) -> String {
    parts
        .iter()
        .map(|part| match part {
            PromptPart::Text { text, .. } => text.as_str(),
        })
        .collect::<Vec<_>>()
        .join(" ")
}

fn why(error: &Option<SessionError>) -> String {
    error.as_ref().map_or(String::new(), |error| format!(": {} ({})", error.message, error.code))
}

/// Returns a state's or an outcome's word on the wire.
fn word(state: &impl Serialize) -> String {
    let word = serde_json::to_value(state).expect("our states serialise");
    word.as_str().unwrap_or_default().to_owned()
}
