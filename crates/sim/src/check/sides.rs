use domain::{
    CompactionEnded, CompactionReason, CompactionStarted, MessageId, SideOutcome, TitleEnded,
    TitledBy, TurnId, TurnOutcome,
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
    reminded: bool,
}

/// What runs beside the conversation.
#[derive(Debug, Clone)]
pub(super) struct Sides {
    /// The most tokens of a request.
    limit: usize,
    compaction: Option<CompactionView>,
    title: Option<Requests>,
    titled: bool,
    child: bool,
    /// Nothing but a Compaction has happened since one completed.
    just_compacted: bool,
    /// A provider's overflow has had its Compaction.
    overflow_spent: bool,
    /// The summary alone is more than fits into a request.
    too_large: bool,
}

impl Sides {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            compaction: None,
            title: None,
            titled: false,
            child: false,
            just_compacted: false,
            overflow_spent: false,
            too_large: false,
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

    /// What was summarised may be shown again.
    pub(super) fn reverted(&mut self) {
        self.too_large = false;
        self.promoted();
    }

    pub(super) fn promoted(&mut self) {
        self.just_compacted = false;
        self.overflow_spent = false;
    }

    pub(super) fn turn_starts(&mut self) -> Result<(), Violation> {
        ensure!(self.compaction.is_none(), "I4: a turn began while a Compaction was open");
        ensure!(!self.too_large, "size: a request is sent that cannot fit");
        self.just_compacted = false;
        Ok(())
    }

    pub(super) fn turn_settled(&mut self, outcome: TurnOutcome) {
        if outcome == TurnOutcome::Completed {
            self.overflow_spent = false;
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
        match started.reason {
            CompactionReason::Manual => {
                ensure!(started.input.as_ref() == control, "I2: nobody asked for {id}");
            }
            CompactionReason::Auto => {
                ensure!(!self.just_compacted, "size: {id} comes right after another");
            }
            CompactionReason::Overflow => {
                ensure!(!self.overflow_spent, "size: a second Compaction for one overflow, {id}");
                ensure!(started.cause.is_some(), "size: {id} does not say what was refused");
            }
        }
        let (requests, reason) = (Requests::of(id), started.reason);
        self.compaction = Some(CompactionView { requests, reason, reminded: false });
        Ok(())
    }

    pub(super) fn reminded(&mut self, id: &TurnId) -> Result<(), Violation> {
        let open = self.compaction.as_mut().filter(|open| open.requests.id == *id);
        let Some(open) = open else { return Err(format!("I4: {id} was reminded and not open")) };
        ensure!(!open.reminded, "retries: {id} was reminded twice");
        open.reminded = true;
        Ok(())
    }

    /// What tells its summary from others, if it has one.
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
        let tried = ended.outcome != SideOutcome::Lost;
        self.overflow_spent |= tried && open.reason == CompactionReason::Overflow;
        let Some(checkpoint) = &ended.checkpoint else { return Ok(None) };
        self.just_compacted = true;
        self.too_large = checkpoint.len() / BYTES_PER_TOKEN > self.limit;
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

    /// A title delays nobody, and outlives no drain.
    pub(super) fn no_title(&self, when: &str) -> Result<(), Violation> {
        ensure!(self.title.is_none(), "title: {when} while one was made");
        Ok(())
    }
}
