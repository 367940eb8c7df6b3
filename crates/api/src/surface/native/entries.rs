//! Context entries that clients set on a session: JSON values by key. The model gets them at its next boundary.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::extract::{Path, State};
use bytes::Bytes;
use domain::{EntrySet, Seq, SessionRef};
use http::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use store::{EntryChange, MAX_ENTRIES};

use crate::ApiState;
use crate::act::announce;
use crate::error::ApiError;
use crate::surface::at::At;
use crate::surface::extract::{CanPrompt, CanRead};
use crate::surface::paged::JsonText;
use crate::text::{is_readable_json, shown};

/// The largest value of an entry, in bytes.
const MAX_VALUE_BYTES: usize = 8 * 1024;
const MAX_KEY_CHARS: usize = 64;

/// The key in a path, after the session.
#[derive(Debug, Deserialize)]
pub(crate) struct Key {
    key: String,
}

impl Key {
    fn checked(self) -> Result<String, ApiError> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if (1..=MAX_KEY_CHARS).contains(&self.key.len()) && self.key.chars().all(good) {
            return Ok(self.key);
        }
        Err(ApiError::Invalid(format!(
            "`{}`: a key is 1 to {MAX_KEY_CHARS} letters, digits, `.`, `_` or `-`",
            shown(&self.key)
        )))
    }
}

/// Lists all entries of a session as one object.
pub(crate) async fn list(
    access: CanRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<JsonText<BTreeMap<String, Value>>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let entries = state.store().entries(access.org, row.at.session).await?;
    let mut object = String::from("{");
    for (n, (key, value)) in entries.iter().enumerate() {
        let comma = if n == 0 { "" } else { "," };
        // A key needs no escaping.
        write!(object, "{comma}\"{key}\":{value}").map_err(ApiError::internal)?;
    }
    object.push('}');
    Ok(JsonText::new(object))
}

pub(crate) async fn show(
    access: CanRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Path(key): Path<Key>,
) -> Result<JsonText<Value>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let entries = state.store().entries(access.org, row.at.session).await?;
    let entry = entries.into_iter().find(|(known, _)| *known == key.key);
    entry
        .map(|(_, value)| JsonText::new(value))
        .ok_or(ApiError::NotFound("a context entry with this key was"))
}

/// Sets an entry to the JSON of the body. `null` is a value too.
pub(crate) async fn set(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Path(key): Path<Key>,
    body: Bytes,
) -> Result<StatusCode, ApiError> {
    let row = at.find(&state, access.org).await?;
    let entry = EntrySet { key: key.checked()?, value: value(&body)? };
    let (session, now) = (row.at.session.clone(), state.clock().now_ms());
    match state.store().set_entry(access.org, session, entry, now).await? {
        EntryChange::Done(seq) => told(&state, &row.at, seq),
        EntryChange::Unchanged => {}
        EntryChange::Full => {
            return Err(ApiError::Conflict(format!(
                "a session has at most {MAX_ENTRIES} context entries; remove one"
            )));
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn remove(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Path(key): Path<Key>,
) -> Result<StatusCode, ApiError> {
    let row = at.find(&state, access.org).await?;
    let (session, now) = (row.at.session.clone(), state.clock().now_ms());
    match state.store().remove_entry(access.org, session, key.checked()?, now).await? {
        EntryChange::Done(seq) => told(&state, &row.at, seq),
        EntryChange::Unchanged | EntryChange::Full => {}
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Announces the change. It wakes no worker.
fn told(state: &ApiState, at: &SessionRef, seq: Seq) {
    announce(state, at, seq, false);
}

fn value(body: &[u8]) -> Result<String, ApiError> {
    let text = std::str::from_utf8(body).map_err(|_| ApiError::invalid("the value is no UTF-8"))?;
    let text = text.trim();
    if text.len() > MAX_VALUE_BYTES {
        return Err(ApiError::TooLarge(format!(
            "a context entry has at most {MAX_VALUE_BYTES} bytes, this one {}",
            text.len()
        )));
    }
    serde_json::from_str::<IgnoredAny>(text)
        .map_err(|error| ApiError::Invalid(format!("the body is to be one JSON value: {error}")))?;
    if !is_readable_json(text) {
        return Err(ApiError::invalid(
            "the value has half a surrogate pair, a number that is too large or more than 127 levels: other programs could not read it",
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_json_value_of_bounded_size_and_keeps_its_bytes() {
        assert_eq!(value(b" {\"a\": 1.0} \n").expect("a value"), "{\"a\": 1.0}");
        assert_eq!(value(b"null").expect("a value"), "null");
        for bad in [&b""[..], b"{", b"1 2", b"\xff", b"plain", b"\"\\ud800\"", b"[1e400]"] {
            assert!(matches!(value(bad), Err(ApiError::Invalid(_))), "{bad:?}");
        }
        let text = |len: usize| format!("\"{}\"", "x".repeat(len - 2));
        assert!(value(text(MAX_VALUE_BYTES).as_bytes()).is_ok());
        let large = value(text(MAX_VALUE_BYTES + 1).as_bytes());
        assert!(matches!(large, Err(ApiError::TooLarge(_))));
    }

    #[test]
    fn a_key_is_short_and_needs_no_escape() {
        let checked = |key: &str| Key { key: key.to_owned() }.checked();
        assert_eq!(checked("plan.v1_a-b").expect("a key"), "plan.v1_a-b");
        for bad in ["", "a b", "a\"b", "ä", &"x".repeat(MAX_KEY_CHARS + 1)] {
            assert!(checked(bad).is_err(), "{bad:?}");
        }
    }
}
