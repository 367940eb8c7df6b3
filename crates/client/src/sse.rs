//! Decodes server-sent events with their names (WHATWG HTML §9.2.6).
//!
//! `llm-protocol` has a reader for providers that keeps the data only; the log also needs `event`.

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Frame {
    /// The `event` field; empty when the stream named none.
    pub(crate) event: String,
    /// The `data` lines, joined by line feeds; empty for a frame that carries only its name.
    pub(crate) data: String,
}

/// The error for a frame larger than [`Decoder::MAX_FRAME_BYTES`]. The stream cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the log exceeds {} bytes", Decoder::MAX_FRAME_BYTES)]
pub(crate) struct FrameTooLarge;

/// A decoder from bytes to frames. Any split of the bytes gives the same frames.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The start of an unfinished line.
    line: Vec<u8>,
    frame: Frame,
    has_data: bool,
    /// Whether the last byte was a carriage return. A line feed right after it belongs to it.
    after_cr: bool,
    started: bool,
}

impl Decoder {
    /// The largest frame, in bytes: far above the service's largest event.
    pub(crate) const MAX_FRAME_BYTES: usize = 32 * 1024 * 1024;

    /// Adds bytes and returns the frames that they complete, in order. Comments (the service's pings) and unfinished
    /// frames give nothing.
    ///
    /// # Errors
    /// [`FrameTooLarge`]; drop the stream.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<Frame>, FrameTooLarge> {
        let mut frames = Vec::new();
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let held = self.line.len() + self.frame.data.len();
            if held + end.unwrap_or(bytes.len()) > Self::MAX_FRAME_BYTES {
                return Err(FrameTooLarge);
            }
            let Some(end) = end else {
                self.line.extend_from_slice(bytes);
                break;
            };
            self.after_cr = bytes[end] == b'\r';
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            frames.extend(self.end_line(&line));
            self.line = line;
            self.line.clear();
        }
        Ok(frames)
    }

    fn end_line(&mut self, line: &[u8]) -> Option<Frame> {
        let text = String::from_utf8_lossy(line);
        let mut line = text.as_ref();
        if !std::mem::replace(&mut self.started, true) {
            line = line.strip_prefix('\u{FEFF}').unwrap_or(line); // one byte order mark is allowed
        }
        if line.is_empty() {
            let had_data = std::mem::take(&mut self.has_data);
            let frame = std::mem::take(&mut self.frame);
            // The standard drops frames without data, but `event: resync` has none and is needed.
            return (had_data || !frame.event.is_empty()).then_some(frame);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.frame.event),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.frame.data.push('\n');
                }
                self.frame.data.push_str(value);
            }
            // `id` repeats the event's own `seq`. Comments and `retry` have no meaning here.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(event: &str, data: &str) -> Frame {
        Frame { event: event.into(), data: data.into() }
    }

    const STREAM: &str = "\u{FEFF}: ping\n\nid: 7\nevent: turn.started\ndata: {\"a\":\ndata: \"é\"}\n\n\
                          event: resync\r\n\r\ndata:x\rdata: y\r\rid: 9\n\ndata: left open\n";

    #[test]
    fn frames_are_cut_as_the_standard_says() {
        let frames = Decoder::default().push(STREAM.as_bytes()).expect("small frames");
        assert_eq!(
            frames,
            [frame("turn.started", "{\"a\":\n\"é\"}"), frame("resync", ""), frame("", "x\ny")]
        );
    }

    #[test]
    fn any_split_of_the_bytes_gives_the_same_frames() {
        let whole = Decoder::default().push(STREAM.as_bytes()).expect("small frames");
        for size in 1..STREAM.len() {
            let mut decoder = Decoder::default();
            let pieces = STREAM.as_bytes().chunks(size);
            let frames: Vec<Frame> =
                pieces.flat_map(|piece| decoder.push(piece).expect("small frames")).collect();
            assert_eq!(frames, whole, "pieces of {size} bytes");
        }
    }

    #[test]
    fn a_runaway_line_is_refused() {
        let mut decoder = Decoder::default();
        let piece = vec![b'a'; Decoder::MAX_FRAME_BYTES / 2 + 1];
        assert_eq!(decoder.push(&piece), Ok(vec![]));
        assert_eq!(decoder.push(&piece), Err(FrameTooLarge));
    }
}
