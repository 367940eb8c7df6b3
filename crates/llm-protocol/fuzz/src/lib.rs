//! Checks that must hold for any input: nothing panics, and events keep the order that `LlmEvent` promises.

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use llm_protocol::{DecodeError, Framing, LlmEvent, Protocol};

/// The frame bound, in bytes; small enough that the fuzzer reaches it.
const MAX_FRAME_BYTES: usize = 1 << 16;

/// Decodes the lines of `data` as the frames of one answer. They skip the framer, which would only be in the
/// fuzzer's way.
pub fn decode(protocol: Protocol, data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut decoder = protocol.decoder();
    let mut order = Order::default();
    for frame in text.lines() {
        match decoder.push(frame) {
            Ok(events) => events.iter().for_each(|event| order.check(event)),
            Err(_) => return,
        }
    }
    if let Ok(events) = decoder.finish() {
        events.iter().for_each(|event| order.check(event));
        assert!(order.finished && order.open.is_none() && order.inputs.is_empty(), "{order:?}");
    }
}

/// Frames `data` whole, and in pieces whose size its first byte gives. Both give the same frames, or both
/// fail.
pub fn cut(framing: Framing, data: &[u8]) {
    let Some((size, data)) = data.split_first() else { return };
    let pieces = data.chunks(usize::from(*size % 64) + 1);
    let whole = framing.framer(MAX_FRAME_BYTES).push(data);
    let mut framer = framing.framer(MAX_FRAME_BYTES);
    let mut frames = Vec::new();
    for piece in pieces {
        match framer.push(piece) {
            Ok(more) => frames.extend(more),
            Err(error) => {
                assert!(
                    matches!(&whole, Err(other) if same_kind(&error, other)),
                    "{error} {whole:?}"
                );
                return;
            }
        }
    }
    assert_eq!(whole, Ok(frames));
}

fn same_kind(a: &DecodeError, b: &DecodeError) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// Makes event-stream messages with correct checksums from the lines of `data`; random bytes would have none.
pub fn messages(data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![data.first().copied().unwrap_or(0)];
    for line in data.split(|byte| *byte == b'\n') {
        let (kind, payload) = line.split_at(line.len() / 2);
        let kind = String::from_utf8_lossy(kind).into_owned();
        let names = [":event-type", ":message-type", ":exception-type", ":error-code"];
        let name = names[usize::from(line.first().copied().unwrap_or(0)) % names.len()];
        let header = Header::new(name, HeaderValue::String(kind.into()));
        let message = Message::new_from_parts(vec![header], payload.to_vec());
        // The format has no message for a header whose text is too long.
        let _none = write_message_to(&message, &mut bytes);
    }
    bytes
}

/// The events so far, as far as they decide which events may follow.
#[derive(Debug, Default)]
struct Order {
    /// The text or reasoning part that is open.
    open: Option<(bool, String)>,
    /// The calls whose input is open.
    inputs: Vec<String>,
    /// The call whose input just ended. It must come next.
    ended: Option<String>,
    stepped: bool,
    finished: bool,
}

impl Order {
    fn check(&mut self, event: &LlmEvent) {
        assert!(!self.finished, "{event:?} after the end");
        assert!(!self.stepped || matches!(event, LlmEvent::Finish { .. }), "{event:?}");
        if let Some(id) = self.ended.take() {
            // Its arguments may differ from the pieces, because some providers also send them whole.
            let LlmEvent::ToolCall(call) = event else { panic!("{event:?} after an input's end") };
            assert_eq!(call.id, id);
            return;
        }
        match event {
            LlmEvent::TextStart { id } => self.start(false, id),
            LlmEvent::ReasoningStart { id } => self.start(true, id),
            LlmEvent::TextDelta { id, text } => self.extend(false, id, text),
            LlmEvent::ReasoningDelta { id, text } => self.extend(true, id, text),
            LlmEvent::TextEnd { id, .. } => self.end(false, id),
            LlmEvent::ReasoningEnd { id, .. } => self.end(true, id),
            LlmEvent::ToolInputStart { id, .. } => self.inputs.push(id.clone()),
            LlmEvent::ToolInputDelta { id, text } => {
                assert!(!text.is_empty() && self.inputs.contains(id), "{id}: {text}");
            }
            LlmEvent::ToolInputEnd { id } => {
                let at = self.inputs.iter().position(|open| open == id);
                self.ended = Some(self.inputs.remove(at.expect("an input that is open")));
            }
            LlmEvent::ToolCall(call) => assert!(call.provider_executed, "no input of {call:?}"),
            LlmEvent::ToolResult(_) => {}
            LlmEvent::StepFinish { .. } => self.stepped = true,
            LlmEvent::Finish { .. } => self.finished = std::mem::take(&mut self.stepped),
        }
    }

    fn start(&mut self, reasoning: bool, id: &str) {
        assert!(self.open.is_none(), "{id} begins within {:?}", self.open);
        self.open = Some((reasoning, id.to_owned()));
    }

    fn extend(&mut self, reasoning: bool, id: &str, text: &str) {
        assert!(!text.is_empty());
        assert_eq!(self.open, Some((reasoning, id.to_owned())));
    }

    fn end(&mut self, reasoning: bool, id: &str) {
        assert_eq!(self.open.take(), Some((reasoning, id.to_owned())));
    }
}
