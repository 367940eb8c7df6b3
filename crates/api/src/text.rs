//! Parses ids, and cleans and shortens other text that clients send.

use std::str::FromStr;

use domain::IdError;

use crate::error::ApiError;

/// Parses an id from a path.
pub(crate) fn id<T: FromStr<Err = IdError>>(text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|error| ApiError::Invalid(format!("`{}`: {error}", shown(text))))
}

/// Returns at most 80 characters of a client's text, without control characters, for an error message.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

/// The largest secret, in bytes.
const MAX_SECRET_BYTES: usize = 16 * 1024;

/// Returns the secret of the field `name` if it can be one. No error contains it.
pub(crate) fn secret<'a>(name: &str, text: &'a str) -> Result<&'a str, ApiError> {
    let is_bad = text.trim().is_empty()
        || text.len() > MAX_SECRET_BYTES
        || text.trim().chars().any(char::is_control);
    if is_bad {
        let message = format!("`{name}` has 1 to {MAX_SECRET_BYTES} bytes, without line breaks");
        return Err(ApiError::Invalid(message));
    }
    Ok(text)
}

/// Returns `text` without the NUL characters that Postgres refuses.
pub(crate) fn plain(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

/// Returns the text that percent-encoded bytes mean; `None` if they mean none.
pub(crate) fn percent_decode(text: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
            let (high, low) = (digit()?, digit()?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Returns whether all programs can read a JSON text: it has no half of a surrogate pair, and no number beyond a double.
pub(crate) fn is_readable_json(text: &str) -> bool {
    fn is_finite(value: &serde_json::Value) -> bool {
        match value {
            serde_json::Value::Number(number) => number.as_f64().is_some_and(f64::is_finite),
            serde_json::Value::Array(items) => items.iter().all(is_finite),
            serde_json::Value::Object(members) => members.values().all(is_finite),
            serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::String(_) => {
                true
            }
        }
    }
    serde_json::from_str(text).is_ok_and(|value| is_finite(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_the_header_is_percent_encoded() {
        assert_eq!(percent_decode(b"%2Ftmp%2Fa%20b").as_deref(), Some("/tmp/a b"));
        assert_eq!(percent_decode(b"/plain").as_deref(), Some("/plain"));
        assert_eq!(percent_decode(b"/%4"), None);
        assert_eq!(percent_decode(b"/%ff"), None);
    }
}
