//! Estimates the tokens of the next request.

use history::History;
use llm_protocol::{Message, Part, Role, ToolContent, ToolDefinition};

/// The bytes of one token, where no provider has counted.
const BYTES_PER_TOKEN: usize = 4;

/// Returns the tokens of so many bytes, rounded up.
fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX)
}

/// Returns the tokens of so many bytes, rounded up.
pub(crate) fn tokens_of(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN as u64)
}

/// Returns the bytes of so many tokens.
pub(crate) fn bytes_of(tokens: u64) -> u64 {
    tokens.saturating_mul(BYTES_PER_TOKEN as u64)
}

/// The bytes that an image or a document counts as: providers count its pixels or pages, about 1,600 tokens for a
/// usual one.
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

/// Returns the tokens of a text.
pub(crate) fn text(text: &str) -> u64 {
    tokens(text.len())
}

#[cfg(test)]
thread_local! {
    /// How many messages this thread has estimated, for tests of how the work grows.
    static ESTIMATED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
pub(crate) fn estimated() -> usize {
    ESTIMATED.get()
}

/// Returns the tokens of one message, at least one.
pub(crate) fn message(message: &Message) -> u64 {
    #[cfg(test)]
    ESTIMATED.set(ESTIMATED.get() + 1);
    tokens(bytes(message)).max(1)
}

/// A provider's count below this fraction of our own estimate is not a count: no text has so few tokens.
const LEAST_PLAUSIBLE: u64 = 4;

/// Returns the tokens of the conversation's next request: the provider's count for the last whole reply plus
/// everything since; or our estimate of everything, if no plausible count exists.
pub(crate) fn request<'t>(
    history: &History,
    agent: &str,
    tools: impl IntoIterator<Item = &'t ToolDefinition>,
) -> u64 {
    let (conversation, view) = (history.conversation(), history.view());
    let since = |from: usize| -> u64 {
        view.since(conversation, from).map(|(_, message)| self::message(message)).sum()
    };
    let all = whole(history, agent, tools);
    let Some((usage, covered)) = history.last_usage() else { return all };
    // The results of the reply's own calls came after the count.
    let last = covered.checked_sub(1).and_then(|last| conversation.messages().get(last));
    let results = last.is_some_and(|last| last.role == Role::Tool);
    let later = since(covered - usize::from(results));
    let counted = u64::try_from(usage.input.saturating_add(usage.output)).unwrap_or(0);
    let is_plausible = counted.saturating_mul(LEAST_PLAUSIBLE) >= all.saturating_sub(later);
    if is_plausible { counted.saturating_add(later) } else { all }
}

/// Returns our own estimate of the messages that a request shows.
pub(crate) fn messages(history: &History) -> u64 {
    history.view().since(history.conversation(), 0).map(|(_, message)| self::message(message)).sum()
}

/// Returns our own estimate of the conversation's next request, whatever a provider counted.
pub(crate) fn whole<'t>(
    history: &History,
    agent: &str,
    tools: impl IntoIterator<Item = &'t ToolDefinition>,
) -> u64 {
    fixed(history, agent, tools).saturating_add(messages(history))
}

/// Returns the tokens of a request besides the messages of the conversation.
pub(crate) fn fixed<'t>(
    history: &History,
    agent: &str,
    tools: impl IntoIterator<Item = &'t ToolDefinition>,
) -> u64 {
    let told = agent.len()
        + history.epoch().map_or(0, |epoch| epoch.baseline.len())
        + history.view().checkpoint().map_or(0, str::len);
    let tools = tools
        .into_iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.get().len());
    tokens(told + tools.sum::<usize>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{
        AttemptEnded, AttemptId, AttemptOutcome, IdMint, MessageId, NoticeKind, NoticeRecorded,
        PartId, ReplyPart, Seq, SessionEvent, Stamp, TurnId, TurnOutcome, TurnReplied, TurnSettled,
        TurnStarted, TurnUsage,
    };

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
    fn a_plausible_count_is_the_anchor_for_what_came_later() {
        assert_eq!(counted_as(3_000), 3_030 + 101);
    }

    // Finding scenarios F3: usage of 0, or close to it, was believed, so no Compaction came.
    #[test]
    fn a_count_that_cannot_be_true_is_not_believed() {
        let all = 10 + 10_000 + 2_000 + 101;
        assert_eq!(counted_as(0), all);
        assert_eq!(counted_as(-5), all);
        assert_eq!(counted_as(2_900), all, "less than a quarter of what it covers");
    }

    /// Returns the size of a request after a provider counted so many tokens for the one before.
    fn counted_as(counted: i64) -> u64 {
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
        let used = TurnUsage { input: counted, output: 30, ..TurnUsage::default() };
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
        let finish = domain::Finish::Stop.into();
        push(
            &mut history,
            TurnReplied { turn: turn.clone(), message: message.clone(), parts, finish },
        );
        let (outcome, usage) = (TurnOutcome::Completed, used);
        push(&mut history, TurnSettled { turn, message, outcome, usage, error: None });
        said(&mut history, &"z".repeat(401));
        request(&history, &agent(), &[])
    }
}
