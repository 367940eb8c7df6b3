use domain::{
    DrainOutcome, RecordedEvent, RetryScheduled, Seq, SessionError, SessionEvent, ToolAsked,
    TurnOutcome, TurnUsage,
};
use signals::{CallOutput, Delta};
use store::{MessageRow, SessionRow};

use super::change::{Change, Status};
use super::conversation::Conversation;

/// A session as the events so far left it.
#[derive(Debug)]
pub(crate) struct SessionState {
    session: SessionRow,
    conversation: Conversation,
    /// The last status among the changes.
    status: Status,
    /// The failure of the last settled turn. The drain's end names it again.
    failure: Option<SessionError>,
    /// Up to this number the log is a fork's copy, so nothing runs.
    copied: Seq,
    /// The usage up to this number is in the row that the state began with.
    counted: Seq,
}

impl SessionState {
    /// Continues from a session's row and its newest messages. The first event may be older than both.
    pub(crate) fn resume(session: SessionRow, newest: Vec<MessageRow>) -> Self {
        Self {
            counted: session.seq,
            session,
            conversation: Conversation::resume(newest),
            status: Status::Idle,
            failure: None,
            copied: Seq(0),
        }
    }

    /// Continues with these asks that wait for answers.
    pub(crate) fn waiting_for(mut self, asks: Vec<ToolAsked>) -> Self {
        self.conversation.wait_for(asks);
        self
    }

    /// Returns the session's row after the events so far.
    pub(crate) fn session(&self) -> &SessionRow {
        &self.session
    }

    /// Drops the newest message once it does not change again: its text is in the rows, and this state may be kept for
    /// long.
    pub(crate) fn drop_settled(&mut self) {
        self.conversation.drop_settled();
    }

    /// Applies the next event of the log. Returns its changes, in the order in which clients learn of them.
    pub(crate) fn apply(&mut self, event: &RecordedEvent) -> Vec<Change> {
        let mut changes: Vec<Change> = self.status_before(event).into_iter().collect();
        changes.extend(self.conversation.apply(event));
        self.apply_to_session(event, &mut changes);
        changes
    }

    /// Applies live text, which no event holds.
    pub(crate) fn hear(&mut self, delta: &Delta) -> Vec<Change> {
        let Some(text) = self.conversation.hear(delta) else { return Vec::new() };
        self.answering().into_iter().chain([text]).collect()
    }

    /// Applies output of a call that runs, which no event holds.
    pub(crate) fn show(&self, output: &CallOutput) -> Vec<Change> {
        self.conversation.show(output).into_iter().collect()
    }

    /// Returns the status that begins with an event, if clients must learn it before the rest.
    fn status_before(&mut self, event: &RecordedEvent) -> Option<Change> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these are work")]
        match &event.event {
            SessionEvent::TurnStarted(_) | SessionEvent::CompactionStarted(_) => self.works(event),
            SessionEvent::ToolCalled(_) | SessionEvent::TurnReplied(_) => self.answering(),
            _ => None,
        }
    }

    fn apply_to_session(&mut self, event: &RecordedEvent, changes: &mut Vec<Change>) {
        let session = &mut self.session;
        match &event.event {
            SessionEvent::SessionCreated(_) => return changes.push(Change::Created),
            SessionEvent::PromptPromoted(prompt) => {
                session.agent.clone_from(&prompt.agent);
                session.model = Some(prompt.model.clone());
                self.touch(event, changes);
                return changes.extend(self.works(event));
            }
            SessionEvent::TurnStarted(turn) => {
                let notice = turn.notice.clone().filter(|_| event.seq > self.copied);
                return changes.extend(notice.map(Change::Notice));
            }
            SessionEvent::RetryScheduled(retry) => return changes.push(self.retries(retry)),
            SessionEvent::TurnSettled(settled) => {
                self.use_up(event, settled.usage);
                if matches!(settled.outcome, TurnOutcome::Lost | TurnOutcome::Overflowed) {
                    return;
                }
                self.failure.clone_from(&settled.error);
            }
            SessionEvent::DrainEnded(end) => {
                let told = self.failure.take();
                let untold = end.error.clone().filter(|error| told.as_ref() != Some(error));
                if end.outcome == DrainOutcome::Failed {
                    changes.extend(untold.map(Change::Failed));
                }
                session.busy = false;
                self.status = Status::Idle;
                self.touch(event, changes);
                return changes.push(Change::Status(Status::Idle));
            }
            SessionEvent::SessionRenamed(renamed) => session.title.clone_from(&renamed.title),
            SessionEvent::SessionArchived(archive) => {
                session.archived_ms = archive.archived;
                // An archived session keeps its place in lists.
                return changes.push(Change::Session);
            }
            SessionEvent::SessionDescribed(described) => {
                session.metadata = Some(described.metadata.clone());
            }
            SessionEvent::CompactionStarted(_) => session.compacting_ms = Some(event.time),
            SessionEvent::CompactionEnded(ended) => {
                session.compacting_ms = None;
                if changes.iter().any(|change| matches!(change, Change::Message(_))) {
                    changes.push(Change::Compacted);
                }
                self.use_up(event, ended.usage);
            }
            SessionEvent::TitleEnded(ended) => self.use_up(event, ended.usage),
            SessionEvent::SessionForked(forked) => {
                self.copied = Seq(event.seq.0 + forked.copied);
                return;
            }
            SessionEvent::SessionMoved(moved) => {
                session.at.location = moved.to.clone();
                session.project = moved.project.clone();
                session.directory.clone_from(&moved.directory);
            }
            SessionEvent::RevertStaged(staged) => {
                session.revert = Some(staged.clone());
                self.touch(event, changes);
                return changes.push(Change::Files);
            }
            SessionEvent::RevertCleared(_) | SessionEvent::RevertCommitted(_) => {
                session.revert = None;
                self.touch(event, changes);
                return changes.push(Change::Files);
            }
            SessionEvent::WorkspaceSnapshotted(taken) => {
                return changes.extend((!taken.base).then_some(Change::Files));
            }
            SessionEvent::PromptAdmitted(_)
            | SessionEvent::InputCancelled(_)
            | SessionEvent::TextCheckpointed(_)
            | SessionEvent::ToolCalled(_)
            | SessionEvent::ToolAsked(_)
            | SessionEvent::ToolAnswered(_)
            | SessionEvent::ToolStarted(_)
            | SessionEvent::ToolSettled(_)
            | SessionEvent::TurnReplied(_)
            | SessionEvent::NoticeRecorded(_)
            | SessionEvent::EntrySet(_)
            | SessionEvent::EntryRemoved(_)
            | SessionEvent::ControlAdmitted(_)
            | SessionEvent::ControlDelivered(_)
            | SessionEvent::DeliveryChanged(_)
            | SessionEvent::WakeRequested(_)
            | SessionEvent::CompactionReminded(_)
            | SessionEvent::TitleStarted(_)
            | SessionEvent::EpochStarted(_)
            | SessionEvent::ContextUpdated(_)
            | SessionEvent::AttemptStarted(_)
            | SessionEvent::AttemptEnded(_)
            | SessionEvent::InterruptRequested(_)
            | SessionEvent::WorkspaceRestored(_)
            | SessionEvent::RevertStaging(_) => return,
        }
        self.touch(event, changes);
    }

    /// Marks the session as working, unless a fork copied the event.
    fn works(&mut self, event: &RecordedEvent) -> Option<Change> {
        if event.seq <= self.copied {
            return None;
        }
        self.session.busy = true;
        let is_news = self.status == Status::Idle;
        is_news.then(|| self.becomes(Status::Busy))
    }

    /// Ends a retry: clients see it until its answer begins, not only until it was sent.
    fn answering(&mut self) -> Option<Change> {
        let is_retry = matches!(self.status, Status::Retry { .. });
        is_retry.then(|| self.becomes(Status::Busy))
    }

    fn retries(&mut self, retry: &RetryScheduled) -> Change {
        self.becomes(Status::Retry {
            attempt: retry.ordinal - 1,
            message: short_reason(&retry.error.message),
            next: retry.at,
        })
    }

    fn becomes(&mut self, status: Status) -> Change {
        self.status = status.clone();
        Change::Status(status)
    }

    /// Adds up usage that the row does not have.
    fn use_up(&mut self, event: &RecordedEvent, used: TurnUsage) {
        if event.seq <= self.counted {
            return;
        }
        self.session.usage = self.session.usage.plus(used);
    }

    fn touch(&mut self, event: &RecordedEvent, changes: &mut Vec<Change>) {
        self.session.updated_ms = self.session.updated_ms.max(event.time);
        changes.push(Change::Session);
    }
}

/// Returns the reason of a retry for the line of a terminal, which also has the time and the number of the try: what
/// happened, without the advice behind it. Whoever waits for the retry needs none.
fn short_reason(message: &str) -> String {
    /// The most characters, so that "[retrying in 30s attempt #4]" has room in the line.
    const MOST: usize = 60;
    let first = message.lines().next().unwrap_or_default();
    let what = first.split_once(": ").map_or(first, |(what, _)| what).trim();
    match what.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", what[..at].trim_end()),
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use llm_protocol::{Delivery, ErrorReason};

    use super::*;

    // Check heldout-3: a rate limit broke the released client's status line in two.
    #[test]
    fn the_reason_of_a_retry_fits_a_status_line() {
        let reasons = [
            ErrorReason::RateLimit { retry_after_ms: Some(3_000) },
            ErrorReason::RateLimit { retry_after_ms: None },
            ErrorReason::ProviderInternal { retry_after_ms: None },
            ErrorReason::Transport { delivery: Delivery::NotSent },
            ErrorReason::Transport { delivery: Delivery::Ambiguous },
            ErrorReason::Transport { delivery: Delivery::Accepted },
            ErrorReason::InvalidOutput { incomplete_stream: true },
        ];
        for reason in reasons {
            let said = reason.user_message();
            let short = short_reason(&said);
            assert!(said.starts_with(&short), "{short}: a whole thought of {said}");
            assert!(short.chars().count() <= 60 && !short.contains(": "), "{short}");
        }
        let limited = ErrorReason::RateLimit { retry_after_ms: Some(3_000) }.user_message();
        assert_eq!(short_reason(&limited), "the model provider limits the rate of requests");
        for (message, short) in [("", ""), ("no money", "no money"), ("one\ntwo: three", "one")] {
            assert_eq!(short_reason(message), short);
        }
        assert_eq!(short_reason(&"é".repeat(61)), format!("{}…", "é".repeat(60)));
    }
}
