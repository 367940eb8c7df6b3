//! What a new owner does with the turn that an earlier one left open (design §3, Crash recovery).

use domain::{
    AttemptOutcome, CallId, DrainOutcome, ReplyPart, SessionError, ToolClass, ToolIntent,
    ToolOutcomeKind, ToolStarted, ToolState, TurnOutcome, TurnReplied,
};
use history::{CallState, OpenTurn};
use store::DrainEnd;

use crate::boundary::end;
use crate::draft::{Draft, Verdict};
use crate::drain::{Drain, Next, Stop};
use crate::ending::{end_attempt, settle_open_calls, settle_turn};
use crate::observe::Observation;
use crate::stage::Stage;
use crate::toolbox::{Found, settled_as};
use crate::turn::{Said, Turn};

const UNKNOWN: &str = "The worker that ran this call stopped before the result was recorded. Whether the \
call had its effect is unknown: check the state of the workspace before you repeat it.";

const TOO_OFTEN: &str = "The worker stopped each time that this call ran. It was given up.";

/// What becomes of a call that has no result.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// Its body runs, as this one.
    Run(i32),
    /// Its effect is looked for first; should it be missing, its body runs, as this one.
    Probe(i32),
    /// It is settled as not known.
    Unknown,
    /// It is settled as failed.
    GiveUp,
}

fn fate(call: &CallState, max_bodies: i32) -> Fate {
    match (call.state, call.class) {
        (ToolState::Intended, _) => Fate::Run(1),
        (_, ToolClass::Unsafe) => Fate::Unknown,
        (_, ToolClass::Pure | ToolClass::Keyed | ToolClass::Probe) if call.bodies >= max_bodies => {
            Fate::GiveUp
        }
        (_, ToolClass::Pure | ToolClass::Keyed) => Fate::Run(call.bodies + 1),
        (_, ToolClass::Probe) => Fate::Probe(call.bodies + 1),
    }
}

/// Why a session that keeps losing its workers is stopped.
pub(crate) fn exhausted(recoveries: i16) -> SessionError {
    SessionError {
        code: "session.recovery_exhausted".into(),
        message: format!(
            "its worker died {recoveries} times in a row without any progress; what it was doing may be what \
             kills it: look at the last tool calls, then send a prompt to go on"
        ),
    }
}

/// The reply that rows hold of a turn whose stream was lost: the text that was kept, then its calls.
fn kept_reply(open: &OpenTurn) -> Vec<ReplyPart> {
    let texts = open
        .checkpoints
        .iter()
        .map(|(id, text)| ReplyPart::Text { id: id.clone(), text: text.clone() });
    let calls = open.calls.iter().map(|(call, _)| ReplyPart::ToolCall { call: call.clone() });
    texts.chain(calls).collect()
}

/// A turn that an earlier owner left, once its judgement is committed.
pub(crate) struct Recovery<'r> {
    turn: Turn<'r>,
    /// Whose bodies run (again).
    run: Vec<ToolIntent>,
    /// Whose effects are looked for first; the body that would run then.
    probe: Vec<(ToolIntent, i32)>,
    outcome: TurnOutcome,
}

impl<'r> Stage<'r> {
    /// What a drain's first write says of the turn that is open.
    pub(crate) fn take_over(
        &self,
        draft: &mut Draft<'_>,
        observed: &Observation,
    ) -> Verdict<Next<'r>> {
        let Some(open) = draft.history().open_turn().cloned() else {
            return self.cross(draft, true, observed);
        };
        let turn = Turn::new(open.turn.clone(), open.message.clone());
        end_attempt(draft, &turn.said, AttemptOutcome::Lost, None);
        let replied = open.reply.is_some();
        if !replied {
            let parts = kept_reply(&open);
            if parts.is_empty() && !self.is_interrupted(draft.history()) {
                settle_lost(draft, &turn.said);
                return self.cross(draft, true, observed);
            }
            if !parts.is_empty() {
                draft.push(TurnReplied {
                    turn: open.turn.clone(),
                    message: open.message.clone(),
                    parts,
                    finish: "cut".into(),
                });
            }
        }
        if self.is_interrupted(draft.history()) {
            let text = "interrupted by the user";
            settle_open_calls(draft, &open.turn, ToolOutcomeKind::Interrupted, text);
            settle_turn(draft, &turn.said, TurnOutcome::Interrupted, None);
            return end(draft, DrainOutcome::Interrupted, None, DrainEnd::Close);
        }
        let cut = !replied || open.finish.as_deref() == Some("cut");
        let (run, probe) = self.judge(draft, &open);
        let outcome = if cut { TurnOutcome::Cut } else { TurnOutcome::Completed };
        let recovery = Recovery { turn, run, probe, outcome };
        Verdict::Write(Next::Recover(Box::new(recovery)), DrainEnd::Keep)
    }

    /// Settles what must not run again, and drafts the start of what will. Returns what to start, and
    /// what to look at first.
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
            match fate(call, self.runtime.settings.max_bodies) {
                Fate::Run(body) => {
                    draft.push(started(open, id, body));
                    run.push(call.intent.clone());
                }
                Fate::Probe(body) => probe.push((call.intent.clone(), body)),
                Fate::Unknown => draft.push(settle(ToolOutcomeKind::Unknown, UNKNOWN)),
                Fate::GiveUp => draft.push(settle(ToolOutcomeKind::Failed, TOO_OFTEN)),
            }
        }
        (run, probe)
    }

    /// Ends the drain on an error that stands in the way of any work, settling what was open.
    pub(crate) fn give_up(&self, draft: &mut Draft<'_>, error: SessionError) -> Verdict<Next<'r>> {
        if let Some(open) = draft.history().open_turn().cloned() {
            let turn = Turn::new(open.turn.clone(), open.message.clone());
            end_attempt(draft, &turn.said, AttemptOutcome::Lost, None);
            let parts = kept_reply(&open);
            if open.reply.is_none() && !parts.is_empty() {
                let finish = "cut".to_owned();
                let (turn, message) = (open.turn.clone(), open.message.clone());
                draft.push(TurnReplied { turn, message, parts, finish });
            }
            settle_open_calls(draft, &open.turn, ToolOutcomeKind::Unknown, UNKNOWN);
            settle_turn(draft, &turn.said, TurnOutcome::Failed, Some(error.clone()));
        }
        end(draft, DrainOutcome::Failed, Some(error), DrainEnd::Park)
    }
}

impl<'r> Drain<'r> {
    /// Goes on with the open turn as it was judged.
    pub(crate) async fn recover(&mut self, recovery: Recovery<'r>) -> Result<Next<'r>, Stop> {
        let Recovery { mut turn, run, probe, outcome } = recovery;
        self.start_bodies(&mut turn, run);
        self.probe_all(&mut turn, probe).await?;
        self.settle(turn, outcome).await
    }

    /// Looks for the effects of *probe* calls, and runs those whose effect is missing.
    async fn probe_all(
        &mut self,
        turn: &mut Turn<'r>,
        calls: Vec<(ToolIntent, i32)>,
    ) -> Result<(), Stop> {
        let mut again = Vec::new();
        for (intent, body) in calls {
            match self.stage.toolbox.probe(turn.said.turn.clone(), &intent).await {
                Found::Done(settled) => {
                    turn.finished(settled, self.stage.runtime.settings.result_delay);
                }
                Found::NotDone => again.push((intent, body)),
                Found::Unclear => {
                    let now = self.stage.runtime.clock.now_ms();
                    let unknown = ToolOutcomeKind::Unknown;
                    let call = intent.call.clone();
                    let settled = settled_as(turn.said.turn.clone(), call, unknown, UNKNOWN, now);
                    turn.finished(settled, self.stage.runtime.settings.result_delay);
                }
            }
        }
        if again.is_empty() {
            return Ok(());
        }
        let id = turn.said.turn.clone();
        self.write(|_, draft| {
            for (intent, body) in &again {
                let (turn, call) = (id.clone(), intent.call.clone());
                draft.push(ToolStarted { turn, call, body: *body });
            }
            Verdict::Write((), DrainEnd::Keep)
        })
        .await?;
        self.start_bodies(turn, again.into_iter().map(|(intent, _)| intent).collect());
        Ok(())
    }
}

/// Settles a turn of which nothing is durable. No progress: the counter of recoveries stands.
fn settle_lost(draft: &mut Draft<'_>, said: &Said) {
    let usage = draft.history().open_turn().map(|open| open.usage).unwrap_or_default();
    draft.push(domain::TurnSettled {
        turn: said.turn.clone(),
        message: said.message.clone(),
        outcome: TurnOutcome::Lost,
        usage,
        error: None,
    });
}

fn started(open: &OpenTurn, call: &CallId, body: i32) -> ToolStarted {
    ToolStarted { turn: open.turn.clone(), call: call.clone(), body }
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
        };
        CallState { intent, class, state, bodies, settled: None }
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
    fn an_intended_call_never_ran_and_starts_whatever_its_class() {
        assert_eq!(fate(&call(ToolClass::Unsafe, ToolState::Intended, 0), 3), Fate::Run(1));
    }
}
