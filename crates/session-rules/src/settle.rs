//! The events that close open attempts, replies, calls and turns.

use domain::{
    AttemptEnded, AttemptOutcome, CallId, Finish, MessageId, NoticeKind, NoticeRecorded, Pricing,
    ReplyPart, SessionError, TimestampMs, ToolOutcomeKind, ToolSettled, TurnId, TurnOutcome,
    TurnReplied, TurnSettled, TurnUsage,
};
use llm_protocol::Usage;

use crate::draft::Draft;
use crate::reply::without_state;
use crate::rules::Rules;
use crate::said::Said;

/// Converts a provider's counts, which are plausible. The prices add the cost.
pub(crate) fn token_usage(usage: Usage) -> TurnUsage {
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    TurnUsage {
        input: count(usage.input_tokens),
        output: count(usage.output_tokens),
        reasoning: count(usage.reasoning_tokens),
        cache_read: count(usage.cache_read_tokens),
        cache_write: count(usage.cache_write_tokens),
        cost: 0,
    }
}

/// Adds a notice for the model.
pub(crate) fn notice(draft: &mut Draft<'_>, kind: NoticeKind, text: &str) {
    let message = MessageId::mint(draft.mint());
    draft.push(NoticeRecorded { message, kind, text: text.to_owned() });
}

/// Returns an attempt's usage as the provider counted it, with its cost at the prices of the attempt's start.
pub(crate) fn used(pricing: Option<&Pricing>, usage: Option<Usage>) -> Option<TurnUsage> {
    let mut used = token_usage(usage?);
    used.cost = pricing.map_or(0, |pricing| pricing.prices.cost(&used));
    Some(used)
}

/// Returns the usage of the open turn's attempt.
pub(crate) fn turn_used(draft: &Draft<'_>, usage: Option<Usage>) -> Option<TurnUsage> {
    used(draft.history().open_turn().and_then(|open| open.pricing.as_deref()), usage)
}

impl Rules<'_> {
    /// Returns the parts of a reply, without the calls that `keep` refuses.
    pub(crate) fn parts(&self, said: &Said, keep: impl Fn(&CallId) -> bool) -> Vec<ReplyPart> {
        let parts = said.reply.parts(keep);
        if self.settings.provider_state { parts } else { without_state(parts) }
    }

    /// Writes an incomplete reply, without the calls that have no intent.
    pub(crate) fn close_reply(&self, draft: &mut Draft<'_>, said: &Said, finish: Finish) {
        let Some(open) = draft.history().open_turn() else { return };
        if open.reply.is_some() {
            return;
        }
        let parts = self.parts(said, |call| open.call(call).is_some());
        if !parts.is_empty() {
            draft.push(TurnReplied {
                turn: said.turn.clone(),
                message: said.message.clone(),
                parts,
                finish: finish.into(),
            });
        }
    }

    /// Ends the open attempt of the turn, if there is one.
    pub(crate) fn end_attempt(&self, draft: &mut Draft<'_>, said: &Said, outcome: AttemptOutcome) {
        let open = draft.history().open_turn().and_then(|open| open.attempt.clone());
        if let Some(attempt) = open {
            draft.push(AttemptEnded {
                attempt,
                turn: said.turn.clone(),
                outcome,
                usage: turn_used(draft, said.usage),
                error: None,
            });
        }
    }
}

/// Writes the results that are not committed.
pub(crate) fn push_done(draft: &mut Draft<'_>, said: &Said) {
    for settled in &said.done {
        draft.push(settled.clone());
    }
}

/// Settles every call that has no result.
pub(crate) fn settle_open_calls(
    draft: &mut Draft<'_>,
    turn: &TurnId,
    outcome: ToolOutcomeKind,
    output: &str,
) {
    let open: Vec<CallId> = draft
        .history()
        .open_turn()
        .map(|open| open.calls.iter())
        .into_iter()
        .flatten()
        .filter(|(_, call)| call.settled.is_none())
        .map(|(id, _)| id.clone())
        .collect();
    let now = draft.now();
    for call in open {
        draft.push(settled_as(turn.clone(), call, outcome, output, now));
    }
}

/// Settles the turn, whose calls all have results.
pub(crate) fn settle_turn(
    draft: &mut Draft<'_>,
    said: &Said,
    outcome: TurnOutcome,
    error: Option<SessionError>,
) {
    debug_assert!(draft.history().open_turn().is_none_or(history::OpenTurn::is_settled));
    push_settled(draft, said, outcome, error);
    draft.progress();
}

/// Settles a turn of which nothing is durable. This is no progress: the recovery counter stays.
pub(crate) fn settle_lost(draft: &mut Draft<'_>, said: &Said) {
    push_settled(draft, said, TurnOutcome::Lost, None);
}

/// Settles a turn whose request the provider refused as too large. This is no progress, and its step does not count.
pub(crate) fn settle_overflowed(draft: &mut Draft<'_>, said: &Said, error: SessionError) {
    push_settled(draft, said, TurnOutcome::Overflowed, Some(error));
}

fn push_settled(
    draft: &mut Draft<'_>,
    said: &Said,
    outcome: TurnOutcome,
    error: Option<SessionError>,
) {
    let usage = draft.history().open_turn().map(|open| open.usage).unwrap_or_default();
    let (turn, message) = (said.turn.clone(), said.message.clone());
    draft.push(TurnSettled { turn, message, outcome, usage, error });
}

/// Returns a settlement that no body gave.
#[must_use]
pub fn settled_as(
    turn: TurnId,
    call: CallId,
    outcome: ToolOutcomeKind,
    output: &str,
    now: TimestampMs,
) -> ToolSettled {
    ToolSettled {
        turn,
        call,
        outcome,
        output: output.to_owned(),
        title: match outcome {
            ToolOutcomeKind::Completed => "completed",
            ToolOutcomeKind::Failed => "failed",
            ToolOutcomeKind::Interrupted => "interrupted",
            ToolOutcomeKind::Unknown => "outcome unknown",
        }
        .to_owned(),
        structured: None,
        managed_path: None,
        truncated: false,
        started: now,
        ended: now,
    }
}
