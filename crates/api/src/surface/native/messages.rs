use axum::Json;
use axum::extract::{Path, State};
use domain::{ProjectId, SessionId};
use schemars::JsonSchema;
use serde::Serialize;
use store::AdmittedPrompt;

use crate::ApiState;
use crate::act::{AdmitRequest, admit, home, one, prompt_row, relearn, transcript};
use crate::error::ApiError;
use crate::principal::Principal;
use crate::surface::at::in_project;
use crate::surface::extract::{Body, CanPrompt, CanRead, LargeRead, Params};
use crate::surface::limit::MessageQuery;
use crate::surface::paged::Paged;
use crate::text::id;
use crate::view::{MessageView, SessionContext, message};

pub(crate) async fn list(
    access: CanRead,
    _large: LargeRead,
    State(state): State<ApiState>,
    Path((project, session)): Path<(String, String)>,
    Params(query): Params<MessageQuery>,
) -> Result<Paged<Vec<MessageView>>, ApiError> {
    let session = in_project(&state, access.org, &project, &session).await?;
    let (messages, next) = transcript(&state, &session, query.parse()?).await?;
    Ok(Paged { items: messages, next })
}

pub(crate) async fn show(
    access: CanRead,
    State(state): State<ApiState>,
    Path((project, session, message)): Path<(String, String, String)>,
) -> Result<Json<MessageView>, ApiError> {
    let session = in_project(&state, access.org, &project, &session).await?;
    Ok(Json(one(&state, &session, &message).await?))
}

/// An admitted prompt: its future user message, and its admission.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AdmittedView {
    #[serde(flatten)]
    message: MessageView,
    admission: AdmissionView,
}

#[derive(Debug, Serialize, JsonSchema)]
struct AdmissionView {
    seq: i64,
    delivery: &'static str,
    wake: bool,
}

/// Admits a prompt and answers at once. An agent or model that the prompt does not choose is shown as the service's
/// default; the turn decides.
pub(crate) async fn admit_and_show(
    state: &ApiState,
    principal: &Principal,
    session: SessionId,
    request: AdmitRequest,
) -> Result<Json<AdmittedView>, ApiError> {
    let admitted = admit(state, principal, session.clone(), request).await?;
    Ok(Json(admitted_view(state, session, &admitted)))
}

fn admitted_view(state: &ApiState, session: SessionId, admitted: &AdmittedPrompt) -> AdmittedView {
    let context = SessionContext {
        session,
        directory: String::new(), // not shown for a user message
        agent: state.settings().default_agent.clone(),
        model: state.settings().default_model.get(),
    };
    let admission = AdmissionView {
        seq: admitted.seq.0,
        delivery: admitted.prompt.delivery.as_str(),
        wake: admitted.prompt.wake,
    };
    AdmittedView { message: message(&context, &prompt_row(admitted)), admission }
}

pub(crate) async fn post(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path((project, session)): Path<(String, String)>,
    Body(request): Body<AdmitRequest>,
) -> Result<Json<AdmittedView>, ApiError> {
    let (project, session): (ProjectId, SessionId) = (id(&project)?, id(&session)?);
    // Only a Move changes a session's project, so for a known session admission stays one statement.
    let mut at = home(&state, access.org, &session).await?;
    if at.project != project {
        at = relearn(&state, access.org, &session).await?;
    }
    if at.project != project {
        return Err(ApiError::NotFound("session was"));
    }
    let admitted = admit(&state, &access, session.clone(), request).await?;
    if admitted.location != at.location {
        state.homes().forget(access.org, &session); // the session has moved, or was deleted and created again elsewhere
    }
    Ok(Json(admitted_view(&state, session, &admitted)))
}
