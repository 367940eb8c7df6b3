//! The words of a client about a session: its title, whether it is archived, its metadata.

use domain::{SessionArchived, SessionDescribed, SessionRenamed, TimestampMs, TitledBy, ToolRule};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use store::{SessionEdit, SessionRow};

use super::announce::announce;
use super::metadata::MetadataRequest;
use super::sessions::{read_session_rules, title};
use crate::ApiState;
use crate::error::ApiError;

/// The last time that clients can name: the largest whole number of theirs.
const LAST_MS: f64 = 9_007_199_254_740_991.0;

/// A change of a session. A field of the released contract that is not offered is refused by its name.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct ChangeRequest {
    title: Option<String>,
    /// Whether lists leave it out.
    archived: Option<bool>,
    /// All of its metadata from now on.
    metadata: Option<MetadataRequest>,
    #[schemars(skip)]
    time: Option<TimeRequest>,
    #[schemars(skip)]
    permission: Option<Vec<ToolRule>>,
}

/// How stock clients archive a session.
#[derive(Debug, Default, Deserialize)]
struct TimeRequest {
    /// Zero and `null` are no time: the session is archived no more.
    #[serde(default, deserialize_with = "named")]
    archived: Option<Option<f64>>,
}

/// Tells `null` from a member that is left out.
fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<f64>>, D::Error> {
    Option::<f64>::deserialize(deserializer).map(Some)
}

impl ChangeRequest {
    /// Returns what the request says of the archived session or the one that is not; `None`: it stays as it is.
    fn archived(
        &self,
        now: TimestampMs,
        at: Option<TimestampMs>,
    ) -> Result<Option<SessionArchived>, ApiError> {
        let named = self.time.as_ref().and_then(|time| time.archived);
        let archived = match (self.archived, named) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                return Err(ApiError::invalid("say `archived` or `time.archived`, not both"));
            }
            (Some(true), None) => at.or(Some(now)),
            (Some(false), None) => None,
            (None, Some(time)) => match time.unwrap_or_default() {
                0.0 => None,
                #[expect(clippy::cast_possible_truncation, reason = "it is within bounds")]
                time if (1.0..=LAST_MS).contains(&time) => Some(time as TimestampMs),
                _ => {
                    return Err(ApiError::invalid(
                        "`time.archived` is a time in milliseconds since 1970, or 0 for a session that is archived no \
                         more",
                    ));
                }
            },
        };
        Ok((archived != at).then_some(SessionArchived { archived }))
    }
}

/// Changes a session. What the request does not name stays as it is; all of it is done or nothing.
pub(crate) async fn change(
    state: &ApiState,
    row: SessionRow,
    request: ChangeRequest,
) -> Result<SessionRow, ApiError> {
    // Some clients send back what they were shown.
    if let Some(rules) = &request.permission
        && *rules != read_session_rules(state, &row.at).await?
    {
        return Err(ApiError::NotOffered(
            "nothing was changed: `permission` is set when a session is created and stays. Leave it out, or create another \
             session",
        ));
    }
    let now = state.clock().now_ms();
    let archived = request.archived(now, row.archived_ms)?;
    let renamed = match request.title {
        None => None,
        Some(asked) => Some(SessionRenamed {
            title: title(Some(&asked)).ok_or_else(|| {
                ApiError::invalid("a title has at least one character that is no space")
            })?,
            by: TitledBy::User,
        }),
    };
    let metadata = request.metadata.map(MetadataRequest::checked).transpose()?;
    let described = metadata
        .filter(|metadata| row.metadata.as_ref() != Some(metadata))
        .map(|metadata| SessionDescribed { metadata });
    let change = SessionEdit { renamed, archived, described };
    if change == SessionEdit::default() {
        return Ok(row);
    }
    let at = row.at;
    let seq = state.store().edit_session(at.org, at.session.clone(), change, now).await?;
    announce(state, &at, seq, false);
    Ok(state.store().session(at.org, at.session).await?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_dialects_archive_and_take_it_back() {
        let said = |body: serde_json::Value, at| {
            let request: ChangeRequest = serde_json::from_value(body).expect("a request");
            request.archived(7, at).map(|said| said.map(|said| said.archived))
        };
        let time = |time: serde_json::Value| json!({ "time": { "archived": time } });
        for (body, at, expected) in [
            (json!({}), Some(3), None),
            (json!({ "time": {} }), Some(3), None),
            (json!({ "archived": true }), None, Some(Some(7))),
            (json!({ "archived": true }), Some(3), None),
            (json!({ "archived": false }), Some(3), Some(None)),
            (json!({ "archived": false }), None, None),
            (time(json!(5)), Some(3), Some(Some(5))),
            (time(json!(5.5)), None, Some(Some(5))),
            (time(json!(3)), Some(3), None),
            (time(json!(0)), Some(3), Some(None)),
            (time(json!(null)), Some(3), Some(None)),
        ] {
            assert_eq!(said(body.clone(), at).expect("good"), expected, "{body}");
        }
        for bad in [
            time(json!(-1)),
            time(json!(1e300)),
            json!({ "archived": true, "time": { "archived": 1 } }),
        ] {
            assert!(said(bad.clone(), None).is_err(), "{bad}");
        }
    }
}
