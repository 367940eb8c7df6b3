//! OpenRouter's list of reasoning, `reasoning_details`, which goes back as it came.
//!
//! It comes in pieces. Pieces of one text are joined, as OpenRouter's own client does; each encrypted one is
//! whole. Source: <https://openrouter.ai/docs/use-cases/reasoning-tokens#preserving-reasoning-blocks>

use serde_json::{Map, Value};

use crate::decode_error::DecodeError;
use crate::json::RawJson;

/// The bound on the texts of one answer's list, in bytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// The bound on the list's length. Even one token per piece stays far below it, because pieces are joined.
const MAX_DETAILS: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Details {
    list: Vec<Map<String, Value>>,
    bytes: usize,
    count: usize,
}

impl Details {
    /// Adds one frame's pieces. Anything but a list of objects is ignored.
    pub(super) fn push(&mut self, pieces: Value) -> Result<(), DecodeError> {
        let Value::Array(pieces) = pieces else { return Ok(()) };
        for piece in pieces {
            let Value::Object(piece) = piece else { continue };
            let texts = piece.values().filter_map(Value::as_str).map(str::len);
            self.bytes += texts.sum::<usize>();
            if self.bytes > MAX_BYTES {
                return Err(DecodeError::TooLarge { what: "bytes of reasoning", max: MAX_BYTES });
            }
            match self.list.last_mut().filter(|last| continues(last, &piece)) {
                Some(last) => extend(last, piece),
                None => {
                    self.count += 1;
                    if self.count > MAX_DETAILS {
                        let what = "pieces of reasoning";
                        return Err(DecodeError::TooLarge { what, max: MAX_DETAILS });
                    }
                    self.list.push(piece);
                }
            }
        }
        Ok(())
    }

    /// Returns whether the list has anything new since the last [`Details::take`].
    pub(super) fn any(&self) -> bool {
        !self.list.is_empty()
    }

    /// Returns everything new since the last call.
    pub(super) fn take(&mut self) -> Option<RawJson> {
        let list: Vec<_> = std::mem::take(&mut self.list).into_iter().map(Value::Object).collect();
        (!list.is_empty()).then(|| RawJson::from(&Value::Array(list)))
    }
}

/// Returns the member that a piece of this type extends.
fn text_member(piece: &Map<String, Value>) -> Option<&'static str> {
    match piece.get("type").and_then(Value::as_str) {
        Some("reasoning.text") => Some("text"),
        Some("reasoning.summary") => Some("summary"),
        Some(_) | None => None,
    }
}

fn continues(last: &Map<String, Value>, piece: &Map<String, Value>) -> bool {
    // A text ends with its signature.
    let signed = last.get("signature").is_some_and(|signature| !signature.is_null());
    let goes_on = piece.get("text").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    text_member(piece).is_some()
        && ["type", "index"].iter().all(|key| last.get(*key) == piece.get(*key))
        && !(signed && goes_on)
}

fn extend(last: &mut Map<String, Value>, piece: Map<String, Value>) {
    let member = text_member(&piece);
    for (key, value) in piece {
        match (last.get_mut(&key), value) {
            (Some(Value::String(text)), Value::String(more)) if member == Some(key.as_str()) => {
                text.push_str(&more);
            }
            (Some(_), Value::Null) => {}
            (_, value) => {
                last.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn put(pieces: &[Value]) -> String {
        let mut details = Details::default();
        for piece in pieces {
            details.push(json!([piece])).unwrap();
        }
        details.take().map_or_else(String::new, |list| list.get().to_owned())
    }

    #[test]
    fn the_pieces_of_a_text_are_put_together_and_encrypted_ones_are_whole() {
        let text = |text: &str, index: u64| json!({"type": "reasoning.text", "text": text, "index": index, "signature": null});
        let sealed = |data: &str| json!({"type": "reasoning.encrypted", "data": data, "index": 0});
        let signed = json!({"type": "reasoning.text", "index": 0, "signature": "s"});
        assert_eq!(
            put(&[text("a", 0), text("b", 0), signed, text("c", 0), text("d", 1)]),
            concat!(
                r#"[{"index":0,"signature":"s","text":"ab","type":"reasoning.text"},"#,
                r#"{"index":0,"signature":null,"text":"c","type":"reasoning.text"},"#,
                r#"{"index":1,"signature":null,"text":"d","type":"reasoning.text"}]"#
            )
        );
        assert_eq!(
            put(&[sealed("x"), sealed("y")]),
            r#"[{"data":"x","index":0,"type":"reasoning.encrypted"},{"data":"y","index":0,"type":"reasoning.encrypted"}]"#
        );
        assert_eq!(put(&[json!(7), json!(null)]), "");
    }

    #[test]
    fn a_stream_cannot_make_us_keep_endless_reasoning() {
        let mut details = Details::default();
        let sealed = json!([{"type": "reasoning.encrypted", "data": "x"}]);
        let error = (0..9999).find_map(|_| details.push(sealed.clone()).err());
        assert!(matches!(error, Some(DecodeError::TooLarge { max: 4096, .. })), "{error:?}");
        let mut details = Details::default();
        let long = json!([{"type": "reasoning.text", "text": "x".repeat(1 << 20)}]);
        let error = (0..17).find_map(|_| details.push(long.clone()).err());
        assert!(matches!(error, Some(DecodeError::TooLarge { .. })), "{error:?}");
    }
}
