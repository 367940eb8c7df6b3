//! Sessions made, renamed, deleted, and found.

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

/// A title as it is kept, if it says something.
fn title(title: Option<&str>) -> Option<String> {
    let title = plain(title?);
    let title: String = title.trim().chars().take(MAX_TITLE_CHARS).collect();
    Some(title).filter(|title| !title.is_empty())
}

/// What a session is called until it has a title.
pub(crate) fn untitled(now: domain::TimestampMs) -> String {
    let at = jiff::Timestamp::from_millisecond(now);
    let at = at.map_or_else(|_| now.to_string(), |at| format!("{at:.3}"));
    format!("New session - {at}")
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

/// What is to change of a session. Other changes that stock clients know mean nothing here.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ChangeRequest {
    title: Option<String>,
}

/// Gives a session the title that is asked for; without one, it stays as it is.
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

/// Deletes the session and all below it; drains that have them are fenced by that, and told so.
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
