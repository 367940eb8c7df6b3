//! Continues a turn that an earlier owner left open.

use domain::{
    AttemptOutcome, CallId, DrainEnd, DrainOutcome, Finish, ReplyPart, TimestampMs, ToolClass,
    ToolIntent, ToolOutcomeKind, ToolSettled, ToolStarted, ToolState, TurnId, TurnOutcome,
    TurnReplied,
};
use history::{CallState, OpenTurn, Standing};

use crate::boundary::{Next, end};
use crate::draft::{Draft, Verdict};
use crate::observed::Observation;
use crate::rules::Rules;
use crate::said::Said;
use crate::settle::{settle_lost, settle_open_calls, settle_turn, settled_as};
use crate::site::Site;

pub(crate) const UNKNOWN: &str = "The worker that ran this call stopped before the result was recorded. Whether the \
call had its effect is unknown: check the state of the workspace before you repeat it.";

const CHANGED: &str = "The tool is not the one that was offered any more, so this call was not run. Call it again if it still helps.";

const TOO_OFTEN: &str = "The worker stopped each time that this call ran. It was given up.";

/// The treatment of a call without a result.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// Run its body, as this number.
    Run(i32),
    /// Look for its effect first. If it is missing, run the body as this number.
    Probe(i32),
    /// Settle it as unknown.
    Unknown,
    /// Settle it as failed.
    GiveUp,
    /// Settle it as failed, since its tool is another one now.
    Changed,
    /// It waits for answers.
    Wait,
}

/// Returns the fate of a call whose tool is another one than the model was offered. No body of the new tool runs for it:
/// leave was given for the old one.
fn fate_of_changed(call: &CallState) -> Fate {
    match (call.state, call.class) {
        // Its answer is its end, and needs no body.
        (ToolState::Asked, _)
            if !matches!(call.standing(), Some(Standing::Open | Standing::Leave)) =>
        {
            Fate::Wait
        }
        (ToolState::Asked | ToolState::Intended, _) | (_, ToolClass::Pure) => Fate::Changed,
        (_, ToolClass::Keyed | ToolClass::Probe | ToolClass::Unsafe) => Fate::Unknown,
    }
}

fn fate(call: &CallState, max_bodies: i32) -> Fate {
    match (call.state, call.class) {
        (ToolState::Asked, _) if mutated!(AskedRunsAtTakeover) => Fate::Run(1),
        (ToolState::Asked, _) => Fate::Wait,
        (ToolState::Intended, _) => Fate::Run(1),
        (_, ToolClass::Unsafe) if mutated!(UnsafeBodyAgain) => Fate::Run(call.bodies + 1),
        (_, ToolClass::Unsafe) => Fate::Unknown,
        (_, ToolClass::Pure | ToolClass::Keyed | ToolClass::Probe)
            if call.bodies >= max_bodies && !mutated!(BodiesUnbounded) =>
        {
            Fate::GiveUp
        }
        (_, ToolClass::Pure | ToolClass::Keyed) => Fate::Run(call.bodies + 1),
        (_, ToolClass::Probe) => Fate::Probe(call.bodies + 1),
    }
}

/// Returns the stored reply of a turn whose stream was lost: the kept text, then its calls.
pub(crate) fn kept_reply(open: &OpenTurn) -> Vec<ReplyPart> {
    let texts = open.checkpoints.iter().map(|(id, text)| ReplyPart::text(id.clone(), text.clone()));
    let calls = open.calls.iter().map(|(call, _)| ReplyPart::ToolCall { call: call.clone() });
    texts.chain(calls).collect()
}

/// A turn that an earlier owner left, after its judgement is committed.
#[derive(Debug)]
pub struct Recovery {
    /// The turn, of which only rows are left.
    pub said: Said,
    /// The calls whose bodies run (again).
    pub run: Vec<ToolIntent>,
    /// The calls whose effects are looked for first, each with the number of the body that would run then.
    pub probe: Vec<(ToolIntent, i32)>,
    /// The turn's outcome after that.
    pub outcome: TurnOutcome,
}

/// Returns the settlement of a call whose effect could not be looked for.
#[must_use]
pub fn unclear(turn: TurnId, call: CallId, now: TimestampMs) -> ToolSettled {
    settled_as(turn, call, ToolOutcomeKind::Unknown, UNKNOWN, now)
}

impl Rules<'_> {
    /// Writes the judgement of the open turn in a drain's first write.
    pub(crate) fn take_over(&self, draft: &mut Draft<'_>, observed: &Observation) -> Verdict<Next> {
        let Some(open) = draft.history().open_turn().cloned() else {
            return self.cross(draft, true, observed);
        };
        let said = Said::new(open.turn.clone(), open.message.clone());
        if !mutated!(AttemptLeftOpen) {
            self.end_attempt(draft, &said, AttemptOutcome::Lost);
        }
        let replied = open.reply.is_some();
        if !replied {
            let parts = kept_reply(&open);
            if parts.is_empty() && !self.is_interrupted(draft.history()) {
                if !mutated!(LostTurnNotSettled) {
                    settle_lost(draft, &said);
                }
                self.note_restored(draft);
                return self.cross(draft, true, observed);
            }
            if !parts.is_empty() {
                draft.push(TurnReplied {
                    turn: open.turn.clone(),
                    message: open.message.clone(),
                    parts,
                    finish: Finish::Cut.into(),
                });
            }
        }
        if self.is_interrupted(draft.history()) {
            let text = "interrupted by the user";
            settle_open_calls(draft, &open.turn, ToolOutcomeKind::Interrupted, text);
            self.note_restored(draft);
            settle_turn(draft, &said, TurnOutcome::Interrupted, None);
            let how = Self::interrupted_end(draft.history());
            let next = end(draft, DrainOutcome::Interrupted, None);
            return Verdict::Write(next, how, Site::TakenOverInterrupted);
        }
        let cut = !replied || open.finish.as_ref().is_some_and(|finish| *finish == Finish::Cut);
        let (run, probe) = self.judge(draft, &open);
        self.note_restored(draft);
        let outcome = if cut { TurnOutcome::Cut } else { TurnOutcome::Completed };
        let next = Next::Recover(Box::new(Recovery { said, run, probe, outcome }));
        Verdict::Write(next, DrainEnd::Keep, Site::TakenOver)
    }

    /// Settles calls that must not run again, and drafts the start of those that will. Returns the calls to start,
    /// and those to look for first.
    fn judge(
        &self,
        draft: &mut Draft<'_>,
        open: &OpenTurn,
    ) -> (Vec<ToolIntent>, Vec<(ToolIntent, i32)>) {
        let (mut run, mut probe) = (Vec::new(), Vec::new());
        let now = draft.now();
        for (id, call) in open.calls.iter().filter(|(_, call)| call.settled.is_none()) {
            let settle =
                |outcome, text| settled_as(open.turn.clone(), id.clone(), outcome, text, now);
            // A refused call has no body, and its reason is told as ever.
            let is_changed = !mutated!(ChangedToolRuns)
                && self.changed.is_some_and(|changed| changed.has(&open.turn, &call.intent.tool))
                && self.refusal(draft.history(), &call.intent).is_none();
            let fate = if is_changed {
                fate_of_changed(call)
            } else {
                fate(call, self.settings.max_bodies)
            };
            match fate {
                Fate::Run(body) => {
                    let (turn, call_id) = (open.turn.clone(), id.clone());
                    draft.push(ToolStarted { turn, call: call_id, body });
                    run.push(call.intent.clone());
                }
                Fate::Probe(body) => probe.push((call.intent.clone(), body)),
                // Somebody may have answered: the turn goes on, or sleeps again.
                Fate::Wait => {}
                Fate::Unknown if mutated!(UnknownNotSettled) => {}
                Fate::Unknown => draft.push(settle(ToolOutcomeKind::Unknown, UNKNOWN)),
                Fate::GiveUp => draft.push(settle(ToolOutcomeKind::Failed, TOO_OFTEN)),
                Fate::Changed => draft.push(settle(ToolOutcomeKind::Failed, CHANGED)),
            }
        }
        (run, probe)
    }

    /// Writes the start of bodies whose earlier effect is missing.
    pub fn start_again(
        &self,
        draft: &mut Draft<'_>,
        turn: &TurnId,
        calls: &[(ToolIntent, i32)],
    ) -> Verdict<()> {
        for (intent, body) in calls {
            let (turn, call) = (turn.clone(), intent.call.clone());
            draft.push(ToolStarted { turn, call, body: *body });
        }
        Verdict::Write((), DrainEnd::Keep, Site::StartedAgain)
    }
}

#[cfg(test)]
mod tests {
    use domain::{IdMint, PartId, Stamp};

    use super::*;

    fn call(class: ToolClass, state: ToolState, bodies: i32) -> CallState {
        let mut mint = IdMint::after(Stamp::default(), 1);
        let intent = ToolIntent {
            call: CallId::mint(&mut mint),
            part: PartId::mint(&mut mint),
            provider_call: "call_1".into(),
            tool: "read".into(),
            arguments: "{}".into(),
            metadata: None,
        };
        CallState { intent, class, state, bodies, asks: Vec::new(), settled: None }
    }

    #[test]
    fn a_started_call_follows_its_class() {
        let started = |class, bodies| fate(&call(class, ToolState::Started, bodies), 3);
        assert_eq!(started(ToolClass::Pure, 1), Fate::Run(2));
        assert_eq!(started(ToolClass::Pure, 3), Fate::GiveUp);
        assert_eq!(started(ToolClass::Keyed, 2), Fate::Run(3));
        assert_eq!(started(ToolClass::Probe, 1), Fate::Probe(2));
        assert_eq!(started(ToolClass::Unsafe, 1), Fate::Unknown);
    }

    #[test]
    fn an_asked_call_waits_whatever_its_class() {
        assert_eq!(fate(&call(ToolClass::Pure, ToolState::Asked, 0), 3), Fate::Wait);
        assert_eq!(fate(&call(ToolClass::Unsafe, ToolState::Asked, 0), 3), Fate::Wait);
    }

    // Attack 21 of asks: the tool was loaded anew while a call of it waited, or while its worker died.
    #[test]
    fn no_body_of_another_tool_runs_for_a_call() {
        let of = |class, state, bodies| fate_of_changed(&call(class, state, bodies));
        for class in [ToolClass::Pure, ToolClass::Keyed, ToolClass::Probe, ToolClass::Unsafe] {
            assert_eq!(of(class, ToolState::Asked, 0), Fate::Changed);
            assert_eq!(of(class, ToolState::Intended, 0), Fate::Changed);
        }
        assert_eq!(of(ToolClass::Pure, ToolState::Started, 1), Fate::Changed);
        assert_eq!(of(ToolClass::Probe, ToolState::Started, 1), Fate::Unknown);
        assert_eq!(of(ToolClass::Unsafe, ToolState::Started, 1), Fate::Unknown);
    }

    #[test]
    fn an_intended_call_never_ran_and_starts_whatever_its_class() {
        assert_eq!(fate(&call(ToolClass::Unsafe, ToolState::Intended, 0), 3), Fate::Run(1));
    }
}
