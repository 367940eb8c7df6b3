//! Formats events and deltas for people. Pure: the caller prints the result.
//!
//! `deltas, checkpoints, settled parts ─PartTexts─▶ text` · `tool.called + tool.settled ─▶ one line`

mod detail;
mod markdown;
pub mod printable;
mod printed;
mod summary;
mod table;
mod text;
mod tool_line;
mod words;

use std::collections::BTreeMap;

use client::{Delta, DeltaKind};
use domain::{
    CallId, DrainOutcome, Finish, ModelRef, PartId, ReplyPart, SessionError, SessionEvent,
    TimestampMs, ToolIntent, ToolSettled, ToolState, TurnOutcome,
};

pub use detail::choose_diff_colour;
pub use printed::{Piece, Printed};
pub use summary::summary;
pub use text::PartTexts;
pub use tool_line::{hosted_line, running_line, tool_line};

use crate::output::Look;
use crate::wrap::shortened;
use markdown::Markdown;

/// What is told after an answer that is cut at the model's limit.
const TOO_LONG: &str =
    "the answer is not complete: it reached the model's limit of output tokens; ask for the rest";
/// The columns of a terminal that does not say how many it has.
const USUAL_WIDTH: usize = 80;

/// A renderer that shows a run while it happens: the answer on standard output, all else on standard error.
#[derive(Debug)]
pub struct Renderer {
    out: Look,
    err: Look,
    texts: PartTexts,
    /// Lays the answer out, where it can be drawn.
    markdown: Option<Markdown>,
    intents: BTreeMap<CallId, ToolIntent>,
    /// Running calls, with the number of looks at them; `None` once they were announced.
    running: BTreeMap<CallId, Option<u32>>,
    /// The time of the current event.
    now: TimestampMs,
    /// The results of calls that settled while a line of text was open.
    waiting: Vec<String>,
    in_line: bool,
    is_thinking: bool,
    model: Option<ModelRef>,
}

impl Renderer {
    /// Renders the answer for an output with the look `out`, and messages for one with the look `err`.
    #[must_use]
    pub fn new(out: Look, err: Look) -> Self {
        let markdown = out.is_drawn().then(|| Markdown::new(out.width.unwrap_or(USUAL_WIDTH)));
        Self {
            out,
            err,
            texts: PartTexts::default(),
            markdown,
            intents: BTreeMap::new(),
            running: BTreeMap::new(),
            now: 0,
            waiting: Vec::new(),
            in_line: false,
            is_thinking: false,
            model: None,
        }
    }

    /// Shows a piece of live text. Reasoning is not shown.
    pub fn delta(&mut self, delta: &Delta) -> Printed {
        let mut printed = Printed::default();
        self.is_thinking = delta.kind != DeltaKind::Text;
        if delta.kind == DeltaKind::Text {
            self.piece(&delta.part, delta.offset, &delta.text, &mut printed);
        }
        printed
    }

    /// Returns what happens at the moment, in a few words on one line: for a terminal where nothing else moves.
    #[must_use]
    pub fn describe_work(&self) -> String {
        let called = self.running.keys().rev().find_map(|call| self.intents.get(call));
        if let Some(intent) = called {
            return tool_line::named(&intent.tool, &intent.arguments);
        }
        let newest = self.markdown.as_ref().map_or("", Markdown::newest);
        if !newest.is_empty() {
            let newest = printable::line(newest, 10_000);
            let skipped = newest.chars().count().saturating_sub(self.err.width.unwrap_or(0) / 2);
            let start = newest.char_indices().nth(skipped).map_or(0, |(at, _)| at);
            let mark = if skipped > 0 { "…" } else { "" };
            return format!("{mark}{}", &newest[start..]);
        }
        if self.is_thinking { "thinking".to_owned() } else { String::new() }
    }

    /// Sets the time of the next event. Delays in it count from there.
    pub fn at(&mut self, time: TimestampMs) {
        self.now = time;
    }

    /// Announces tools that have been running since the last look. A quick tool only shows its result.
    pub fn announce(&mut self) -> Printed {
        let mut printed = Printed::default();
        if self.is_held_up() {
            return printed; // not in the middle of a text
        }
        let mut told = Vec::new();
        for (call, looks) in &mut self.running {
            let Some(count) = looks else { continue };
            *count += 1;
            if *count > 1 {
                *looks = None;
                told.push(call.clone());
            }
        }
        for call in told {
            if let Some(intent) = self.intents.get(&call) {
                let line = shortened(&running_line(self.err.style, intent), self.err.width);
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
                    self.running.insert(called.intent.call.clone(), Some(0));
                }
            }
            SessionEvent::ToolStarted(started) => {
                self.running.insert(started.call.clone(), Some(0));
            }
            // The run shows them: a person may answer there.
            SessionEvent::ToolAsked(_) | SessionEvent::ToolAnswered(_) => {}
            SessionEvent::ToolSettled(settled) => {
                self.running.remove(&settled.call);
                let intent = self.intents.remove(&settled.call);
                self.settle(intent.as_ref(), settled);
                self.release_unless_held_up(to);
            }
            SessionEvent::TurnReplied(replied) => {
                self.is_thinking = false;
                for part in &replied.parts {
                    match part {
                        ReplyPart::Text { id, text, .. } => self.piece(id, 0, text, to),
                        ReplyPart::HostedCall { call, .. } => {
                            self.end_line(to);
                            self.waiting.extend(hosted_line(self.err.style, &replied.parts, call));
                            self.release_unless_held_up(to);
                        }
                        ReplyPart::Reasoning { .. }
                        | ReplyPart::ToolCall { .. }
                        | ReplyPart::HostedResult { .. } => {}
                    }
                }
                self.end_line(to);
                let is_call = |part: &ReplyPart| matches!(part, ReplyPart::ToolCall { .. });
                if replied.finish == Finish::Length && !replied.parts.iter().any(is_call) {
                    self.note(TOO_LONG, to);
                }
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

    /// Ends an open line of the terminal before somebody else prints a message.
    pub fn pause(&mut self) -> Printed {
        let mut printed = Printed::default();
        if self.markdown.is_none() && self.is_held_up() {
            self.end_line(&mut printed);
        }
        printed
    }

    /// Shows all that is left.
    pub fn finish(&mut self) -> Printed {
        let mut printed = Printed::default();
        self.end_line(&mut printed);
        printed
    }

    fn piece(&mut self, part: &PartId, offset: u64, text: &str, to: &mut Printed) {
        let begins = !self.texts.has_begun(part);
        let new = self.texts.add(part, offset, text).to_owned();
        if new.is_empty() {
            return;
        }
        if begins {
            self.end_line(to); // each part has its own lines
        }
        let new = if self.out.is_terminal { printable::block(&new) } else { new };
        if let Some(markdown) = &mut self.markdown {
            to.add_out(&markdown.add(&new));
            self.in_line = markdown.is_waiting();
        } else {
            to.add_out(&new);
            self.in_line = if new.is_empty() { self.in_line } else { !new.ends_with('\n') };
        }
        self.release_unless_held_up(to);
    }

    /// Keeps what a call did until it may be shown.
    fn settle(&mut self, intent: Option<&ToolIntent>, settled: &ToolSettled) {
        self.waiting.push(tool_line(self.err.style, intent, settled));
        if self.err.is_terminal {
            self.waiting.extend(detail::describe_details(self.err.style, intent, settled));
        }
    }

    /// Returns whether a message would stand in the middle of a text: both in one terminal.
    fn is_held_up(&self) -> bool {
        self.in_line && self.out.is_terminal && self.err.is_terminal
    }

    fn end_line(&mut self, to: &mut Printed) {
        if std::mem::take(&mut self.in_line) {
            match &mut self.markdown {
                Some(markdown) => to.add_out(&markdown.finish()),
                None => to.add_out("\n"),
            }
        }
        self.release(to);
    }

    fn release_unless_held_up(&mut self, to: &mut Printed) {
        if !self.is_held_up() {
            self.release(to);
        }
    }

    fn release(&mut self, to: &mut Printed) {
        for line in self.waiting.drain(..) {
            to.add_err(&shortened(&line, self.err.width));
            to.add_err("\n");
        }
    }

    fn note(&mut self, text: &str, to: &mut Printed) {
        self.note_as_is(printable::block(text).trim_end(), to);
    }

    /// Shows a line that is already safe and may contain our own colours. It leaves an answer in a file or a pipe as it is.
    fn note_as_is(&mut self, text: &str, to: &mut Printed) {
        if self.markdown.is_none() && self.is_held_up() {
            self.end_line(to);
        }
        to.add_err(text);
        to.add_err("\n");
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
