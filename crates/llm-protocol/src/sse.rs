//! Server-sent events: bytes in, complete data payloads out.
//!
//! Follows the WHATWG HTML standard §9.2.6, reduced to what providers use: only `data` fields are kept. An
//! event without data is dropped, and so is an event that the stream does not complete. Data that begins with a colon
//! is a comment: some proxies pass comments on so.
//!
//! Three faults of servers are mended: a last event without its empty line ([`Framer::end_stream`]), events without
//! empty lines between them, and a field `error` with an object.

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::surrogates::value_of;

/// Cuts a byte stream into the data payloads of its events. Any split of the bytes gives the same payloads.
#[derive(Debug)]
pub struct Framer {
    /// The start of a line whose end has not arrived.
    line: Vec<u8>,
    /// The data lines of the open event, joined by line feeds.
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a carriage return: a line feed right after it belongs to it.
    after_cr: bool,
    at_start: bool,
    max_frame_bytes: usize,
}

/// An event or line is larger than allowed. The rest of the stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a server-sent event exceeds {max_frame_bytes} bytes")]
pub struct FrameTooLarge {
    /// The bound that was passed.
    pub max_frame_bytes: usize,
}

impl Default for Framer {
    fn default() -> Self {
        Self::new(Self::DEFAULT_MAX_FRAME_BYTES)
    }
}

impl Framer {
    /// The default bound on one event, in bytes. An image in base64 fits, a runaway line does not.
    pub const DEFAULT_MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;

    /// Makes a framer that refuses events longer than `max_frame_bytes`.
    #[must_use]
    pub fn new(max_frame_bytes: usize) -> Self {
        Self {
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            after_cr: false,
            at_start: true,
            max_frame_bytes,
        }
    }

    /// Takes the next bytes and returns the payloads that they complete, in order. Bytes that are not UTF-8
    /// become U+FFFD; a character split between two calls stays whole.
    ///
    /// # Errors
    /// An event is too large; drop the framer.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, FrameTooLarge> {
        let mut payloads = Vec::new();
        self.push_into(bytes, &mut payloads)?;
        Ok(payloads)
    }

    /// Does the same as [`Framer::push`] but appends to `payloads`, which keeps the complete ones that came
    /// before an error.
    ///
    /// # Errors
    /// The same as [`Framer::push`].
    pub fn push_into(
        &mut self,
        mut bytes: &[u8],
        payloads: &mut Vec<String>,
    ) -> Result<(), FrameTooLarge> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
                self.check_size(bytes.len())?;
                self.line.extend_from_slice(bytes);
                break;
            };
            self.check_size(end)?;
            self.after_cr = bytes[end] == b'\r';
            let line = &bytes[..end];
            bytes = &bytes[end + 1..];
            if self.line.is_empty() {
                self.end_line(line, payloads);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.end_line(&whole, payloads);
                whole.clear();
                self.line = whole; // keeps its allocation for the next cut line
            }
        }
        Ok(())
    }

    /// Ends a stream whose connection was closed properly, and returns the payloads of an event that no empty line
    /// has ended. Only whole JSON objects and `[DONE]` count: anything else may have been cut.
    #[must_use]
    pub fn end_stream(&mut self) -> Vec<String> {
        let mut payloads = Vec::new();
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_line(&line, &mut payloads);
        }
        self.end_line(&[], &mut payloads);
        payloads.retain(|payload| is_event(payload));
        payloads
    }

    fn check_size(&self, more: usize) -> Result<(), FrameTooLarge> {
        let max_frame_bytes = self.max_frame_bytes;
        if self.data.len() + self.line.len() + more > max_frame_bytes {
            return Err(FrameTooLarge { max_frame_bytes });
        }
        Ok(())
    }

    fn end_line(&mut self, mut line: &[u8], payloads: &mut Vec<String>) {
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line); // one byte order mark is allowed
        }
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                push_payloads(into_text(std::mem::take(&mut self.data)), payloads);
            }
            return;
        }
        // llama.cpp sends the error of a stream in a field of this name.
        if let Some(error) = read_error(line) {
            return self.add_data(error.as_bytes());
        }
        // A line without a colon is a field without a value; a line that begins with a colon is a comment.
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[],
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            Some(_) | None => return,
        };
        // A comment that a proxy has made into data. What providers send begins otherwise.
        if !self.has_data && value.starts_with(b":") {
            return;
        }
        self.add_data(value);
    }

    fn add_data(&mut self, value: &[u8]) {
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
    }
}

/// Adds an event's data. If it is no JSON but each of its lines is, the server has left out the empty lines between its
/// events.
fn push_payloads(data: String, payloads: &mut Vec<String>) {
    let is_joined = data.contains('\n') && !is_json(&data) && data.split('\n').all(is_event);
    if is_joined {
        payloads.extend(data.split('\n').map(str::to_owned));
    } else {
        payloads.push(data);
    }
}

/// Returns whether the data is a whole event of some provider.
fn is_event(data: &str) -> bool {
    let data = data.trim();
    data == "[DONE]" || (data.starts_with('{') && is_json(data))
}

fn is_json(data: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(data).is_ok()
}

/// Returns the object of a field `error` as the frame that other servers send.
fn read_error(line: &[u8]) -> Option<String> {
    let value = std::str::from_utf8(line.strip_prefix(b"error:")?).ok()?;
    let error = value_of(value).ok().filter(Value::is_object)?;
    let error = error.get("error").unwrap_or(&error);
    Some(json!({ "error": error }).to_string())
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(text: &str) -> Vec<String> {
        Framer::default().push(text.as_bytes()).unwrap()
    }

    #[test]
    fn payloads_are_cut_as_the_standard_says() {
        assert_eq!(frames("data: a\n\ndata:b\r\n\r\ndata:  c\r\r"), ["a", "b", " c"]);
        assert_eq!(frames("\u{FEFF}data: a\n\n"), ["a"]);
        assert_eq!(frames(": ping\n\nevent: x\nid: 1\nretry: 2\n\n"), [""; 0]);
        assert_eq!(frames("event: x\ndata: a\ndata: b\ndata\ndata:\n\n"), ["a\nb\n\n"]);
        assert_eq!(frames("data: \n\n"), [""]);
        // The public report llm-gateway#2053: a proxy passes comments on as data.
        for comment in ["data: : OPENROUTER PROCESSING", "data:: ping", "data: :", "data::\r"] {
            assert_eq!(frames(&format!("{comment}\n\ndata: {{}}\n\n")), ["{}"], "{comment}");
        }
        assert_eq!(frames("data: {\"a\"\ndata: :1}\n\n"), ["{\"a\"\n:1}"]);
        assert_eq!(frames("database: a\n\nDATA: b\n\n"), [""; 0]);
        assert_eq!(frames("data: incomplete\n"), [""; 0]);
    }

    // Finding: report 30-a1 (openai/openai-node#2725).
    #[test]
    fn the_end_of_a_stream_completes_a_whole_last_event() {
        let ended = |text: &str| {
            let mut framer = Framer::default();
            assert_eq!(framer.push(text.as_bytes()), Ok(vec![]), "{text}");
            framer.end_stream()
        };
        for end in ["", "\n", "\r", "\r\n"] {
            assert_eq!(ended(&format!("data: {{\"a\":1}}{end}")), ["{\"a\":1}"]);
            assert_eq!(ended(&format!("event: x\ndata: [DONE]{end}")), ["[DONE]"]);
            assert_eq!(ended(&format!("data: {{\ndata: }}{end}")), ["{\n}"]);
        }
        assert_eq!(ended("data: {\"a\":1}\ndata: [DONE]"), ["{\"a\":1}", "[DONE]"]);
        for cut in [
            "",
            "data: {\"a\":1",
            "data: {\"a\":1}\ndata: [DO",
            "data: 1",
            "data: incomplete\n",
            "dat",
        ] {
            assert_eq!(ended(cut), [""; 0], "{cut}");
        }
    }

    // Finding: report 30-a2 (anomalyco/opencode#27365).
    #[test]
    fn events_without_empty_lines_between_are_told_apart() {
        let stream = "data: {\"a\":1}\ndata: {\"b\":2}\r\ndata: [DONE]\n\n";
        assert_eq!(frames(stream), ["{\"a\":1}", "{\"b\":2}", "[DONE]"]);
        // One value in several lines stays one, and so does what is no JSON.
        assert_eq!(frames("data: {\"a\":\ndata: 1}\n\n"), ["{\"a\":\n1}"]);
        assert_eq!(frames("data: {}\ndata: odd\n\n"), ["{}\nodd"]);
    }

    // Finding: report 30-a3 (ggml-org/llama.cpp#16109).
    #[test]
    fn a_field_with_an_error_is_a_frame_with_it() {
        let error = "{\"error\":{\"code\":400}}";
        assert_eq!(frames("error: {\"code\":400}\n\ndata: [DONE]\n\n"), [error, "[DONE]"]);
        assert_eq!(frames("data: {}\nerror:{\"error\":{\"code\":400}}\n\n"), ["{}", error]);
        assert_eq!(frames("error: odd\n\nerror\n\nerrors: {}\n\n"), [""; 0]);
    }

    #[test]
    fn bytes_that_are_no_utf8_are_replaced() {
        assert_eq!(Framer::default().push(b"data: a\xFFb\n\n").unwrap(), ["a\u{FFFD}b"]);
    }

    #[test]
    fn an_event_beyond_the_bound_is_an_error_in_any_form() {
        let too_large = Err(FrameTooLarge { max_frame_bytes: 16 });
        assert_eq!(Framer::new(16).push(b"data: 0123456789").map(|_| ()), Ok(()));
        assert_eq!(Framer::new(16).push(b"data: 0123456789a"), too_large);
        assert_eq!(Framer::new(16).push(b"data: 0123456789a\n\n"), too_large);
        assert_eq!(Framer::new(16).push(b"data: 01234\ndata: 56789\ndata: 0\n\n"), too_large);
        let mut framer = Framer::new(16);
        assert_eq!(framer.push(b": 0123456789"), Ok(vec![]));
        assert_eq!(framer.push(b"0123456789"), too_large);
        let mut framer = Framer::new(16); // the bound is on one event, not on the stream
        for _ in 0..100 {
            assert_eq!(framer.push(b"data: 0123\n\n"), Ok(vec!["0123".to_owned()]));
        }
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_frames(
            lines in prop::collection::vec("(data: |data:|data: :|data|:|event: |\u{FEFF})?[a-z é\u{1F600}]{0,6}(\n|\r|\r\n|\n\n|\r\n\r\n)", 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let bytes = lines.concat().into_bytes();
            let whole = Framer::default().push(&bytes).unwrap();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut framer = Framer::default();
            let mut cut_frames = Vec::new();
            for pair in cuts.windows(2) {
                cut_frames.extend(framer.push(&bytes[pair[0]..pair[1]]).unwrap());
            }
            prop_assert_eq!(cut_frames, whole);
        }
    }
}
