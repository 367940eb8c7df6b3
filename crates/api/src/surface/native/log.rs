use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use domain::{Seq, SessionIncarnation};
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
    session: SessionRow,
    headers: &HeaderMap,
    query: &LogQuery,
) -> Result<Log, ApiError> {
    let (after, expected) = match headers.get("last-event-id") {
        Some(value) => {
            value.to_str().ok().and_then(|text| event_id(text.trim())).ok_or_else(|| {
                ApiError::invalid("`Last-Event-ID` is the id of an event of this stream")
            })?
        }
        None => (query.after.unwrap_or(0), None),
    };
    if after < 0 {
        return Err(ApiError::invalid("`after` is a sequence number of the log, 0 or more"));
    }
    let after = Seq(after);
    if query.follow.unwrap_or(false) {
        let share = state.streams().take(session.at.org.to_string())?;
        let log = LogStream::open(state.hub(), state.store(), session.at, after, expected).await?;
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

/// Parses an event id: `SEQ.INCARNATION` as the stream writes it, or a bare number.
fn event_id(text: &str) -> Option<(i64, Option<SessionIncarnation>)> {
    match text.split_once('.') {
        Some((seq, incarnation)) => {
            let incarnation = i64::from_str_radix(incarnation, 16).ok()?;
            Some((seq.parse().ok()?, Some(SessionIncarnation(incarnation))))
        }
        None => Some((text.parse().ok()?, None)),
    }
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
    of_session(&state, session, &headers, &query).await
}
