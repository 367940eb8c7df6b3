use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::{SessionFilter, SessionRow, SessionsOf};

use super::place::Named;
use crate::ApiState;
use crate::act::{NewSessionRequest, create, interrupt, location_of};
use crate::error::ApiError;
use crate::surface::dialect::Dialect;
use crate::surface::extract::{Body, CanPrompt, CanRead, LargeRead, Params};
use crate::surface::limit::MAX_SESSIONS;
use crate::surface::listed::sought;
use crate::text::id;
use crate::view::SessionView;

/// The most busy sessions in one answer.
const MAX_BUSY: i64 = 1_000;

#[derive(Debug, Deserialize)]
pub(crate) struct ListQuery {
    limit: Option<i64>,
    search: Option<String>,
    start: Option<i64>,
    cursor: Option<i64>,
    roots: Option<bool>,
    archived: Option<bool>,
    /// With it, or with a `path`, the list is the directory's project's.
    scope: Option<Scope>,
    /// A directory below that of the project, relative to it; empty for all.
    path: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    Project,
}

/// Returns the sessions that a query selects, newest first: of the named directory, or of all. A directory that does
/// not exist has none.
async fn listed(
    state: &ApiState,
    access: CanRead,
    named: &Named,
    query: ListQuery,
) -> Result<Vec<SessionRow>, ApiError> {
    let (of, below) = match named.filter(state.settings()).await {
        Ok(None) => (SessionsOf::Organisation, None),
        Ok(Some(directory)) => of(state, access.clone(), directory, &query).await?,
        Err(ApiError::Invalid(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let filter = SessionFilter {
        of,
        below,
        with_archived: query.archived.unwrap_or(false),
        only_roots: query.roots.unwrap_or(false),
        updated_from: query.start,
        updated_before: query.cursor,
        title: sought(query.search)?,
        ..SessionFilter::default()
    };
    let limit = query.limit.unwrap_or(100).clamp(1, MAX_SESSIONS);
    Ok(state.store().sessions(access.org, filter, limit).await?.rows)
}

/// Returns whose sessions a query is about that names a directory, and the directory that they work below.
async fn of(
    state: &ApiState,
    access: CanRead,
    directory: String,
    query: &ListQuery,
) -> Result<(SessionsOf, Option<String>), ApiError> {
    if query.scope.is_none() && query.path.is_none() {
        return Ok((SessionsOf::Directory(directory), None));
    }
    let path = query.path.as_deref().map(|path| path.trim_matches('/')).unwrap_or_default();
    let below = (!path.is_empty()).then(|| format!("{directory}/{path}"));
    let projects = state.store().projects(access.org).await?;
    let project = projects.into_iter().find(|project| project.worktree == directory);
    let of = project.map_or(SessionsOf::Directory(directory), |its| SessionsOf::Project(its.id));
    Ok((of, below))
}

pub(crate) async fn list(
    access: CanRead,
    _large: LargeRead,
    dialect: Dialect,
    State(state): State<ApiState>,
    named: Named,
    Params(query): Params<ListQuery>,
) -> Result<Json<Vec<SessionView>>, ApiError> {
    // The released server leaves nothing out here: its clients do, by `time.archived`.
    let query = ListQuery { archived: Some(true), ..query };
    let rows = listed(&state, access, &named, query).await?;
    dialect.sessions(&state, rows).await
}

/// A session with its project, for clients that list several projects.
#[derive(Debug, Serialize)]
pub(crate) struct WithProject {
    #[serde(flatten)]
    session: SessionView,
    project: ProjectSummary,
}

#[derive(Debug, Serialize)]
struct ProjectSummary {
    id: String,
    worktree: String,
}

pub(crate) async fn list_with_projects(
    access: CanRead,
    _large: LargeRead,
    dialect: Dialect,
    State(state): State<ApiState>,
    named: Named,
    Params(query): Params<ListQuery>,
) -> Result<Json<Vec<WithProject>>, ApiError> {
    let rows = listed(&state, access, &named, query).await?;
    let Json(sessions) = dialect.sessions(&state, rows).await?;
    let with = |session: SessionView| WithProject {
        project: ProjectSummary {
            id: session.project_id.clone(),
            worktree: session.directory.clone(),
        },
        session,
    };
    Ok(Json(sessions.into_iter().map(with).collect()))
}

pub(crate) async fn create_route(
    access: CanPrompt,
    dialect: Dialect,
    State(state): State<ApiState>,
    named: Named,
    Body(mut request): Body<NewSessionRequest>,
) -> Result<Json<SessionView>, ApiError> {
    if request.sent.is_some() {
        return Err(ApiError::NotOffered(
            "a session that begins with what was sent is made at `/project/{project}/session`",
        ));
    }
    let named = Named(named.0.or_else(|| request.directory.clone()));
    let workspace = named.or_default(state.settings()).await?;
    let now = state.clock().now_ms();
    let session = request.session(now)?;
    let project =
        state.store().ensure_project(access.org, workspace.directory.clone(), now).await?;
    let location =
        location_of(state.store(), access.org, &project, workspace, &session, now).await?;
    let row = create(&state, &access, &location, request).await?;
    dialect.session(&state, row).await
}

/// Interrupts a session. Answers `true` even if there was nothing to interrupt, as stock clients expect.
pub(crate) async fn abort(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(session): Path<String>,
) -> Result<Json<bool>, ApiError> {
    interrupt(&state, &access, id(&session)?).await?;
    Ok(Json(true))
}

/// Lists the busy sessions.
pub(crate) async fn status(
    access: CanRead,
    State(state): State<ApiState>,
) -> Result<Json<Value>, ApiError> {
    let heads = state.store().org_heads(access.org, 0, MAX_BUSY).await?;
    let busy: Map<String, Value> = heads
        .into_iter()
        .filter(|head| head.busy)
        .map(|head| (head.session.session.into(), json!({ "type": "busy" })))
        .collect();
    Ok(Json(Value::Object(busy)))
}
