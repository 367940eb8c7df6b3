use domain::{AttemptId, ContextUpdated, SessionEvent};

use super::{Violation, ensure};

/// What requests have been made of.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    pub(super) epoch: i32,
    /// What was told last of the context, and the snapshot after it.
    update: Option<(String, String)>,
    /// The messages of the last request, and what else it was made of.
    body: Option<(String, Vec<u8>)>,
    /// What tells the newest summary from others.
    summary: Option<String>,
    /// A summary has been written whose epoch has not begun.
    ends: bool,
}

impl Told {
    /// A summary and the epoch that it begins are written at once.
    pub(super) fn before(&self, event: &SessionEvent) -> Result<(), Violation> {
        let begins = matches!(event, SessionEvent::EpochStarted(_));
        ensure!(!self.ends || begins, "I7: a summary without its epoch");
        Ok(())
    }

    pub(super) fn is_whole(&self) -> Result<(), Violation> {
        ensure!(!self.ends, "I7: a summary without its epoch");
        Ok(())
    }

    pub(super) fn summarised(&mut self, summary: Option<String>) {
        self.ends = true;
        self.summary = summary;
    }

    pub(super) fn epoch_started(&mut self, epoch: i32) -> Result<(), Violation> {
        let before = self.epoch;
        ensure!(epoch == before + 1, "I7: epoch {epoch} after {before}");
        ensure!(before == 0 || self.ends, "I7: epoch {epoch} began for nothing");
        self.epoch = epoch;
        self.ends = false;
        self.update = None;
        self.body = None;
        Ok(())
    }

    pub(super) fn updated(&mut self, update: &ContextUpdated, seq: i64) -> Result<(), Violation> {
        let told = (update.rendered.clone(), update.snapshot.clone());
        let again = self.update.as_ref().is_some_and(|last| last.0 == told.0 || last.1 == told.1);
        ensure!(!again, "I7: the same context was told twice, seq {seq}");
        self.update = Some(told);
        Ok(())
    }

    /// A request of the conversation is sent: a turn's, or with `summary` a Compaction's, which is the next
    /// turn's with one more message.
    pub(super) fn requested(
        &mut self,
        attempt: &AttemptId,
        components: &str,
        body: &[u8],
        summary: bool,
    ) -> Result<(), Violation> {
        let tail = b"],\"tools\":";
        let messages = body.windows(tail.len()).rposition(|window| window == tail);
        let messages = &body[..messages.unwrap_or(0)];
        if let Some((before, prefix)) = &self.body
            && before == components
        {
            let extends = messages.starts_with(prefix);
            ensure!(extends, "prefix: {attempt} does not begin with the last request");
        }
        if let Some(summary) = &self.summary {
            let shown = String::from_utf8_lossy(messages).contains(summary.as_str());
            ensure!(shown, "I7: {attempt} does not show the summary");
        }
        if !summary {
            self.body = Some((components.to_owned(), messages.to_vec()));
        }
        Ok(())
    }
}
