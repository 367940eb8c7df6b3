use domain::{
    CompactionEnded, CompactionReason, CompactionStarted, MessageId, SessionError, SideOutcome,
    SummaryScope, TitleEnded, TitledBy, TurnId, TurnOutcome,
};

use super::requests::Requests;
use super::{Violation, ensure};
use crate::provider::Provider;

/// How many bytes stand for a token.
const BYTES_PER_TOKEN: usize = 4;

#[derive(Debug, Clone)]
struct CompactionView {
    requests: Requests,
    reason: CompactionReason,
    /// The conversation would fit without it.
    fits: bool,
    /// It is the first for a turn's request that was refused.
    is_overflow: bool,
    reminded: bool,
    /// Exchanges leave the view without a summary.
    leaves_out: bool,
}

/// Compactions and titles, which run beside the conversation.
#[derive(Debug, Clone)]
pub(super) struct Sides {
    /// The most tokens of a request.
    limit: usize,
    compaction: Option<CompactionView>,
    title: Option<Requests>,
    titled: bool,
    child: bool,
    /// Compactions that have completed since a turn began.
    completed: usize,
    /// Compactions for refused requests of turns since one was answered.
    overflows: usize,
    /// The error of a Compaction that came by itself, failed, and was about a conversation that fits.
    failed: Option<SessionError>,
    /// No turn has begun since.
    blocks: bool,
    /// Turns since the newest Compaction of the prompt's work.
    turns: usize,
    /// Compactions in a row that came by themselves after fewer than three turns each, and after fewer than six.
    circles: [usize; 2],
}

/// The most Compactions between two turns.
const MOST_IN_A_ROW: usize = 32;
/// The most of them for one turn that the provider refuses.
const MOST_OVERFLOWS: usize = 3;
/// Turns, and the most Compactions in a row that come after fewer.
const CIRCLES: [(usize, usize); 2] = [(3, 3), (6, 10)];
/// The most requests for one summary that are refused.
const MOST_REFUSALS: u32 = 4;

impl Sides {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            compaction: None,
            title: None,
            titled: false,
            child: false,
            completed: 0,
            overflows: 0,
            failed: None,
            blocks: false,
            turns: 0,
            circles: [0; 2],
        }
    }

    pub(super) fn created(&mut self, titled: bool, child: bool) {
        (self.titled, self.child) = (titled, child);
    }

    pub(super) fn compacting(&self) -> Option<&TurnId> {
        self.compaction.as_ref().map(|open| &open.requests.id)
    }

    pub(super) fn requests(&mut self) -> impl Iterator<Item = &mut Requests> {
        let compaction = self.compaction.as_mut().map(|open| &mut open.requests);
        compaction.into_iter().chain(&mut self.title)
    }

    /// The model may see again the part that was summarised.
    pub(super) fn reverted(&mut self) {
        self.promoted();
    }

    pub(super) fn promoted(&mut self) {
        (self.completed, self.overflows, self.failed) = (0, 0, None);
        (self.turns, self.circles) = (0, [0; 2]);
    }

    pub(super) fn turn_starts(&mut self) -> Result<(), Violation> {
        ensure!(self.compaction.is_none(), "I4: a turn began while a Compaction was open");
        (self.completed, self.blocks) = (0, false);
        self.turns += 1;
        Ok(())
    }

    /// Checks that a failed Compaction does not end work that fits without it.
    pub(super) fn drain_ends(&self, error: Option<&SessionError>) -> Result<(), Violation> {
        let blocked = self.blocks && error.is_some() && error == self.failed.as_ref();
        ensure!(!blocked, "size: a Compaction that failed has ended work that fits: {error:?}");
        Ok(())
    }

    pub(super) fn turn_settled(&mut self, outcome: TurnOutcome) {
        if outcome == TurnOutcome::Completed {
            self.overflows = 0;
        }
    }

    /// `control`: the one that was delivered last.
    pub(super) fn compaction_started(
        &mut self,
        started: &CompactionStarted,
        control: Option<&MessageId>,
    ) -> Result<(), Violation> {
        let id = &started.turn;
        ensure!(self.compaction.is_none(), "I4: Compaction {id} began while another was open");
        let leaves_out = started.scope.left_out > 0;
        match started.reason {
            CompactionReason::Manual => {
                ensure!(started.input.as_ref() == control, "I2: nobody asked for {id}");
            }
            CompactionReason::Auto => {
                ensure!(self.completed < MOST_IN_A_ROW, "size: {id} comes after too many others");
                let is_circle =
                    CIRCLES.iter().zip(self.circles).any(|((_, most), count)| count >= *most);
                ensure!(!is_circle, "size: {id} is one of a circle");
                let again = self.failed.is_some() && self.fits(&started.scope) && !leaves_out;
                ensure!(!again, "size: {id} comes right after one that failed");
            }
            CompactionReason::Overflow => {
                self.overflows += usize::from(started.scope.refusals == 0);
                ensure!(self.overflows <= MOST_OVERFLOWS, "size: too many for one overflow, {id}");
                ensure!(started.cause.is_some(), "size: {id} does not say what was refused");
            }
        }
        let refusals = started.scope.refusals;
        ensure!(
            refusals <= MOST_REFUSALS,
            "size: {id} is asked for although {refusals} were refused"
        );
        let (requests, reason) = (Requests::of(id), started.reason);
        let fits = self.fits(&started.scope);
        let is_overflow = reason == CompactionReason::Overflow && refusals == 0;
        let reminded = false;
        let view = CompactionView { requests, reason, fits, is_overflow, reminded, leaves_out };
        self.compaction = Some(view);
        Ok(())
    }

    /// Whether the conversation that is summarised would fit as it is.
    fn fits(&self, scope: &SummaryScope) -> bool {
        scope.cut.is_none() && scope.tokens < self.limit as u64
    }

    pub(super) fn reminded(&mut self, id: &TurnId) -> Result<(), Violation> {
        let open = self.compaction.as_mut().filter(|open| open.requests.id == *id);
        let Some(open) = open else { return Err(format!("I4: {id} was reminded and not open")) };
        ensure!(!open.reminded, "retries: {id} was reminded twice");
        open.reminded = true;
        Ok(())
    }

    /// Returns the mark of its summary, if it has one.
    pub(super) fn compaction_ended(
        &mut self,
        ended: &CompactionEnded,
        provider: &Provider,
    ) -> Result<Option<String>, Violation> {
        let id = &ended.turn;
        let open = self.compaction.take().filter(|open| open.requests.id == *id);
        let Some(open) = open else { return Err(format!("I4: {id} ended and was not open")) };
        let requests = &open.requests;
        ensure!(requests.running.is_none(), "I9: {id} ended with an open attempt");
        ensure!(requests.have_used(ended.usage), "I9: usage of {id}");
        let completed = ended.outcome == SideOutcome::Completed;
        ensure!(ended.checkpoint.is_some() == completed, "I7: {id} ended as {:?}", ended.outcome);
        if ended.outcome == SideOutcome::Lost && open.is_overflow {
            self.overflows -= 1; // its worker died: it has not been tried
        }
        if ended.outcome == SideOutcome::Failed && open.reason == CompactionReason::Auto {
            self.failed = ended.error.clone().filter(|_| open.fits);
            self.blocks = true;
        }
        let Some(checkpoint) = &ended.checkpoint else { return Ok(None) };
        self.completed += 1;
        self.failed = None;
        if self.turns > 0 && open.reason != CompactionReason::Manual {
            for ((turns, _), count) in CIRCLES.iter().zip(&mut self.circles) {
                *count = if self.turns < *turns { *count + 1 } else { 0 };
            }
        }
        self.turns = 0;
        let most = self.limit * BYTES_PER_TOKEN / 3;
        ensure!(checkpoint.len() < most, "size: {id} leaves no room beside its summary");
        if open.leaves_out {
            ensure!(requests.last.is_none(), "size: a summary of {id} was asked for");
            return Ok(None);
        }
        let summary = requests.last.as_ref().and_then(|last| provider.summaries.get(last));
        let Some(summary) = summary else {
            return Err(format!("I7: what {id} ended with is no whole summary"));
        };
        ensure!(checkpoint.contains(summary), "I7: {id} has another summary than its answer");
        Ok(Some(summary.clone()))
    }

    pub(super) fn title_started(&mut self, id: &TurnId) -> Result<(), Violation> {
        ensure!(self.title.is_none(), "title: {id} began while another was made");
        ensure!(!self.titled && !self.child, "title: {id} of a session that wants none");
        self.title = Some(Requests::of(id));
        Ok(())
    }

    pub(super) fn title_ended(&mut self, ended: &TitleEnded) -> Result<(), Violation> {
        let id = &ended.turn;
        let open = self.title.take().filter(|open| open.id == *id);
        let Some(open) = open else { return Err(format!("title: {id} ended and was not open")) };
        ensure!(open.running.is_none(), "I9: {id} ended with an open attempt");
        ensure!(open.have_used(ended.usage), "I9: usage of {id}");
        Ok(())
    }

    pub(super) fn renamed(&mut self, by: TitledBy) -> Result<(), Violation> {
        match by {
            TitledBy::User => {}
            TitledBy::Model => {
                ensure!(!self.titled, "title: a model's replaces one that was given");
                ensure!(self.title.is_some(), "title: nobody asked a model for one");
            }
        }
        self.titled = true;
        Ok(())
    }

    /// Checks that no title is open: a title delays nothing, and outlives no drain.
    pub(super) fn no_title(&self, when: &str) -> Result<(), Violation> {
        ensure!(self.title.is_none(), "title: {when} while one was made");
        Ok(())
    }
}
