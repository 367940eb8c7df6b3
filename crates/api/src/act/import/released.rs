//! Tells what the released `opencode export` writes as a log of ours, as far as that can be true.
//!
//! It has messages, not requests: so there are turns without attempts, usage and epochs, and none can be explained.

use std::collections::{BTreeMap, HashMap};

use domain::{
    Author, CallId, Delivery, DrainEnded, DrainOutcome, ErrorCode, EventId, Finish, IdMint,
    InterruptRequested, InterruptTarget, MessageId, ModelRef, PartId, PromptAdmitted, PromptPart,
    PromptPromoted, ReplyPart, SessionArchived, SessionCreated, SessionError, SessionEvent, Stamp,
    Stored, TimestampMs, ToolCalled, ToolClass, ToolIntent, ToolOutcomeKind, ToolSettled,
    ToolState, TurnId, TurnOutcome, TurnReplied, TurnSettled, TurnStarted, TurnUsage,
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use store::{ImportedEvent, LocationRow};

use super::message::{Info, Message, Part, ToolProgress, Whole};
use crate::act::metadata;
use crate::text::plain;

/// The text of a result that did not come before the export.
const NO_RESULT: &str = "The call had no result when the session was exported.";
/// The text of a prompt whose content is not imported.
const NO_TEXT: &str = "(The content of this message was not imported.)";
const MAX_TITLE_CHARS: usize = 200;

/// A log, and the parts of the export that it does not have: each with the number of times.
pub(super) struct Told {
    pub(super) events: Vec<ImportedEvent>,
    pub(super) left_out: BTreeMap<&'static str, usize>,
}

/// Returns the log of an export, for a session at this place.
pub(super) fn told(
    whole: Whole,
    place: &LocationRow,
    default_model: &ModelRef,
    author: &Author,
    now: TimestampMs,
) -> Told {
    let created = whole.info.time.as_ref().map_or(now, |time| time.created);
    let mut teller = Teller {
        mint: IdMint::after(Stamp::default(), now),
        time: created,
        events: Vec::new(),
        left_out: BTreeMap::new(),
        messages: HashMap::new(),
        last_prompt: None,
        step: 0,
        works: None,
        default_model: default_model.clone(),
        author: author.clone(),
    };
    teller.session(&whole, place);
    for message in whole.messages {
        teller.message(message);
    }
    teller.rest();
    Told { events: teller.events, left_out: teller.left_out }
}

struct Teller {
    mint: IdMint,
    /// The time of the newest event: times do not fall.
    time: TimestampMs,
    events: Vec<ImportedEvent>,
    left_out: BTreeMap<&'static str, usize>,
    /// Our ids of messages, by those of the export.
    messages: HashMap<String, MessageId>,
    last_prompt: Option<MessageId>,
    step: i32,
    /// How the work on the last prompt went so far; `None` without any.
    works: Option<(DrainOutcome, Option<SessionError>)>,
    default_model: ModelRef,
    /// Who imports it.
    author: Author,
}

impl Teller {
    fn tell(&mut self, event: impl Into<SessionEvent>) {
        let id = EventId::mint(&mut self.mint);
        self.events.push(ImportedEvent { id, time: self.time, event: event.into() });
    }

    fn at(&mut self, time: Option<TimestampMs>) {
        self.time = self.time.max(time.unwrap_or(self.time));
    }

    fn leave_out(&mut self, what: &'static str) {
        *self.left_out.entry(what).or_default() += 1;
    }

    fn session(&mut self, whole: &Whole, place: &LocationRow) {
        let info = &whole.info;
        let last = |read: fn(&Info) -> Option<String>| {
            whole.messages.iter().rev().find_map(|message| read(&message.info))
        };
        let title: String = plain(&info.title).chars().take(MAX_TITLE_CHARS).collect();
        let metadata = info.metadata.as_ref().map(|given| metadata::checked(given.to_string()));
        if metadata.as_ref().is_some_and(Result::is_err) {
            self.leave_out("its metadata");
        }
        let metadata = metadata.and_then(Result::ok);
        self.tell(SessionCreated {
            project: place.project.clone(),
            location: place.id.clone(),
            directory: place.directory.clone(),
            title,
            agent: last(Info::agent).unwrap_or_else(|| "build".to_owned()),
            model: None,
            parent: None,
            named: true,
            rules: info.permission.clone().unwrap_or_default(),
            metadata,
            by: Some(self.author.clone()),
        });
        let archived = info.time.as_ref().and_then(|time| time.archived);
        if archived.is_some() {
            self.tell(SessionArchived { archived });
        }
        for (is_there, what) in [
            (info.parent_id.is_some(), "its place below a parent session"),
            (info.revert.is_some(), "a staged revert"),
            (info.share.is_some(), "its share link"),
        ] {
            if is_there {
                self.leave_out(what);
            }
        }
    }

    fn message(&mut self, message: Message) {
        let Message { info, parts } = message;
        match info {
            Info::User { id, time, agent, model, .. } => {
                self.rest();
                self.at(time.map(|time| time.created));
                let model = model.map(|model| ModelRef {
                    provider: plain(&model.provider_id),
                    model: plain(&model.model_id),
                    variant: model.variant.as_deref().map(plain),
                });
                self.prompt(&id, agent.as_deref().map(plain), model, parts);
            }
            Info::Assistant(answer) if answer.summary => {
                self.leave_out("summaries of older parts: the whole conversation is here");
            }
            Info::Assistant(answer) => {
                let Some(prompt) = self.last_prompt.clone() else {
                    self.leave_out("answers without a prompt");
                    return;
                };
                let asked = answer.parent_id.as_ref().and_then(|id| self.messages.get(id));
                let parent = asked.cloned().unwrap_or(prompt);
                if answer.cost > 0.0 || answer.tokens.is_some() {
                    self.leave_out("token counts and costs of answers");
                }
                self.at(answer.time.as_ref().map(|time| time.created));
                let mut pieces = self.pieces(parts);
                let last = pieces.pop().unwrap_or_default();
                for piece in pieces {
                    let id = MessageId::mint(&mut self.mint);
                    self.turn(id, &parent, &answer, piece, false);
                }
                let id = self.id_of(&answer.id);
                self.turn(id, &parent, &answer, last, true);
            }
            Info::Other => self.leave_out("messages of an unknown role"),
        }
    }

    /// Returns a message's own id, or a new one where it is none of ours.
    fn id_of(&mut self, given: &str) -> MessageId {
        let id = given.parse().unwrap_or_else(|_| MessageId::mint(&mut self.mint));
        self.messages.insert(given.to_owned(), id.clone());
        id
    }

    fn part_id(&mut self, given: &str) -> PartId {
        given.parse().unwrap_or_else(|_| PartId::mint(&mut self.mint))
    }

    fn prompt(
        &mut self,
        given: &str,
        agent: Option<String>,
        model: Option<ModelRef>,
        parts: Vec<Part>,
    ) {
        let mut texts = Vec::new();
        let is_compaction = parts.iter().any(|part| matches!(part, Part::Compaction));
        for part in parts {
            if let Part::Text { id, text, ignored: false } = part {
                let id = self.part_id(&id);
                texts.push(PromptPart::Text { id, text: plain(&text) });
            } else {
                self.part_left_out(&part);
            }
        }
        if texts.is_empty() {
            if is_compaction {
                return;
            }
            let id = PartId::mint(&mut self.mint);
            texts.push(PromptPart::Text { id, text: NO_TEXT.to_owned() });
        }
        let id = self.id_of(given);
        let digest = hex::encode(Sha256::digest(format!("{texts:?}")));
        self.tell(PromptAdmitted {
            message: id.clone(),
            delivery: Delivery::Steer,
            parts: texts.clone(),
            agent: agent.clone(),
            model: model.clone(),
            wake: true,
            digest,
            synthetic: None,
            by: None,
        });
        let admitted = self.time;
        self.tell(PromptPromoted {
            message: id.clone(),
            parts: texts,
            agent: agent.unwrap_or_else(|| "build".to_owned()),
            model: model.unwrap_or_else(|| self.default_model.clone()),
            admitted,
            synthetic: None,
        });
        self.last_prompt = Some(id);
        self.step = 0;
        self.works = Some((DrainOutcome::Completed, None));
    }

    /// Divides an answer into the parts of its turns: what was said after results was another turn.
    fn pieces(&mut self, parts: Vec<Part>) -> Vec<Vec<Part>> {
        let mut pieces: Vec<Vec<Part>> = vec![Vec::new()];
        for part in parts {
            let last = pieces.last().is_some_and(|piece| {
                piece.last().is_some_and(|part| matches!(part, Part::Tool { .. }))
            });
            let is_said =
                matches!(part, Part::Text { ignored: false, .. } | Part::Reasoning { .. });
            if !is_said && !matches!(part, Part::Tool { .. }) {
                self.part_left_out(&part);
                continue;
            }
            match pieces.last_mut() {
                Some(piece) if !(is_said && last) => piece.push(part),
                Some(_) | None => pieces.push(vec![part]),
            }
        }
        pieces
    }

    fn part_left_out(&mut self, part: &Part) {
        let what = match part {
            // Where a step begins and ends is told by its turn.
            Part::StepStart | Part::StepFinish => return,
            Part::File => "attached files",
            Part::Snapshot | Part::Patch => "snapshots and changes of files",
            Part::Subtask | Part::Agent => "tasks of other agents",
            Part::Retry => "failed requests that were repeated",
            Part::Compaction => "summaries of older parts: the whole conversation is here",
            Part::Text { .. } => "texts that no model has seen",
            Part::Reasoning { .. } | Part::Tool { .. } => "parts of an answer in a prompt",
            Part::Other => "parts of an unknown kind",
        };
        self.leave_out(what);
    }

    fn turn(
        &mut self,
        message: MessageId,
        parent: &MessageId,
        answer: &super::message::Answer,
        parts: Vec<Part>,
        is_last: bool,
    ) {
        self.step += 1;
        let turn = TurnId::mint(&mut self.mint);
        self.tell(TurnStarted {
            turn: turn.clone(),
            message: message.clone(),
            parent: parent.clone(),
            agent: answer.agent(),
            model: ModelRef {
                provider: plain(&answer.provider_id),
                model: plain(&answer.model_id),
                variant: answer.variant.as_deref().map(plain),
            },
            epoch: 0,
            step: self.step,
            notice: None,
        });
        let (mut reply, mut results) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                Part::Text { id, text, .. } => {
                    reply.push(ReplyPart::text(self.part_id(&id), plain(&text)));
                }
                Part::Reasoning { id, text } => {
                    reply.push(ReplyPart::reasoning(self.part_id(&id), plain(&text)));
                }
                Part::Tool { id, call_id, tool, state } => {
                    let (call, part) = (CallId::mint(&mut self.mint), self.part_id(&id));
                    let intent = ToolIntent {
                        call: call.clone(),
                        part,
                        provider_call: plain(&call_id),
                        tool: plain(&tool),
                        arguments: state.arguments(),
                        metadata: None,
                    };
                    let (class, began) = (ToolClass::Unsafe, ToolState::Started);
                    let (turn, message) = (turn.clone(), message.clone());
                    self.tell(ToolCalled { turn, message, intent, class, state: began });
                    reply.push(ReplyPart::ToolCall { call: call.clone() });
                    results.push((call, state));
                }
                // Nothing else is in a piece.
                Part::File
                | Part::Snapshot
                | Part::Patch
                | Part::Subtask
                | Part::Agent
                | Part::Retry
                | Part::Compaction
                | Part::StepStart
                | Part::StepFinish
                | Part::Other => {}
            }
        }
        let has_calls = !results.is_empty();
        let (outcome, error) =
            if is_last { answer.outcome() } else { (TurnOutcome::Completed, None) };
        let finish = match &answer.finish {
            Some(finish) if is_last => Stored::from(plain(finish)),
            _ if has_calls => Finish::ToolCalls.into(),
            _ => Finish::Stop.into(),
        };
        self.tell(TurnReplied {
            turn: turn.clone(),
            message: message.clone(),
            parts: reply,
            finish,
        });
        for (call, state) in results {
            let settled = self.settled(&turn, call, state);
            self.at(Some(settled.ended));
            self.tell(settled);
        }
        self.at(answer.time.as_ref().and_then(|time| time.completed));
        let drain = match outcome {
            TurnOutcome::Interrupted => {
                let target = InterruptTarget::Turn { turn: turn.clone() };
                self.tell(InterruptRequested { target, by: None });
                DrainOutcome::Interrupted
            }
            TurnOutcome::Failed => DrainOutcome::Failed,
            TurnOutcome::Completed
            | TurnOutcome::Cut
            | TurnOutcome::Lost
            | TurnOutcome::Overflowed => DrainOutcome::Completed,
        };
        self.tell(TurnSettled {
            turn,
            message,
            outcome,
            usage: TurnUsage::default(),
            error: error.clone(),
        });
        self.works = Some((drain, error));
        if outcome == TurnOutcome::Interrupted {
            self.rest();
        }
    }

    fn settled(&mut self, turn: &TurnId, call: CallId, state: ToolProgress) -> ToolSettled {
        let now = self.time;
        let (outcome, output, title, time) = match state {
            ToolProgress::Completed { output, title, time, attachments, .. } => {
                if !attachments.is_empty() {
                    self.leave_out("files attached to results of tools");
                }
                (ToolOutcomeKind::Completed, output, title, time)
            }
            ToolProgress::Error { error, time, .. } => {
                (ToolOutcomeKind::Failed, error, String::new(), time)
            }
            ToolProgress::Pending { .. } | ToolProgress::Running { .. } => {
                (ToolOutcomeKind::Unknown, NO_RESULT.to_owned(), String::new(), None)
            }
        };
        let (started, ended) = time.map_or((now, now), |time| (time.start, time.end));
        ToolSettled {
            turn: turn.clone(),
            call,
            outcome,
            output: plain(&output),
            title: plain(&title),
            structured: None,
            managed_path: None,
            truncated: false,
            started,
            ended,
        }
    }

    /// Ends the work on a prompt.
    fn rest(&mut self) {
        if let Some((outcome, error)) = self.works.take() {
            self.tell(DrainEnded { outcome, error });
        }
    }
}

impl super::message::Answer {
    fn outcome(&self) -> (TurnOutcome, Option<SessionError>) {
        let Some(error) = &self.error else { return (TurnOutcome::Completed, None) };
        if error["name"] == "MessageAbortedError" {
            return (TurnOutcome::Interrupted, None);
        }
        let message = error.pointer("/data/message").and_then(Value::as_str);
        let message = plain(message.unwrap_or("the export does not say why it failed"));
        let code = ErrorCode::ProviderUnknown.into();
        (TurnOutcome::Failed, Some(SessionError { code, message }))
    }
}
