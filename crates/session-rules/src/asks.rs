//! Calls whose bodies wait for somebody's answer.
//!
//! A call that must be asked about is committed as *asked*, with its asks. Its body starts in a write of its own, once
//! each ask was answered with leave. While nothing but asked calls is left of a turn, the drain ends and the session sleeps:
//! nothing stays in memory. An answer stirs it, and the next drain takes the turn over.

use domain::{
    Answer, Ask, AskId, CallId, DrainEnd, Need, PermissionId, Question, QuestionId, ToolAsked,
    ToolIntent, ToolOutcomeKind, ToolStarted, TurnId,
};
use history::{CallState, History, Standing};
use serde::Deserialize;

use crate::boundary::{Closed, Next};
use crate::draft::{Draft, Verdict};
use crate::permission::Judged;
use crate::rules::Rules;
use crate::said::Said;
use crate::settle::{push_done, settled_as};
use crate::site::Site;
use crate::title::lose_title;

/// The tool whose result a person gives.
const QUESTION: &str = "question";
/// The most questions of one call.
const MAX_QUESTIONS: usize = 16;
/// The most calls of a session that wait at once. A further one is refused.
const MAX_WAITING: usize = 32;

const NEVER_RAN: &str =
    "The call waited for a person's answer, and its turn ended before one came. It never ran.";
const OTHER_REJECTED: &str = "The user rejected another call, so this one never ran.";
const REJECTED: &str = "The user rejected this call. It never ran.";
const DISMISSED: &str = "The user did not want to answer.";
const EXPIRED: &str = "Nobody answered in time, so this call never ran.";
const CROWDED: &str = "32 calls of this session wait for answers already, so this one was not asked about and never ran";

/// The next step of a turn all of whose started bodies have ended.
#[derive(Debug)]
pub enum Answered {
    /// An interrupt must be applied. Nothing is written.
    Interrupted,
    /// The bodies of these calls may start: somebody has given leave.
    Start(Vec<ToolIntent>),
    /// The session sleeps until somebody answers.
    Wait(Next),
    /// No call waits any longer. Nothing is written.
    Settle,
}

/// The arguments of the tool `question`.
#[derive(Deserialize)]
struct Questions {
    questions: Vec<Question>,
}

/// Returns the questions of a call of the tool `question`.
fn questions(intent: &ToolIntent) -> Option<Vec<Question>> {
    if intent.tool != QUESTION {
        return None;
    }
    let Questions { questions } = serde_json::from_str(&intent.arguments).ok()?;
    (!questions.is_empty() && questions.len() <= MAX_QUESTIONS).then_some(questions)
}

impl Rules<'_> {
    /// Returns what a call of the open turn must be asked about before its body may run.
    pub(crate) fn asked(&self, history: &History, intent: &ToolIntent) -> Option<Asking> {
        match self.judged(history, intent) {
            Judged::Ask(need) if !self.is_saved(&need) => Some(Asking::Permission(need)),
            Judged::Run if self.settings.asks.is_some() => questions(intent).map(Asking::Questions),
            Judged::Run | Judged::Ask(_) | Judged::Refuse(_) => None,
        }
    }

    /// Returns whether a waiting intent may be covered by saved permissions, so that they are worth a look.
    #[must_use]
    pub fn wants_saved(&self, history: &History, intent: &ToolIntent) -> bool {
        matches!(self.judged(history, intent), Judged::Ask(need) if !need.save.is_empty())
    }

    fn is_saved(&self, need: &Need) -> bool {
        self.saves(&need.action, &need.save)
    }

    /// Returns whether each pattern was saved for the action.
    fn saves(&self, action: &str, patterns: &[String]) -> bool {
        let is_there = |pattern: &String| {
            self.saved.iter().any(|saved| saved.action == action && saved.pattern == *pattern)
        };
        !patterns.is_empty() && patterns.iter().all(is_there)
    }

    /// Returns whether saved permissions may cover an open ask, so that they are worth another look.
    #[must_use]
    pub fn may_be_covered(history: &History) -> bool {
        open_needs(history).any(|(_, _, save)| !save.is_empty())
    }

    /// Returns the open asks that saved permissions cover.
    #[must_use]
    pub fn covered(&self, history: &History) -> Vec<AskId> {
        let covered = open_needs(history).filter(|(_, action, save)| self.saves(action, save));
        covered.map(|(ask, ..)| ask.clone()).collect()
    }

    /// Drafts the ask of a call that is drafted as *asked*.
    /// Beyond [`MAX_WAITING`] it settles the call as failed instead: nobody is asked, and it never runs.
    pub(crate) fn ask(&self, draft: &mut Draft<'_>, turn: &TurnId, call: &CallId, asking: Asking) {
        if is_crowded(draft.history()) {
            let (failed, now) = (ToolOutcomeKind::Failed, draft.now());
            let settled = settled_as(turn.clone(), call.clone(), failed, CROWDED, now);
            return draft.push(settled);
        }
        let (ask, about) = match asking {
            Asking::Permission(Need { action, resources, save, is_opaque: _, guises: _ }) => {
                let id = AskId::Permission(PermissionId::mint(draft.mint()));
                (id, Ask::Permission { action, resources, save })
            }
            Asking::Questions(questions) => {
                let id = AskId::Question(QuestionId::mint(draft.mint()));
                (id, Ask::Question { questions })
            }
        };
        let patience = self.settings.asks.unwrap_or_default().as_millis();
        let expires = draft.now().saturating_add(i64::try_from(patience).unwrap_or(i64::MAX));
        draft.push(ToolAsked { turn: turn.clone(), call: call.clone(), ask, about, expires });
    }

    /// Goes on with a turn that has asked calls, once every started body has ended: starts those with leave, or lets
    /// the session sleep.
    pub fn answered(&self, draft: &mut Draft<'_>, said: &Said) -> Verdict<Answered> {
        let history = draft.history();
        if self.is_interrupted(history) {
            return Verdict::Leave(Answered::Interrupted);
        }
        let standings = || standings(history).map(|(_, standing)| standing);
        let starts = standings().any(has_leave);
        let refused = standings()
            .any(|standing| matches!(standing, Standing::Rejected(_) | Standing::Declined(_)));
        let waits = standings().any(|standing| standing == Standing::Open);
        if starts {
            return start(draft, said, Site::Answered).map(Answered::Start);
        }
        if refused || !waits {
            return Verdict::Leave(Answered::Settle);
        }
        lose_title(draft);
        push_results(draft, said);
        let next = Next::End(Closed::Waiting);
        Verdict::Write(Answered::Wait(next), DrainEnd::Wait, Site::Waiting)
    }

    /// Writes the results so far, and starts the calls with leave while others of the turn run. Returns those calls.
    pub fn leave(&self, draft: &mut Draft<'_>, said: &Said) -> Verdict<Vec<ToolIntent>> {
        start(draft, said, Site::Leave)
    }
}

/// Returns the calls of the open turn that were asked about and have not started.
fn standings(history: &History) -> impl Iterator<Item = (&CallState, Standing<'_>)> {
    let calls = history.open_turn().into_iter().flat_map(|open| &open.calls);
    calls.filter_map(|(_, call)| call.standing().map(|standing| (call, standing)))
}

/// Returns the permissions that the open turn waits for: the ask, its action, and the patterns that it offers to save.
fn open_needs(history: &History) -> impl Iterator<Item = (&AskId, &str, &[String])> {
    let asks = standings(history).flat_map(|(call, _)| &call.asks);
    asks.filter(|ask| ask.answer.is_none()).filter_map(|ask| match &ask.about {
        Ask::Permission { action, save, .. } => Some((&ask.ask, action.as_str(), save.as_slice())),
        Ask::Question { .. } => None,
    })
}

fn has_leave(standing: Standing<'_>) -> bool {
    standing == Standing::Leave || (standing == Standing::Open && mutated!(UnansweredRuns))
}

fn start(draft: &mut Draft<'_>, said: &Said, site: Site) -> Verdict<Vec<ToolIntent>> {
    push_results(draft, said);
    let may = standings(draft.history()).filter(|(_, standing)| has_leave(*standing));
    let starts: Vec<ToolIntent> = may.map(|(call, _)| call.intent.clone()).collect();
    for intent in &starts {
        let (turn, call) = (said.turn.clone(), intent.call.clone());
        draft.push(ToolStarted { turn, call, body: 1 });
    }
    Verdict::Write(starts, DrainEnd::Keep, site)
}

fn push_results(draft: &mut Draft<'_>, said: &Said) {
    push_done(draft, said);
    if !said.done.is_empty() {
        draft.progress();
    }
}

/// The question of an ask that has no id yet.
#[derive(Debug)]
pub(crate) enum Asking {
    Permission(Need),
    Questions(Vec<Question>),
}

/// Returns whether as many calls wait as may.
fn is_crowded(history: &History) -> bool {
    // The call that is about to be asked has no ask yet, so it counts as one with leave.
    standings(history).filter(|(_, standing)| *standing == Standing::Open).count() >= MAX_WAITING
}

/// Settles the asked calls of a turn that goes on or ends without them. Returns whether the drain is to end: somebody refused
/// without a word to the model.
pub(crate) fn settle_asked(draft: &mut Draft<'_>, turn: &TurnId) -> bool {
    let open = draft.history().open_turn();
    let calls: Vec<_> = open.map(|open| open.calls.clone()).unwrap_or_default();
    let now = draft.now();
    let standings = || calls.iter().filter_map(|(_, call)| call.standing());
    let declined = standings().any(|standing| matches!(standing, Standing::Declined(_)));
    let spoken = standings().any(|standing| matches!(standing, Standing::Rejected(_)));
    for (id, call) in &calls {
        let Some(standing) = call.standing() else { continue };
        let failed =
            |text: &str| settled_as(turn.clone(), id.clone(), ToolOutcomeKind::Failed, text, now);
        draft.push(match standing {
            Standing::Rejected(words) => failed(&format!("The user rejected this call: {words}")),
            Standing::Declined(Answer::Dismissed) => failed(DISMISSED),
            Standing::Declined(Answer::Expired) => failed(EXPIRED),
            Standing::Declined(_) => failed(REJECTED),
            Standing::Open | Standing::Leave if declined || spoken => failed(OTHER_REJECTED),
            Standing::Open | Standing::Leave => failed(NEVER_RAN),
            Standing::Answered(answers) => {
                let text = told(call, answers);
                let completed = ToolOutcomeKind::Completed;
                let mut settled = settled_as(turn.clone(), id.clone(), completed, &text, now);
                settled.title = "answered".to_owned();
                settled.structured = Some(serde_json::json!({ "answers": answers }).to_string());
                settled
            }
        });
    }
    declined && !spoken
}

/// Returns the answers in words, each after its question.
fn told(call: &CallState, answers: &[Vec<String>]) -> String {
    let asked = call.asks.iter().find_map(|ask| match &ask.about {
        Ask::Question { questions } => Some(questions.as_slice()),
        Ask::Permission { .. } => None,
    });
    let pairs = asked.unwrap_or_default().iter().zip(answers);
    let lines = pairs.map(|(asked, answers)| {
        let answer = if answers.is_empty() { "no answer".to_owned() } else { answers.join(", ") };
        format!("{}\n{answer}", asked.question)
    });
    format!("The user answered:\n\n{}", lines.collect::<Vec<_>>().join("\n\n"))
}
