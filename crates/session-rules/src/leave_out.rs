//! Lets the oldest exchanges leave the view where no summary of them can be made: a Compaction without a request, whose
//! checkpoint says what is missing.

use std::borrow::Cow;

use domain::{EpochReason, EpochStarted, NoticeKind, Seq, SessionError, SideOutcome, SummaryScope};
use history::History;
use llm_protocol::Role;

use crate::begin::Sampled;
use crate::compact::{Wanted, bounded_summary, end_compaction, failed, push_started};
use crate::draft::Draft;
use crate::estimate;
use crate::observed::{Observation, next_epoch};
use crate::rules::Rules;
use crate::settle::notice;
use crate::tail::Tail;
use crate::texts;

impl Rules<'_> {
    /// Drafts that the oldest exchanges leave the view. `refused`: the tokens of the turn's request that the provider has
    /// just refused.
    ///
    /// # Errors
    /// When nothing can leave, or the next epoch cannot begin. Then nothing is drafted.
    pub(crate) fn leave_out(
        &self,
        draft: &mut Draft<'_>,
        refused: Option<u64>,
        observed: &Observation,
    ) -> Result<(), SessionError> {
        let history = draft.history();
        let Sampled { agent, model } = self.sample(history)?;
        let limits = self.limits(history, &model, refused);
        let tail = self.tail(history, limits, true);
        let exchanges = exchanges(history, &tail);
        if tail.summarised == 0 || exchanges == 0 {
            return Err(failed("nothing of the conversation can be left out"));
        }
        let first = observed.replace(history, &self.skills(history, observed))?;
        let epoch = next_epoch(history)?;
        let summary = history.view().checkpoint().map(texts::without_left_out).unwrap_or_default();
        let left_out = history.failed_summaries().left_out.saturating_add(exchanges);
        let summary = match estimate::text(summary) <= limits.share() {
            true => Cow::Borrowed(summary),
            false => bounded_summary(summary, Some(limits)),
        };
        let checkpoint = texts::left_out(&summary, left_out);
        let place = |at: usize| history.conversation().place(at);
        let (view, conversation) = (history.view(), history.conversation());
        let stays = view.since(conversation, 0).filter(|(at, said)| {
            (*at >= tail.from || tail.kept.contains(at)) && said.role != Role::System
        });
        let stays: u64 = stays.map(|(_, said)| estimate::message(said)).sum();
        let before = view.checkpoint().map_or(0, estimate::text);
        let fixed = self.fixed(history, agent).saturating_sub(before);
        let scope = SummaryScope {
            kept: tail.kept.iter().filter_map(|at| place(*at)).collect(),
            tokens: fixed + estimate::text(&checkpoint) + stays,
            refused,
            left_out: exchanges,
            ..SummaryScope::default()
        };
        let keep_from = place(tail.from).unwrap_or(Seq(history.seq().0 + 1));
        let wanted = Wanted::auto();
        push_started(draft, wanted, model.reference, String::new(), (keep_from, scope.clone()));
        end_compaction(draft, SideOutcome::Completed, Some(checkpoint), None);
        let (baseline, snapshot) = (first.baseline, first.snapshot.text());
        let reason = Some(EpochReason::Compaction);
        draft.push(EpochStarted { epoch, baseline, snapshot, reason });
        if wants_word(draft.history(), &scope) && !mutated!(NotToldToGoOn) {
            notice(draft, NoticeKind::Continuation, texts::GO_ON_WITHOUT);
        }
        Ok(())
    }
}

/// Returns whether the model must be told to go on: of its work in progress it sees the prompts alone. With a tail it knows
/// its next step by itself.
pub(crate) fn wants_word(history: &History, scope: &SummaryScope) -> bool {
    let (view, conversation) = (history.view(), history.conversation());
    !scope.kept.is_empty() && view.since(conversation, view.from()).next().is_none()
}

/// Returns the number of exchanges that leave the view with a tail: prompts with their answers.
fn exchanges(history: &History, tail: &Tail) -> u32 {
    let shown = history.view().since(history.conversation(), 0);
    let leave = shown.filter(|(at, _)| *at < tail.from && !tail.kept.contains(at));
    let mut exchanges = 0;
    let mut is_answered = true;
    for (_, message) in leave.filter(|(_, message)| message.role != Role::System) {
        let begins = message.role == Role::User && is_answered;
        exchanges += u32::from(begins || exchanges == 0);
        is_answered = message.role != Role::User;
    }
    exchanges
}
