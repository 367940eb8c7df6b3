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
