//! JSON whose bytes matter: text kept verbatim, and values always written in the same order.
//!
//! Requests to models are hashed, and must be rebuilt byte for byte years later by another build. A
//! `serde_json::Value` cannot hold them: it rewrites numbers, and its key order depends on a cargo feature.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// One valid JSON value, kept as its exact text without surrounding white space.
///
/// Equality compares the text. Deserialising keeps the text only if the source is JSON text; from a `Value`,
/// the text is the value's compact form.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Checks that `text` is one JSON value and keeps it.
    ///
    /// # Errors
    /// `text` is not valid JSON.
    pub fn parse(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(Self)
    }

    /// The JSON text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Writes the value compactly, once. Raw JSON inside it is not parsed again.
    pub(crate) fn written<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// Borrows it for a writer that takes raw values.
    pub(crate) fn raw(&self) -> &RawValue {
        &self.0
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for RawJson {}

impl From<&RawValue> for RawJson {
    fn from(raw: &RawValue) -> Self {
        Self(raw.to_owned())
    }
}

impl From<&Value> for RawJson {
    /// Writes the value compactly, with sorted object keys.
    fn from(value: &Value) -> Self {
        let raw = serde_json::value::to_raw_value(&Sorted(value));
        Self(raw.expect("a JSON value is always written: its keys are strings"))
    }
}

/// Writes a value with sorted keys, whether or not `serde_json/preserve_order` is on in this build.
pub(crate) struct Sorted<'a>(pub(crate) &'a Value);

impl Serialize for Sorted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => {
                let mut sorted: Vec<_> = fields.iter().collect();
                sorted.sort_unstable_by_key(|(key, _)| *key);
                let mut map = serializer.serialize_map(Some(sorted.len()))?;
                for (key, value) in sorted {
                    map.serialize_entry(key, &Sorted(value))?;
                }
                map.end()
            }
            Value::Array(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    seq.serialize_element(&Sorted(item))?;
                }
                seq.end()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.0.serialize(serializer)
            }
        }
    }
}

/// The largest number that can be a count of tokens.
pub(crate) const MAX_COUNT: u64 = 1_000_000_000_000;

/// A provider's count. Some write `5.0` or `"5"`, or `-1` for unknown. Anything that is not a count becomes
/// `None`, because a bad count is no reason to refuse a whole answer. A number beyond [`MAX_COUNT`], such as an
/// unsigned `-1`, becomes `u64::MAX`: a sum with it stays beyond, and [`crate::Usage::is_plausible`] tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Count(pub(crate) Option<u64>);

/// Returns the input with what a cache read and wrote. Some servers count only the rest: then there is less than that.
pub(crate) fn inclusive_input(input: u64, cached: u64) -> u64 {
    if cached > input { input.saturating_add(cached) } else { input }
}

/// The tokens that were written to a cache, beside OpenAI's counts, which have no name for them. Proxies for Anthropic and others add
/// theirs, next to the counts or in the details of the input: some several, of the same tokens.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CacheWrites {
    /// Anthropic's own, as LiteLLM, Qwen and others send it.
    cache_creation_input_tokens: Count,
    /// LiteLLM, in the details.
    cache_creation_tokens: Count,
    /// New API, in the details.
    cached_creation_tokens: Count,
    /// OpenRouter, in the details.
    cache_write_tokens: Count,
    cache_write_input_tokens: Count,
    /// Bedrock's names, and those of clients in camel case.
    #[serde(rename = "cacheWriteInputTokens")]
    bedrock: Count,
    #[serde(rename = "cacheCreationInputTokens")]
    camel: Count,
    #[serde(deserialize_with = "read_counts")]
    cache_creation: Option<CacheCreation>,
}

/// Anthropic's split by the time that the cache keeps it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CacheCreation {
    ephemeral_5m_input_tokens: Count,
    ephemeral_1h_input_tokens: Count,
}

impl CacheCreation {
    /// Returns the tokens of both times, if either is said.
    pub(crate) fn total(self) -> Option<u64> {
        let both = [self.ephemeral_5m_input_tokens.0, self.ephemeral_1h_input_tokens.0];
        both.into_iter().flatten().reduce(u64::saturating_add)
    }
}

impl CacheWrites {
    /// Returns the tokens, whatever they are called: the most of any name. `None` if none is said.
    pub(crate) fn total(self) -> Option<u64> {
        let names = [
            self.cache_creation_input_tokens,
            self.cache_creation_tokens,
            self.cached_creation_tokens,
            self.cache_write_tokens,
            self.cache_write_input_tokens,
            self.bedrock,
            self.camel,
            Count(self.cache_creation.and_then(CacheCreation::total)),
        ];
        names.into_iter().filter_map(|count| count.0).max()
    }
}

/// Reads the number of a part. Some servers write it as text or with a fraction (`"0"`, `0.0`). Anything that is no such
/// number becomes `None`, as a bad [`Count`] does.
pub(crate) fn read_index<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr,
    D: Deserializer<'de>,
{
    let text = match Value::deserialize(deserializer)? {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return Ok(None),
    };
    let text = text.trim();
    Ok(text.strip_suffix(".0").unwrap_or(text).parse().ok())
}

/// Reads an object of counts. Anything else becomes `None`, as a bad [`Count`] does.
pub(crate) fn read_counts<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(CountsVisitor(PhantomData))
}

struct CountsVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for CountsVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of counts")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let count = match Value::deserialize(deserializer)? {
            Value::Number(number) => {
                number.as_u64().or_else(|| number.as_f64().and_then(whole_count))
            }
            Value::String(text) => {
                let text = text.trim();
                text.parse().ok().or_else(|| text.parse().ok().and_then(whole_count))
            }
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        Ok(Self(count.map(|count| if count > MAX_COUNT { u64::MAX } else { count })))
    }
}

fn whole_count(number: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates"
    )]
    (number >= 0.0).then(|| number.round() as u64)
}

/// Returns the same JSON without duplicate keys; the last value of each wins. `None` if it is not JSON.
pub(crate) fn without_duplicates(json: &str) -> Option<String> {
    serde_json::from_str::<Value>(json).ok().map(|value| value.to_string())
}

/// Removes white space between the tokens of JSON text. The tokens stay as they are (`1.0`, the order of
/// keys).
pub(crate) fn compact(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for letter in json.chars() {
        if !in_string && letter.is_ascii_whitespace() {
            continue;
        }
        in_string ^= letter == '"' && !escaped;
        escaped = in_string && letter == '\\' && !escaped;
        text.push(letter);
    }
    text
}

/// Converts a control such as a temperature. Whole numbers lose their fraction (`0`, not `0.0`), as clients
/// of these APIs write them. A number that JSON cannot hold (NaN, infinite) becomes null.
pub(crate) fn control_number(number: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53: up to here every whole f64 is an exact i64
    if number.fract() == 0.0 && number.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53: exact")]
        return Value::from(number as i64);
    }
    Value::from(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_written_with_sorted_keys_at_every_depth() {
        let value = json!({"b": [{"z": 1, "a": null}], "a": {"d": true, "c": "x"}});
        let text = RawJson::from(&value);
        assert_eq!(text.get(), r#"{"a":{"c":"x","d":true},"b":[{"a":null,"z":1}]}"#);
    }

    #[test]
    fn raw_json_keeps_numbers_spaces_and_key_order() {
        let text = r#"{"b": 1.0, "a":1e2}"#;
        let raw: RawJson = serde_json::from_str(text).unwrap();
        assert_eq!(raw.get(), text);
        assert_eq!(serde_json::to_string(&raw).unwrap(), text);
        assert!(RawJson::parse("{").is_err());
    }

    #[test]
    fn white_space_is_taken_out_between_tokens_only() {
        let text = " { \"a b\" : [ 1.0,\n 2e2 ],\t\"\\\" \\\\\" : \" é \\\\\" }\r\n";
        assert_eq!(compact(text), "{\"a b\":[1.0,2e2],\"\\\" \\\\\":\" é \\\\\"}");
        assert_eq!(compact("\"x  y\""), "\"x  y\"");
    }

    // Finding core-3 H5: each of these was believed, or taken for 0.
    #[test]
    fn a_number_beyond_all_counts_is_marked_and_none_is_refused() {
        let read = |text: &str| serde_json::from_str::<Count>(text).expect("any JSON").0;
        for (text, count) in
            [("0", 0), ("7", 7), ("5.0", 5), ("\"7\"", 7), ("1000000000000", MAX_COUNT)]
        {
            assert_eq!(read(text), Some(count), "{text}");
        }
        for text in ["-1", "null", "\"\"", "\"many\"", "true", "{}", "-0.5"] {
            assert_eq!(read(text), None, "{text}");
        }
        let beyond = [
            "1000000000001",
            "9007199254740992",
            "9223372036854775807",
            "18446744073709551615",
            "18446744073709551616",
            "1e300",
            "\"18446744073709551615\"",
            "\"99999999999999999999\"",
        ];
        for text in beyond {
            assert_eq!(read(text), Some(u64::MAX), "{text}");
        }
    }

    #[test]
    fn whole_controls_have_no_fraction() {
        assert_eq!(control_number(0.0), json!(0));
        assert_eq!(control_number(0.7), json!(0.7));
        assert_eq!(control_number(f64::NAN), Value::Null);
    }
}
