//! The spans of a drain's work: one for each prompt that it answers, and below it those of turns, attempts and calls.
//!
//! Everything here is decided by durable ids, so a drain that takes over adds to the traces of the earlier one.

use domain::{Claim, MessageId, SessionRef, Taken, TimestampMs, ToolIntent, ToolSettled, TurnId};
use llm_protocol::Usage;
use session_rules::TurnPlan;
use traces::genai;
use traces::{Kind, Span, SpanId, TraceId, Value, drain_span, span_of, trace_of};

/// The work of one drain.
pub(crate) struct Traced<'r> {
    session: &'r SessionRef,
    claim: Option<Claim>,
    /// The claim of the drain that wrote before this one.
    earlier: Option<Claim>,
    /// Whether it goes on with what an earlier drain has not ended, and whether that one could not say so.
    continues: bool,
    was_lost: bool,
    recoveries: i16,
    answering: Option<Answering>,
}

/// The work on one prompt.
struct Answering {
    message: MessageId,
    trace: TraceId,
    since: TimestampMs,
}

/// A trace, and the span in it that work belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Within {
    trace: TraceId,
    drain: SpanId,
}

impl<'r> Traced<'r> {
    pub(crate) fn new(session: &'r SessionRef) -> Self {
        Self {
            session,
            claim: None,
            earlier: None,
            continues: false,
            was_lost: false,
            recoveries: 0,
            answering: None,
        }
    }

    /// The drain has its claim. The fence and the ends of drains raise claims too, so the `earlier` one may be less by more than one.
    pub(crate) fn claimed(&mut self, claim: Claim, taken: Taken, earlier: Option<Claim>) {
        let Taken { was_open, handed_over, recoveries } = taken;
        (self.continues, self.was_lost) = (was_open, was_open && !handed_over);
        self.recoveries = recoveries;
        (self.claim, self.earlier) = (Some(claim), earlier);
    }

    /// The next work answers `message`. Returns where its spans belong; `None` if it is not traced.
    pub(crate) fn answers(
        &mut self,
        message: Option<&MessageId>,
        now: TimestampMs,
    ) -> Option<Within> {
        let (message, claim) = (message?, self.claim?);
        if self.answering.as_ref().is_none_or(|known| known.message != *message) {
            self.end(None, now);
            let trace = trace_of(message);
            let answering = Answering { message: message.clone(), trace, since: now };
            // An earlier drain that stopped on purpose has ended its own span.
            let is_lost = std::mem::take(&mut self.was_lost);
            self.answering = Some(answering).filter(|_| traces::is_on(&trace));
            if is_lost {
                self.lost(message, now);
            }
        }
        let Answering { trace, .. } = self.answering.as_ref()?;
        Some(Within { trace: *trace, drain: self.span_of(claim) })
    }

    /// Ends the span of a drain that this one has taken over from: its worker cannot.
    fn lost(&self, message: &MessageId, now: TimestampMs) {
        let Some(earlier) = self.earlier else { return };
        self.record(message, earlier, Vec::new(), (now, now), Some("taken_over"));
    }

    /// The work on the prompt is over, or passes on.
    pub(crate) fn end(&mut self, error: Option<&'static str>, now: TimestampMs) {
        let Some(Answering { message, since, .. }) = self.answering.take() else { return };
        let Some(claim) = self.claim else { return };
        let continues = std::mem::take(&mut self.continues);
        let links = self.earlier.filter(|_| continues).map(|claim| self.span_of(claim));
        self.record(&message, claim, links.into_iter().collect(), (since, now), error);
    }

    fn record(
        &self,
        message: &MessageId,
        claim: Claim,
        links: Vec<SpanId>,
        time: (TimestampMs, TimestampMs),
        error: Option<&'static str>,
    ) {
        let attributes = vec![
            (genai::OPERATION, genai::INVOKE_AGENT.into()),
            (genai::CONVERSATION, self.session.session.to_string().into()),
            (genai::RECOVERIES, Value::Number(self.recoveries.into())),
            (genai::CLAIM, Value::Number(claim.0)),
        ];
        let id = self.span_of(claim);
        // Below the prompt's admission.
        let (trace, parent) = (trace_of(message), Some(span_of(genai::ADMIT, message.as_str())));
        let (name, kind) = (genai::INVOKE_AGENT.to_owned(), Kind::Internal);
        traces::record(Span { trace, id, parent, links, name, kind, time, attributes, error });
    }

    fn span_of(&self, claim: Claim) -> SpanId {
        drain_span(&self.session.session, claim)
    }
}

impl Within {
    /// Records a turn.
    pub(crate) fn turn(
        self,
        turn: &TurnId,
        time: (TimestampMs, TimestampMs),
        error: Option<&'static str>,
    ) {
        let attributes = vec![(genai::TURN, turn.to_string().into())];
        self.span(
            turn_span(turn),
            self.drain,
            genai::TURN_SPAN,
            Kind::Internal,
            time,
            attributes,
            error,
        );
    }

    /// Records a wire request.
    pub(crate) fn attempt(
        self,
        plan: &TurnPlan,
        usage: Option<&Usage>,
        time: (TimestampMs, TimestampMs),
        error: Option<&'static str>,
    ) {
        let attempt = plan.started.attempt.to_string();
        let mut attributes = vec![
            (genai::OPERATION, genai::CHAT.into()),
            (genai::PROVIDER, plan.model.provider.as_str().into()),
            (genai::MODEL, plan.model.model.as_str().into()),
            (genai::ATTEMPT, attempt.as_str().into()),
        ];
        if let Some(usage) = usage {
            attributes.push((genai::INPUT_TOKENS, usage.input_tokens.into()));
            attributes.push((genai::OUTPUT_TOKENS, usage.output_tokens.into()));
        }
        let name = format!("{} {}", genai::CHAT, plan.model.model);
        let id = span_of("attempt", &attempt);
        self.span(id, turn_span(&plan.turn), &name, Kind::Client, time, attributes, error);
    }

    /// Records a tool call.
    pub(crate) fn tool(self, intent: &ToolIntent, settled: &ToolSettled) {
        let call = settled.call.as_str();
        let mut attributes = vec![
            (genai::OPERATION, genai::EXECUTE_TOOL.into()),
            (genai::TOOL, intent.tool.as_str().into()),
            (genai::CALL, call.into()),
        ];
        let content = traces::content();
        if content.tool_arguments {
            attributes.push((genai::CALL_ARGUMENTS, cut(&intent.arguments.to_string()).into()));
        }
        if content.tool_output {
            attributes.push((genai::CALL_RESULT, cut(&settled.output).into()));
        }
        let name = format!("{} {}", genai::EXECUTE_TOOL, intent.tool);
        let time = (settled.started, settled.ended);
        let error = match settled.outcome.as_str() {
            "completed" => None,
            other => Some(other),
        };
        let id = span_of("tool", &format!("{call} {}", settled.started));
        self.span(id, turn_span(&settled.turn), &name, Kind::Internal, time, attributes, error);
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a span")]
    fn span(
        self,
        id: SpanId,
        parent: SpanId,
        name: &str,
        kind: Kind,
        time: (TimestampMs, TimestampMs),
        attributes: Vec<(&'static str, Value)>,
        error: Option<&'static str>,
    ) {
        let (parent, links, name) = (Some(parent), Vec::new(), name.to_owned());
        traces::record(Span {
            trace: self.trace,
            id,
            parent,
            links,
            name,
            kind,
            time,
            attributes,
            error,
        });
    }
}

fn turn_span(turn: &TurnId) -> SpanId {
    span_of("turn", turn.as_str())
}

/// The longest text of a span, in bytes.
const LONGEST: usize = 4_096;

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}
