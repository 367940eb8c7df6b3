use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::{
    CompactionReason, Control, Delivery, DrainOutcome, FencingToken, InterruptTarget, MessageId,
    ModelRef, NoticeKind, PromptAdmitted, RecordedEvent, RevertCommitted, RevertPaths, Seq,
    SessionEvent, SideOutcome, SnapshotTree, TimestampMs, TurnId, TurnOutcome, TurnUsage,
};
use llm_protocol::{LlmRequest, Message, Part, SystemPart};

use crate::files::{Capture, Files, Unsaved, changed_since, tree_before};
use crate::open_turn::OpenTurn;
use crate::revert::{Reverting, Savepoint};
use crate::side::{OpenCompaction, OpenTitle, Side, turn_of};
use crate::{Components, Conversation, View};

/// What the events of a session up to some point mean for its next request. Folding an event twice is a
/// bug of the caller; folding them in pieces gives the same as at once.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Only grows.
    conversation: Conversation,
    /// One for each message that somebody can go back to; only grows.
    savepoints: Vec<Savepoint>,
    /// Only grows.
    captures: Vec<Capture>,
    state: State,
}

/// All but what only grows: little, and cheap to copy.
#[derive(Debug, Clone, Default)]
struct State {
    seq: Seq,
    pending: Vec<PendingInput>,
    controls: Vec<PendingControl>,
    epoch: Option<Arc<EpochState>>,
    /// The highest number that an epoch has had.
    last_epoch: i32,
    view: View,
    open: Option<OpenTurn>,
    compacting: Option<OpenCompaction>,
    titling: Option<OpenTitle>,
    model: Option<ModelRef>,
    agent: String,
    titled: bool,
    child: bool,
    /// The first prompt of a user, and its message's index.
    first_prompt: Option<(MessageId, usize)>,
    last_prompt: Option<MessageId>,
    steps: i32,
    interrupt: Option<Seq>,
    entries: Arc<BTreeMap<String, String>>,
    read_paths: Arc<BTreeSet<String>>,
    overflow_spent: bool,
    just_compacted: bool,
    failures: u32,
    last_usage: Option<(TurnUsage, usize)>,
    files: Files,
    revert: Option<Reverting>,
    /// What was reverted for good, by its first event and the one that said so.
    dead: Arc<Vec<(Seq, Seq)>>,
    /// Where the session moved last: a Revert may not cross it.
    moved: Seq,
}

/// A [`History`] as it was at some point, to go back to.
#[derive(Debug)]
pub struct Mark {
    messages: usize,
    savepoints: usize,
    captures: usize,
    state: State,
}

/// An admitted prompt that is not promoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingInput {
    /// Its place in the log.
    pub seq: Seq,
    /// When it was admitted.
    pub admitted: TimestampMs,
    /// How it joins running work, as it was changed last.
    pub delivery: Delivery,
    /// What was admitted.
    pub prompt: Arc<PromptAdmitted>,
}

/// An admitted control that is not delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingControl {
    /// Its place in the log.
    pub seq: Seq,
    /// How it joins running work, as it was changed last.
    pub delivery: Delivery,
    /// Its id.
    pub message: MessageId,
    /// What it asks for.
    pub control: Control,
}

/// The active Context Epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochState {
    /// 1 for the first.
    pub number: i32,
    /// The Baseline System Context, exactly as sent.
    pub baseline: String,
    /// The Context Snapshot as JSON text.
    pub snapshot: String,
}

impl History {
    /// The fold of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Folds events, in order.
    pub fn extend<'a>(&mut self, events: impl IntoIterator<Item = &'a RecordedEvent>) {
        for recorded in events {
            self.apply(recorded.seq, recorded.time, &recorded.event);
        }
    }

    /// Where the fold is now. Events that are drafted and never written are folded and taken back by it.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark {
            messages: self.conversation.messages.len(),
            savepoints: self.savepoints.len(),
            captures: self.captures.len(),
            state: self.state.clone(),
        }
    }

    /// Unfolds everything since `mark`, which must be an earlier point of this very fold.
    pub fn back_to(&mut self, mark: Mark) {
        debug_assert!(mark.state.seq <= self.state.seq, "a mark is of the past");
        self.conversation.truncate(mark.messages);
        self.savepoints.truncate(mark.savepoints);
        self.captures.truncate(mark.captures);
        self.state = mark.state;
    }

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

    /// Whether a Compaction for a provider's overflow has been tried since the last turn that was answered.
    #[must_use]
    pub fn overflow_spent(&self) -> bool {
        self.state.overflow_spent
    }

    /// Whether nothing but a Compaction has happened to the conversation since the last one completed.
    #[must_use]
    pub fn just_compacted(&self) -> bool {
        self.state.just_compacted
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

    /// Settled calls whose effects on files no committed Capture has.
    #[must_use]
    pub fn unsaved(&self) -> &[Unsaved] {
        &self.state.files.unsaved
    }

    /// Settled calls whose effects on files are gone, and of which the model has not been told.
    #[must_use]
    pub fn lost(&self) -> &[Unsaved] {
        &self.state.files.lost
    }

    /// The token under which the Location's files were made anew last, as far as this session was told.
    #[must_use]
    pub fn restored(&self) -> Option<FencingToken> {
        self.state.files.restored
    }

    /// All Captures that this session has committed, in order.
    #[must_use]
    pub fn captures(&self) -> &[Capture] {
        &self.captures
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

    /// The body of the request that `turn` sends: of a turn, of the Compaction that has not ended, or of the
    /// title that is being made. Takes a conversation that is shown whole out and puts it back rather than
    /// copying it: a session may hold a thousand messages.
    #[must_use]
    pub fn encode(&mut self, components: &Components, turn: &TurnId) -> Vec<u8> {
        let model = components.model.id.clone();
        let mut request = LlmRequest::new(model, Vec::new());
        request.tools.clone_from(&components.tools);
        request.tool_choice.clone_from(&components.tool_choice);
        request.generation.clone_from(&components.generation);
        request.provider_options.clone_from(&components.options);
        if let Some(title) = self.state.titling.as_ref().filter(|title| title.started.turn == *turn)
        {
            request.system.push(SystemPart::text(title.started.system.clone()));
            request.messages.push(Message::user(title.started.prompt.clone()));
            return components.model.protocol.encode(&request);
        }
        request.system.push(SystemPart::text(components.agent.clone()));
        if let Some(epoch) = &self.state.epoch {
            request.system.push(SystemPart::text(epoch.baseline.clone()));
        }
        let whole = self.state.view.is_whole();
        request.messages = if whole {
            std::mem::take(&mut self.conversation.messages)
        } else {
            self.state.view.shown(&self.conversation)
        };
        let shown = request.messages.len();
        let compaction = self.state.compacting.as_ref();
        if let Some(compaction) = compaction.filter(|open| open.side.started.turn == *turn) {
            request.messages.push(Message::user(compaction.side.started.prompt.clone()));
            if let Some(reminded) = &compaction.reminded {
                request.messages.push(Message::assistant(vec![Part::text(reminded.draft.clone())]));
                request.messages.push(Message::user(reminded.reminder.clone()));
            }
        }
        let body = components.model.protocol.encode(&request);
        if whole {
            request.messages.truncate(shown);
            self.conversation.messages = request.messages;
        }
        body
    }

    /// An interrupt of the drain that has not ended, by its place in the log.
    #[must_use]
    pub fn interrupt(&self) -> Option<Seq> {
        self.state.interrupt
    }

    /// Folds the event that is at `seq` since `time`, or will be once the caller's transaction commits.
    pub fn apply(&mut self, seq: Seq, time: TimestampMs, event: &SessionEvent) {
        debug_assert_eq!(seq.0, self.state.seq.0 + 1, "the log has no holes");
        let state = &mut self.state;
        state.seq = seq;
        match event {
            SessionEvent::SessionCreated(created) => {
                state.agent.clone_from(&created.agent);
                state.model.clone_from(&created.model);
                state.child = created.parent.is_some();
                state.titled = created.named;
            }
            SessionEvent::PromptPromoted(promoted) => {
                state.pending.retain(|input| input.prompt.message != promoted.message);
                let texts = promoted.parts.iter().map(|part| {
                    let domain::PromptPart::Text { text, .. } = part;
                    Part::text(text.clone())
                });
                let content = texts.collect();
                self.savepoints.push(state.savepoint(&self.conversation, &promoted.message));
                if state.first_prompt.is_none() && promoted.synthetic.is_none() {
                    let at = self.conversation.messages.len();
                    state.first_prompt = Some((promoted.message.clone(), at));
                }
                self.conversation.push(seq, Message { role: llm_protocol::Role::User, content });
                state.agent.clone_from(&promoted.agent);
                state.model = Some(promoted.model.clone());
                state.last_prompt = Some(promoted.message.clone());
                state.steps = 0;
                state.just_compacted = false;
                state.overflow_spent = false;
            }
            SessionEvent::EpochStarted(epoch) => {
                if state.last_epoch > 0 {
                    state.view.system_from = self.conversation.messages.len();
                }
                state.last_epoch = state.last_epoch.max(epoch.epoch);
                state.epoch = Some(Arc::new(EpochState {
                    number: epoch.epoch,
                    baseline: epoch.baseline.clone(),
                    snapshot: epoch.snapshot.clone(),
                }));
            }
            SessionEvent::ContextUpdated(update) => {
                self.conversation.push(seq, Message::system(update.rendered.clone()));
                if let Some(epoch) = &mut state.epoch {
                    Arc::make_mut(epoch).snapshot.clone_from(&update.snapshot);
                }
            }
            SessionEvent::TurnStarted(started) => {
                state.steps = started.step;
                state.just_compacted = false;
                let savepoint = state.savepoint(&self.conversation, &started.message);
                self.savepoints.push(Savepoint { turn: Some(started.turn.clone()), ..savepoint });
                let (turn, message) = (started.turn.clone(), started.message.clone());
                state.open = Some(OpenTurn::new(turn, message, started.agent.clone()));
            }
            SessionEvent::NoticeRecorded(notice) => {
                self.conversation.push(seq, Message::user(notice.text.clone()));
                if notice.kind == NoticeKind::FilesLost {
                    state.files.lost = Arc::default();
                }
            }
            SessionEvent::ToolCalled(called) => {
                state.files.begins(&called.turn, called.class);
                state.apply_to_open(event);
            }
            SessionEvent::ToolSettled(settled) => {
                let open = state.open.as_ref();
                if let Some(call) = open.and_then(|open| open.call(&settled.call)) {
                    state.files.settled(seq, call, settled);
                }
                state.apply_to_open(event);
            }
            SessionEvent::AttemptStarted(_)
            | SessionEvent::AttemptEnded(_)
            | SessionEvent::TextCheckpointed(_)
            | SessionEvent::ToolStarted(_)
            | SessionEvent::TurnReplied(_) => state.apply_to_open(event),
            SessionEvent::RetryScheduled(_) => state.failures += 1,
            SessionEvent::TurnSettled(settled) => {
                self.settle(seq, settled.outcome);
            }
            SessionEvent::InterruptRequested(requested) => match requested.target {
                InterruptTarget::Turn { .. } | InterruptTarget::Drain => {
                    state.interrupt = Some(seq);
                }
                InterruptTarget::Parked => {}
            },
            SessionEvent::DrainEnded(ended) => {
                state.interrupt = None;
                state.failures = 0;
                if ended.outcome == DrainOutcome::Completed {
                    state.files.saved();
                }
            }
            SessionEvent::PromptAdmitted(prompt) => state.pending.push(PendingInput {
                seq,
                admitted: time,
                delivery: prompt.delivery,
                prompt: Arc::new(prompt.clone()),
            }),
            SessionEvent::ControlAdmitted(control) => state.controls.push(PendingControl {
                seq,
                delivery: control.delivery,
                message: control.message.clone(),
                control: control.control.clone(),
            }),
            SessionEvent::ControlDelivered(delivered) => state.forget(&delivered.message),
            SessionEvent::InputCancelled(cancelled) => state.forget(&cancelled.message),
            SessionEvent::DeliveryChanged(changed) => {
                state.deliver(&changed.message, changed.delivery)
            }
            SessionEvent::SessionRenamed(_) => state.titled = true,
            SessionEvent::EntrySet(entry) => {
                Arc::make_mut(&mut state.entries).insert(entry.key.clone(), entry.value.clone());
            }
            SessionEvent::EntryRemoved(entry) => {
                Arc::make_mut(&mut state.entries).remove(&entry.key);
            }
            SessionEvent::CompactionStarted(started) => {
                self.savepoints.push(state.savepoint(&self.conversation, &started.message));
                let side = Side::new(started.clone());
                state.compacting = Some(OpenCompaction { side, reminded: None });
            }
            SessionEvent::CompactionReminded(reminded) => {
                if let Some(compaction) = &mut state.compacting {
                    compaction.reminded = Some(Arc::new(reminded.clone()));
                }
            }
            SessionEvent::CompactionEnded(ended) => {
                let Some(compaction) = state.compacting.take() else { return };
                let started = &compaction.side.started;
                // One whose worker died has not been tried.
                let tried = ended.outcome != SideOutcome::Lost;
                if started.reason == CompactionReason::Overflow && tried {
                    state.overflow_spent = true;
                }
                if ended.outcome == SideOutcome::Completed {
                    state.view.checkpoint = ended.checkpoint.as_deref().map(Arc::from);
                    state.view.from = self.conversation.at(started.keep_from);
                    state.last_usage = None;
                    state.just_compacted = true;
                }
            }
            SessionEvent::TitleStarted(started) => state.titling = Some(Side::new(started.clone())),
            SessionEvent::TitleEnded(_) => state.titling = None,
            SessionEvent::SessionMoved(_) => {
                state.epoch = None;
                state.read_paths = Arc::default();
                state.revert = None;
                state.moved = seq;
                state.files.left(seq);
            }
            SessionEvent::SessionForked(forked) => {
                // What the calls of the copied log did to files, another session has done.
                state.files.left(Seq(seq.0 + forked.copied));
            }
            SessionEvent::WorkspaceSnapshotted(taken) => {
                let of =
                    |savepoint: &&Savepoint| taken.turn.is_some() && savepoint.turn == taken.turn;
                let began = self.savepoints.iter().rfind(of).map_or(seq, |turn| turn.seq);
                self.captures.push(Capture::new(seq, began, taken));
                state.files.saved();
            }
            SessionEvent::WorkspaceRestored(restored) => state.files.restored(restored),
            SessionEvent::RevertStaging(staging) => {
                state.revert = Some(Reverting::Staging(Arc::new(staging.clone())));
            }
            SessionEvent::RevertStaged(staged) => {
                state.revert = Some(Reverting::Staged(Arc::new(staged.clone())));
            }
            SessionEvent::RevertCleared(_) => state.revert = None,
            SessionEvent::RevertCommitted(committed) => self.commit(seq, committed),
            SessionEvent::WakeRequested(_) => {}
        }
    }

    /// Goes back for good. What comes next is after the boundary message's predecessor, in the epoch of then.
    fn commit(&mut self, seq: Seq, committed: &RevertCommitted) {
        let state = &mut self.state;
        state.revert = None;
        let Some(to) = self.savepoints.iter().rfind(|to| to.seq == committed.from) else { return };
        state.view = to.view.without(to.at, self.conversation.messages.len());
        state.epoch.clone_from(&to.epoch);
        state.last_usage = to.last_usage;
        state.last_prompt.clone_from(&to.last_prompt);
        state.first_prompt.clone_from(&to.first_prompt);
        state.just_compacted = false;
        state.overflow_spent = false;
        Arc::make_mut(&mut state.dead).push((to.seq, seq));
    }

    fn settle(&mut self, seq: Seq, outcome: TurnOutcome) {
        let state = &mut self.state;
        let Some(open) = state.open.take() else { return };
        let replied = open.replied;
        for path in open.read_paths() {
            Arc::make_mut(&mut state.read_paths).insert(path);
        }
        for message in open.into_messages() {
            self.conversation.push(seq, message);
        }
        match outcome {
            TurnOutcome::Completed => {
                state.failures = 0;
                state.overflow_spent = false;
                if let Some(used) = replied {
                    state.last_usage = Some((used, self.conversation.messages.len()));
                }
            }
            TurnOutcome::Cut => state.failures += 1,
            // Nothing of it is left: its step is given back.
            TurnOutcome::Lost | TurnOutcome::Overflowed => state.steps -= 1,
            TurnOutcome::Failed | TurnOutcome::Interrupted => {}
        }
    }
}

impl State {
    /// What a Revert to before `message`, which begins now, goes back to.
    fn savepoint(&self, conversation: &Conversation, message: &MessageId) -> Savepoint {
        Savepoint {
            seq: self.seq,
            message: message.clone(),
            turn: None,
            at: conversation.messages.len(),
            view: self.view.clone(),
            epoch: self.epoch.clone(),
            last_usage: self.last_usage,
            last_prompt: self.last_prompt.clone(),
            first_prompt: self.first_prompt.clone(),
        }
    }

    /// An event of the open turn, or of the request beside it that it names.
    fn apply_to_open(&mut self, event: &SessionEvent) {
        if let Some(turn) = turn_of(event) {
            if let Some(compaction) = &mut self.compacting
                && compaction.side.started.turn == *turn
            {
                return compaction.side.apply(event);
            }
            if let Some(title) = &mut self.titling
                && title.started.turn == *turn
            {
                return title.apply(event);
            }
        }
        if let Some(open) = &mut self.open {
            open.apply(event);
        }
    }

    fn forget(&mut self, message: &MessageId) {
        self.pending.retain(|input| input.prompt.message != *message);
        self.controls.retain(|control| control.message != *message);
    }

    fn deliver(&mut self, message: &MessageId, delivery: Delivery) {
        for input in self.pending.iter_mut().filter(|input| input.prompt.message == *message) {
            input.delivery = delivery;
        }
        for control in self.controls.iter_mut().filter(|control| control.message == *message) {
            control.delivery = delivery;
        }
    }
}
