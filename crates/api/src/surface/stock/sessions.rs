use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::place::Named;
use crate::ApiState;
use crate::act::{NewSessionRequest, create, interrupt, location};
use crate::error::ApiError;
use crate::surface::dialect::Dialect;
use crate::surface::extract::{Body, CanPrompt, CanRead, Params};
use crate::surface::limit::MAX_SESSIONS;
use crate::text::id;
use crate::view::SessionView;

/// The most busy sessions in one answer.
const MAX_BUSY: i64 = 1_000;

#[derive(Debug, Deserialize)]
pub(crate) struct ListQuery {
    limit: Option<i64>,
    search: Option<String>,
    start: Option<i64>,
    roots: Option<bool>,
}

/// Lists the newest sessions, or those of the named directory.
pub(crate) async fn list(
    access: CanRead,
    dialect: Dialect,
    State(state): State<ApiState>,
    named: Named,
    Params(query): Params<ListQuery>,
) -> Result<Json<Vec<SessionView>>, ApiError> {
    let directory = named.filter(state.settings()).await?;
    let search = query.search.map(|text| text.to_lowercase());
    let limit = usize::try_from(query.limit.unwrap_or(100).clamp(1, MAX_SESSIONS)).unwrap_or(1);
    let rows = state.store().sessions(access.org, None, MAX_SESSIONS).await?;
    let rows = rows
        .into_iter()
        .filter(|row| directory.as_ref().is_none_or(|directory| row.directory == *directory))
        .filter(|row| row.parent.is_none() || !query.roots.unwrap_or(false))
        .filter(|row| query.start.is_none_or(|start| row.updated_ms >= start))
        .filter(|row| search.as_ref().is_none_or(|text| row.title.to_lowercase().contains(text)))
        .take(limit)
        .collect();
    dialect.sessions(&state, rows).await
}

pub(crate) async fn create_route(
    access: CanPrompt,
    dialect: Dialect,
    State(state): State<ApiState>,
    named: Named,
    Body(request): Body<NewSessionRequest>,
) -> Result<Json<SessionView>, ApiError> {
    let named = Named(named.0.or_else(|| request.directory.clone()));
    let workspace = named.or_default(state.settings()).await?;
    let now = state.clock().now_ms();
    let (_, location) = location(state.store(), access.org, workspace, now).await?;
    let row = create(&state, access.org, &location, request).await?;
    dialect.session(&state, row).await
}

/// Interrupts a session. Answers `true` even if there was nothing to interrupt, as stock clients expect.
pub(crate) async fn abort(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(session): Path<String>,
) -> Result<Json<bool>, ApiError> {
    interrupt(&state, access.org, id(&session)?).await?;
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
