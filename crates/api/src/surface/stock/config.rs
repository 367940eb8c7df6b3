//! The service's configuration, which stock clients read before they begin.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::catalog;
use super::local::{Looker, local_directory};
use super::place::Named;
use super::settings::settings_at;
use crate::ApiState;
use crate::act::{Basis, ShownProvider, shown_from, shown_models};
use crate::error::ApiError;
use crate::surface::extract::CanRead;
use crate::view::ProjectView;

pub(crate) async fn health(_: CanRead, State(state): State<ApiState>) -> Json<Value> {
    Json(json!({ "healthy": true, "version": state.settings().version }))
}

pub(crate) async fn config(
    _: CanRead,
    looker: Looker,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Json<Value>, ApiError> {
    let model = state.settings().default_model.get();
    let settings = settings_at(&state, &looker, &named).await?;
    Ok(Json(json!({
        "model": format!("{}/{}", model.provider, model.model),
        "default_agent": settings.default_agent,
        "share": "disabled",
        "autoupdate": false,
    })))
}

/// Lists the providers that are set up.
pub(crate) async fn config_providers(
    access: CanRead,
    State(state): State<ApiState>,
) -> Result<Json<Value>, ApiError> {
    let shown = shown_models(&state, access.org).await?;
    let connected: Vec<Value> = shown.connected().map(catalog::provider).collect();
    Ok(Json(json!({ "providers": connected, "default": defaults(&state, shown.connected()) })))
}

/// Lists all providers of the catalog: some 3 MiB, which every client asks for when it starts.
pub(crate) async fn providers(
    access: CanRead,
    State(state): State<ApiState>,
) -> Result<Response, ApiError> {
    let basis = Basis::read(&state, access.org).await?;
    let (its, key) = (state.clone(), basis.key());
    let body = state.provider_lists().get(key, move || all_providers(&its, &basis)).await;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

fn all_providers(state: &ApiState, basis: &Basis) -> Bytes {
    let shown = shown_from(state, basis, None);
    let connected: Vec<&str> =
        shown.connected().map(|provider| provider.entry.id.as_str()).collect();
    let all: Vec<Value> = shown.providers.iter().map(catalog::provider).collect();
    let default = defaults(state, shown.providers.iter());
    json!({ "all": all, "default": default, "connected": connected }).to_string().into()
}

/// Returns each provider's default model.
fn defaults<'a>(state: &ApiState, of: impl Iterator<Item = &'a ShownProvider>) -> Value {
    let default = state.settings().default_model.get();
    let model = |provider: &'a ShownProvider| {
        let id = &provider.entry.id;
        let model = if *id == default.provider {
            default.model.as_str()
        } else {
            provider.default_model()?
        };
        Some((id.clone(), Value::from(model)))
    };
    of.filter_map(model).collect::<serde_json::Map<String, Value>>().into()
}

/// Shows the directory of a request. The service's own folders are not shown.
pub(crate) async fn path(
    _: CanRead,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Json<Value>, ApiError> {
    let directory = named.or_default(state.settings()).await?.directory;
    Ok(Json(json!({
        "home": "",
        "state": "",
        "config": "",
        "worktree": directory,
        "directory": directory,
    })))
}

/// Shows the project of the request's directory. Before its first session it has the id `global`.
pub(crate) async fn current_project(
    access: CanRead,
    looker: Looker,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Json<ProjectView>, ApiError> {
    let worktree = named.or_default(state.settings()).await?.directory;
    let projects = state.store().projects(access.org).await?;
    let known = projects.into_iter().find(|project| project.worktree == worktree);
    let project = known.map_or_else(|| ProjectView::unknown(worktree), Into::into);
    let is_checkout = match local_directory(&state, &looker, &named).await? {
        Some(local) => local.read_branch().await.is_some(),
        None => false,
    };
    Ok(Json(if is_checkout { project.with_git() } else { project }))
}
