use axum::Json;
use axum::extract::{Path, State};
use domain::OrgId;
use http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::SessionRow;

use super::log::{Log, LogQuery, of_session};
use super::messages::{AdmittedView, admit_and_show};
use crate::ApiState;
use crate::act::{
    AbortRequest, AdmitRequest, InterruptedView, aborted, differing_messages, missing, transcript,
    unproven,
};
use crate::error::ApiError;
use crate::surface::dialect::Dialect;
use crate::surface::extract::{Body, CanAdminister, CanPrompt, CanRead, LargeRead, Params};
use crate::surface::limit::MessageQuery;
use crate::surface::listed::ListQuery;
use crate::surface::paged::Paged;
use crate::text::id;
use crate::view::{MessageView, SessionView};

async fn row(state: &ApiState, org: OrgId, session: &str) -> Result<SessionRow, ApiError> {
    Ok(state.store().session(org, id(session)?).await?)
}

pub(crate) async fn sessions(
    access: CanRead,
    _large: LargeRead,
    dialect: Dialect,
    State(state): State<ApiState>,
    Params(query): Params<ListQuery>,
) -> Result<Paged<Vec<SessionView>>, ApiError> {
    query.list(&state, access.org, dialect, None).await
}

pub(crate) async fn messages(
    access: CanRead,
    _large: LargeRead,
    State(state): State<ApiState>,
    Path(session): Path<String>,
    Params(query): Params<MessageQuery>,
) -> Result<Paged<Vec<MessageView>>, ApiError> {
    let row = row(&state, access.org, &session).await?;
    let (messages, next) = transcript(&state, &row, query.parse()?).await?;
    Ok(Paged { items: messages, next })
}

pub(crate) async fn post_message(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(session): Path<String>,
    Body(request): Body<AdmitRequest>,
) -> Result<Json<AdmittedView>, ApiError> {
    admit_and_show(&state, &access, id(&session)?, request).await
}

pub(crate) async fn log(
    access: CanRead,
    _large: LargeRead,
    State(state): State<ApiState>,
    Path(session): Path<String>,
    Params(query): Params<LogQuery>,
    headers: HeaderMap,
) -> Result<Log, ApiError> {
    let row = row(&state, access.org, &session).await?;
    of_session(&state, &access, row, &headers, &query).await
}

pub(crate) async fn abort(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(session): Path<String>,
    Body(request): Body<AbortRequest>,
) -> Result<Json<InterruptedView>, ApiError> {
    Ok(Json(aborted(&state, &access, id(&session)?, &request).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct RebuildQuery {
    check: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RebuildView {
    session: String,
    exact: bool,
    events: usize,
    missing: Vec<String>,
    added: Vec<String>,
    /// Messages whose rows are not as clients were shown them from events, at most 20. Only with `check=true`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differing: Vec<String>,
}

/// The most differing messages in one answer.
const MOST_DIFFERING: usize = 20;

/// Rebuilds a session's projections from its log; with `check=true` it only compares, also with the messages that a
/// gateway folds from events.
pub(crate) async fn rebuild(
    access: CanAdminister,
    State(state): State<ApiState>,
    Path(session): Path<String>,
    Params(query): Params<RebuildQuery>,
) -> Result<Json<RebuildView>, ApiError> {
    let check = query.check.unwrap_or(false);
    let report = state.store().rebuild(access.org, id(&session)?, check).await?;
    let mut differing = Vec::new();
    if check {
        let messages = differing_messages(state.store(), access.org, &report.session).await?;
        differing.extend(messages.into_iter().take(MOST_DIFFERING).map(String::from));
    }
    Ok(Json(RebuildView {
        exact: report.is_exact() && differing.is_empty(),
        session: report.session.into(),
        events: report.events,
        missing: report.missing,
        added: report.added,
        differing,
    }))
}

/// The most sessions in one answer whose newest turn was not asked with their log.
const MOST_UNPROVEN: usize = 100;

/// The most missing blobs in one answer.
const MOST_MISSING: usize = 100;

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CheckQuery {
    settled: Option<bool>,
    blobs: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ViolationView {
    invariant: String,
    session: String,
    found: String,
}

/// Lists broken invariants that the rows show, among them each session whose newest turn was not asked with its log.
/// `settled=true` adds those that hold only once nothing runs;
/// `blobs=true` also looks for missing blobs.
pub(crate) async fn check(
    access: CanAdminister,
    State(state): State<ApiState>,
    Params(query): Params<CheckQuery>,
) -> Result<Json<Vec<ViolationView>>, ApiError> {
    let mut found = state.store().violations(access.org, query.settled.unwrap_or(false)).await?;
    found.extend(state.store().usage_violations(access.org).await?);
    found.extend(unproven(state.store(), access.org, MOST_UNPROVEN).await?);
    if query.blobs.unwrap_or(false) {
        found.extend(missing(&state, access.org, MOST_MISSING).await?);
    }
    let view = |violation: store::Violation| ViolationView {
        invariant: violation.invariant,
        session: violation.session,
        found: violation.found,
    };
    Ok(Json(found.into_iter().map(view).collect()))
}
