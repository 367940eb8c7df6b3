//! Copies a log for a Fork: the conversation up to a message, so that the copy folds to the same view and no longer
//! needs the original log.
//!
//! Copied: the model's input and output, with fresh ids of messages, parts, turns and calls, used consistently. Left
//! out: the inbox, wire requests and their usage, titles, interrupts, ends of drains, reverted parts, and changes of
//! files, because those are the other session's.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use domain::{
    CallId, IdMint, MessageId, PartId, PromptPart, RecordedEvent, ReplyPart, Seq, SessionEvent,
    SideOutcome, TimestampMs, TurnId, TurnOutcome, TurnUsage,
};

/// The part of a log that a Fork begins with.
#[derive(Debug, Clone, PartialEq)]
pub struct Forked {
    /// The copied events in order, each with its original time.
    pub events: Vec<(TimestampMs, SessionEvent)>,
    /// The last event of the log that the copy covers.
    pub through: Seq,
}

/// Copies the conversation of `log`, which must be complete, up to but without the message `before`. Without a
/// message it copies everything shown, so nothing that a staged Revert hides. `first` is the number of the first
/// copied event. A turn or Compaction that is open at the cut is left out.
///
/// Returns `None` if the conversation does not have the message, or no longer has it.
#[must_use]
pub fn fork(
    log: &[RecordedEvent],
    before: Option<&MessageId>,
    first: Seq,
    mint: &mut IdMint,
) -> Option<Forked> {
    let gone = Gone::of(log);
    let end = match before {
        Some(message) => {
            let is_it = |event: &&RecordedEvent| begun(&event.event) == Some(message);
            log.iter().filter(|event| !gone.has(event.seq)).find(is_it)?.seq
        }
        None => gone.hidden.unwrap_or(Seq(log.last().map_or(1, |event| event.seq.0 + 1))),
    };
    let past = if mutated!(ForkTakesOneMore) { Seq(end.0 + 1) } else { end };
    let log = &log[..log.partition_point(|event| event.seq < past)];
    let mut copy = Copy {
        kept: kept(log, &gone),
        shown: shown(log),
        gone,
        first,
        copied: Vec::new(),
        ids: Ids::new(mint),
        events: Vec::new(),
    };
    log.iter().for_each(|event| copy.take(event));
    Some(Forked { events: copy.events, through: Seq(end.0 - 1) })
}

/// The parts of a log that Reverts removed.
struct Gone {
    ranges: Vec<Range<Seq>>,
    /// The first event that a staged Revert hides.
    hidden: Option<Seq>,
}

impl Gone {
    fn of(log: &[RecordedEvent]) -> Self {
        let mut gone = Self { ranges: Vec::new(), hidden: None };
        for event in log {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only these take something away")]
            match &event.event {
                SessionEvent::RevertStaged(staged) => gone.hidden = Some(staged.from),
                SessionEvent::RevertCleared(_) => gone.hidden = None,
                SessionEvent::RevertCommitted(committed) => {
                    gone.hidden = None;
                    gone.ranges.push(committed.from..event.seq);
                }
                _ => {}
            }
        }
        gone
    }

    fn has(&self, seq: Seq) -> bool {
        self.ranges.iter().any(|range| range.contains(&seq)) && !mutated!(ForkKeepsReverted)
    }
}

/// Returns the message that begins with this event, if a conversation can be cut before it.
fn begun(event: &SessionEvent) -> Option<&MessageId> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only these begin a message")]
    match event {
        SessionEvent::PromptPromoted(promoted) => Some(&promoted.message),
        SessionEvent::TurnStarted(started) => Some(&started.message),
        SessionEvent::CompactionStarted(started) => Some(&started.message),
        SessionEvent::NoticeRecorded(notice) => Some(&notice.message),
        _ => None,
    }
}

/// Returns the turns and Compactions that left something in the conversation.
fn kept(log: &[RecordedEvent], gone: &Gone) -> BTreeSet<TurnId> {
    let live = log.iter().filter(|event| !gone.has(event.seq));
    let kept = live.filter_map(|event| {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these say how it ended")]
        match &event.event {
            SessionEvent::TurnSettled(settled) => match settled.outcome {
                TurnOutcome::Completed
                | TurnOutcome::Cut
                | TurnOutcome::Failed
                | TurnOutcome::Interrupted => Some(&settled.turn),
                TurnOutcome::Lost | TurnOutcome::Overflowed => None,
            },
            SessionEvent::CompactionEnded(ended) => match ended.outcome {
                SideOutcome::Completed => Some(&ended.turn),
                SideOutcome::Failed | SideOutcome::Cancelled | SideOutcome::Lost => None,
            },
            _ => None,
        }
    });
    kept.cloned().collect()
}

/// Returns the parts of each turn's reply, in order.
fn shown(log: &[RecordedEvent]) -> BTreeMap<TurnId, Vec<PartId>> {
    let mut calls = BTreeMap::new();
    let mut shown = BTreeMap::new();
    for event in log {
        if let SessionEvent::ToolCalled(called) = &event.event {
            calls.insert(&called.intent.call, &called.intent.part);
        }
        if let SessionEvent::TurnReplied(replied) = &event.event {
            let parts = replied.parts.iter().filter_map(|part| match part {
                ReplyPart::Text { id, .. }
                | ReplyPart::Reasoning { id, .. }
                | ReplyPart::HostedCall { id, .. }
                | ReplyPart::HostedResult { id, .. } => Some(id.clone()),
                ReplyPart::ToolCall { call } => calls.get(call).copied().cloned(),
            });
            shown.insert(replied.turn.clone(), parts.collect());
        }
    }
    shown
}

struct Copy<'m> {
    kept: BTreeSet<TurnId>,
    shown: BTreeMap<TurnId, Vec<PartId>>,
    gone: Gone,
    first: Seq,
    /// The numbers of the copied events in their own log.
    copied: Vec<Seq>,
    ids: Ids<'m>,
    events: Vec<(TimestampMs, SessionEvent)>,
}

impl Copy<'_> {
    fn take(&mut self, event: &RecordedEvent) {
        if let Some(copied) = self.copy(event) {
            self.copied.push(event.seq);
            self.events.push((event.time, copied));
        }
    }

    /// Maps a place in the other log to the fork's.
    fn place(&self, seq: Seq) -> Seq {
        let before = self.copied.partition_point(|copied| *copied < seq);
        Seq(self.first.0 + i64::try_from(before).unwrap_or(i64::MAX))
    }

    fn copy(&mut self, event: &RecordedEvent) -> Option<SessionEvent> {
        // Context entries are all that stays of a reverted part.
        if let SessionEvent::EntrySet(_) | SessionEvent::EntryRemoved(_) = &event.event {
            return Some(event.event.clone());
        }
        if self.gone.has(event.seq) {
            return None;
        }
        let mut copied = event.event.clone();
        match &mut copied {
            SessionEvent::PromptPromoted(promoted) => {
                promoted.message = self.ids.message(&promoted.message);
                for part in &mut promoted.parts {
                    let PromptPart::Text { id, .. } = part;
                    *id = self.ids.part(id);
                }
            }
            SessionEvent::EpochStarted(_) => {}
            SessionEvent::ContextUpdated(update) => {
                update.message = self.ids.message(&update.message);
            }
            SessionEvent::NoticeRecorded(notice) => {
                notice.message = self.ids.message(&notice.message);
            }
            SessionEvent::TurnStarted(started) if self.kept.contains(&started.turn) => {
                let shown = self.shown.remove(&started.turn).unwrap_or_default();
                started.turn = self.ids.turn(&started.turn);
                started.message = self.ids.message(&started.message);
                started.parent = self.ids.message(&started.parent);
                // Clients order parts by id, but intents come before the reply that places them.
                for part in shown {
                    self.ids.part(&part);
                }
            }
            SessionEvent::ToolCalled(called) if self.kept.contains(&called.turn) => {
                called.turn = self.ids.turn(&called.turn);
                called.message = self.ids.message(&called.message);
                called.intent.call = self.ids.call(&called.intent.call);
                called.intent.part = self.ids.part(&called.intent.part);
            }
            SessionEvent::ToolStarted(started) if self.kept.contains(&started.turn) => {
                started.turn = self.ids.turn(&started.turn);
                started.call = self.ids.call(&started.call);
            }
            SessionEvent::ToolSettled(settled) if self.kept.contains(&settled.turn) => {
                settled.turn = self.ids.turn(&settled.turn);
                settled.call = self.ids.call(&settled.call);
            }
            SessionEvent::TurnReplied(replied) if self.kept.contains(&replied.turn) => {
                replied.turn = self.ids.turn(&replied.turn);
                replied.message = self.ids.message(&replied.message);
                for part in &mut replied.parts {
                    match part {
                        ReplyPart::Text { id, .. }
                        | ReplyPart::Reasoning { id, .. }
                        | ReplyPart::HostedCall { id, .. }
                        | ReplyPart::HostedResult { id, .. } => {
                            *id = self.ids.part(id);
                        }
                        ReplyPart::ToolCall { call } => *call = self.ids.call(call),
                    }
                }
            }
            SessionEvent::TurnSettled(settled) if self.kept.contains(&settled.turn) => {
                settled.turn = self.ids.turn(&settled.turn);
                settled.message = self.ids.message(&settled.message);
                settled.usage = TurnUsage::default(); // the other session's
            }
            SessionEvent::CompactionStarted(started) if self.kept.contains(&started.turn) => {
                started.keep_from = self.place(started.keep_from);
                for kept in &mut started.scope.kept {
                    *kept = self.place(*kept);
                }
                started.turn = self.ids.turn(&started.turn);
                started.message = self.ids.message(&started.message);
                started.input = None; // an input of the other session
            }
            SessionEvent::CompactionReminded(reminded) if self.kept.contains(&reminded.turn) => {
                reminded.turn = self.ids.turn(&reminded.turn);
            }
            SessionEvent::CompactionEnded(ended) if self.kept.contains(&ended.turn) => {
                ended.turn = self.ids.turn(&ended.turn);
                ended.message = self.ids.message(&ended.message);
                ended.usage = TurnUsage::default();
            }
            // Events of turns that left nothing.
            SessionEvent::TurnStarted(_)
            | SessionEvent::ToolCalled(_)
            | SessionEvent::ToolStarted(_)
            | SessionEvent::ToolSettled(_)
            | SessionEvent::TurnReplied(_)
            | SessionEvent::TurnSettled(_)
            | SessionEvent::CompactionStarted(_)
            | SessionEvent::CompactionReminded(_)
            | SessionEvent::CompactionEnded(_) => return None,
            // The fork has its own of these, or none.
            SessionEvent::SessionCreated(_)
            | SessionEvent::SessionForked(_)
            | SessionEvent::SessionMoved(_)
            | SessionEvent::SessionRenamed(_)
            | SessionEvent::SessionArchived(_)
            | SessionEvent::SessionDescribed(_)
            | SessionEvent::WorkspaceSnapshotted(_)
            | SessionEvent::WorkspaceRestored(_)
            | SessionEvent::RevertStaging(_)
            | SessionEvent::RevertStaged(_)
            | SessionEvent::RevertCleared(_)
            | SessionEvent::RevertCommitted(_)
            | SessionEvent::ToolAsked(_)
            | SessionEvent::ToolAnswered(_)
            | SessionEvent::EntrySet(_)
            | SessionEvent::EntryRemoved(_)
            | SessionEvent::PromptAdmitted(_)
            | SessionEvent::ControlAdmitted(_)
            | SessionEvent::ControlDelivered(_)
            | SessionEvent::InputCancelled(_)
            | SessionEvent::DeliveryChanged(_)
            | SessionEvent::WakeRequested(_)
            | SessionEvent::AttemptStarted(_)
            | SessionEvent::AttemptEnded(_)
            | SessionEvent::RetryScheduled(_)
            | SessionEvent::TextCheckpointed(_)
            | SessionEvent::TitleStarted(_)
            | SessionEvent::TitleEnded(_)
            | SessionEvent::InterruptRequested(_)
            | SessionEvent::DrainEnded(_) => return None,
        }
        Some(copied)
    }
}

/// The ids of the copy, by the original ids.
struct Ids<'m> {
    mint: &'m mut IdMint,
    messages: BTreeMap<MessageId, MessageId>,
    parts: BTreeMap<PartId, PartId>,
    turns: BTreeMap<TurnId, TurnId>,
    calls: BTreeMap<CallId, CallId>,
}

macro_rules! anew {
    ($name:ident, $known:ident, $id:ty) => {
        fn $name(&mut self, id: &$id) -> $id {
            let fresh = || if mutated!(ForkKeepsIds) { id.clone() } else { <$id>::mint(self.mint) };
            self.$known.entry(id.clone()).or_insert_with(fresh).clone()
        }
    };
}

impl<'m> Ids<'m> {
    fn new(mint: &'m mut IdMint) -> Self {
        Self {
            mint,
            messages: BTreeMap::new(),
            parts: BTreeMap::new(),
            turns: BTreeMap::new(),
            calls: BTreeMap::new(),
        }
    }

    anew!(message, messages, MessageId);
    anew!(part, parts, PartId);
    anew!(turn, turns, TurnId);
    anew!(call, calls, CallId);
}
