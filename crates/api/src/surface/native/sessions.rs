use axum::Json;
use axum::extract::{Path, State};

use crate::ApiState;
use crate::act::{
    self, AbortRequest, ChangeRequest, InterruptedView, NewSessionRequest, aborted, create,
    delete_session, location_of, location_of_sent, workspace,
};
use crate::error::ApiError;
use crate::surface::at::{At, in_project};
use crate::surface::dialect::Dialect;
use crate::surface::extract::{Body, CanPrompt, CanRead, LargeRead, Params};
use crate::surface::listed::ListQuery;
use crate::surface::paged::Paged;
use crate::text::id;
use crate::view::SessionView;

pub(crate) async fn list(
    access: CanRead,
    _large: LargeRead,
    dialect: Dialect,
    State(state): State<ApiState>,
    Path(project): Path<String>,
    Params(query): Params<ListQuery>,
) -> Result<Paged<Vec<SessionView>>, ApiError> {
    let project = state.store().project(access.org, id(&project)?).await?;
    query.list(&state, access.org, dialect, Some(project.id)).await
}

pub(crate) async fn create_route(
    access: CanPrompt,
    dialect: Dialect,
    State(state): State<ApiState>,
    Path(project): Path<String>,
    Body(mut request): Body<NewSessionRequest>,
) -> Result<Json<SessionView>, ApiError> {
    let project = state.store().project(access.org, id(&project)?).await?;
    let (store, now) = (state.store(), state.clock().now_ms());
    let session = request.session(now)?;
    let location = match request.sent.take() {
        Some(_) if request.directory.is_some() => {
            return Err(ApiError::invalid("`sent` names the files: leave `directory` out"));
        }
        Some(sent) => location_of_sent(store, access.org, &project, sent, &session, now).await?,
        None => {
            let directory = request.directory.as_deref().unwrap_or(&project.worktree);
            let place = workspace(state.settings(), Some(directory)).await?;
            location_of(store, access.org, &project, place, &session, now).await?
        }
    };
    let row = create(&state, &access, &location, request).await?;
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

pub(crate) async fn change(
    access: CanPrompt,
    dialect: Dialect,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Body(request): Body<ChangeRequest>,
) -> Result<Json<SessionView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let row = act::change(&state, row, request).await?;
    dialect.session(&state, row).await
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

pub(crate) async fn abort(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path((project, session)): Path<(String, String)>,
    Body(request): Body<AbortRequest>,
) -> Result<Json<InterruptedView>, ApiError> {
    let row = in_project(&state, access.org, &project, &session).await?;
    Ok(Json(aborted(&state, &access, row.at.session, &request).await?))
}
