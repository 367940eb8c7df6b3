use std::collections::{BTreeMap, BTreeSet};

use domain::{
    FencingToken, LeftFile, MessageId, ModelRef, RevertPaths, Seq, SnapshotTree, TurnId, TurnUsage,
};

use super::{EpochState, History, PendingControl, PendingInput};
use crate::files::{Unsaved, changed_since, skipped_since, tree_before};
use crate::open_turn::OpenTurn;
use crate::revert::{Reverting, Savepoint};
use crate::side::{OpenCompaction, OpenTitle};
use crate::squeeze::Squeeze;
use crate::{Conversation, View};

/// What the fold says.
impl History {
    /// Prompts that are admitted and not promoted, in the order of their admission.
    #[must_use]
    pub fn pending(&self) -> &[PendingInput] {
        &self.state.pending
    }

    /// Controls that are admitted and not delivered, in the order of their admission.
    #[must_use]
    pub fn controls(&self) -> &[PendingControl] {
        &self.state.controls
    }

    /// The newest wake was for what steers: prompts that are queued stay parked.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        self.state.narrow
    }

    /// The Compaction that has not ended.
    #[must_use]
    pub fn compacting(&self) -> Option<&OpenCompaction> {
        self.state.compacting.as_ref()
    }

    /// The title that is being made.
    #[must_use]
    pub fn titling(&self) -> Option<&OpenTitle> {
        self.state.titling.as_ref()
    }

    /// Whether somebody has given the session a title, or a model has.
    #[must_use]
    pub fn is_titled(&self) -> bool {
        self.state.titled
    }

    /// Whether something was told of the model, which its user should know.
    #[must_use]
    pub fn has_noticed(&self, model: &ModelRef) -> bool {
        let is_it = |(provider, name): &(String, String)| {
            *provider == model.provider && *name == model.model
        };
        self.state.noticed.iter().any(is_it)
    }

    /// Whether it is a child of another session.
    #[must_use]
    pub fn is_child(&self) -> bool {
        self.state.child
    }

    /// Context entries by key: JSON text.
    #[must_use]
    pub fn entries(&self) -> &BTreeMap<String, String> {
        &self.state.entries
    }

    /// The paths of files that were read, as the model is shown them.
    #[must_use]
    pub fn read_paths(&self) -> &BTreeSet<String> {
        &self.state.read_paths
    }

    /// How far the conversation was made smaller for its next turn.
    #[must_use]
    pub fn squeeze(&self) -> Squeeze {
        self.state.squeeze
    }

    /// Retries and cuts since the last whole reply of the drain.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.state.failures
    }

    /// What the provider counted for the last whole reply, and how many messages of the conversation that
    /// covers. `None` since a Compaction, and when the provider does not count.
    #[must_use]
    pub fn last_usage(&self) -> Option<(TurnUsage, usize)> {
        self.state.last_usage
    }

    /// The last event folded.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.state.seq
    }

    /// The active Context Epoch; `None` before the first.
    #[must_use]
    pub fn epoch(&self) -> Option<&EpochState> {
        self.state.epoch.as_deref()
    }

    /// The highest number that an epoch has had; 0 before the first. The next one's is above it, whatever was
    /// reverted or moved since.
    #[must_use]
    pub fn last_epoch(&self) -> i32 {
        self.state.last_epoch
    }

    /// Settled calls of which no committed Capture says that it has their effects on files, the oldest first; of
    /// very many the newest.
    #[must_use]
    pub fn unsaved(&self) -> &[Unsaved] {
        &self.state.files.unsaved
    }

    /// The turn whose calls may have changed files that no committed Capture has: the open one, if such a call of it has
    /// begun and has no result yet; otherwise that of the newest unsaved call.
    #[must_use]
    pub fn changing_turn(&self) -> Option<&TurnId> {
        let open = self.state.open.as_ref().filter(|open| open.is_changing_files());
        open.map(|open| &open.turn).or_else(|| self.unsaved().last().map(|unsaved| &unsaved.turn))
    }

    /// Settled calls whose effects on files are gone, and of which the model has not been told.
    #[must_use]
    pub fn lost(&self) -> &[Unsaved] {
        &self.state.files.lost
    }

    /// Files that Captures have left out since the Location's files were made anew, or the session came to it: at most
    /// 256, the newest.
    #[must_use]
    pub fn skipped(&self) -> &[LeftFile] {
        &self.state.files.skipped
    }

    /// Files that were in no Workspace Snapshot and are gone, and that the model has not been told of.
    #[must_use]
    pub fn lost_files(&self) -> &[LeftFile] {
        &self.state.files.lost_files
    }

    /// Files that Captures of the session's calls have left out from the event `seq` on.
    #[must_use]
    pub fn skipped_since(&self, seq: Seq) -> Vec<LeftFile> {
        skipped_since(&self.captures, self.state.files.since, seq)
    }

    /// The token under which the Location's files were made anew last, as far as this session was told.
    #[must_use]
    pub fn restored(&self) -> Option<FencingToken> {
        self.state.files.restored
    }

    /// The files as they were before the event `seq`, as far as this session's Captures tell.
    #[must_use]
    pub fn tree_before(&self, seq: Seq) -> Option<&SnapshotTree> {
        tree_before(&self.captures, self.state.files.since, seq)
    }

    /// The files that the session's calls have changed from the event `seq` on.
    #[must_use]
    pub fn changed_since(&self, seq: Seq) -> RevertPaths {
        changed_since(&self.captures, self.state.files.since, seq)
    }

    /// The Revert that is neither cleared nor committed.
    #[must_use]
    pub fn revert(&self) -> Option<&Reverting> {
        self.state.revert.as_ref()
    }

    /// The synthetic input that waits for the end of a staged Revert, since whenever one is staged: it is about work
    /// that may be gone by then. What somebody has woken the session for does not wait.
    pub fn held(&self) -> impl Iterator<Item = &PendingInput> {
        let is_staged = matches!(self.state.revert, Some(Reverting::Staged(_)));
        let since = if is_staged { self.state.staged } else { Seq(i64::MAX) };
        let held = move |input: &&PendingInput| {
            input.seq > since && input.prompt.synthetic.is_some() && !input.prompt.wake
        };
        self.state.pending.iter().filter(held)
    }

    /// What a Revert to before `message` goes back to: a prompt, an answer or a checkpoint that is not
    /// reverted for good.
    #[must_use]
    pub fn savepoint(&self, message: &MessageId) -> Option<&Savepoint> {
        let found = self.savepoints.iter().rfind(|savepoint| savepoint.message == *message)?;
        let dead = &self.state.dead;
        let is_dead = dead.iter().any(|(from, by)| *from <= found.seq && found.seq < *by);
        (!is_dead).then_some(found)
    }

    /// Where the session moved last; 0 when it never did. Messages before cannot be reverted.
    #[must_use]
    pub fn moved(&self) -> Seq {
        self.state.moved
    }

    /// The turn that is not settled.
    #[must_use]
    pub fn open_turn(&self) -> Option<&OpenTurn> {
        self.state.open.as_ref()
    }

    /// The agent chosen last.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.state.agent
    }

    /// The model chosen last, if any was.
    #[must_use]
    pub fn model(&self) -> Option<&ModelRef> {
        self.state.model.as_ref()
    }

    /// The first message that a user wrote, and its index in the conversation.
    #[must_use]
    pub fn first_prompt(&self) -> Option<(&MessageId, usize)> {
        self.state.first_prompt.as_ref().map(|(message, at)| (message, *at))
    }

    /// The user message promoted last.
    #[must_use]
    pub fn last_prompt(&self) -> Option<&MessageId> {
        self.state.last_prompt.as_ref()
    }

    /// Turns since the last batch of promoted inputs.
    #[must_use]
    pub fn steps(&self) -> i32 {
        self.state.steps
    }

    /// The conversation, of which a request shows a part.
    #[must_use]
    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// What a request shows of the conversation.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.state.view
    }

    /// Whether the model has yet to answer: its last word was a call, or it never spoke since a prompt.
    #[must_use]
    pub fn wants_turn(&self) -> bool {
        let view = &self.state.view;
        let mut messages = self.conversation.messages.iter().enumerate();
        messages
            .rfind(|(index, _)| !view.is_reverted(*index))
            .is_some_and(|(_, message)| message.role != llm_protocol::Role::Assistant)
    }

    /// An interrupt of the drain that has not ended, by its place in the log.
    #[must_use]
    pub fn interrupt(&self) -> Option<Seq> {
        self.state.interrupt
    }
}
