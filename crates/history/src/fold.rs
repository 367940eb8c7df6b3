use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::{
    Author, Claim, Control, Delivery, EventId, InterruptTarget, MessageId, ModelRef, NoticeKind,
    PromptAdmitted, RecordedEvent, RevertCommitted, Seq, SessionEvent, SessionId,
    SessionIncarnation, SideOutcome, TimestampMs, ToolRule, TurnId, TurnOutcome, TurnUsage,
    WakeScope,
};
use llm_protocol::{CachePolicy, LlmRequest, Message, Part, SystemPart};

use crate::accepted::AcceptedSize;
use crate::failed_summaries::FailedSummaries;
use crate::files::{Capture, Files};
use crate::open_turn::OpenTurn;
use crate::provider_state::{TakenState, is_state_refusal};
use crate::revert::{Reverting, Savepoint};
use crate::side::{OpenCompaction, OpenTitle, Side};
use crate::silence::Silence;
use crate::squeeze::Squeeze;
use crate::transcript::transcript;
use crate::{Components, Conversation, View};

pub(crate) mod hidden;
mod read;
mod repeats;
mod state;
mod wakes;

/// The meaning of a session's events, up to some number, for its next request. The caller must not fold an event
/// twice. Folding events in pieces gives the same result as folding them at once.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The incarnation of the log's session; meaningless before the first event.
    incarnation: SessionIncarnation,
    /// Only grows.
    conversation: Conversation,
    /// One for each message that a Revert can go back to; only grows.
    savepoints: Vec<Savepoint>,
    /// Only grows.
    captures: Vec<Capture>,
    state: State,
}

/// Everything except the parts that only grow: small, and cheap to copy.
#[derive(Debug, Clone, Default)]
struct State {
    seq: Seq,
    /// The id of the event with this number; `None` while it is a draft.
    last: Option<EventId>,
    /// The claim of the drain that wrote last.
    writer: Option<Claim>,
    pending: Vec<PendingInput>,
    controls: Vec<PendingControl>,
    epoch: Option<Arc<EpochState>>,
    /// The highest epoch number so far.
    last_epoch: i32,
    view: View,
    open: Option<OpenTurn>,
    compacting: Option<OpenCompaction>,
    titling: Option<OpenTitle>,
    model: Option<ModelRef>,
    agent: String,
    rules: Arc<[ToolRule]>,
    directory: Arc<str>,
    titled: bool,
    /// Whether the newest wake was only for steering inputs.
    narrow: bool,
    /// The newest interrupt. Wakes before it start nothing.
    parked: Seq,
    /// Whether the drain that has not ended has taken an input or begun a turn.
    serves: bool,
    /// Whether the drain before was interrupted and the session woken again: its work goes on in the next one.
    resumes: bool,
    /// The last event that a Fork has copied; 0 in others. No drain of this session did what they say.
    copied: Seq,
    parent: Option<SessionId>,
    /// The first prompt of a user, and its message's index.
    first_prompt: Option<(MessageId, usize)>,
    last_prompt: Option<MessageId>,
    /// The author of the newest promoted prompt that somebody wrote, or else of the session.
    author: Option<Author>,
    steps: i32,
    interrupt: Option<Seq>,
    /// Somebody has woken the session since.
    resumed: bool,
    entries: Arc<BTreeMap<String, String>>,
    read_paths: Arc<BTreeSet<String>>,
    squeeze: Squeeze,
    failed_summaries: FailedSummaries,
    accepted: AcceptedSize,
    failures: u32,
    silence: Silence,
    last_usage: Option<(TurnUsage, usize)>,
    files: Files,
    /// The lines of the notices for users.
    noticed: Arc<BTreeSet<String>>,
    revert: Option<Reverting>,
    /// The place where the current Revert was first staged, even if its message has changed since; 0 without one.
    staged: Seq,
    /// The ranges that were reverted for good: the first event of each, and the event that committed the Revert.
    dead: Arc<Vec<(Seq, Seq)>>,
    /// The place of the last Move. A Revert may not cross it.
    moved: Seq,
    /// Whether a view has shown what was given up. Then what followed from it is wrong too, so this stays.
    is_torn: bool,
    /// The number of messages whose provider state no request has any more: their provider has refused some of it.
    stateless: usize,
}

/// A point of a [`History`] to go back to.
#[derive(Debug)]
pub struct Mark {
    messages: usize,
    savepoints: usize,
    captures: usize,
    state: State,
}

/// An admitted prompt that is not promoted yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingInput {
    /// Its number in the log.
    pub seq: Seq,
    /// The time of its admission.
    pub admitted: TimestampMs,
    /// Its current delivery, after any changes.
    pub delivery: Delivery,
    /// The newest wake that was for it; 0 if it is only stored.
    pub woken: Seq,
    /// The prompt.
    pub prompt: Arc<PromptAdmitted>,
}

/// An admitted control that is not delivered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingControl {
    /// Its number in the log.
    pub seq: Seq,
    /// Its current delivery, after any changes.
    pub delivery: Delivery,
    /// The newest wake that was for it; 0 if it is only stored.
    pub woken: Seq,
    /// Its id.
    pub message: MessageId,
    /// Its action.
    pub control: Control,
}

/// The active Context Epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochState {
    /// The number of the epoch, from 1.
    pub number: i32,
    /// The Baseline System Context, exactly as sent.
    pub baseline: String,
    /// The Context Snapshot as JSON text.
    pub snapshot: String,
}

impl History {
    /// Returns the fold of no events.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the incarnation of the folded session. An earlier or later session with the same id has another one.
    #[must_use]
    pub fn incarnation(&self) -> SessionIncarnation {
        self.incarnation
    }

    /// Returns the session's rules about tool calls, in order.
    #[must_use]
    pub fn tool_rules(&self) -> &[ToolRule] {
        &self.state.rules
    }

    /// Returns the directory of the session's Location, as the model sees it.
    #[must_use]
    pub fn directory(&self) -> &str {
        &self.state.directory
    }

    /// Sets the incarnation of the log, before its first event is folded.
    pub fn belong_to(&mut self, incarnation: SessionIncarnation) {
        self.incarnation = incarnation;
    }

    /// Folds events, in order.
    pub fn extend<'a>(&mut self, events: impl IntoIterator<Item = &'a RecordedEvent>) {
        for recorded in events {
            self.apply(recorded.seq, recorded.time, &recorded.event);
            self.state.writer = recorded.claim.or(self.state.writer);
            self.state.last = Some(recorded.id.clone());
        }
    }

    /// Notes that the drain with this claim has written the newest events, which were folded as drafts. `last` is the
    /// id that the last of them got.
    pub fn written_by(&mut self, claim: Claim, last: Option<EventId>) {
        self.state.writer = Some(claim);
        self.state.last = last;
    }

    /// Marks the current point of the fold. The caller can fold drafted events that are never written, and go back.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark {
            messages: self.conversation.messages.len(),
            savepoints: self.savepoints.len(),
            captures: self.captures.len(),
            state: self.state.clone(),
        }
    }

    /// Goes back to `mark`, which must be an earlier point of this fold.
    pub fn back_to(&mut self, mark: Mark) {
        debug_assert!(mark.state.seq <= self.state.seq, "a mark is of the past");
        self.conversation.truncate(mark.messages);
        self.savepoints.truncate(mark.savepoints);
        self.captures.truncate(mark.captures);
        self.state = mark.state;
    }

    /// Returns the body of the request that `turn` sends: of a turn, of the open Compaction, or of the open title. A
    /// conversation that is shown whole is taken out and put back instead of copied, because a session may hold a
    /// thousand messages.
    #[must_use]
    pub fn encode(&mut self, components: &Components, turn: &TurnId) -> Vec<u8> {
        let newest = components.model.protocol.wire_version();
        self.encode_version(newest, components, turn).expect("this build has its own wire version")
    }

    /// Returns the same body in an earlier wire version; `None` if this build does not have that.
    #[must_use]
    pub fn encode_version(
        &mut self,
        version: u32,
        components: &Components,
        turn: &TurnId,
    ) -> Option<Vec<u8>> {
        debug_assert!(!self.conversation.is_torn(&self.state.view), "a request lacks a text");
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
            return components.model.encode(version, &mut request);
        }
        let compaction = self.state.compacting.as_ref();
        let compaction = compaction.filter(|open| open.side.started.turn == *turn);
        if let Some(compaction) = compaction
            && let Some(cut) = &compaction.side.started.scope.cut
        {
            let to = self.conversation.at(compaction.side.started.keep_from);
            let shown = transcript(&self.conversation, &self.state.view, to, cut);
            request.system.push(SystemPart::text(components.agent.clone()));
            request.messages.push(Message::user(shown));
            compaction.ask(&mut request.messages);
            return components.model.encode(version, &mut request);
        }
        let stateless = self.conversation.messages.iter_mut().take(self.state.stateless);
        let taken = TakenState::take_from(stateless);
        request.cache = CachePolicy::Auto;
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
            compaction.ask(&mut request.messages);
        }
        let body = components.model.encode(version, &mut request);
        if whole {
            request.messages.truncate(shown);
            self.conversation.messages = request.messages;
        }
        taken.put_back(&mut self.conversation.messages);
        body
    }

    /// Folds the event at `seq` with the time `time`. The caller may fold it before its transaction commits.
    pub fn apply(&mut self, seq: Seq, time: TimestampMs, event: &SessionEvent) {
        debug_assert_eq!(seq.0, self.state.seq.0 + 1, "the log has no holes");
        let state = &mut self.state;
        state.seq = seq;
        state.last = None;
        match event {
            SessionEvent::SessionCreated(created) => {
                state.agent.clone_from(&created.agent);
                state.model.clone_from(&created.model);
                state.parent.clone_from(&created.parent);
                state.rules = created.rules.as_slice().into();
                state.directory = created.directory.as_str().into();
                state.titled = created.named;
                state.author.clone_from(&created.by);
            }
            SessionEvent::PromptPromoted(promoted) => {
                let of = |input: &&PendingInput| input.prompt.message == promoted.message;
                if let Some(input) = state.pending.iter().find(of)
                    && input.prompt.synthetic.is_none()
                {
                    state.author.clone_from(&input.prompt.by);
                }
                state.pending.retain(|input| input.prompt.message != promoted.message);
                state.note_service();
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
                state.silence = Silence::default();
                state.squeeze = Squeeze::default();
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
                state.note_service();
                state.squeeze.turn_began();
                state.accepted.turn_began(&started.model);
                if let Some(notice) = &started.notice {
                    Arc::make_mut(&mut state.noticed).extend(notice.lines().map(str::to_owned));
                }
                let savepoint = state.savepoint(&self.conversation, &started.message);
                self.savepoints.push(Savepoint { turn: Some(started.turn.clone()), ..savepoint });
                let (turn, message) = (started.turn.clone(), started.message.clone());
                state.open = Some(OpenTurn::new(turn, message, started.agent.clone()));
            }
            SessionEvent::NoticeRecorded(notice) => {
                self.conversation.push(seq, Message::user(notice.text.clone()));
                if notice.kind == NoticeKind::FilesLost {
                    state.files.lost = Arc::default();
                    state.files.lost_files = Arc::default();
                }
            }
            SessionEvent::ToolSettled(settled) => {
                let open = state.open.as_ref();
                if let Some(call) = open.and_then(|open| open.call(&settled.call)) {
                    state.files.settled(seq, call, settled);
                }
                state.apply_to_open(event);
            }
            SessionEvent::AttemptEnded(ended) => {
                if is_state_refusal(ended) {
                    state.stateless = self.conversation.messages.len();
                }
                state.apply_to_open(event);
            }
            SessionEvent::AttemptStarted(_)
            | SessionEvent::TextCheckpointed(_)
            | SessionEvent::ToolCalled(_)
            | SessionEvent::ToolAsked(_)
            | SessionEvent::ToolAnswered(_)
            | SessionEvent::ToolStarted(_) => state.apply_to_open(event),
            SessionEvent::TurnReplied(replied) => {
                state.silence.replied(replied);
                state.apply_to_open(event);
            }
            SessionEvent::RetryScheduled(_) => state.failures += 1,
            SessionEvent::TurnSettled(settled) => {
                self.settle(seq, settled.outcome);
            }
            SessionEvent::InterruptRequested(requested) => {
                state.parked = seq;
                match requested.target {
                    InterruptTarget::Turn { .. } | InterruptTarget::Drain => {
                        state.interrupt = Some(seq);
                        state.resumed = false;
                    }
                    InterruptTarget::Parked => {}
                }
            }
            SessionEvent::DrainEnded(_) => {
                state.serves = false;
                state.interrupt = None;
                state.resumes = std::mem::take(&mut state.resumed);
                state.failures = 0;
                state.silence = Silence::default();
            }
            SessionEvent::PromptAdmitted(prompt) => {
                state.narrow &= !prompt.wake;
                state.pending.push(PendingInput {
                    seq,
                    admitted: time,
                    delivery: prompt.delivery,
                    woken: if prompt.wake { seq } else { Seq(0) },
                    prompt: Arc::new(prompt.clone()),
                });
            }
            SessionEvent::ControlAdmitted(control) => {
                state.narrow &= !control.wake;
                state.controls.push(PendingControl {
                    seq,
                    delivery: control.delivery,
                    woken: if control.wake { seq } else { Seq(0) },
                    message: control.message.clone(),
                    control: control.control.clone(),
                });
            }
            SessionEvent::ControlDelivered(delivered) => {
                state.forget(&delivered.message);
                state.note_service();
            }
            SessionEvent::InputCancelled(cancelled) => state.forget(&cancelled.message),
            SessionEvent::DeliveryChanged(changed) => {
                // An input that a narrow wake was for may be queued now, and must run all the same.
                state.narrow &= !changed.wake && changed.delivery == Delivery::Steer;
                state.deliver(&changed.message, changed.delivery);
                if changed.wake {
                    state.wake_one(seq, &changed.message);
                }
            }
            SessionEvent::SessionRenamed(_) => state.titled = true,
            // Said to people and clients: no request shows it.
            SessionEvent::SessionArchived(_) | SessionEvent::SessionDescribed(_) => {}
            SessionEvent::EntrySet(entry) => {
                Arc::make_mut(&mut state.entries).insert(entry.key.clone(), entry.value.clone());
            }
            SessionEvent::EntryRemoved(entry) => {
                Arc::make_mut(&mut state.entries).remove(&entry.key);
            }
            SessionEvent::CompactionStarted(started) => {
                self.savepoints.push(state.savepoint(&self.conversation, &started.message));
                state.squeeze.started(started);
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
                state.squeeze.ended(started, ended.outcome);
                state.failed_summaries.ended(started, ended);
                if ended.outcome == SideOutcome::Completed {
                    let at = |place: &Seq| self.conversation.at(*place);
                    state.view.checkpoint = ended.checkpoint.as_deref().map(Arc::from);
                    state.view.from = at(&started.keep_from);
                    state.view.kept = started.scope.kept.iter().map(at).collect();
                    state.is_torn |= self.conversation.is_torn(&state.view);
                    state.last_usage = None;
                }
            }
            SessionEvent::TitleStarted(started) => state.titling = Some(Side::new(started.clone())),
            SessionEvent::TitleEnded(_) => state.titling = None,
            SessionEvent::SessionMoved(moved) => {
                state.directory = moved.directory.as_str().into();
                state.epoch = None;
                state.read_paths = Arc::default();
                state.revert = None;
                state.moved = seq;
                state.files.left(seq);
            }
            SessionEvent::SessionForked(forked) => {
                state.copied = Seq(seq.0 + forked.copied);
                // The calls of the copied log changed another session's files.
                state.files.left(state.copied);
            }
            SessionEvent::WorkspaceSnapshotted(taken) => {
                let of =
                    |savepoint: &&Savepoint| taken.turn.is_some() && savepoint.turn == taken.turn;
                let began = self.savepoints.iter().rfind(of).map_or(seq, |turn| turn.seq);
                self.captures.push(Capture::new(seq, began, taken));
                state.files.saved();
                state.files.left_out(&taken.skipped);
            }
            SessionEvent::WorkspaceRestored(restored) => state.files.restored(restored),
            SessionEvent::RevertStaging(staging) => {
                state.revert = Some(Reverting::Staging(Arc::new(staging.clone())));
            }
            SessionEvent::RevertStaged(staged) => {
                if state.staged == Seq(0) {
                    state.staged = seq;
                }
                state.revert = Some(Reverting::Staged(Arc::new(staged.clone())));
            }
            SessionEvent::RevertCleared(_) => {
                state.revert = None;
                state.staged = Seq(0);
            }
            SessionEvent::RevertCommitted(committed) => self.commit(seq, committed),
            SessionEvent::WakeRequested(wake) => {
                state.narrow = wake.scope == WakeScope::Steer;
                let all = !state.narrow;
                state.resumed |= all && state.interrupt.is_some();
                state.wake_all(seq, wake.scope);
            }
        }
    }

    /// Makes a Revert final. Later messages follow the boundary message's predecessor, in the epoch of that time.
    fn commit(&mut self, seq: Seq, committed: &RevertCommitted) {
        let state = &mut self.state;
        state.revert = None;
        state.staged = Seq(0);
        let Some(to) = self.savepoints.iter().rfind(|to| to.seq == committed.from) else { return };
        state.view = to.view.without(to.at, self.conversation.messages.len());
        state.is_torn |= to.is_given_up || self.conversation.is_torn(&state.view);
        state.epoch.clone_from(&to.epoch);
        state.last_usage = to.last_usage;
        state.last_prompt.clone_from(&to.last_prompt);
        state.first_prompt.clone_from(&to.first_prompt);
        state.squeeze = Squeeze::default();
        state.failed_summaries = FailedSummaries::default();
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
                state.squeeze.overflows = 0;
                state.squeeze.refused = None;
                if let Some(used) = replied {
                    state.accepted.completed(used);
                    state.last_usage = Some((used, self.conversation.messages.len()));
                }
            }
            TurnOutcome::Cut => state.failures += 1,
            // Nothing of the turn remains, so its step does not count.
            TurnOutcome::Lost | TurnOutcome::Overflowed => state.steps -= 1,
            TurnOutcome::Failed | TurnOutcome::Interrupted => {}
        }
    }
}
