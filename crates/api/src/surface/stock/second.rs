//! Sessions in the second API of stock clients, under `/api/session`.

use axum::Json;
use axum::extract::{Path, State};
use domain::ProjectId;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{SessionFilter, SessionsOf};

use crate::ApiState;
use crate::act::{interrupt, workspace};
use crate::error::ApiError;
use crate::surface::extract::{CanPrompt, CanRead, LargeRead, Params};
use crate::surface::limit::MAX_SESSIONS;
use crate::surface::listed::{after, cursor, sought};
use crate::text::id;
use crate::view::second_session;

#[derive(Debug, Deserialize)]
pub(crate) struct Query {
    limit: Option<i64>,
    order: Option<Order>,
    search: Option<String>,
    directory: Option<String>,
    project: Option<String>,
    /// A directory below that of the project, relative to it.
    subpath: Option<String>,
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
    _large: LargeRead,
    State(state): State<ApiState>,
    Params(query): Params<Query>,
) -> Result<Json<Value>, ApiError> {
    if query.order == Some(Order::Asc) {
        return Err(ApiError::NotOffered(
            "sessions are listed newest first: leave `order` out, or say `desc`",
        ));
    }
    let project = query.project.as_deref().map(id::<ProjectId>).transpose()?;
    let directory = match query.directory {
        Some(named) => Some(workspace(state.settings(), Some(&named)).await?.directory),
        None => None,
    };
    let below = match (query.subpath.as_deref().map(|path| path.trim_matches('/')), &project) {
        (None | Some(""), _) => None,
        (Some(path), Some(project)) => {
            let project = state.store().project(access.org, project.clone()).await?;
            Some(format!("{}/{path}", project.worktree))
        }
        (Some(_), None) => {
            return Err(ApiError::invalid("`subpath` is below a project: say `project` too"));
        }
    };
    let filter = SessionFilter {
        of: match (directory, project.clone()) {
            (Some(directory), _) => SessionsOf::Directory(directory),
            (None, Some(project)) => SessionsOf::Project(project),
            (None, None) => SessionsOf::Organisation,
        },
        project,
        below,
        with_archived: true,
        title: sought(query.search)?,
        after: query.cursor.as_deref().map(after).transpose()?,
        ..SessionFilter::default()
    };
    let limit = query.limit.unwrap_or(50).clamp(1, MAX_SESSIONS);
    let page = state.store().sessions(access.org, filter, limit).await?;
    let cursor = page.next.map_or_else(|| json!({}), |next| json!({ "next": cursor(&next) }));
    let data: Vec<Value> = page.rows.iter().map(second_session).collect();
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
    interrupt(&state, &access, id(&session)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
