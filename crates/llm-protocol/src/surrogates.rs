//! Half UTF-16 surrogate pairs, which JSON can write (`"\ud83d"`) but no Rust text can hold.
//!
//! Providers cut their answers between UTF-16 units, so one delta may end with the first half of a pair and
//! the next begin with the second. RFC 8259 §8.2 leaves their meaning to the reader. `serde_json` refuses
//! texts with halves, so only frames that it refuses pay for the search. It does not look into raw values, so
//! frames that keep raw values are always searched.

use memchr::{memchr, memmem};
use serde_json::Value;

use crate::decode_error::DecodeError;
use crate::json::without_duplicates;

/// The replacement for a half without its partner.
const REPLACEMENT: &str = "\\ufffd";

/// Joins the halves of an answer whose deltas cut a character in two.
#[derive(Debug, Default)]
pub(crate) struct Halves {
    /// The first half of a pair that ended a text of the last mended frame.
    high: Option<u16>,
}

impl Halves {
    /// Reads a frame and returns the text that it was read from. If the text has halves, it is mended in
    /// `room` and read again. A half at the end of a text waits for its partner at the beginning of a later
    /// one; if none comes, it is dropped. Raw values (`keeps_raw`) cannot wait, so U+FFFD replaces each half
    /// in them.
    pub(crate) fn read<'a, F>(
        &mut self,
        data: &'a str,
        room: &'a mut Option<String>,
        parse: impl Fn(&'a str) -> Result<F, DecodeError>,
        keeps_raw: impl Fn(&F) -> bool,
    ) -> Result<(F, &'a str), DecodeError> {
        let (error, mended) = match parse(data) {
            Ok(frame) if !keeps_raw(&frame) => return Ok((frame, data)),
            Ok(frame) => match whole(data) {
                None => return Ok((frame, data)),
                Some(mended) => (None, mended),
            },
            Err(error) => match self.join(data).or_else(|| without_duplicates(data)) {
                None => return Err(error),
                Some(mended) => (Some(error), mended),
            },
        };
        let text: &'a str = room.insert(mended);
        match parse(text) {
            Ok(frame) => Ok((frame, text)),
            Err(again) => Err(error.unwrap_or(again)),
        }
    }

    fn join(&mut self, json: &str) -> Option<String> {
        let before = self.high;
        let mut high = None;
        let mended = mend(json, |half| {
            let joined = before.filter(|_| half.begins_text && !is_high(half.unit));
            match joined {
                Some(high) => format!("\\u{high:04x}\\u{:04x}", half.unit),
                None if half.ends_text && is_high(half.unit) => {
                    high = Some(half.unit);
                    String::new()
                }
                None => REPLACEMENT.to_owned(),
            }
        })?;
        self.high = high;
        Some(mended)
    }
}

/// Reads a provider's JSON, with U+FFFD in place of half surrogate pairs.
///
/// # Errors
/// It is not JSON.
pub fn value_of(json: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(json).or_else(|error| match whole(json) {
        Some(mended) => serde_json::from_str(&mended),
        None => Err(error),
    })
}

/// Returns the JSON with U+FFFD in place of each unpaired half; `None` if it has no unpaired half.
pub(crate) fn whole(json: &str) -> Option<String> {
    mend(json, |_| REPLACEMENT.to_owned())
}

/// A half without its partner.
struct Half {
    unit: u16,
    /// It stands at the beginning of its text.
    begins_text: bool,
    /// It stands at the end of its text.
    ends_text: bool,
}

/// Returns the JSON with each unpaired half replaced by `instead`; `None` if it has none. In JSON, a
/// backslash occurs only inside texts.
fn mend(json: &str, mut instead: impl FnMut(Half) -> String) -> Option<String> {
    let bytes = json.as_bytes();
    let first =
        [b"\\ud", b"\\uD"].into_iter().filter_map(|units| memmem::find(bytes, units)).min()?;
    let mut at = first - backslashes_before(bytes, first); // a backslash of its own may be before it
    let (mut mended, mut copied) = (String::new(), 0);
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr(b'\\', rest)) {
        let here = at + found;
        let Some(unit) = unit_at(bytes, here) else {
            at = here + 2;
            continue;
        };
        at = here + ESCAPE_BYTES;
        if !(0xD800..=0xDFFF).contains(&unit) {
            continue;
        }
        let low = unit_at(bytes, at).filter(|unit| (0xDC00..=0xDFFF).contains(unit));
        if is_high(unit) && low.is_some() {
            at += ESCAPE_BYTES;
            continue;
        }
        let begins_text = here.checked_sub(1).is_some_and(|quote| {
            bytes[quote] == b'"' && backslashes_before(bytes, quote).is_multiple_of(2)
        });
        let ends_text = bytes.get(at) == Some(&b'"');
        mended.push_str(&json[copied..here]);
        mended.push_str(&instead(Half { unit, begins_text, ends_text }));
        copied = at;
    }
    (copied > 0).then(|| mended + &json[copied..])
}

fn backslashes_before(bytes: &[u8], at: usize) -> usize {
    bytes[..at].iter().rev().take_while(|byte| **byte == b'\\').count()
}

/// `\uXXXX`
const ESCAPE_BYTES: usize = 6;

/// Returns the UTF-16 unit that is escaped at `at`.
fn unit_at(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + ESCAPE_BYTES)?.strip_prefix(b"\\u")?;
    let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Returns whether the unit is the first half of a pair.
fn is_high(unit: u16) -> bool {
    (0xD800..=0xDBFF).contains(&unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(data: &str) -> Result<String, DecodeError> {
        serde_json::from_str(data).map_err(|error| DecodeError::malformed(error.to_string()))
    }

    fn read(halves: &mut Halves, data: &str) -> Result<String, DecodeError> {
        let mut room = None;
        halves.read(data, &mut room, parse, |_| false).map(|(text, _)| text)
    }

    #[test]
    fn a_half_without_its_other_is_replaced_and_nothing_else_is_touched() {
        for (json, expected) in [
            (r#"["\ud83d"]"#, Some(r#"["\ufffd"]"#)),
            (r#"["\uDE00a\ud83d b"]"#, Some(r#"["\ufffda\ufffd b"]"#)),
            (r#"["\ud83d\ud83d\ude00"]"#, Some(r#"["\ufffd\ud83d\ude00"]"#)),
            (r#"["\ud83d\u00e9"]"#, Some(r#"["\ufffd\u00e9"]"#)),
            (r#"["\\\ud83d"]"#, Some(r#"["\\\ufffd"]"#)),
            (r#"["\ud83d\ude00"]"#, None),
            (r#"["\\ud83d"]"#, None),
            (r#"["\ud7ff\ue000", "\n\"é"]"#, None),
            (r#"["\ud83"#, None),
            (r"\u\ud", None),
        ] {
            assert_eq!(whole(json).as_deref(), expected, "{json}");
        }
        assert_eq!(value_of(r#"{"a":"b\ud83d"}"#).unwrap()["a"], "b\u{FFFD}");
        assert!(value_of(r#"{"a":"b\ud83d""#).is_err());
    }

    #[test]
    fn halves_at_the_end_of_a_delta_and_the_beginning_of_the_next_are_joined() {
        let mut halves = Halves::default();
        assert_eq!(read(&mut halves, r#""a\ud83d""#).unwrap(), "a");
        assert_eq!(read(&mut halves, r#""plain""#).unwrap(), "plain");
        assert_eq!(read(&mut halves, r#""\uDE00b""#).unwrap(), "\u{1F600}b");
        assert_eq!(read(&mut halves, r#""\uDE00b""#).unwrap(), "\u{FFFD}b", "it is joined once");
        assert_eq!(read(&mut halves, r#""\ud83d""#).unwrap(), "");
        assert_eq!(read(&mut halves, r#""\"\uDE00\ud83d""#).unwrap(), "\"\u{FFFD}");
        assert_eq!(read(&mut halves, r#""\uDE00""#).unwrap(), "\u{1F600}");
        assert!(read(&mut halves, r#""\uDE00"#).is_err());
    }

    proptest! {
        #[test]
        fn any_text_of_units_is_read_as_utf16_reads_it(units in prop::collection::vec(
            prop_oneof![0xD7FEu16..0xE002, 0x20u16..0x7F, Just(u16::from(b'\\')), Just(u16::from(b'"'))], 0..12,
        )) {
            let escaped: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let json = format!("{{\"\\\\\":\"{escaped}\"}}");
            let read = value_of(&json).unwrap();
            prop_assert_eq!(read["\\"].as_str().unwrap(), String::from_utf16_lossy(&units));
        }

        #[test]
        fn any_text_at_all_is_searched_without_harm(text in r#"(\\u|[dD][89a-f]|\\|"|é|[0-9a-f]{1,4}){0,12}"#) {
            let _mended = whole(&text);
            let _read = read(&mut Halves::default(), &text);
        }
    }
}
