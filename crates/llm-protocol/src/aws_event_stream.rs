//! AWS's binary event stream: bytes in, complete events out, each as one JSON text.
//!
//! Source: <https://smithy.io/2.0/aws/amazon-eventstream.html>. A message is a length, headers and a payload
//! with two checksums; AWS's own crate checks those. A frame is the JSON of the service's event union:
//! `{"<event type>":<payload>}`, so an exception is `{"throttlingException":{"message":…}}`.

use aws_smithy_eventstream::frame::read_message_from;

use crate::decode_error::DecodeError;

/// The message length, the header length, and the checksum of both.
const PRELUDE_BYTES: usize = 12;
/// The shortest message: a prelude and the checksum of the whole.
const MIN_MESSAGE_BYTES: usize = PRELUDE_BYTES + 4;

/// Cuts a byte stream into its messages. Any split of the bytes gives the same frames.
#[derive(Debug)]
pub struct Framer {
    /// The start of a message whose end has not arrived.
    partial: Vec<u8>,
    max_frame_bytes: usize,
}

impl Framer {
    /// Makes a framer that refuses messages longer than `max_frame_bytes`.
    #[must_use]
    pub fn new(max_frame_bytes: usize) -> Self {
        Self { partial: Vec::new(), max_frame_bytes }
    }

    /// Takes the next bytes and returns the frames that they complete, in order.
    ///
    /// # Errors
    /// A message is too large or fails its checksum. Drop the framer then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, DecodeError> {
        let mut frames = Vec::new();
        self.push_into(bytes, &mut frames)?;
        Ok(frames)
    }

    /// Does the same as [`Framer::push`] but appends to `frames`, which keeps the complete frames that came
    /// before an error.
    ///
    /// # Errors
    /// The same as [`Framer::push`].
    pub fn push_into(
        &mut self,
        mut bytes: &[u8],
        frames: &mut Vec<String>,
    ) -> Result<(), DecodeError> {
        if !self.partial.is_empty() {
            bytes = self.fill(bytes)?;
            if self.length(&self.partial)? != Some(self.partial.len()) {
                return Ok(());
            }
            frames.extend(frame(&self.partial)?);
            self.partial = Vec::new(); // keeps no memory: most messages arrive whole
        }
        while let Some(length) = self.length(bytes)?.filter(|length| *length <= bytes.len()) {
            let (message, rest) = bytes.split_at(length);
            frames.extend(frame(message)?);
            bytes = rest;
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes the bytes that the partial message still needs, and returns the rest.
    fn fill<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let rest = self.extend_to(PRELUDE_BYTES, bytes);
        Ok(match self.length(&self.partial)? {
            Some(length) => self.extend_to(length, rest),
            None => rest,
        })
    }

    fn extend_to<'a>(&mut self, length: usize, bytes: &'a [u8]) -> &'a [u8] {
        let lacking = length.saturating_sub(self.partial.len()).min(bytes.len());
        let (taken, rest) = bytes.split_at(lacking);
        self.partial.extend_from_slice(taken);
        rest
    }

    /// Returns the length of the message that begins here, or `None` until its prelude is complete.
    fn length(&self, bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
        let Some((prelude, _)) = bytes.split_first_chunk::<PRELUDE_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([prelude[0], prelude[1], prelude[2], prelude[3]]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.max_frame_bytes {
            return Err(DecodeError::TooLarge {
                what: "bytes in one event",
                max: self.max_frame_bytes,
            });
        }
        if length < MIN_MESSAGE_BYTES {
            return Err(DecodeError::malformed("a message of an event stream is too short"));
        }
        Ok(Some(length))
    }
}

/// Returns a whole message as JSON, or `None` if its headers do not mark an event that we know.
fn frame(message: &[u8]) -> Result<Option<String>, DecodeError> {
    // The length was plausible, so this is an event stream; a bad checksum means damage.
    let message = read_message_from(message)
        .map_err(|error| DecodeError::malformed(format!("a message of an event stream: {error}")))
        .map_err(DecodeError::after_good_frames)?;
    let header = |name: &str| {
        let header = message.headers().iter().find(|header| header.name().as_str() == name)?;
        header.value().as_string().ok().map(|text| text.as_str())
    };
    let name = match header(":message-type") {
        Some("exception") => header(":exception-type"),
        // A failure outside the service's model. Only the headers describe it.
        Some("error") => {
            let code = header(":error-code").unwrap_or_default();
            let text = header(":error-message").unwrap_or_default();
            let error = serde_json::json!({ "error": { "code": code, "message": text } });
            return Ok(Some(error.to_string()));
        }
        _ => header(":event-type"),
    };
    let Some(name) = name else { return Ok(None) };
    let name = serde_json::to_string(name).expect("a string is always written");
    let payload = String::from_utf8_lossy(message.payload());
    let payload = if payload.trim().is_empty() { "{}" } else { &payload };
    Ok(Some(format!("{{{name}:{payload}}}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_smithy_eventstream::frame::write_message_to;
    use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
    use proptest::prelude::*;

    fn message(headers: &[(&'static str, &str)], payload: &str) -> Vec<u8> {
        let value = |text: &str| HeaderValue::String(text.to_owned().into());
        let headers = headers.iter().map(|(name, text)| Header::new(*name, value(text))).collect();
        let mut bytes = Vec::new();
        let message = Message::new_from_parts(headers, payload.as_bytes().to_vec());
        write_message_to(&message, &mut bytes).unwrap();
        bytes
    }

    fn event(name: &str, payload: &str) -> Vec<u8> {
        message(&[(":event-type", name), (":message-type", "event")], payload)
    }

    fn frames(bytes: &[u8]) -> Result<Vec<String>, DecodeError> {
        Framer::new(1000).push(bytes)
    }

    #[test]
    fn messages_become_the_json_of_their_union() {
        let bytes = [
            event("messageStop", r#"{"stopReason":"end_turn"}"#),
            event("empty", ""),
            message(
                &[(":exception-type", "throttlingException"), (":message-type", "exception")],
                r#"{"message":"slow down"}"#,
            ),
            message(
                &[
                    (":message-type", "error"),
                    (":error-code", "InternalFailure"),
                    (":error-message", "\"oops\""),
                ],
                "",
            ),
            message(&[("unknown", "header")], "{}"),
        ];
        let expected = [
            r#"{"messageStop":{"stopReason":"end_turn"}}"#,
            r#"{"empty":{}}"#,
            r#"{"throttlingException":{"message":"slow down"}}"#,
            r#"{"error":{"code":"InternalFailure","message":"\"oops\""}}"#,
        ];
        assert_eq!(frames(&bytes.concat()).unwrap(), expected);
    }

    #[test]
    fn a_message_that_is_not_what_its_checksums_say_is_damaged() {
        let whole = event("a", r#"{"text":"hello"}"#);
        for at in [4, 9, 20, whole.len() - 6, whole.len() - 1] {
            let mut broken = whole.clone();
            broken[at] ^= 1;
            let error = frames(&broken).unwrap_err();
            assert!(matches!(error, DecodeError::Damaged { .. }), "byte {at}: {error}");
        }
        assert!(matches!(frames(&[0; 16]), Err(DecodeError::Malformed { .. })));
    }

    #[test]
    fn a_message_beyond_the_bound_is_refused_by_its_length_alone() {
        let whole = event("a", &"x".repeat(2000));
        let too_large = DecodeError::TooLarge { what: "bytes in one event", max: 1000 };
        assert_eq!(frames(&whole[..12]).unwrap_err(), too_large);
        let mut framer = Framer::new(1000);
        assert_eq!(framer.push(&whole[..11]), Ok(vec![]));
        assert_eq!(framer.push(&whole[11..]), Err(too_large));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_frames(
            payloads in prop::collection::vec("[a-z é]{0,30}", 0..8),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let bytes: Vec<u8> = payloads.iter().flat_map(|text| event("e", &format!("\"{text}\""))).collect();
            let whole = Framer::new(1000).push(&bytes).unwrap();
            prop_assert_eq!(whole.len(), payloads.len());
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut framer = Framer::new(1000);
            let mut cut_frames = Vec::new();
            for pair in cuts.windows(2) {
                cut_frames.extend(framer.push(&bytes[pair[0]..pair[1]]).unwrap());
            }
            prop_assert_eq!(cut_frames, whole);
        }

        #[test]
        fn no_bytes_make_the_framer_panic(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8)) {
            let mut framer = Framer::new(64);
            for chunk in &chunks {
                if framer.push(chunk).is_err() { return Ok(()); }
            }
        }
    }
}
