//! The rule that decides on each operation.

use std::time::Duration;

use domain::{
    AttemptId, AttemptStarted, PartId, SessionError, SnapshotTree, Taken, ToolIntent, TurnOutcome,
};
use llm_protocol::Usage;
use session_rules::{
    Answered, Compacted, Draft, MovePlan, Next, Observation, Replied, RestoredFiles, Rules,
    TurnPlan, Verdict,
};

use super::Turn;

/// An operation that a drain writes.
pub(super) enum Op {
    Open(Taken, Observation),
    /// More of an inbox is promoted that was too large for one write.
    Rest(Observation),
    Replied(Observation),
    Settled(TurnOutcome, Observation),
    Interrupted,
    Failed(SessionError),
    Cut(SessionError, i64),
    Retry(Option<Usage>, SessionError, i64),
    /// Every started body has ended, and calls were asked about.
    Answered(TurnOutcome),
    /// Somebody may have answered while bodies run.
    Leave,
    Intents,
    Results,
    Checkpoint(Vec<(PartId, usize, String)>),
    StartAgain(Vec<(ToolIntent, i32)>),
    /// The provider refused a request as too large; when it may be sent again otherwise.
    Overflowed(SessionError, Option<i64>, Observation),
    Summarised(Observation),
    CompactionFailed(SessionError, Observation),
    CompactionCancelled,
    TitleWaited(Observation),
    /// A Revert's original is captured.
    Captured(Result<SnapshotTree, SessionError>, Observation),
    /// Files are put back.
    Restored(Result<RestoredFiles, SessionError>, Observation),
    Moved(MovePlan, Result<Option<SnapshotTree>, SessionError>, Observation),
}

/// The decision of a rule.
pub(super) enum Decided {
    Next(Next),
    Replied(Replied),
    Settled(Option<Next>),
    Answered(Answered),
    Leave(Vec<ToolIntent>),
    Overflowed(Option<Next>),
    Compacted(Compacted),
    Intents(bool),
    Attempt(Box<AttemptStarted>),
    Done,
}

/// The decision of an operation on the turn that is open, if one is.
pub(super) fn decided(
    rules: &Rules<'_>,
    draft: &mut Draft<'_>,
    op: &Op,
    turn: Option<&Turn>,
) -> Verdict<Decided> {
    if let Op::Open(taken, observed) = op {
        return rules.open(draft, *taken, observed).map(Decided::Next);
    }
    if let Op::Rest(observed) = op {
        return rules.cross(draft, true, observed).map(Decided::Next);
    }
    if let Op::TitleWaited(observed) = op {
        return rules.title_waited(draft, observed).map(Decided::Next);
    }
    if let Op::Captured(original, observed) = op {
        return rules.captured(draft, original.clone(), observed).map(Decided::Next);
    }
    if let Op::Restored(done, observed) = op {
        return rules.restored(draft, done.clone(), observed).map(Decided::Next);
    }
    if let Op::Moved(plan, carried, observed) = op {
        return rules.moved(draft, *plan, carried.clone(), observed).map(Decided::Next);
    }
    let Some(turn) = turn else { unreachable!("any other operation is of a turn") };
    of_turn(rules, draft, op, turn)
}

fn of_turn(rules: &Rules<'_>, draft: &mut Draft<'_>, op: &Op, turn: &Turn) -> Verdict<Decided> {
    let said = &turn.said;
    match op {
        Op::Open(..)
        | Op::Rest(_)
        | Op::TitleWaited(_)
        | Op::Captured(..)
        | Op::Restored(..)
        | Op::Moved(..) => unreachable!("they are of no turn"),
        Op::Replied(observed) => {
            rules.replied(draft, attempt(turn), said, observed).map(Decided::Replied)
        }
        Op::Settled(outcome, observed) => {
            rules.settled(draft, said, *outcome, observed).map(Decided::Settled)
        }
        Op::Answered(_) => rules.answered(draft, said).map(Decided::Answered),
        Op::Leave => rules.leave(draft, said).map(Decided::Leave),
        Op::Interrupted => rules.interrupted(draft, said).map(Decided::Next),
        Op::Failed(error) => rules.failed(draft, attempt(turn), said, error).map(Decided::Next),
        Op::Cut(error, _) => rules.cut(draft, attempt(turn), said, error).map(|()| Decided::Done),
        Op::Retry(usage, error, delay) => {
            let wait = Duration::from_millis(delay.unsigned_abs());
            let failed = &plan(turn).started;
            rules
                .retry(draft, failed, *usage, error, wait)
                .map(|next| Decided::Attempt(Box::new(next)))
        }
        Op::Intents => rules.intents(draft, said).map(Decided::Intents),
        Op::Results => rules.results(draft, said).map(|()| Decided::Done),
        Op::Checkpoint(unkept) => {
            rules.checkpoint(draft, &said.turn, unkept).map(|()| Decided::Done)
        }
        Op::StartAgain(calls) => {
            rules.start_again(draft, &said.turn, calls).map(|()| Decided::Done)
        }
        Op::Overflowed(error, _, observed) => {
            let attempt = attempt(turn);
            rules.overflowed(draft, attempt, said, error, observed).map(Decided::Overflowed)
        }
        Op::Summarised(observed) => {
            rules.summarised(draft, plan(turn), said, observed).map(Decided::Compacted)
        }
        Op::CompactionFailed(error, observed) => {
            rules.compaction_failed(draft, plan(turn), said, error, observed).map(Decided::Next)
        }
        Op::CompactionCancelled => rules.compaction_cancelled(draft, said).map(Decided::Next),
    }
}

fn plan(turn: &Turn) -> &TurnPlan {
    turn.plan.as_deref().unwrap_or_else(|| unreachable!("only what was taken over has no plan"))
}

fn attempt(turn: &Turn) -> &AttemptId {
    &plan(turn).started.attempt
}
