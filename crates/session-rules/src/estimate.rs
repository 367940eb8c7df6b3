//! How large the next request is, in tokens, and how large it may be.

use history::{History, ModelEntry};
use llm_protocol::{Message, Part, Role, ToolContent, ToolDefinition};

use crate::rules::CompactionSettings;

/// Bytes that stand for one token, where nobody has counted.
const BYTES_PER_TOKEN: usize = 4;

/// Tokens of so many bytes, rounded up.
fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX)
}

/// What an image or a document counts as: providers count its pixels or pages, about 1,600 tokens of a usual one.
const MEDIA_BYTES: usize = 6_400;

fn shown(content: &ToolContent) -> usize {
    match content {
        ToolContent::Text { text } => text.len(),
        ToolContent::Media { .. } => MEDIA_BYTES,
    }
}

fn bytes(message: &Message) -> usize {
    let part = |part: &Part| match part {
        Part::Text(text) | Part::Reasoning(text) => text.text.len(),
        Part::Media(_) => MEDIA_BYTES,
        Part::ToolCall(call) => call.name.len() + call.arguments.len(),
        Part::ToolResult(result) => result.content.iter().map(shown).sum(),
    };
    message.content.iter().map(part).sum()
}

/// Tokens of a text.
pub(crate) fn text(text: &str) -> u64 {
    tokens(text.len())
}

/// Tokens of one message, at least one.
pub(crate) fn message(message: &Message) -> u64 {
    tokens(bytes(message)).max(1)
}

/// Tokens of the next request of the conversation: what the provider counted for the last whole reply and
/// what has come since; or all of it, where nobody has counted.
pub(crate) fn request<'t>(
    history: &History,
    agent: &str,
    tools: impl IntoIterator<Item = &'t ToolDefinition>,
) -> u64 {
    let messages = history.conversation().messages();
    let view = history.view();
    let since = |from: usize| -> u64 {
        let later = messages.iter().enumerate().skip(from.max(view.from()));
        later.filter(|(at, seen)| view.shows(*at, seen)).map(|(_, seen)| message(seen)).sum()
    };
    if let Some((usage, covered)) = history.last_usage() {
        // The results of the reply's own calls came after the count.
        let results =
            covered > 0 && messages.get(covered - 1).is_some_and(|last| last.role == Role::Tool);
        let counted = u64::try_from(usage.input.saturating_add(usage.output)).unwrap_or(0);
        return counted.saturating_add(since(covered - usize::from(results)));
    }
    let told = agent.len()
        + history.epoch().map_or(0, |epoch| epoch.baseline.len())
        + view.checkpoint().map_or(0, str::len);
    let tools = tools
        .into_iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.get().len());
    tokens(told + tools.sum::<usize>()).saturating_add(since(0))
}

/// From how many tokens on a request is compacted first. `None`: the model's context is not known.
///
/// What is kept free for the answer is never more than half of the context: a small one would otherwise be
/// compacted before every turn.
pub(crate) fn threshold(settings: &CompactionSettings, model: &ModelEntry) -> Option<u64> {
    let context = model.context_limit.filter(|limit| *limit > 0)?;
    let answer = model.output_limit.unwrap_or(settings.output_cap).min(settings.output_cap);
    Some(context - answer.max(settings.buffer).min(context / 2))
}

#[cfg(test)]
mod tests {
    use domain::{
        AttemptEnded, AttemptId, AttemptOutcome, IdMint, MessageId, NoticeKind, NoticeRecorded,
        PartId, ReplyPart, Seq, SessionEvent, Stamp, TurnId, TurnOutcome, TurnReplied, TurnSettled,
        TurnStarted, TurnUsage,
    };
    use llm_protocol::Protocol;

    use super::*;

    fn model(context_limit: Option<u64>, output_limit: Option<u64>) -> ModelEntry {
        ModelEntry {
            provider: "p".into(),
            id: "m".into(),
            protocol: Protocol::OpenAiChat,
            context_limit,
            output_limit,
            dialect: llm_protocol::Dialect::default(),
        }
    }

    fn said(history: &mut History, text: &str) {
        let mut mint = IdMint::after(Stamp::default(), 1);
        let message = MessageId::mint(&mut mint);
        let text = text.to_owned();
        push(history, NoticeRecorded { message, kind: NoticeKind::Recovery, text });
    }

    fn push(history: &mut History, event: impl Into<SessionEvent>) {
        history.apply(Seq(history.seq().0 + 1), 1, &event.into());
    }

    fn agent() -> String {
        "a".repeat(40)
    }

    #[test]
    fn without_a_count_everything_is_estimated() {
        let mut history = History::new();
        said(&mut history, &"x".repeat(400));
        assert_eq!(request(&history, &agent(), &[]), 110);
    }

    #[test]
    fn what_a_provider_counted_is_the_anchor_and_only_what_came_later_is_estimated() {
        let mut history = History::new();
        said(&mut history, &"x".repeat(40_000));
        let mut mint = IdMint::after(Stamp::default(), 1);
        let (turn, message) = (TurnId::mint(&mut mint), MessageId::mint(&mut mint));
        let model = domain::ModelRef::new("p", "m");
        push(
            &mut history,
            TurnStarted {
                turn: turn.clone(),
                message: message.clone(),
                parent: message.clone(),
                agent: "build".into(),
                model,
                epoch: 1,
                step: 1,
                notice: None,
            },
        );
        let used = TurnUsage { input: 700, output: 30, ..TurnUsage::default() };
        push(
            &mut history,
            AttemptEnded {
                attempt: AttemptId::mint(&mut mint),
                turn: turn.clone(),
                outcome: AttemptOutcome::Completed,
                usage: Some(used),
                error: None,
            },
        );
        let parts = vec![ReplyPart::text(PartId::mint(&mut mint), "y".repeat(8_000))];
        let finish = "stop".to_owned();
        push(
            &mut history,
            TurnReplied { turn: turn.clone(), message: message.clone(), parts, finish },
        );
        let (outcome, usage) = (TurnOutcome::Completed, used);
        push(&mut history, TurnSettled { turn, message, outcome, usage, error: None });
        said(&mut history, &"z".repeat(401));
        assert_eq!(request(&history, &agent(), &[]), 730 + 101);
    }

    #[test]
    fn the_threshold_leaves_room_for_an_answer_and_a_buffer() {
        let settings = CompactionSettings::default();
        let of = |context, output| threshold(&settings, &model(context, output));
        assert_eq!(of(None, Some(8_000)), None);
        assert_eq!(of(Some(0), None), None);
        assert_eq!(of(Some(200_000), Some(8_000)), Some(180_000), "the buffer is larger");
        assert_eq!(of(Some(200_000), Some(64_000)), Some(168_000), "capped");
        assert_eq!(of(Some(200_000), None), Some(168_000));
        assert_eq!(of(Some(16_000), Some(16_000)), Some(8_000), "a model whose answer may fill it");
    }
}
