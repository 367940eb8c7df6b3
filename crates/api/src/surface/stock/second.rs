//! Sessions in the second API of stock clients, under `/api/session`.

use axum::Json;
use axum::extract::{Path, State};
use domain::SessionId;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{SessionFilter, SessionRow, SessionsOf};

use crate::ApiState;
use crate::act::{interrupt, workspace};
use crate::error::ApiError;
use crate::surface::extract::{CanPrompt, CanRead, Params};
use crate::surface::limit::MAX_SESSIONS;
use crate::text::id;
use crate::view::second_session;

#[derive(Debug, Deserialize)]
pub(crate) struct Query {
    limit: Option<i64>,
    order: Option<Order>,
    search: Option<String>,
    directory: Option<String>,
    project: Option<String>,
    cursor: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    Asc,
    Desc,
}

/// Lists sessions, newest first, a page at a time.
pub(crate) async fn list(
    access: CanRead,
    State(state): State<ApiState>,
    Params(query): Params<Query>,
) -> Result<Json<Value>, ApiError> {
    if query.order == Some(Order::Asc) {
        return Err(ApiError::NotOffered(
            "sessions are listed newest first: leave `order` out, or say `desc`",
        ));
    }
    let of = match (query.project, query.directory) {
        (Some(project), _) => SessionsOf::Project(id(&project)?),
        (None, Some(directory)) => {
            SessionsOf::Directory(workspace(state.settings(), Some(&directory)).await?.directory)
        }
        (None, None) => SessionsOf::Organisation,
    };
    let title = query.search.filter(|text| !text.is_empty());
    let after = query.cursor.as_deref().map(after).transpose()?;
    let filter = SessionFilter { of, title, after, ..SessionFilter::default() };
    let limit = query.limit.unwrap_or(50).clamp(1, MAX_SESSIONS);
    let rows = state.store().sessions(access.org, filter, limit).await?;
    let is_full = i64::try_from(rows.len()).is_ok_and(|count| count == limit);
    let next = rows.last().filter(|_| is_full).map(cursor);
    let cursor = next.map_or_else(|| json!({}), |next| json!({ "next": next }));
    let data: Vec<Value> = rows.iter().map(second_session).collect();
    Ok(Json(json!({ "data": data, "cursor": cursor })))
}

pub(crate) async fn show(
    access: CanRead,
    State(state): State<ApiState>,
    Path(session): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let row = state.store().session(access.org, id(&session)?).await?;
    Ok(Json(json!({ "data": second_session(&row) })))
}

pub(crate) async fn interrupt_route(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(session): Path<String>,
) -> Result<StatusCode, ApiError> {
    interrupt(&state, access.org, id(&session)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn cursor(row: &SessionRow) -> String {
    format!("{}.{}", row.created_ms, row.at.session)
}

fn after(cursor: &str) -> Result<(i64, SessionId), ApiError> {
    let parsed =
        cursor.split_once('.').and_then(|(time, id)| Some((time.parse().ok()?, id.parse().ok()?)));
    parsed.ok_or_else(|| {
        ApiError::invalid("`cursor` is not one that a list gave: leave it out to begin anew")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_others_are_refused() {
        let (time, session) = after("17.ses_a").expect("a cursor");
        assert_eq!((time, session.as_str()), (17, "ses_a"));
        for bad in ["", "17", "x.ses_a", "17.msg_a"] {
            assert!(after(bad).is_err(), "{bad}");
        }
    }
}
