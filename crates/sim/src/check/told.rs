use std::sync::Arc;

use domain::{
    AttemptId, CompactionReason, ContextUpdated, EpochReason, EpochStarted, PromptPart,
    PromptPromoted, SessionEvent, TurnOutcome,
};

use super::{Violation, ensure};

/// The messages of a request, and its components.
#[derive(Debug, Clone)]
struct Sent {
    components: String,
    messages: Arc<[u8]>,
}

/// The content of requests so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    /// The active epoch; 0 without one.
    epoch: i32,
    /// The highest number that an epoch has had.
    newest: i32,
    /// The last update of the context, and the snapshot after it.
    update: Option<(String, String)>,
    /// The messages of the last request, and its components.
    body: Option<Sent>,
    /// The last request, as of each place of the log.
    bodies: Vec<(i64, Option<Sent>)>,
    /// The log as far as it is known.
    place: i64,
    /// The mark of each summary, with its place. No two summaries have the same mark.
    summaries: Vec<(i64, String)>,
    /// Prompts by their places, and those that were reverted for good.
    prompts: Vec<(i64, String)>,
    dead: Vec<String>,
    /// Prompts of sessions with this id that were deleted.
    deleted: Vec<String>,
    /// A summary has been written whose epoch has not begun.
    ends: bool,
    /// Where a turn has worked on the newest prompt first.
    worked: Option<i64>,
    /// A client has asked for a summary since. That summary need not keep a prompt whose work was stopped.
    requested: bool,
}

/// Bytes for each token: more than a request has whose estimate fits.
const MOST_BYTES: usize = 8;

impl Told {
    /// Takes over the prompts of a deleted session with this id, which no request may show.
    pub(super) fn come_after(&mut self, before: &Self, deleted: Vec<String>) {
        self.deleted.clone_from(&before.deleted);
        self.deleted.extend(deleted);
    }

    pub(super) fn is_active(&self) -> bool {
        self.epoch > 0
    }

    /// 0 without one.
    pub(super) fn epoch(&self) -> i32 {
        self.epoch
    }

    /// A summary and the epoch that it begins are written at once.
    pub(super) fn before(&mut self, event: &SessionEvent, seq: i64) -> Result<(), Violation> {
        self.place = seq;
        let begins = matches!(event, SessionEvent::EpochStarted(_));
        ensure!(!self.ends || begins, "I7: a summary without its epoch");
        Ok(())
    }

    pub(super) fn is_whole(&self) -> Result<(), Violation> {
        ensure!(!self.ends, "I7: a summary without its epoch");
        Ok(())
    }

    pub(super) fn summarised(&mut self, summary: Option<String>, seq: i64) {
        self.ends = true;
        self.summaries.extend(summary.map(|summary| (seq, summary)));
    }

    pub(super) fn promoted(&mut self, promoted: &PromptPromoted, seq: i64) {
        for PromptPart::Text { text, .. } in &promoted.parts {
            self.prompts.push((seq, text.clone()));
        }
        (self.worked, self.requested) = (None, false);
    }

    pub(super) fn compaction_starts(&mut self, reason: CompactionReason) {
        self.requested |= reason == CompactionReason::Manual;
    }

    pub(super) fn turn_settled(&mut self, outcome: TurnOutcome) {
        if matches!(outcome, TurnOutcome::Completed | TurnOutcome::Cut) {
            self.worked = self.worked.or(Some(self.place));
        }
    }

    pub(super) fn epoch_started(&mut self, started: &EpochStarted) -> Result<(), Violation> {
        let (epoch, newest) = (started.epoch, self.newest);
        ensure!(epoch == newest + 1, "I7: epoch {epoch} after {newest}");
        let active = self.is_active();
        let (wanted, fits) = match started.reason {
            Some(EpochReason::Compaction) => ("a summary", self.ends),
            Some(EpochReason::Move) => ("another place", newest > 0 && !active),
            Some(EpochReason::First) | None => ("nothing before it", newest == 0),
            Some(EpochReason::Replaced) => ("a change that no message can tell", active),
        };
        ensure!(fits && self.ends == (wanted == "a summary"), "I7: epoch {epoch} wants {wanted}");
        self.epoch = epoch;
        self.newest = epoch;
        self.ends = false;
        self.update = None;
        self.sent(None);
        Ok(())
    }

    fn sent(&mut self, sent: Option<Sent>) {
        self.body.clone_from(&sent);
        self.bodies.push((self.place, sent));
    }

    pub(super) fn updated(&mut self, update: &ContextUpdated, seq: i64) -> Result<(), Violation> {
        ensure!(self.is_active(), "I7: a change was told without a baseline, seq {seq}");
        let told = (update.rendered.clone(), update.snapshot.clone());
        let again = self.update.as_ref().is_some_and(|last| last.0 == told.0 || last.1 == told.1);
        ensure!(!again, "I7: the same context was told twice, seq {seq}");
        self.update = Some(told);
        Ok(())
    }

    /// The model knows nothing of the new Location yet.
    pub(super) fn moved(&mut self) {
        self.epoch = 0;
        self.update = None;
        self.sent(None);
    }

    /// The log from `from` on never happened for the model, which is back in an epoch, or in none.
    pub(super) fn reverted(&mut self, from: i64, epoch: Option<i32>) {
        self.epoch = epoch.unwrap_or(0);
        self.update = None;
        self.sent(None);
        self.summaries.retain(|(seq, _)| *seq < from);
        // A Revert ends the work that it takes back.
        self.worked = self.worked.filter(|seq| *seq < from);
        let gone = self.prompts.iter().filter(|(seq, _)| *seq >= from);
        self.dead.extend(gone.map(|(_, text)| text.clone()));
        self.prompts.retain(|(seq, _)| *seq < from);
    }

    /// Checks a request of the conversation: a turn's, or with `summary` a Compaction's, which is the next turn's with
    /// one more message.
    pub(super) fn requested(
        &mut self,
        attempt: &AttemptId,
        components: &str,
        body: &[u8],
        summary: bool,
        limit: usize,
    ) -> Result<(), Violation> {
        let tail = b"],\"tools\":";
        ensure!(
            body.len() <= limit * MOST_BYTES,
            "size: {attempt} cannot fit, with {} bytes",
            body.len()
        );
        let messages = body.windows(tail.len()).rposition(|window| window == tail);
        // A transcript is sent without tools.
        let messages = &body[..messages.unwrap_or(body.len())];
        if let Some(before) = &self.body
            && before.components == components
        {
            let extends = messages.starts_with(&before.messages);
            ensure!(extends, "prefix: {attempt} does not begin with the last request");
        }
        let text = String::from_utf8_lossy(messages);
        if let Some((_, summary)) = self.summaries.last() {
            ensure!(text.contains(summary), "I7: {attempt} does not show the summary");
        }
        let dead = self.dead.iter().find(|dead| text.contains(dead.as_str()));
        ensure!(dead.is_none(), "revert: {attempt} shows what was reverted: {dead:?}");
        let deleted = self.deleted.iter().find(|deleted| text.contains(deleted.as_str()));
        ensure!(deleted.is_none(), "leak: {attempt} shows what was deleted: {deleted:?}");
        if let Some((_, prompt)) = self.prompts.last().filter(|_| !summary && !self.requested) {
            ensure!(text.contains(prompt), "size: {attempt} does not show what it answers");
            let again = self.worked.is_some() && text.ends_with(&format!("{prompt}\"}}"));
            ensure!(!again, "size: {attempt} does not say that work on the prompt goes on");
        }
        if !summary {
            let (components, messages) = (components.to_owned(), messages.into());
            self.sent(Some(Sent { components, messages }));
        }
        Ok(())
    }

    /// Takes in a Fork's copy of an event that `parent` knows.
    pub(super) fn copied(&mut self, event: &SessionEvent, seq: i64, parent: &Self) {
        self.place = seq;
        #[expect(clippy::wildcard_enum_match_arm, reason = "a model is told nothing by the others")]
        match event {
            SessionEvent::PromptPromoted(promoted) => self.promoted(promoted, seq),
            SessionEvent::CompactionStarted(started) => self.compaction_starts(started.reason),
            SessionEvent::EpochStarted(started) => {
                self.epoch = started.epoch;
                self.newest = self.newest.max(started.epoch);
                self.update = None;
            }
            SessionEvent::ContextUpdated(update) => {
                self.update = Some((update.rendered.clone(), update.snapshot.clone()));
            }
            SessionEvent::CompactionEnded(ended) => {
                let checkpoint = ended.checkpoint.as_deref().unwrap_or_default();
                let mut known = parent.summaries.iter().map(|(_, summary)| summary);
                let summary = known.rfind(|summary| checkpoint.contains(summary.as_str()));
                self.summaries.extend(summary.map(|summary| (seq, summary.clone())));
            }
            _ => {}
        }
    }

    /// The whole log is a copy of the parent's up to `through`, with the `kept` prompts.
    pub(super) fn forked(&mut self, parent: &Self, kept: &[String], through: i64) {
        let last = parent.bodies.iter().rfind(|(place, _)| *place <= through);
        self.sent(last.and_then(|(_, sent)| sent.clone()));
        let theirs = parent.prompts.iter().map(|(_, text)| text).chain(&parent.dead);
        self.dead = theirs.filter(|text| !kept.contains(text)).cloned().collect();
    }
}
