//! Creates, renames, deletes and finds sessions.

use std::sync::Arc;

use domain::{IdMint, OrgId, SessionCreated, SessionId, SessionRenamed, Stamp, TitledBy};
use serde::Deserialize;
use store::{Creation, LocationRow, MAX_CHILDREN, MAX_DEPTH, NewSession, SessionRow, StoreError};

use super::announce::announce;
use super::choice::{ModelRequest, agent, has_model};
use crate::ApiState;
use crate::error::ApiError;
use crate::homes::Home;
use crate::text::{id, plain};

const MAX_TITLE_CHARS: usize = 200;

/// A request for a new session.
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

/// Makes a session. A retry with the same id and Location returns the existing one.
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
    let default = state.settings().default_model.get();
    let model = request.model.map(|model| model.parse(&default.provider)).transpose()?;
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

/// Returns a title as it is stored, or `None` if it is blank.
fn title(title: Option<&str>) -> Option<String> {
    let title = plain(title?);
    let title: String = title.trim().chars().take(MAX_TITLE_CHARS).collect();
    Some(title).filter(|title| !title.is_empty())
}

/// Returns the name of a session that has no title yet.
pub(crate) fn untitled(now: domain::TimestampMs) -> String {
    let at = jiff::Timestamp::from_millisecond(now);
    let at = at.map_or_else(|_| now.to_string(), |at| format!("{at:.3}"));
    format!("New session - {at}")
}

/// Returns the last known home of a session. Only use it if the next statement would notice that it is stale.
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

/// Reads the current home of a session from the store.
pub(crate) async fn relearn(
    state: &ApiState,
    org: OrgId,
    session: &SessionId,
) -> Result<Arc<Home>, ApiError> {
    let row = state.store().session(org, session.clone()).await?;
    Ok(state.homes().remember(row))
}

/// A change of a session. Fields of stock clients that mean nothing here are ignored.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ChangeRequest {
    title: Option<String>,
}

/// Sets a session's title. Without a title in the request, nothing changes.
pub(crate) async fn rename(
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

/// Deletes a session and its descendants. That fences their drains; an interrupt tells their workers.
pub(crate) async fn delete_session(state: &ApiState, row: SessionRow) -> Result<(), ApiError> {
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
