//! The first write of a drain.

use domain::{
    AttemptOutcome, DrainEnd, DrainOutcome, ErrorCode, Finish, SessionError, Taken,
    ToolOutcomeKind, TurnOutcome, TurnReplied,
};

use history::Reverting;

use crate::asks::settle_asked;
use crate::boundary::{Next, end};
use crate::draft::{Draft, Verdict};
use crate::observed::Observation;
use crate::recover::{UNKNOWN, kept_reply};
use crate::rules::{Rules, WorkspaceState};
use crate::said::Said;
use crate::settle::{settle_open_calls, settle_turn};
use crate::site::Site;
use crate::title::lose_title;

/// The most takeovers in a row that may die before they have begun anything: the first look is then what kills them.
const MAX_BLIND_RECOVERIES: i16 = 1;

impl Rules<'_> {
    /// Claims a session whose files nobody has looked at yet, and begins nothing: [`Rules::open`] comes after the
    /// look. If the look kills the worker, the session stays open, so that the next takeover counts it. After two in
    /// a row the session is given up without a look.
    pub fn count(&self, draft: &mut Draft<'_>, taken: Taken) -> Verdict<Option<Next>> {
        let history = draft.history();
        let has_begun = history.open_turn().is_some()
            || history.compacting().is_some()
            || history.revert().is_some()
            || history.wants_turn();
        let allowed = if has_begun { self.settings.max_recoveries } else { MAX_BLIND_RECOVERIES };
        if taken.recoveries > allowed {
            return self.give_up(draft, exhausted(taken.recoveries)).map(Some);
        }
        Verdict::Write(None, DrainEnd::Keep, Site::Counted)
    }

    /// Writes the claim with the first boundary, or with the judgement of the turn that an earlier owner left open.
    pub fn open(
        &self,
        draft: &mut Draft<'_>,
        taken: Taken,
        observed: &Observation,
    ) -> Verdict<Next> {
        lose_title(draft);
        let history = draft.history();
        let continuing = taken.was_open
            && history.is_serving()
            && history.wants_turn()
            && history.revert().is_none();
        let is_missing = matches!(self.workspace, WorkspaceState::Missing(_));
        if let WorkspaceState::Missing(error) = self.workspace {
            let is_free = history.open_turn().is_none()
                && history.compacting().is_none()
                && !matches!(history.revert(), Some(Reverting::Staging(_)));
            if !is_free || !self.leaves(history, continuing) {
                return self.give_up(draft, error.clone());
            }
        }
        if taken.recoveries > self.settings.max_recoveries && !mutated!(ExhaustionIgnored) {
            return self.give_up(draft, exhausted(taken.recoveries));
        }
        if is_missing {
            return self.cross(draft, continuing, observed);
        }
        if let Some(continuing) = self.lose_compaction(draft) {
            self.note_restored(draft);
            return self.cross(draft, continuing, observed);
        }
        if draft.history().open_turn().is_some() {
            return self.take_over(draft, observed);
        }
        self.note_restored(draft);
        if let Some(verdict) = self.resume_revert(draft) {
            return verdict;
        }
        self.cross(draft, continuing, observed)
    }

    /// Ends the drain on an error that prevents any work, and settles everything that was open.
    pub(crate) fn give_up(&self, draft: &mut Draft<'_>, error: SessionError) -> Verdict<Next> {
        self.lose_compaction(draft);
        if let Some(open) = draft.history().open_turn().cloned() {
            let said = Said::new(open.turn.clone(), open.message.clone());
            self.end_attempt(draft, &said, AttemptOutcome::Lost);
            let parts = kept_reply(&open);
            if open.reply.is_none() && !parts.is_empty() {
                let finish = Finish::Cut.into();
                let (turn, message) = (open.turn.clone(), open.message.clone());
                draft.push(TurnReplied { turn, message, parts, finish });
            }
            settle_asked(draft, &open.turn);
            settle_open_calls(draft, &open.turn, ToolOutcomeKind::Unknown, UNKNOWN);
            settle_turn(draft, &said, TurnOutcome::Failed, Some(error.clone()));
        }
        let next = end(draft, DrainOutcome::Failed, Some(error));
        Verdict::Write(next, DrainEnd::Park, Site::GivenUp)
    }
}

/// Returns the error for a session that keeps losing its workers.
fn exhausted(recoveries: i16) -> SessionError {
    SessionError {
        code: ErrorCode::SessionRecoveryExhausted.into(),
        message: format!(
            "its worker died {recoveries} times in a row without any progress; what it was doing may be what \
             kills it: look at the last tool calls and at the files of the workspace, then send a prompt to go on"
        ),
    }
}
