//! Text that clients send: ids parsed, control characters dropped, lengths bounded.

use std::str::FromStr;

use domain::IdError;

use crate::error::ApiError;

/// An id out of a path.
pub(crate) fn id<T: FromStr<Err = IdError>>(text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|error| ApiError::Invalid(format!("`{}`: {error}", shown(text))))
}

/// At most 80 characters of what a client sent, to show it what was not understood.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

/// `text` as Postgres can hold it.
pub(crate) fn plain(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}
