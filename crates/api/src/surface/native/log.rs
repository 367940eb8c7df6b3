use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use domain::{EventId, Seq, SessionIncarnation};
use http::HeaderMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use store::SessionRow;

use crate::ApiState;
use crate::error::ApiError;
use crate::follow::{LogStream, data_of};
use crate::surface::at::in_project;
use crate::surface::extract::{CanRead, LargeRead, Params};
use crate::surface::paged::Paged;

/// The most events in one answer.
const MAX_EVENTS: i64 = 1_000;

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct LogQuery {
    after: Option<i64>,
    follow: Option<bool>,
    limit: Option<i64>,
}

/// A page of a log, or the stream of one.
pub(crate) struct Log(Response);

impl IntoResponse for Log {
    fn into_response(self) -> Response {
        self.0
    }
}

/// Returns one page of a session's log after a sequence number, or with `follow=true` the whole rest and new events,
/// as server-sent events. `Last-Event-ID` takes precedence over `after`, so that a broken stream resumes by itself.
pub(crate) async fn of_session(
    state: &ApiState,
    access: &CanRead,
    session: SessionRow,
    headers: &HeaderMap,
    query: &LogQuery,
) -> Result<Log, ApiError> {
    let (after, expected, last) = match headers.get("last-event-id") {
        Some(value) => {
            value.to_str().ok().and_then(|text| event_id(text.trim())).ok_or_else(|| {
                ApiError::invalid("`Last-Event-ID` is the id of an event of this stream")
            })?
        }
        None => (query.after.unwrap_or(0), None, None),
    };
    if after < 0 {
        return Err(ApiError::invalid("`after` is a sequence number of the log, 0 or more"));
    }
    let after = Seq(after);
    if query.follow.unwrap_or(false) {
        let share = state.streams().take(access)?;
        let log = LogStream::open(state.hub(), state.store(), session.at, (after, last), expected)
            .await?;
        return Ok(Log(log.into_response(share)));
    }
    let limit = query.limit.unwrap_or(MAX_EVENTS).clamp(1, MAX_EVENTS);
    let events = state.store().events(session.at.org, session.at.session, after, limit).await?;
    let next = events.items.last().filter(|_| events.more).map(|last| last.seq.0.to_string());
    let views = events
        .items
        .iter()
        .map(|event| RawValue::from_string(data_of(event)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(ApiError::internal)?;
    Ok(Log(Paged { items: views, next }.into_response()))
}

/// A position of the log as the id of an event names it.
type Position = (i64, Option<SessionIncarnation>, Option<EventId>);

/// Parses the id of an event: `SEQ.INCARNATION` as the stream writes it, or a bare number. `SEQ.INCARNATION.EVENT`, which
/// also says which event has the number, is what later builds write: no build before this one reads it.
fn event_id(text: &str) -> Option<Position> {
    let mut parts = text.splitn(3, '.');
    let seq = parts.next()?.parse().ok()?;
    let incarnation = parts.next().map(|text| i64::from_str_radix(text, 16)).transpose().ok()?;
    let event = parts.next().map(str::parse).transpose().ok()?;
    Some((seq, incarnation.map(SessionIncarnation), event))
}

pub(crate) async fn show(
    access: CanRead,
    _large: LargeRead,
    State(state): State<ApiState>,
    Path((project, session)): Path<(String, String)>,
    Params(query): Params<LogQuery>,
    headers: HeaderMap,
) -> Result<Log, ApiError> {
    let session = in_project(&state, access.org, &project, &session).await?;
    of_session(&state, &access, session, &headers, &query).await
}
