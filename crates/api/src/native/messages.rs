use axum::Json;
use axum::extract::{Path, State};
use domain::{OrgId, ProjectId, PromptPart, SessionId};
use serde::Serialize;
use store::{AdmittedPrompt, MessageRow, PartRow, SessionRow};

use super::admit::{AdmitRequest, admit};
use super::sessions::{Limit, home, in_project, relearn};
use crate::ApiState;
use crate::error::ApiError;
use crate::extract::{Body, CanPrompt, CanRead, LargeRead, Params, id};
use crate::view::{MessageView, SessionContext, message};

/// Messages in one answer.
pub(crate) const MAX_MESSAGES: i64 = 10_000;

/// What the views of a session's messages take from it.
pub(crate) fn context(state: &ApiState, row: &SessionRow) -> SessionContext {
    SessionContext {
        session: row.at.session.clone(),
        directory: row.directory.clone(),
        agent: row.agent.clone(),
        model: row.model.clone().unwrap_or_else(|| state.settings().default_model.clone()),
    }
}

/// The newest messages of a session, oldest first.
pub(crate) async fn transcript(
    state: &ApiState,
    session: &SessionRow,
    limit: i64,
) -> Result<Vec<MessageView>, ApiError> {
    let (org, id) = (session.at.org, session.at.session.clone());
    let transcript = state.store().transcript(org, id, None, limit).await?;
    let context = context(state, session);
    Ok(transcript.messages.iter().map(|row| message(&context, row)).collect())
}

pub(super) async fn list(
    access: CanRead,
    _large: LargeRead,
    State(state): State<ApiState>,
    Path((project, session)): Path<(String, String)>,
    Params(limit): Params<Limit>,
) -> Result<Json<Vec<MessageView>>, ApiError> {
    let session = in_project(&state, access.org, &project, &session).await?;
    Ok(Json(transcript(&state, &session, limit.within(MAX_MESSAGES, MAX_MESSAGES)).await?))
}

/// One message of a session. An admitted prompt is one once it is promoted.
pub(crate) async fn one(
    state: &ApiState,
    session: &SessionRow,
    text: &str,
) -> Result<MessageView, ApiError> {
    let (org, at) = (session.at.org, session.at.session.clone());
    let transcript = state.store().transcript(org, at, Some(id(text)?), 1).await?;
    let row = transcript.messages.first().ok_or(ApiError::NotFound("message was"))?;
    Ok(message(&context(state, session), row))
}

pub(super) async fn show(
    access: CanRead,
    State(state): State<ApiState>,
    Path((project, session, message)): Path<(String, String, String)>,
) -> Result<Json<MessageView>, ApiError> {
    let session = in_project(&state, access.org, &project, &session).await?;
    Ok(Json(one(&state, &session, &message).await?))
}

/// An admitted prompt: the user message that it becomes, and its admission.
#[derive(Debug, Serialize)]
pub(super) struct AdmittedView {
    #[serde(flatten)]
    message: MessageView,
    admission: AdmissionView,
}

#[derive(Debug, Serialize)]
struct AdmissionView {
    seq: i64,
    delivery: &'static str,
    wake: bool,
}

/// The user message that an admitted prompt becomes.
pub(crate) fn prompt_row(admitted: &AdmittedPrompt) -> MessageRow {
    let part = |part: &PromptPart| match part {
        PromptPart::Text { id, text } => {
            PartRow { id: id.clone(), kind: "text".into(), text: Some(text.clone()), call: None }
        }
    };
    MessageRow {
        id: admitted.prompt.message.clone(),
        seq: admitted.seq,
        role: "user".into(),
        parent: None,
        turn: None,
        agent: admitted.prompt.agent.clone(),
        model: admitted.prompt.model.clone(),
        created_ms: admitted.admitted_ms,
        completed_ms: None,
        finish: None,
        error: None,
        usage: domain::TurnUsage::default(),
        synthetic: admitted.prompt.synthetic.clone(),
        parts: admitted.prompt.parts.iter().map(part).collect(),
    }
}

/// Admits a prompt and answers at once. What it does not choose is shown as the service's default: the
/// turn that answers it decides.
pub(super) async fn admit_and_show(
    state: &ApiState,
    org: OrgId,
    session: SessionId,
    request: AdmitRequest,
) -> Result<Json<AdmittedView>, ApiError> {
    let admitted = admit(state, org, session.clone(), request).await?;
    Ok(Json(admitted_view(state, session, &admitted)))
}

fn admitted_view(state: &ApiState, session: SessionId, admitted: &AdmittedPrompt) -> AdmittedView {
    let context = SessionContext {
        session,
        directory: String::new(), // a user message shows none
        agent: state.settings().default_agent.clone(),
        model: state.settings().default_model.clone(),
    };
    let admission = AdmissionView {
        seq: admitted.seq.0,
        delivery: admitted.prompt.delivery.as_str(),
        wake: admitted.prompt.wake,
    };
    AdmittedView { message: message(&context, &prompt_row(admitted)), admission }
}

pub(super) async fn post(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path((project, session)): Path<(String, String)>,
    Body(request): Body<AdmitRequest>,
) -> Result<Json<AdmittedView>, ApiError> {
    let (project, session): (ProjectId, SessionId) = (id(&project)?, id(&session)?);
    // A session changes its project only with a Move, so that admission stays one statement once it is known.
    let mut at = home(&state, access.org, &session).await?;
    if at.project != project {
        at = relearn(&state, access.org, &session).await?;
    }
    if at.project != project {
        return Err(ApiError::NotFound("session was"));
    }
    let admitted = admit(&state, access.org, session.clone(), request).await?;
    if admitted.location != at.location {
        state.homes().forget(access.org, &session); // it has moved, or was created anew elsewhere
    }
    Ok(Json(admitted_view(&state, session, &admitted)))
}
