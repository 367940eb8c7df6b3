use std::collections::{BTreeMap, BTreeSet};

use domain::{
    Author, Claim, EventId, FencingToken, LeftFile, MessageId, ModelRef, RevertPaths, Seq,
    SessionId, SnapshotTree, TurnId, TurnUsage,
};

use super::{EpochState, History, PendingControl, PendingInput};
use crate::failed_summaries::FailedSummaries;
use crate::files::{Unsaved, changed_since, skipped_since, tree_before};
use crate::open_turn::OpenTurn;
use crate::provider_state::has_state;
use crate::revert::{Reverting, Savepoint};
use crate::side::{OpenCompaction, OpenTitle};
use crate::squeeze::Squeeze;
use crate::{Conversation, View};

/// Reads of the fold.
impl History {
    /// Returns the prompts that are admitted and not promoted, in the order of their admission.
    #[must_use]
    pub fn pending(&self) -> &[PendingInput] {
        &self.state.pending
    }

    /// Returns the controls that are admitted and not delivered, in the order of their admission.
    #[must_use]
    pub fn controls(&self) -> &[PendingControl] {
        &self.state.controls
    }

    /// Returns whether the newest wake was only for steering inputs, so that queued prompts stay parked.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        self.state.narrow
    }

    /// Returns whether the next request has provider state that a refusal of it would leave out.
    #[must_use]
    pub fn has_provider_state(&self) -> bool {
        let mut shown = self.state.view.since(&self.conversation, self.state.stateless);
        shown.any(|(_, message)| has_state(message))
    }

    /// Returns the Compaction that has not ended.
    #[must_use]
    pub fn compacting(&self) -> Option<&OpenCompaction> {
        self.state.compacting.as_ref()
    }

    /// Returns the title that is being made.
    #[must_use]
    pub fn titling(&self) -> Option<&OpenTitle> {
        self.state.titling.as_ref()
    }

    /// Returns whether the session has a title, from somebody or from a model.
    #[must_use]
    pub fn is_titled(&self) -> bool {
        self.state.titled
    }

    /// Returns whether a line of a notice was recorded for the session's users.
    #[must_use]
    pub fn has_told(&self, line: &str) -> bool {
        self.state.noticed.contains(line)
    }

    /// Returns whether the session is a child of another one.
    #[must_use]
    pub fn is_child(&self) -> bool {
        self.state.parent.is_some()
    }

    /// The session that it is a child of.
    #[must_use]
    pub fn parent(&self) -> Option<&SessionId> {
        self.state.parent.as_ref()
    }

    /// Returns the context entries by key, as JSON text.
    #[must_use]
    pub fn entries(&self) -> &BTreeMap<String, String> {
        &self.state.entries
    }

    /// Returns the paths of files that were read, as the model sees them.
    #[must_use]
    pub fn read_paths(&self) -> &BTreeSet<String> {
        &self.state.read_paths
    }

    /// Returns how far the conversation was reduced for its next turn.
    #[must_use]
    pub fn squeeze(&self) -> Squeeze {
        self.state.squeeze
    }

    /// Returns the summaries that could not be made since the last one that was.
    #[must_use]
    pub fn failed_summaries(&self) -> FailedSummaries {
        self.state.failed_summaries
    }

    /// Returns the tokens of the largest request and answer that a model has completed since the session uses it, as its
    /// provider counted them.
    #[must_use]
    pub fn accepted(&self, provider: &str, model: &str) -> u64 {
        self.state.accepted.by(provider, model)
    }

    /// Returns the number of retries and cuts since the last whole reply of the drain.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.state.failures
    }

    /// Returns the number of whole replies in a row, for one prompt, that had neither text nor calls.
    #[must_use]
    pub fn silent_replies(&self) -> u32 {
        self.state.silence.replies()
    }

    /// Returns the provider's usage for the last whole reply, and the number of messages that it covers. `None` after
    /// a Compaction, and if the provider does not count.
    #[must_use]
    pub fn last_usage(&self) -> Option<(TurnUsage, usize)> {
        self.state.last_usage
    }

    /// Returns the id of the event with the number [`seq`](Self::seq); `None` before the first, and while that event is
    /// a draft. Together with the incarnation they are the log's position: numbers alone come again in another log, when
    /// the database comes back without some commits.
    #[must_use]
    pub fn last_event(&self) -> Option<&EventId> {
        self.state.last.as_ref()
    }

    /// Returns the number of the last folded event.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.state.seq
    }

    /// Returns the active Context Epoch; `None` before the first.
    #[must_use]
    pub fn epoch(&self) -> Option<&EpochState> {
        self.state.epoch.as_deref()
    }

    /// Returns the highest epoch number so far; 0 before the first epoch. The next epoch gets a higher one, even
    /// after a Revert or a Move.
    #[must_use]
    pub fn last_epoch(&self) -> i32 {
        self.state.last_epoch
    }

    /// Returns the number of the next epoch. `None` if there is none, which no log has that a service wrote.
    #[must_use]
    pub fn next_epoch(&self) -> Option<i32> {
        self.state.last_epoch.checked_add(1)
    }

    /// Returns settled calls whose effects on files are in no committed Capture yet, the oldest first. Only the
    /// newest are kept.
    #[must_use]
    pub fn unsaved(&self) -> &[Unsaved] {
        &self.state.files.unsaved
    }

    /// Returns the turn whose calls may have changed files that no committed Capture has: the open turn, if such a
    /// call has begun and has no result yet; otherwise that of the newest unsaved call.
    #[must_use]
    pub fn changing_turn(&self) -> Option<&TurnId> {
        let open = self.state.open.as_ref().filter(|open| open.is_changing_files());
        open.map(|open| &open.turn).or_else(|| self.unsaved().last().map(|unsaved| &unsaved.turn))
    }

    /// Returns settled calls whose effects on files are lost, if the model does not know that yet.
    #[must_use]
    pub fn lost(&self) -> &[Unsaved] {
        &self.state.files.lost
    }

    /// Returns files that Captures left out since the last restore of the Location's files, or since the session came
    /// to it: at most 256, the newest.
    #[must_use]
    pub fn skipped(&self) -> &[LeftFile] {
        &self.state.files.skipped
    }

    /// Returns lost files that were in no Workspace Snapshot, if the model does not know that yet.
    #[must_use]
    pub fn lost_files(&self) -> &[LeftFile] {
        &self.state.files.lost_files
    }

    /// Returns files that Captures of the session's calls left out from the event `seq` on.
    #[must_use]
    pub fn skipped_since(&self, seq: Seq) -> Vec<LeftFile> {
        skipped_since(&self.captures, self.state.files.since, seq)
    }

    /// Returns the token of the last restore of the Location's files that this session knows of.
    #[must_use]
    pub fn restored(&self) -> Option<FencingToken> {
        self.state.files.restored
    }

    /// Returns the files before the event `seq`, as far as this session's Captures show them.
    #[must_use]
    pub fn tree_before(&self, seq: Seq) -> Option<&SnapshotTree> {
        tree_before(&self.captures, self.state.files.since, seq)
    }

    /// Returns the files that the session's calls changed from the event `seq` on.
    #[must_use]
    pub fn changed_since(&self, seq: Seq) -> RevertPaths {
        changed_since(&self.captures, self.state.files.since, seq)
    }

    /// Returns the Revert that is neither cleared nor committed.
    #[must_use]
    pub fn revert(&self) -> Option<&Reverting> {
        self.state.revert.as_ref()
    }

    /// Returns the synthetic inputs that wait until a staged Revert ends. They arrived after it was staged, and are
    /// about work that may be gone by then. An input that woke the session does not wait.
    pub fn held(&self) -> impl Iterator<Item = &PendingInput> {
        let is_staged = matches!(self.state.revert, Some(Reverting::Staged(_)));
        let since = if is_staged { self.state.staged } else { Seq(i64::MAX) };
        let held = move |input: &&PendingInput| {
            input.seq > since && input.prompt.synthetic.is_some() && !input.prompt.wake
        };
        self.state.pending.iter().filter(held)
    }

    /// Returns the state that a Revert to before `message` restores. The message is a prompt, an answer or a
    /// checkpoint that is not reverted for good.
    #[must_use]
    pub fn savepoint(&self, message: &MessageId) -> Option<&Savepoint> {
        let found = self.savepoints.iter().rfind(|savepoint| savepoint.message == *message)?;
        let dead = &self.state.dead;
        let is_dead = dead.iter().any(|(from, by)| *from <= found.seq && found.seq < *by);
        (!is_dead).then_some(found)
    }

    /// Returns the place of the session's last Move; 0 without one. Earlier messages cannot be reverted.
    #[must_use]
    pub fn moved(&self) -> Seq {
        self.state.moved
    }

    /// Returns the turn that is not settled.
    #[must_use]
    pub fn open_turn(&self) -> Option<&OpenTurn> {
        self.state.open.as_ref()
    }

    /// Returns the agent chosen last.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.state.agent
    }

    /// Returns the model chosen last, if any.
    #[must_use]
    pub fn model(&self) -> Option<&ModelRef> {
        self.state.model.as_ref()
    }

    /// Returns the first message that a user wrote, and its index in the conversation.
    #[must_use]
    pub fn first_prompt(&self) -> Option<(&MessageId, usize)> {
        self.state.first_prompt.as_ref().map(|(message, at)| (message, *at))
    }

    /// Returns the author of the newest promoted prompt that somebody wrote, or else of the session, if known. Work counts for them.
    #[must_use]
    pub fn author(&self) -> Option<&Author> {
        self.state.author.as_ref()
    }

    /// Returns the claim of the drain that wrote last, if one has. Claims in between may have written nothing.
    #[must_use]
    pub fn writer(&self) -> Option<Claim> {
        self.state.writer
    }

    /// Returns the user message promoted last.
    #[must_use]
    pub fn last_prompt(&self) -> Option<&MessageId> {
        self.state.last_prompt.as_ref()
    }

    /// Returns the number of turns since the last batch of promoted inputs.
    #[must_use]
    pub fn steps(&self) -> i32 {
        self.state.steps
    }

    /// Returns the conversation. A request shows a part of it.
    #[must_use]
    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// Returns the part of the conversation that a request shows.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.state.view
    }

    /// Returns whether the model must still answer: its last word was a call, or it has not answered the last prompt.
    #[must_use]
    pub fn wants_turn(&self) -> bool {
        let view = &self.state.view;
        let mut messages = self.conversation.messages.iter().enumerate();
        messages
            .rfind(|(index, _)| !view.is_reverted(*index))
            .is_some_and(|(_, message)| message.role != llm_protocol::Role::Assistant)
    }

    /// Returns whether somebody has woken the session since its interrupt, for everything that waits.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.state.resumed
    }

    /// Returns the place of an interrupt whose drain has not ended.
    #[must_use]
    pub fn interrupt(&self) -> Option<Seq> {
        self.state.interrupt
    }
}
