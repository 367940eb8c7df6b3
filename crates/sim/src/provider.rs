//! The provider: what it answers, and what it has seen. It is no part of the cluster, and forgets nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use domain::{AttemptId, TurnUsage};
use llm_protocol::{Delivery, ErrorReason, FinishReason, LlmEvent, ToolCall, Usage};

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

/// The tools of the simulation: one of each class.
pub(crate) const TOOLS: [&str; 4] = ["look", "put", "edit", "run"];

/// What the provider has seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Provider {
    /// What it counted for each request, once it has said so.
    pub(crate) counted: BTreeMap<AttemptId, Option<TurnUsage>>,
    /// Requests of whose answers somebody has seen something.
    pub(crate) shown: BTreeSet<AttemptId>,
}

impl Provider {
    /// Answers a request that came at `now`. `calm`: nothing goes wrong any more.
    pub(crate) fn answer(
        &mut self,
        attempt: &AttemptId,
        now: i64,
        calm: bool,
        may_call: bool,
        rng: &mut Rng,
        faults: &mut Faults,
    ) -> Stream {
        self.counted.insert(attempt.clone(), None);
        let mut script = Script { at: now + at(rng, 1, 60), stream: Stream::default() };
        let fate = if calm { 0 } else { rng.below(100) };
        match fate {
            66..=71 => {
                faults.note(Fault::RateLimit);
                let retry_after_ms = rng.chance(50).then(|| rng.within(0, 300));
                script.end(Frame::Broken(ErrorReason::RateLimit { retry_after_ms }));
                return script.stream;
            }
            72..=77 => {
                faults.note(Fault::ProviderFailure);
                let reason = match rng.below(4) {
                    0 => ErrorReason::Transport { delivery: Delivery::Ambiguous },
                    1 => ErrorReason::ProviderInternal { retry_after_ms: None },
                    2 => ErrorReason::InvalidOutput { incomplete_stream: true },
                    _ => ErrorReason::Authentication,
                };
                script.end(Frame::Broken(reason));
                return script.stream;
            }
            78..=79 => {
                faults.note(Fault::Overflow);
                script.end(Frame::Broken(ErrorReason::ContextOverflow));
                return script.stream;
            }
            80..=85 => {
                faults.note(Fault::SlowProvider);
                script.at += at(rng, 500, 3_000);
            }
            _ => {}
        }
        let calls = if may_call && rng.chance(55) { rng.within(1, 3) } else { 0 };
        let texts = if calls == 0 { rng.within(1, 5) } else { rng.below(3) };
        let slow = rng.chance(25);
        script.text(texts, slow, rng);
        for number in 0..calls {
            script.wait(rng, if slow { 120 } else { 30 });
            let tool = TOOLS[rng.index(TOOLS.len())];
            let arguments =
                if rng.chance(5) { "{".to_owned() } else { format!("{{\"n\":{number}}}") };
            let call = ToolCall::new(format!("call_{number}"), tool, arguments);
            script.event(LlmEvent::ToolCall(call));
        }
        if rng.chance(20) {
            // A stream that goes on after its calls: they start before it ends.
            script.at += at(rng, 60, 200);
            script.text(1, false, rng);
        }
        let usage = rng.chance(85).then(|| self.count(attempt, rng));
        if (86..=92).contains(&fate) {
            faults.note(Fault::StreamCut);
            script.wait(rng, 40);
            if let Some(usage) = usage {
                // Some providers count along.
                script.event(LlmEvent::StepFinish {
                    reason: FinishReason::Unknown,
                    usage: Some(usage),
                });
            }
            script.end(Frame::Broken(ErrorReason::Transport { delivery: Delivery::Accepted }));
            return script.stream;
        }
        let reason = match fate {
            93..=94 => FinishReason::ContentFilter,
            95 => FinishReason::Error,
            96..=97 => FinishReason::Length,
            _ if calls > 0 => FinishReason::ToolCalls,
            _ => FinishReason::Stop,
        };
        if matches!(
            reason,
            FinishReason::ContentFilter | FinishReason::Error | FinishReason::Length
        ) {
            faults.note(Fault::BadFinish);
        }
        script.wait(rng, 20);
        script.event(LlmEvent::StepFinish { reason, usage });
        script.event(LlmEvent::Finish { reason, usage });
        script.end(Frame::Whole);
        script.stream
    }

    fn count(&mut self, attempt: &AttemptId, rng: &mut Rng) -> Usage {
        let (input, output) = (rng.within(10, 5_000), rng.within(1, 500));
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

struct Script {
    at: i64,
    stream: Stream,
}

impl Script {
    fn wait(&mut self, rng: &mut Rng, most: u64) {
        self.at += at(rng, 1, most);
    }

    fn event(&mut self, event: LlmEvent) {
        self.stream.frames.push_back((self.at, Frame::Event(event)));
    }

    fn end(&mut self, frame: Frame) {
        self.stream.frames.push_back((self.at, frame));
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
    }
}

/// A number of milliseconds.
pub(crate) fn at(rng: &mut Rng, low: u64, high: u64) -> i64 {
    i64::try_from(rng.within(low, high)).unwrap_or(i64::MAX)
}
