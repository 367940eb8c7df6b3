//! Creates, deletes and finds sessions.

use std::sync::Arc;

use domain::{
    IdMint, OrgId, Seq, SessionCreated, SessionEvent, SessionId, SessionRef, Stamp, TimestampMs,
    ToolRule,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use store::{
    Creation, LocationRow, MAX_CHILDREN, MAX_DEPTH, NewSession, SessionRow, SettingsOf, StoreError,
};

use super::choice::{ModelRequest, agent, has_model};
use super::effective::settings_in;
use super::metadata::MetadataRequest;
use super::sent::SentRequest;
use crate::ApiState;
use crate::error::ApiError;
use crate::homes::Home;
use crate::principal::Principal;
use crate::text::{id, plain};

const MAX_TITLE_CHARS: usize = 200;
/// The most rules of a session.
const MAX_RULES: usize = 200;
/// The most bytes of their texts.
const MAX_RULE_BYTES: usize = 32 * 1024;

/// A request for a new session.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct NewSessionRequest {
    pub(crate) id: Option<String>,
    #[serde(rename = "parentID")]
    pub(crate) parent_id: Option<String>,
    pub(crate) directory: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) model: Option<ModelRequest>,
    pub(crate) permission: Option<Vec<ToolRule>>,
    pub(crate) metadata: Option<MetadataRequest>,
    /// The state of a repository on the caller's machine, to begin with.
    pub(crate) sent: Option<SentRequest>,
    #[serde(rename = "workspaceID")]
    #[schemars(skip)]
    pub(crate) workspace_id: Option<Value>,
}

impl NewSessionRequest {
    /// Returns the id of the session, chosen now if the client has chosen none.
    pub(crate) fn session(&mut self, now: TimestampMs) -> Result<SessionId, ApiError> {
        if let Some(text) = self.id.as_deref() {
            return id(text);
        }
        let session = SessionId::mint(&mut IdMint::after(Stamp::default(), now));
        self.id = Some(session.to_string());
        Ok(session)
    }
}

/// Makes a session. A retry with the same id and Location returns the existing one.
pub(crate) async fn create(
    state: &ApiState,
    principal: &Principal,
    location: &LocationRow,
    request: NewSessionRequest,
) -> Result<SessionRow, ApiError> {
    let (org, now) = (principal.org, state.clock().now_ms());
    let session: SessionId = match request.id.as_deref() {
        Some(text) => id(text)?,
        None => SessionId::mint(&mut IdMint::after(Stamp::default(), now)),
    };
    let named = title(request.title.as_deref());
    let parent = request.parent_id.as_deref().map(id::<SessionId>).transpose()?;
    let of = SettingsOf::Location(location.id.clone());
    let settings = settings_in(state, org, of, &location.directory).await?;
    let agent = agent(&settings, request.agent)?;
    let default = state.settings().default_model.get();
    let model = request.model.map(|model| model.parse(&default.provider)).transpose()?;
    let of_agent = agent.as_deref().and_then(|name| settings.agent(name)?.model.clone());
    let model = model.or(of_agent);
    has_model(state, org, model.as_ref()).await?;
    if request.workspace_id.is_some() {
        return Err(ApiError::NotOffered(
            "this service has no workspaces of clients: leave `workspaceID` out, and name a `directory`",
        ));
    }
    let metadata = request.metadata.map(MetadataRequest::checked).transpose()?;
    let rules = checked(request.permission.unwrap_or_default())?;
    let created = SessionCreated {
        project: location.project.clone(),
        location: location.id.clone(),
        directory: location.directory.clone(),
        named: named.is_some(),
        rules: rules.clone(),
        metadata,
        title: named.unwrap_or_else(|| untitled(now)),
        agent: agent.unwrap_or(settings.default_agent),
        model,
        parent,
        by: Some(principal.author.clone()),
    };
    let new = NewSession { id: session.clone(), created, now };
    match state.store().create_session(org, new).await? {
        Creation::Created => {}
        Creation::Exists => {
            let at = SessionRef { org, location: location.id.clone(), session: session.clone() };
            if read_session_rules(state, &at).await? != rules {
                let message =
                    "a session with this id exists and has another `permission`; choose another id";
                return Err(ApiError::Conflict(message.to_owned()));
            }
        }
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

/// Checks that rules are few and short.
fn checked(rules: Vec<ToolRule>) -> Result<Vec<ToolRule>, ApiError> {
    let bytes: usize = rules.iter().map(|rule| rule.permission.len() + rule.pattern.len()).sum();
    if rules.len() > MAX_RULES || bytes > MAX_RULE_BYTES {
        return Err(ApiError::Invalid(format!(
            "`permission` has at most {MAX_RULES} rules and {MAX_RULE_BYTES} bytes; send fewer, or shorter patterns"
        )));
    }
    Ok(rules)
}

/// Returns a session's rules about tool calls, which never change.
pub(crate) async fn read_session_rules(
    state: &ApiState,
    at: &SessionRef,
) -> Result<Vec<ToolRule>, ApiError> {
    let first = state.store().events(at.org, at.session.clone(), Seq(0), 1).await?.items;
    Ok(match first.into_iter().next().map(|first| first.event) {
        Some(SessionEvent::SessionCreated(created)) => created.rules,
        Some(_) | None => Vec::new(),
    })
}

/// Returns a title as it is stored, or `None` if it is blank.
pub(super) fn title(title: Option<&str>) -> Option<String> {
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
