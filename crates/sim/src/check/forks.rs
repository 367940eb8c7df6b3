//! The beginning of a Fork, compared with the log of its parent.

use std::collections::BTreeSet;

use domain::{PromptPart, PromptPromoted, RecordedEvent, Seq, SessionEvent, TurnUsage};
use history::History;

use super::{Checker, Violation, ensure};

/// Events that name a Fork and its parent.
const OWN: usize = 2;

/// Checks that a Fork has copied the conversation as it was at the cut, under its own ids, and nothing else from the
/// `log` of its parent.
pub(crate) fn copies(
    log: &[RecordedEvent],
    through: Seq,
    events: &[RecordedEvent],
) -> Result<(), Violation> {
    let end = usize::try_from(through.0).unwrap_or(0);
    let mut then = History::new();
    then.extend(&log[..end.min(log.len())]);
    let mut fork = History::new();
    fork.extend(events);
    let copied = || events.iter().skip(OWN).map(|copied| &copied.event);
    // A Fork leaves out a turn or Compaction that is open at the cut.
    if then.open_turn().is_none() && then.compacting().is_none() {
        let (ours, theirs) = (shown(&fork), shown(&then));
        ensure!(ours == theirs, "fork: it shows {ours}, and then {theirs} was shown");
    }
    let epoch = |history: &History| history.epoch().map(|epoch| format!("{epoch:?}"));
    if let Some(known) = epoch(&then) {
        ensure!(epoch(&fork).as_ref() == Some(&known), "fork: its epoch is not that of the cut");
    }
    ensure!(fork.entries() == then.entries(), "fork: its entries are not those of the cut");
    let idle = fork.pending().is_empty() && fork.controls().is_empty() && fork.revert().is_none();
    ensure!(idle && fork.open_turn().is_none(), "fork: it has work from the other session");
    let own = ids(copied());
    let others = ids(log.iter().map(|event| &event.event));
    let shared = own.intersection(&others).next();
    ensure!(shared.is_none(), "fork: {shared:?} is the other session's");
    copied().try_for_each(costs_nothing)
}

fn costs_nothing(event: &SessionEvent) -> Result<(), Violation> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only these say what was used")]
    let used = match event {
        SessionEvent::TurnSettled(settled) => settled.usage,
        SessionEvent::CompactionEnded(ended) => ended.usage,
        SessionEvent::AttemptStarted(started) => {
            return Err(format!("fork: attempt {} is another session's", started.attempt));
        }
        _ => TurnUsage::default(),
    };
    ensure!(used == TurnUsage::default(), "fork: it begins with the costs of another");
    Ok(())
}

fn shown(history: &History) -> String {
    format!("{:?}", history.view().shown(history.conversation()))
}

/// All ids of messages, parts, turns and calls.
fn ids<'a>(events: impl IntoIterator<Item = &'a SessionEvent>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for event in events {
        let payload = event.payload();
        let is_id =
            |word: &&str| ["msg_", "prt_", "trn_"].iter().any(|prefix| word.starts_with(prefix));
        found.extend(payload.split('"').filter(is_id).map(str::to_owned));
    }
    found
}

impl Checker {
    /// Makes the checker of a Fork whose first `events` are a copy of the parent's log up to `through`. Its requests
    /// continue the parent's bytes of that time, and never show the rest of the parent's log.
    pub(crate) fn of_fork(parent: &Self, events: &[RecordedEvent], through: Seq) -> Self {
        let mut fork = Self::new(parent.limit);
        for RecordedEvent { seq, event, .. } in events {
            fork.seen += 1;
            fork.told.copied(event, seq.0, &parent.told);
            #[expect(
                clippy::wildcard_enum_match_arm,
                reason = "nothing is to be known of the others"
            )]
            match event {
                SessionEvent::SessionCreated(created) => {
                    fork.sides.created(created.named, created.parent.is_some());
                }
                SessionEvent::PromptPromoted(_) => fork.turns.steps = 0,
                SessionEvent::TurnStarted(started) => fork.turns.copied(started),
                _ => {}
            }
        }
        let kept: Vec<String> =
            events.iter().filter_map(|event| texts(&event.event)).flatten().collect();
        fork.told.forked(&parent.told, &kept, through.0);
        fork
    }
}

/// The texts of a prompt.
fn texts(event: &SessionEvent) -> Option<Vec<String>> {
    let SessionEvent::PromptPromoted(PromptPromoted { parts, .. }) = event else { return None };
    Some(parts.iter().map(|PromptPart::Text { text, .. }| text.clone()).collect())
}
