use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use domain::{
    IdMint, ModelRef, OrgId, ProjectId, Seq, SessionCreated, SessionError, SessionId, SessionRef,
    SessionRenamed, Stamp, TitledBy,
};
use serde::{Deserialize, Serialize};
use session_rules::Agents;
use store::{
    Creation, Interrupted, LocationRow, MAX_CHILDREN, MAX_DEPTH, NewSession, SessionRow, StoreError,
};

use super::admit::{ModelRequest, plain};
use super::at::{At, announce};
use crate::ApiState;
use crate::dialect::Dialect;
use crate::error::ApiError;
use crate::extract::{Body, CanPrompt, CanRead, Params, id, shown};
use crate::homes::Home;
use crate::models::shown as shown_models;
use crate::resolve::workspace;
use crate::view::SessionView;

const MAX_TITLE_CHARS: usize = 200;
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
    let now = state.clock().now_ms();
    let session: SessionId = match request.id.as_deref() {
        Some(text) => id(text)?,
        None => SessionId::mint(&mut IdMint::after(Stamp::default(), now)),
    };
    let named = title(request.title.as_deref());
    let parent = request.parent_id.as_deref().map(id::<SessionId>).transpose()?;
    let agent = agent(state.agents(), request.agent)?;
    let provider = &state.settings().default_model.provider;
    let model = request.model.map(|model| model.parse(provider)).transpose()?;
    has_model(state, org, model.as_ref()).await?;
    let created = SessionCreated {
        project: location.project.clone(),
        location: location.id.clone(),
        directory: location.directory.clone(),
        named: named.is_some(),
        title: named.unwrap_or_else(|| untitled(now)),
        agent: agent.unwrap_or_else(|| state.settings().default_agent.clone()),
        model,
        parent,
    };
    let new = NewSession { id: session.clone(), created, now };
    match state.store().create_session(org, new).await? {
        Creation::Created | Creation::Exists => {}
        Creation::Orphan => return Err(ApiError::NotFound("the parent session was")),
        Creation::TooDeep => {
            return Err(ApiError::Conflict(format!(
                "sessions have at most {MAX_DEPTH} generations below their root"
            )));
        }
        Creation::TooMany => {
            return Err(ApiError::Conflict(format!(
                "a session has at most {MAX_CHILDREN} children; delete one"
            )));
        }
    }
    let row = state.store().session(org, session).await?;
    state.feeds().touch(&row.at);
    Ok(row)
}

/// Refuses a model that the simulated provider does not have: it answers for itself only, whatever name it is asked by.
/// Real providers know their models better than a gateway does, so a turn asks them.
pub(super) async fn has_model(
    state: &ApiState,
    org: OrgId,
    model: Option<&ModelRef>,
) -> Result<(), ApiError> {
    let own = &state.settings().default_model;
    let Some(model) = model.filter(|model| model.provider == own.provider) else { return Ok(()) };
    if !state.settings().simulated || model.model == own.model {
        return Ok(());
    }
    // An organisation may have given it other names.
    let listed = shown_models(state, org).await?;
    let mut known = listed.providers.iter().filter(|provider| provider.entry.id == own.provider);
    if known.any(|provider| provider.entry.models.contains_key(&model.model)) {
        return Ok(());
    }
    let (provider, asked, known) = (&own.provider, &model.model, &own.model);
    let message = format!(
        "there is no model `{provider}/{}`; did you mean `{provider}/{known}`?",
        shown(asked)
    );
    Err(ApiError::NoSuch(SessionError { code: "model.unknown".into(), message }))
}

/// A title as it is kept, if it says something.
fn title(title: Option<&str>) -> Option<String> {
    let title = plain(title?);
    let title: String = title.trim().chars().take(MAX_TITLE_CHARS).collect();
    Some(title).filter(|title| !title.is_empty())
}

/// An agent's name, if there is such an agent.
pub(super) fn agent(agents: &Agents, asked: Option<String>) -> Result<Option<String>, ApiError> {
    let Some(name) = asked.filter(|name| !name.is_empty()) else { return Ok(None) };
    match agents.get(&name) {
        Ok(agent) => Ok(Some(agent.name.clone())),
        Err(SessionError { code, .. }) => {
            let known: Vec<_> = agents.iter().map(|agent| format!("`{}`", agent.name)).collect();
            let (name, known) = (shown(&name), known.join(", "));
            let message = format!("there is no agent `{name}`: choose one of {known}");
            Err(ApiError::NoSuch(SessionError { code, message }))
        }
    }
}

/// What a session is called until it has a title.
pub(super) fn untitled(now: domain::TimestampMs) -> String {
    let at = jiff::Timestamp::from_millisecond(now);
    let at = at.map_or_else(|_| now.to_string(), |at| format!("{at:.3}"));
    format!("New session - {at}")
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
    dialect: Dialect,
    State(state): State<ApiState>,
    Path(project): Path<String>,
    Params(limit): Params<Limit>,
) -> Result<Json<Vec<SessionView>>, ApiError> {
    let project = state.store().project(access.org, id(&project)?).await?;
    let limit = limit.within(100, MAX_SESSIONS);
    let rows = state.store().sessions(access.org, Some(project.id), limit).await?;
    dialect.sessions(&state, rows).await
}

pub(super) async fn create_route(
    access: CanPrompt,
    dialect: Dialect,
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
    dialect.session(&state, row).await
}

pub(crate) async fn show(
    access: CanRead,
    dialect: Dialect,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<Json<SessionView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    dialect.session(&state, row).await
}

/// What is to change of a session. Other changes that stock clients know mean nothing here.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ChangeRequest {
    title: Option<String>,
}

/// Gives a session the title that is asked for; without one, it stays as it is.
async fn rename(
    state: &ApiState,
    row: SessionRow,
    request: ChangeRequest,
) -> Result<SessionRow, ApiError> {
    let Some(asked) = request.title else { return Ok(row) };
    let Some(title) = title(Some(&asked)) else {
        return Err(ApiError::invalid("a title has at least one character that is no space"));
    };
    let (at, now) = (row.at, state.clock().now_ms());
    let renamed = SessionRenamed { title, by: TitledBy::User };
    let seq = state.store().rename_session(at.org, at.session.clone(), renamed, now).await?;
    announce(state, &at, seq, false);
    Ok(state.store().session(at.org, at.session).await?)
}

pub(crate) async fn change(
    access: CanPrompt,
    dialect: Dialect,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Body(request): Body<ChangeRequest>,
) -> Result<Json<SessionView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let row = rename(&state, row, request).await?;
    dialect.session(&state, row).await
}

/// Deletes the session and all below it; drains that have them are fenced by that, and told so.
async fn delete_session(state: &ApiState, row: SessionRow) -> Result<(), ApiError> {
    let tree = state.store().session_tree(row.at.org, row.at.session.clone()).await?;
    match state.store().delete_session(row.at.org, row.at.session).await {
        Err(StoreError::Conflict { .. }) => {
            return Err(ApiError::Unavailable {
                message: "the session is being given children; ask again",
                cause: None,
            });
        }
        other => other?,
    }
    for at in tree {
        state.homes().forget(at.org, &at.session);
        state.hub().forget(&at);
        state.waker().interrupt(at);
    }
    Ok(())
}

pub(crate) async fn remove(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<Json<bool>, ApiError> {
    let row = at.find(&state, access.org).await?;
    delete_session(&state, row).await?;
    Ok(Json(true))
}

/// Whether what steers goes on after an interrupt.
#[derive(Debug, Default, Deserialize)]
pub(super) struct AbortRequest {
    resume: Option<bool>,
}

/// What an interrupt did.
#[derive(Debug, Serialize)]
pub(crate) struct InterruptedView {
    /// Whether there was something to interrupt.
    pub(crate) interrupted: bool,
    /// Whether something goes on, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    resumed: Option<bool>,
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
            interrupted(state, &SessionRef { org, location, session }, seq);
            Ok(InterruptedView { interrupted: true, resumed: None })
        }
        Interrupted::Idle => Ok(InterruptedView { interrupted: false, resumed: None }),
    }
}

fn interrupted(state: &ApiState, at: &SessionRef, seq: Seq) {
    state.waker().interrupt(at.clone());
    state.waker().committed(at, seq);
    state.feeds().touch(at);
}

/// Interrupts as asked; with `resume`, what steers the session goes on, and a control that is next.
pub(super) async fn aborted(
    state: &ApiState,
    org: OrgId,
    session: SessionId,
    request: &AbortRequest,
) -> Result<InterruptedView, ApiError> {
    if !request.resume.unwrap_or(false) {
        return interrupt(state, org, session).await;
    }
    let now = state.clock().now_ms();
    let done = state.store().interrupt_and_resume(org, session.clone(), now).await?;
    let at = SessionRef { org, location: done.location, session };
    if let Some(seq) = done.interrupt {
        interrupted(state, &at, seq);
    }
    if let Some(seq) = done.wake {
        announce(state, &at, seq, true);
    }
    Ok(InterruptedView {
        interrupted: done.interrupt.is_some(),
        resumed: Some(done.wake.is_some()),
    })
}

pub(super) async fn abort(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path((project, session)): Path<(String, String)>,
    Body(request): Body<AbortRequest>,
) -> Result<Json<InterruptedView>, ApiError> {
    let row = in_project(&state, access.org, &project, &session).await?;
    Ok(Json(aborted(&state, access.org, row.at.session, &request).await?))
}
