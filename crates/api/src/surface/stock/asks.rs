//! Requests for permissions and questions of the model, in both shapes of stock clients.

use axum::Json;
use axum::extract::{Path, State};
use domain::OrgId;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::AskRow;

use super::listing::{At, located};
use super::place::Named;
use crate::ApiState;
use crate::act::{AnswerRequest, Reply, answer};
use crate::error::ApiError;
use crate::surface::extract::{Body, CanPrompt, CanRead, Params};
use crate::text::id;
use crate::view::{is_permission, second_ask, stock_ask};

/// The answer to a request for a permission.
#[derive(Debug, Deserialize)]
pub(crate) struct ReplyRequest {
    reply: Reply,
    message: Option<String>,
}

/// The same, as older clients send it.
#[derive(Debug, Deserialize)]
pub(crate) struct ResponseRequest {
    response: Reply,
}

/// The answers to questions.
#[derive(Debug, Deserialize)]
pub(crate) struct AnswersRequest {
    answers: Vec<Vec<String>>,
}

/// The request in a path.
#[derive(Debug, Deserialize)]
pub(crate) struct Requested {
    session: Option<String>,
    request: String,
}

async fn asks(
    state: &ApiState,
    org: OrgId,
    directory: Option<&String>,
    permissions: bool,
) -> Result<Vec<AskRow>, ApiError> {
    let mut asks = state.store().pending_asks(org, None).await?;
    asks.retain(|row| {
        is_permission(&row.asked.ask) == permissions
            && directory.is_none_or(|directory| *directory == row.directory)
    });
    Ok(asks)
}

fn shown(asks: &[AskRow]) -> Json<Value> {
    asks.iter()
        .map(|row| stock_ask(&row.session.session, &row.message, &row.asked))
        .collect::<Value>()
        .into()
}

fn second(asks: &[AskRow]) -> Value {
    asks.iter().map(|row| second_ask(&row.session.session, &row.message, &row.asked)).collect()
}

/// Lists the permissions that calls wait for.
pub(crate) async fn permissions(
    access: CanRead,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Json<Value>, ApiError> {
    let directory = named.filter(state.settings()).await?;
    Ok(shown(&asks(&state, access.org, directory.as_ref(), true).await?))
}

/// Lists the questions that wait for answers.
pub(crate) async fn questions(
    access: CanRead,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Json<Value>, ApiError> {
    let directory = named.filter(state.settings()).await?;
    Ok(shown(&asks(&state, access.org, directory.as_ref(), false).await?))
}

/// Lists the permissions that calls wait for, in the newer shape.
pub(crate) async fn second_permissions(
    access: CanRead,
    State(state): State<ApiState>,
    At(named): At,
) -> Result<Json<Value>, ApiError> {
    let directory = named.filter(state.settings()).await?;
    let asks = asks(&state, access.org, directory.as_ref(), true).await?;
    located(&state, access.org, &named, second(&asks)).await
}

/// Lists the questions that wait for answers, in the newer shape.
pub(crate) async fn second_questions(
    access: CanRead,
    State(state): State<ApiState>,
    At(named): At,
) -> Result<Json<Value>, ApiError> {
    let directory = named.filter(state.settings()).await?;
    let asks = asks(&state, access.org, directory.as_ref(), false).await?;
    located(&state, access.org, &named, second(&asks)).await
}

async fn of_session(
    state: &ApiState,
    org: OrgId,
    session: &str,
    permissions: bool,
) -> Result<Json<Value>, ApiError> {
    let row = state.store().session(org, id(session)?).await?;
    let mut asks = state.store().pending_asks(org, Some(row.at.session)).await?;
    asks.retain(|row| is_permission(&row.asked.ask) == permissions);
    Ok(Json(json!({ "data": second(&asks) })))
}

/// Lists the permissions that a session's calls wait for.
pub(crate) async fn session_permissions(
    access: CanRead,
    State(state): State<ApiState>,
    Path(session): Path<String>,
) -> Result<Json<Value>, ApiError> {
    of_session(&state, access.org, &session, true).await
}

/// Lists the questions of a session that wait for answers.
pub(crate) async fn session_questions(
    access: CanRead,
    State(state): State<ApiState>,
    Path(session): Path<String>,
) -> Result<Json<Value>, ApiError> {
    of_session(&state, access.org, &session, false).await
}

/// Shows a permission that a session's call waits for.
pub(crate) async fn session_permission(
    access: CanRead,
    State(state): State<ApiState>,
    Path(requested): Path<Requested>,
) -> Result<Json<Value>, ApiError> {
    let row = find(&state, access.org, &requested, true).await?;
    let row = if row.is_pending { row } else { return Err(no_such_ask(&requested, true)) };
    let shown = second_ask(&row.session.session, &row.message, &row.asked);
    Ok(Json(json!({ "data": shown })))
}

fn no_such_ask(requested: &Requested, is_permission: bool) -> ApiError {
    ApiError::NoSuchAsk { request: requested.request.clone(), is_permission }
}

/// Returns the ask in a path: of the kind that the route is about, and of the session in the path, if there is one.
///
/// # Errors
/// 404 without such a session, and without such an ask.
async fn find(
    state: &ApiState,
    org: OrgId,
    requested: &Requested,
    permission: bool,
) -> Result<AskRow, ApiError> {
    let session = match requested.session.as_deref() {
        Some(session) => Some(state.store().session(org, id(session)?).await?.at.session),
        None => None,
    };
    let row = state.store().ask(org, id(&requested.request)?).await?;
    let is_meant = |row: &AskRow| {
        let is_its = session.as_ref().is_none_or(|session| row.session.session == *session);
        is_its && is_permission(&row.asked.ask) == permission
    };
    row.filter(is_meant).ok_or_else(|| no_such_ask(requested, permission))
}

/// Answers a request for a permission, or questions.
async fn answered(
    state: &ApiState,
    access: &CanPrompt,
    requested: &Requested,
    permission: bool,
    request: AnswerRequest,
) -> Result<(), ApiError> {
    let row = find(state, access.org, requested, permission).await?;
    answer(state, access, row.asked.ask, request).await
}

/// Answers a request for a permission.
pub(crate) async fn reply(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(requested): Path<Requested>,
    Body(ReplyRequest { reply, message }): Body<ReplyRequest>,
) -> Result<Json<bool>, ApiError> {
    let request = AnswerRequest { reply: Some(reply), message, answers: None };
    answered(&state, &access, &requested, true, request).await?;
    Ok(Json(true))
}

/// Answers a request for a permission of a session.
pub(crate) async fn respond(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(requested): Path<Requested>,
    Body(ResponseRequest { response }): Body<ResponseRequest>,
) -> Result<Json<bool>, ApiError> {
    let request = AnswerRequest { reply: Some(response), ..AnswerRequest::default() };
    answered(&state, &access, &requested, true, request).await?;
    Ok(Json(true))
}

/// Answers a request for a permission, in the newer shape.
pub(crate) async fn second_reply(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(requested): Path<Requested>,
    Body(ReplyRequest { reply, message }): Body<ReplyRequest>,
) -> Result<StatusCode, ApiError> {
    let request = AnswerRequest { reply: Some(reply), message, answers: None };
    answered(&state, &access, &requested, true, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers questions.
pub(crate) async fn answer_questions(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(requested): Path<Requested>,
    Body(AnswersRequest { answers }): Body<AnswersRequest>,
) -> Result<Json<bool>, ApiError> {
    let request = AnswerRequest { answers: Some(answers), ..AnswerRequest::default() };
    answered(&state, &access, &requested, false, request).await?;
    Ok(Json(true))
}

/// Answers questions, in the newer shape.
pub(crate) async fn second_answer_questions(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(requested): Path<Requested>,
    Body(AnswersRequest { answers }): Body<AnswersRequest>,
) -> Result<StatusCode, ApiError> {
    let request = AnswerRequest { answers: Some(answers), ..AnswerRequest::default() };
    answered(&state, &access, &requested, false, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Dismisses questions.
pub(crate) async fn dismiss(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(requested): Path<Requested>,
) -> Result<Json<bool>, ApiError> {
    let request = AnswerRequest { reply: Some(Reply::Reject), ..AnswerRequest::default() };
    answered(&state, &access, &requested, false, request).await?;
    Ok(Json(true))
}

/// Dismisses questions, in the newer shape.
pub(crate) async fn second_dismiss(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(requested): Path<Requested>,
) -> Result<StatusCode, ApiError> {
    let request = AnswerRequest { reply: Some(Reply::Reject), ..AnswerRequest::default() };
    answered(&state, &access, &requested, false, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The saved permissions to list.
#[derive(Debug, Deserialize)]
pub(crate) struct SavedQuery {
    #[serde(rename = "projectID")]
    project: Option<String>,
}

/// Lists saved permissions.
pub(crate) async fn saved(
    access: CanRead,
    State(state): State<ApiState>,
    Params(query): Params<SavedQuery>,
) -> Result<Json<Value>, ApiError> {
    let project = query.project.as_deref().map(id).transpose()?;
    let saved = state.store().kept_permissions(access.org, project).await?;
    let shown = saved.into_iter().map(|kept| {
        json!({
            "id": kept.id,
            "projectID": kept.project,
            "action": kept.saved.action,
            "resource": kept.saved.pattern,
        })
    });
    Ok(Json(json!({ "data": shown.collect::<Value>() })))
}

/// Takes a saved permission back.
pub(crate) async fn forget(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(saved): Path<String>,
) -> Result<StatusCode, ApiError> {
    match state.store().forget_permission(access.org, saved).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::NotFound("a saved permission with this id was")),
    }
}
