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

/// Returns `text` without the NUL characters that Postgres refuses.
pub(crate) fn plain(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}
