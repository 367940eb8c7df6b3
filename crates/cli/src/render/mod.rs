//! Formats events and deltas for people. Pure: the caller prints the result.
//!
//! `deltas, checkpoints, settled parts ─PartTexts─▶ text` · `tool.called + tool.settled ─▶ one line`

use client::{Delta, DeltaKind};
pub mod printable;
mod summary;
mod text;
mod tool_line;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use domain::{
    CallId, DrainOutcome, ModelRef, PartId, ReplyPart, SessionError, SessionEvent, TimestampMs,
    ToolIntent, ToolState, TurnOutcome,
};

pub use summary::summary;
pub use text::PartTexts;
pub use tool_line::{hosted_line, running_line, tool_line};

use crate::output::Style;
use crate::wrap::shortened;

/// Text to print: `out` first, then `err`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// The answer and its tool calls.
    pub out: String,
    /// Other messages for people, as whole lines.
    pub err: String,
}

/// A renderer that shows a run while it happens.
#[derive(Debug)]
pub struct Renderer {
    style: Style,
    /// Whether to remove control characters from foreign text.
    cleans: bool,
    /// The columns of the terminal. Lines of calls are cut to them.
    width: Option<usize>,
    texts: PartTexts,
    intents: BTreeMap<CallId, ToolIntent>,
    /// Running calls that were not announced yet, with the number of looks at them.
    running: BTreeMap<CallId, u32>,
    /// The time of the current event.
    now: TimestampMs,
    /// Lines of calls that settled while a line of text was open.
    waiting: Vec<String>,
    in_line: bool,
    model: Option<ModelRef>,
}

impl Renderer {
    /// Renders for an output of style `style`; `cleans` if it is a terminal, which has `width` columns.
    #[must_use]
    pub fn new(style: Style, cleans: bool, width: Option<usize>) -> Self {
        Self {
            style,
            cleans,
            width,
            texts: PartTexts::default(),
            intents: BTreeMap::new(),
            running: BTreeMap::new(),
            now: 0,
            waiting: Vec::new(),
            in_line: false,
            model: None,
        }
    }

    /// Shows a piece of live text. Reasoning is not shown.
    pub fn delta(&mut self, delta: &Delta) -> Printed {
        let mut printed = Printed::default();
        if delta.kind == DeltaKind::Text {
            self.piece(&delta.part, delta.offset, &delta.text, &mut printed);
        }
        printed
    }

    /// Sets the time of the next event. Delays in it count from there.
    pub fn at(&mut self, time: TimestampMs) {
        self.now = time;
    }

    /// Announces tools that have been running since the last look. A quick tool only shows its result.
    pub fn announce(&mut self) -> Printed {
        let mut printed = Printed::default();
        if self.in_line {
            return printed; // not in the middle of a text
        }
        let mut told = Vec::new();
        for (call, looks) in &mut self.running {
            *looks += 1;
            if *looks > 1 {
                told.push(call.clone());
            }
        }
        for call in told {
            self.running.remove(&call);
            if let Some(intent) = self.intents.get(&call) {
                let line = shortened(&running_line(self.style, intent), self.width);
                self.note_as_is(&line, &mut printed);
            }
        }
        printed
    }

    /// Shows a durable event.
    pub fn event(&mut self, event: &SessionEvent) -> Printed {
        let mut printed = Printed::default();
        let to = &mut printed;
        match event {
            SessionEvent::TurnStarted(started) => {
                self.model(&started.model, to);
                for notice in started.notice.iter().flat_map(|notice| notice.lines()) {
                    self.note(&format!("notice: {notice}"), to);
                }
            }
            SessionEvent::TextCheckpointed(piece) => {
                let offset = u64::try_from(piece.offset).unwrap_or(0);
                self.piece(&piece.part, offset, &piece.text, to);
            }
            SessionEvent::ToolCalled(called) => {
                self.intents.insert(called.intent.call.clone(), called.intent.clone());
                if called.state == ToolState::Started {
                    self.running.insert(called.intent.call.clone(), 0);
                }
            }
            SessionEvent::ToolStarted(started) => {
                self.running.insert(started.call.clone(), 0);
            }
            // The run shows them: a person may answer there.
            SessionEvent::ToolAsked(_) | SessionEvent::ToolAnswered(_) => {}
            SessionEvent::ToolSettled(settled) => {
                self.running.remove(&settled.call);
                let intent = self.intents.remove(&settled.call);
                self.waiting.push(tool_line(self.style, intent.as_ref(), settled));
                if !self.in_line {
                    self.release(to);
                }
            }
            SessionEvent::TurnReplied(replied) => {
                for part in &replied.parts {
                    match part {
                        ReplyPart::Text { id, text, .. } => self.piece(id, 0, text, to),
                        ReplyPart::HostedCall { call, .. } => {
                            self.waiting.extend(hosted_line(self.style, &replied.parts, call));
                            if !self.in_line {
                                self.release(to);
                            }
                        }
                        ReplyPart::Reasoning { .. }
                        | ReplyPart::ToolCall { .. }
                        | ReplyPart::HostedResult { .. } => {}
                    }
                }
                self.end_line(to);
            }
            SessionEvent::RetryScheduled(retry) => {
                let seconds = (retry.at - self.now).max(0) as f64 / 1_000.0;
                let (attempt, why) = (retry.ordinal, told(&retry.error));
                self.note(&format!("attempt {attempt} in {seconds:.1} s: {why}"), to);
            }
            SessionEvent::TurnSettled(settled) => {
                self.end_line(to);
                self.texts.clear();
                match settled.outcome {
                    TurnOutcome::Lost => self.note("its worker died; the turn starts again", to),
                    TurnOutcome::Cut => self.note("the answer was cut off; it continues", to),
                    TurnOutcome::Overflowed => self.note("too long for the model", to),
                    TurnOutcome::Completed | TurnOutcome::Failed | TurnOutcome::Interrupted => {}
                }
            }
            SessionEvent::DrainEnded(ended) => {
                self.end_line(to);
                match (ended.outcome, &ended.error) {
                    (_, Some(error)) => self.note(&format!("error: {}", told(error)), to),
                    (DrainOutcome::Failed, None) => self.note("error: the session failed", to),
                    (DrainOutcome::Interrupted, None) => self.note("interrupted", to),
                    (DrainOutcome::Completed, None) => {}
                }
            }
            SessionEvent::CompactionStarted(_) => self.note("summarising the conversation", to),
            SessionEvent::CompactionEnded(ended) => match &ended.error {
                Some(error) => self.note(&format!("no summary: {}", told(error)), to),
                None => self.note("the conversation continues from a summary", to),
            },
            SessionEvent::SessionMoved(moved) => {
                let directory = printable::line(&moved.directory, 200);
                self.note(&format!("the session continues in {directory}"), to);
            }
            SessionEvent::RevertCommitted(_) => {
                self.note("the revert is final", to);
            }
            SessionEvent::NoticeRecorded(_)
            | SessionEvent::SessionCreated(_)
            | SessionEvent::PromptAdmitted(_)
            | SessionEvent::PromptPromoted(_)
            | SessionEvent::EpochStarted(_)
            | SessionEvent::ContextUpdated(_)
            | SessionEvent::AttemptStarted(_)
            | SessionEvent::AttemptEnded(_)
            // The drain's end reports the interrupt, after the lines of the calls that it stopped.
            | SessionEvent::InterruptRequested(_)
            | SessionEvent::SessionRenamed(_)
            | SessionEvent::SessionArchived(_)
            | SessionEvent::SessionDescribed(_)
            | SessionEvent::EntrySet(_)
            | SessionEvent::EntryRemoved(_)
            | SessionEvent::ControlAdmitted(_)
            | SessionEvent::ControlDelivered(_)
            | SessionEvent::InputCancelled(_)
            | SessionEvent::DeliveryChanged(_)
            | SessionEvent::WakeRequested(_)
            | SessionEvent::CompactionReminded(_)
            | SessionEvent::TitleStarted(_)
            | SessionEvent::TitleEnded(_)
            | SessionEvent::SessionForked(_)
            | SessionEvent::WorkspaceSnapshotted(_)
            | SessionEvent::WorkspaceRestored(_)
            | SessionEvent::RevertStaging(_)
            | SessionEvent::RevertStaged(_)
            | SessionEvent::RevertCleared(_) => {}
        }
        printed
    }

    /// Ends an open line before somebody else prints.
    pub fn finish(&mut self) -> Printed {
        let mut printed = Printed::default();
        self.end_line(&mut printed);
        printed
    }

    fn piece(&mut self, part: &PartId, offset: u64, text: &str, to: &mut Printed) {
        let begins = !self.texts.has_begun(part);
        let new = self.texts.add(part, offset, text);
        if new.is_empty() {
            return;
        }
        if begins {
            self.end_line(to); // each part has its own lines
        }
        let cleaned;
        let new = if self.cleans {
            cleaned = printable::block(new);
            &cleaned
        } else {
            new
        };
        to.out.push_str(new);
        self.in_line = if new.is_empty() { self.in_line } else { !new.ends_with('\n') };
        if !self.in_line {
            self.release(to);
        }
    }

    fn end_line(&mut self, to: &mut Printed) {
        if std::mem::take(&mut self.in_line) {
            to.out.push('\n');
        }
        self.release(to);
    }

    fn release(&mut self, to: &mut Printed) {
        for line in self.waiting.drain(..) {
            to.out.push_str(&shortened(&line, self.width));
            to.out.push('\n');
        }
    }

    fn note(&mut self, text: &str, to: &mut Printed) {
        self.note_as_is(printable::block(text).trim_end(), to);
    }

    /// Shows a line that is already safe and may contain our own colours.
    fn note_as_is(&mut self, text: &str, to: &mut Printed) {
        self.end_line(to);
        writeln!(to.err, "{text}").expect("writing to a string cannot fail");
    }

    /// Shows which model answers, once for each model. The simulated model must never pass for a real one.
    fn model(&mut self, model: &ModelRef, to: &mut Printed) {
        if self.model.as_ref() != Some(model) {
            self.model = Some(model.clone());
            let ModelRef { provider, model: name, variant } = model;
            let simulated = provider == "simulated" || name == "simulated";
            let label = if simulated { " (simulated: not a language model)" } else { "" };
            let variant = variant.as_deref().map(|variant| format!(" ({variant})"));
            let variant = variant.unwrap_or_default();
            let line = format!("model {provider}/{name}{variant}{label}");
            self.note(&printable::line(&line, 200), to);
        }
    }
}

fn told(error: &SessionError) -> String {
    format!("{} ({})", error.message, error.code)
}

#[cfg(test)]
mod tests;
