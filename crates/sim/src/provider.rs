//! The provider: its answers, and its memory. It is no part of the cluster, and forgets nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use domain::{AttemptId, TurnUsage};
use llm_protocol::{
    Delivery, ErrorReason, FinishReason, LlmEvent, RawJson, StateOwner, ToolCall, ToolResult, Usage,
};

use crate::fault::{Fault, Faults};
use crate::rng::Rng;

/// One thing that a stream brings.
#[derive(Debug, Clone)]
pub(crate) enum Frame {
    Event(LlmEvent),
    Whole,
    Broken(ErrorReason),
}

/// An answer that is on its way: when each frame comes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stream {
    pub(crate) frames: VecDeque<(i64, Frame)>,
}

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A turn's answer. `calls`: whether it may have any.
    Turn { calls: bool },
    /// The summary of a Compaction.
    Summary,
    /// A title.
    Title,
}

/// Requests of more bytes are refused: the model's context, as the provider measures it.
const MOST_BYTES: usize = 14_000;

/// A summary that alone does not fit into the model's context.
pub(crate) const HUGE_SUMMARY: usize = 8_400;

/// The tools of the simulation: one of each class.
/// The path that calls are asked about.
pub(crate) const SECRET: &str = "secret";
pub(crate) const TOOLS: [&str; 4] = ["look", "put", "edit", "run"];

/// The provider, with its memory of all requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Provider {
    /// The usage that it reported for each request.
    pub(crate) counted: BTreeMap<AttemptId, Option<TurnUsage>>,
    /// Requests whose answers somebody has seen in part.
    pub(crate) shown: BTreeSet<AttemptId>,
    /// The mark of each summary that it answered whole and with headings. No two summaries have the same mark.
    pub(crate) summaries: BTreeMap<AttemptId, String>,
    /// The provider state of each answer, which it wants to receive again in this order.
    pub(crate) states: BTreeMap<AttemptId, Vec<String>>,
    /// Calls that it runs itself, by its ids.
    pub(crate) hosted: BTreeSet<String>,
    /// How many more requests of the kind it refuses as too large, whatever their size.
    refuses: u64,
    /// Whether those are requests for summaries.
    refuses_summaries: bool,
}

impl Provider {
    /// Whether it refuses a request of so many bytes as too large.
    fn overflows(
        &mut self,
        purpose: Purpose,
        bytes: usize,
        calm: bool,
        rng: &mut Rng,
        faults: &mut Faults,
    ) -> bool {
        let is_summary = purpose == Purpose::Summary;
        if !calm && self.refuses == 0 && rng.chance(1) {
            faults.note(Fault::OverflowStays);
            self.refuses = rng.within(4, 10);
            self.refuses_summaries = rng.chance(50);
        }
        let stays = !calm && self.refuses > 0 && is_summary == self.refuses_summaries;
        self.refuses -= u64::from(stays);
        bytes > MOST_BYTES || (stays && purpose != Purpose::Title)
    }

    /// Answers a request of so many bytes that came at `now`. `calm`: nothing goes wrong any more.
    pub(crate) fn answer(
        &mut self,
        (attempt, bytes): (&AttemptId, usize),
        purpose: Purpose,
        now: i64,
        calm: bool,
        rng: &mut Rng,
        faults: &mut Faults,
    ) -> Stream {
        self.counted.insert(attempt.clone(), None);
        let mut script = Script::new(now + at(rng, 1, 60));
        if self.overflows(purpose, bytes, calm, rng, faults) {
            script.end(Frame::Broken(ErrorReason::ContextOverflow));
            return script.stream;
        }
        let fate = if calm { 0 } else { rng.below(100) };
        if let Some(reason) = refusal(fate, purpose, rng, faults) {
            script.end(Frame::Broken(reason));
            return script.stream;
        }
        if (80..=85).contains(&fate) {
            faults.note(if purpose == Purpose::Title {
                Fault::TitleLate
            } else {
                Fault::SlowProvider
            });
            script.at += at(rng, 500, 3_000);
        }
        let called = match purpose {
            Purpose::Turn { calls } => script.turn(calls, rng, faults),
            Purpose::Summary => {
                let summary = script.summary(calm, rng, faults);
                self.summaries.extend(summary.map(|marker| (attempt.clone(), marker)));
                false
            }
            Purpose::Title => {
                script.title(calm, rng, faults);
                false
            }
        };
        self.states.insert(attempt.clone(), std::mem::take(&mut script.states));
        self.hosted.append(&mut script.hosted);
        let usage = rng.chance(85).then(|| self.count(attempt, bytes, calm, rng, faults));
        if (86..=92).contains(&fate) {
            faults.note(match purpose {
                Purpose::Turn { .. } => Fault::StreamCut,
                Purpose::Summary => Fault::SummaryCut,
                Purpose::Title => Fault::TitleFailed,
            });
            self.summaries.remove(attempt);
            script.wait(rng, 40);
            if let Some(usage) = usage {
                // Some providers count along.
                let reason = FinishReason::Unknown;
                script.event(LlmEvent::StepFinish { reason, usage: Some(usage) });
            }
            script.end(Frame::Broken(ErrorReason::Transport { delivery: Delivery::Accepted }));
            return script.stream;
        }
        let reason = finish(fate, called);
        if is_bad(reason) {
            faults.note(if purpose == Purpose::Summary {
                Fault::SummaryCut
            } else {
                Fault::BadFinish
            });
            self.summaries.remove(attempt);
        }
        script.wait(rng, 20);
        script.event(LlmEvent::StepFinish { reason, usage });
        script.event(LlmEvent::Finish { reason, usage });
        script.end(Frame::Whole);
        script.stream
    }

    fn count(
        &mut self,
        attempt: &AttemptId,
        bytes: usize,
        calm: bool,
        rng: &mut Rng,
        faults: &mut Faults,
    ) -> Usage {
        let input = match rng.below(100) {
            // Near the model's limit, or above it.
            0..=7 => rng.within(1_600, 2_600),
            8..=12 if !calm => {
                faults.note(Fault::UsageWrong);
                0
            }
            _ => (bytes as u64 / 5).max(10),
        };
        let output = rng.within(1, 150);
        let usage = Usage { input_tokens: input, output_tokens: output, ..Usage::default() };
        let counted = TurnUsage {
            input: i64::try_from(input).unwrap_or(i64::MAX),
            output: i64::try_from(output).unwrap_or(i64::MAX),
            ..TurnUsage::default()
        };
        self.counted.insert(attempt.clone(), Some(counted));
        usage
    }
}

/// Why nothing comes at all.
fn refusal(fate: u64, purpose: Purpose, rng: &mut Rng, faults: &mut Faults) -> Option<ErrorReason> {
    let (fault, reason) = match fate {
        64..=67 => (Fault::Overflow, ErrorReason::ContextOverflow),
        68..=72 => {
            let retry_after_ms = rng.chance(50).then(|| rng.within(0, 300));
            (Fault::RateLimit, ErrorReason::RateLimit { retry_after_ms })
        }
        73..=79 => {
            let reason = match rng.below(4) {
                0 => ErrorReason::Transport { delivery: Delivery::Ambiguous },
                1 => ErrorReason::ProviderInternal { retry_after_ms: None },
                2 => ErrorReason::InvalidOutput { incomplete_stream: true },
                _ => ErrorReason::Authentication,
            };
            (Fault::ProviderFailure, reason)
        }
        _ => return None,
    };
    faults.note(if purpose == Purpose::Title { Fault::TitleFailed } else { fault });
    Some(reason)
}

fn finish(fate: u64, called: bool) -> FinishReason {
    match fate {
        93..=94 => FinishReason::ContentFilter,
        95 => FinishReason::Error,
        96..=97 => FinishReason::Length,
        _ if called => FinishReason::ToolCalls,
        _ => FinishReason::Stop,
    }
}

fn is_bad(reason: FinishReason) -> bool {
    match reason {
        FinishReason::ContentFilter | FinishReason::Error | FinishReason::Length => true,
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Unknown => false,
    }
}

struct Script {
    at: i64,
    stream: Stream,
    states: Vec<String>,
    hosted: BTreeSet<String>,
}

impl Script {
    fn new(at: i64) -> Self {
        Self { at, stream: Stream::default(), states: Vec::new(), hosted: BTreeSet::new() }
    }

    /// Something that the provider wants to see again.
    fn state(&mut self, rng: &mut Rng) -> RawJson {
        let signature = RawJson::parse(format!("\"{:x}\"", rng.draw())).expect("JSON");
        let state = StateOwner::new("simulated", "simulated").write(&[("signature", &signature)]);
        let state = state.expect("it has a member");
        self.states.push(state.get().to_owned());
        state
    }

    fn wait(&mut self, rng: &mut Rng, most: u64) {
        self.at += at(rng, 1, most);
    }

    fn event(&mut self, event: LlmEvent) {
        self.stream.frames.push_back((self.at, Frame::Event(event)));
    }

    fn end(&mut self, frame: Frame) {
        self.stream.frames.push_back((self.at, frame));
    }

    /// Text and calls. Whether there are any of these.
    fn turn(&mut self, may_call: bool, rng: &mut Rng, faults: &mut Faults) -> bool {
        let calls = if may_call && rng.chance(55) { rng.within(1, 3) } else { 0 };
        let texts = if calls == 0 { rng.within(1, 5) } else { rng.below(3) };
        let slow = rng.chance(25);
        self.text(texts, slow, rng);
        if rng.chance(8) {
            self.hosted(rng, faults);
        }
        for number in 0..calls {
            self.wait(rng, if slow { 120 } else { 30 });
            let tool = TOOLS[rng.index(TOOLS.len())];
            let arguments = match rng.below(100) {
                0..=4 => "{".to_owned(),
                5..=16 => format!("{{\"n\":{number},\"path\":\"{SECRET}\"}}"),
                _ => format!("{{\"n\":{number}}}"),
            };
            let provider_metadata = rng.chance(20).then(|| self.state(rng));
            let call = ToolCall::new(format!("call_{number}"), tool, arguments);
            self.event(LlmEvent::ToolCall(ToolCall { provider_metadata, ..call }));
        }
        if rng.chance(20) {
            // A stream that goes on after its calls: they start before it ends.
            self.at += at(rng, 60, 200);
            self.text(1, false, rng);
        }
        calls > 0
    }

    /// A call that the provider runs itself, mostly with its result.
    fn hosted(&mut self, rng: &mut Rng, faults: &mut Faults) {
        self.wait(rng, 40);
        let id = format!("hosted_{:x}", rng.draw());
        self.hosted.insert(id.clone());
        let provider_metadata = Some(self.state(rng));
        self.event(LlmEvent::ToolCall(ToolCall {
            provider_executed: true,
            provider_metadata,
            ..ToolCall::new(id.clone(), "search", "{}")
        }));
        if rng.chance(15) {
            return faults.note(Fault::HostedUnanswered);
        }
        self.wait(rng, 200);
        let provider_metadata = Some(self.state(rng));
        let result = ToolResult::text(id, "search", "found");
        self.event(LlmEvent::ToolResult(ToolResult { provider_metadata, ..result }));
    }

    /// Writes a summary or something else. Returns the mark of a summary.
    fn summary(&mut self, calm: bool, rng: &mut Rng, faults: &mut Faults) -> Option<String> {
        let marker = format!("summary{:x}", rng.draw());
        let kind = if calm { 0 } else { rng.below(100) };
        let id = "summary".to_owned();
        let say = |script: &mut Self, text: String, rng: &mut Rng| {
            script.wait(rng, 60);
            script.event(LlmEvent::TextDelta { id: id.clone(), text });
        };
        if (60..85).contains(&kind) {
            faults.note(Fault::SummaryWithoutHeadings);
            if kind < 78 {
                say(self, format!("I cannot say {marker}"), rng);
            }
            return None;
        }
        say(self, "## Objective\n".to_owned(), rng);
        say(self, marker.clone(), rng);
        if (85..93).contains(&kind) {
            faults.note(Fault::SummaryTooLong);
            say(self, " and so on".repeat(HUGE_SUMMARY / 10), rng);
        }
        if (93..95).contains(&kind) {
            // Nobody runs the calls in it.
            self.event(LlmEvent::ToolCall(ToolCall::new("call_0", TOOLS[0], "{}")));
        }
        Some(marker)
    }

    fn title(&mut self, calm: bool, rng: &mut Rng, faults: &mut Faults) {
        self.wait(rng, 200);
        let text = if !calm && rng.chance(10) {
            faults.note(Fault::TitleFailed);
            " \n".to_owned()
        } else {
            format!("\nTitle {}\nmore", rng.below(1_000))
        };
        self.event(LlmEvent::TextDelta { id: "title".into(), text });
    }

    fn text(&mut self, deltas: u64, slow: bool, rng: &mut Rng) {
        if deltas == 0 {
            return;
        }
        let id = format!("part{}", self.stream.frames.len());
        let reasoning = rng.chance(15);
        for _ in 0..deltas {
            self.wait(rng, if slow { 150 } else { 20 });
            let (id, text) = (id.clone(), format!("word{} ", rng.below(1_000)));
            self.event(if reasoning {
                LlmEvent::ReasoningDelta { id, text }
            } else {
                LlmEvent::TextDelta { id, text }
            });
        }
        if reasoning {
            let provider_metadata = Some(self.state(rng));
            self.event(LlmEvent::ReasoningEnd { id, provider_metadata });
        } else {
            let provider_metadata = rng.chance(10).then(|| self.state(rng));
            self.event(LlmEvent::TextEnd { id, provider_metadata });
        }
    }
}

/// A number of milliseconds.
pub(crate) fn at(rng: &mut Rng, low: u64, high: u64) -> i64 {
    i64::try_from(rng.within(low, high)).unwrap_or(i64::MAX)
}
