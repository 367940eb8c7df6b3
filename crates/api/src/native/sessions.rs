use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use domain::{IdMint, OrgId, ProjectId, SessionCreated, SessionId, SessionRef, Stamp};
use serde::{Deserialize, Serialize};
use store::{Interrupted, LocationRow, NewSession, SessionRow};

use super::admit::{ModelRequest, plain};
use crate::ApiState;
use crate::error::ApiError;
use crate::extract::{Body, CanPrompt, CanRead, Params, id};
use crate::homes::Home;
use crate::resolve::workspace;
use crate::view::SessionView;

const MAX_TITLE_CHARS: usize = 200;
const MAX_AGENT_CHARS: usize = 64;
/// Sessions in one answer.
pub(crate) const MAX_SESSIONS: i64 = 1_000;

/// What a new session is to be.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct NewSessionRequest {
    pub(crate) id: Option<String>,
    #[serde(rename = "parentID")]
    pub(crate) parent_id: Option<String>,
    pub(crate) directory: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) model: Option<ModelRequest>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Limit {
    pub(crate) limit: Option<i64>,
}

impl Limit {
    /// At least 1, at most `most`.
    pub(crate) fn within(&self, usual: i64, most: i64) -> i64 {
        self.limit.unwrap_or(usual).clamp(1, most)
    }
}

/// Makes a session, or finds it when its id is there at the same Location.
pub(crate) async fn create(
    state: &ApiState,
    org: OrgId,
    location: &LocationRow,
    request: NewSessionRequest,
) -> Result<SessionRow, ApiError> {
    if request.parent_id.is_some() {
        return Err(ApiError::invalid(
            "child sessions are not supported yet; leave out `parentID`",
        ));
    }
    let now = state.clock().now_ms();
    let session: SessionId = match request.id.as_deref() {
        Some(text) => id(text)?,
        None => SessionId::mint(&mut IdMint::after(Stamp::default(), now)),
    };
    let chosen = request.title.as_deref().map(plain).filter(|title| !title.is_empty());
    let named = chosen.is_some();
    let title = match chosen {
        Some(title) => title.chars().take(MAX_TITLE_CHARS).collect(),
        None => format!("New session - {}", rfc3339(now)),
    };
    let agent = agent(request.agent)?.unwrap_or_else(|| state.settings().default_agent.clone());
    let provider = &state.settings().default_model.provider;
    let created = SessionCreated {
        project: location.project.clone(),
        location: location.id.clone(),
        directory: location.directory.clone(),
        title,
        agent,
        model: request.model.map(|model| model.parse(provider)).transpose()?,
        parent: None,
        named,
    };
    let new = NewSession { id: session.clone(), created, now };
    state.store().create_session(org, new).await?;
    let row = state.store().session(org, session).await?;
    state.feeds().touch(&row.at);
    Ok(row)
}

/// An agent's name, if it is one.
pub(crate) fn agent(agent: Option<String>) -> Result<Option<String>, ApiError> {
    let Some(agent) = agent.filter(|agent| !agent.is_empty()) else { return Ok(None) };
    if agent.chars().count() > MAX_AGENT_CHARS || agent.chars().any(char::is_control) {
        return Err(ApiError::Invalid(format!(
            "an agent's name has at most {MAX_AGENT_CHARS} characters and no control characters"
        )));
    }
    Ok(Some(agent))
}

fn rfc3339(now: domain::TimestampMs) -> String {
    jiff::Timestamp::from_millisecond(now).map_or_else(|_| now.to_string(), |at| format!("{at:.3}"))
}

/// The session, if it belongs to the project that the path names.
pub(super) async fn in_project(
    state: &ApiState,
    org: OrgId,
    project: &str,
    session: &str,
) -> Result<SessionRow, ApiError> {
    let (project, session): (ProjectId, SessionId) = (id(project)?, id(session)?);
    let row = state.store().session(org, session).await?;
    if row.project == project { Ok(row) } else { Err(ApiError::NotFound("session was")) }
}

/// Where a session is, as far as is known here: only for what the next statement would find out.
pub(crate) async fn home(
    state: &ApiState,
    org: OrgId,
    session: &SessionId,
) -> Result<Arc<Home>, ApiError> {
    match state.homes().of(org, session) {
        Some(home) => Ok(home),
        None => relearn(state, org, session).await,
    }
}

/// Where a session is now.
pub(crate) async fn relearn(
    state: &ApiState,
    org: OrgId,
    session: &SessionId,
) -> Result<Arc<Home>, ApiError> {
    let row = state.store().session(org, session.clone()).await?;
    Ok(state.homes().remember(row))
}

pub(super) async fn list(
    access: CanRead,
    State(state): State<ApiState>,
    Path(project): Path<String>,
    Params(limit): Params<Limit>,
) -> Result<Json<Vec<SessionView>>, ApiError> {
    let project = state.store().project(access.org, id(&project)?).await?;
    let limit = limit.within(100, MAX_SESSIONS);
    let rows = state.store().sessions(access.org, Some(project.id), limit).await?;
    let version = &state.settings().version;
    Ok(Json(rows.into_iter().map(|row| SessionView::native(row, version)).collect()))
}

pub(super) async fn create_route(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(project): Path<String>,
    Body(request): Body<NewSessionRequest>,
) -> Result<Json<SessionView>, ApiError> {
    let project = state.store().project(access.org, id(&project)?).await?;
    let directory = request.directory.as_deref().unwrap_or(&project.worktree);
    let place = workspace(state.settings(), Some(directory)).await?;
    let now = state.clock().now_ms();
    let location = state
        .store()
        .ensure_location(access.org, project.id, place.kind, place.directory, now)
        .await?;
    let row = create(&state, access.org, &location, request).await?;
    Ok(Json(SessionView::native(row, &state.settings().version)))
}

pub(super) async fn show(
    access: CanRead,
    State(state): State<ApiState>,
    Path((project, session)): Path<(String, String)>,
) -> Result<Json<SessionView>, ApiError> {
    let row = in_project(&state, access.org, &project, &session).await?;
    Ok(Json(SessionView::native(row, &state.settings().version)))
}

/// Deletes the session; a drain that has it is fenced by that, and told so.
pub(crate) async fn delete_session(state: &ApiState, row: SessionRow) -> Result<(), ApiError> {
    state.store().delete_session(row.at.org, row.at.session.clone()).await?;
    state.homes().forget(row.at.org, &row.at.session);
    state.hub().forget(&row.at);
    state.waker().interrupt(row.at);
    Ok(())
}

pub(super) async fn remove(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path((project, session)): Path<(String, String)>,
) -> Result<Json<bool>, ApiError> {
    let row = in_project(&state, access.org, &project, &session).await?;
    delete_session(&state, row).await?;
    Ok(Json(true))
}

/// What an interrupt did.
#[derive(Debug, Serialize)]
pub(crate) struct InterruptedView {
    /// Whether there was something to interrupt.
    pub(crate) interrupted: bool,
}

/// Makes an interrupt durable, then hints at it.
pub(crate) async fn interrupt(
    state: &ApiState,
    org: OrgId,
    session: SessionId,
) -> Result<InterruptedView, ApiError> {
    let now = state.clock().now_ms();
    match state.store().interrupt(org, session.clone(), now).await? {
        Interrupted::Applied { seq, location } => {
            let at = SessionRef { org, location, session };
            state.waker().interrupt(at.clone());
            state.waker().committed(&at, seq);
            state.feeds().touch(&at);
            Ok(InterruptedView { interrupted: true })
        }
        Interrupted::Idle => Ok(InterruptedView { interrupted: false }),
    }
}

pub(super) async fn abort(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path((project, session)): Path<(String, String)>,
) -> Result<Json<InterruptedView>, ApiError> {
    let row = in_project(&state, access.org, &project, &session).await?;
    Ok(Json(interrupt(&state, access.org, row.at.session).await?))
}
