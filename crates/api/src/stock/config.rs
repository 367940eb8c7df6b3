//! What stock clients ask about the service before they begin.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::place::Named;
use crate::error::ApiError;
use crate::extract::CanRead;
use crate::native::ProjectView;
use crate::{ApiSettings, ApiState};

pub(super) async fn health(_: CanRead, State(state): State<ApiState>) -> Json<Value> {
    Json(json!({ "healthy": true, "version": state.settings().version }))
}

pub(super) async fn config(_: CanRead, State(state): State<ApiState>) -> Json<Value> {
    let model = &state.settings().default_model;
    Json(json!({
        "model": format!("{}/{}", model.provider, model.model),
        "default_agent": state.settings().default_agent,
        "share": "disabled",
        "autoupdate": false,
    }))
}

pub(super) async fn config_providers(_: CanRead, State(state): State<ApiState>) -> Json<Value> {
    let settings = state.settings();
    let model = &settings.default_model;
    Json(json!({
        "providers": [provider(settings)],
        "default": { model.provider.clone(): model.model },
    }))
}

pub(super) async fn providers(_: CanRead, State(state): State<ApiState>) -> Json<Value> {
    let settings = state.settings();
    let model = &settings.default_model;
    Json(json!({
        "all": [provider(settings)],
        "default": { model.provider.clone(): model.model },
        "connected": [model.provider],
    }))
}

/// The one provider and model that the service is set up with. Limits that are not known are zero, as in
/// the stock catalog.
fn provider(settings: &ApiSettings) -> Value {
    let model = &settings.default_model;
    let named = |name: &str| {
        if settings.simulated { format!("{name} (simulated)") } else { name.to_owned() }
    };
    let (yes, no) = (true, false);
    let media = json!({ "text": yes, "audio": no, "image": no, "video": no, "pdf": no });
    json!({
        "id": model.provider,
        "name": named(&model.provider),
        "source": "config",
        "env": [],
        "options": {},
        "models": { model.model.clone(): {
            "id": model.model,
            "providerID": model.provider,
            "api": { "id": model.model, "url": "", "npm": "@ai-sdk/openai-compatible" },
            "name": named(&model.model),
            "capabilities": {
                "temperature": yes,
                "reasoning": no,
                "attachment": no,
                "toolcall": yes,
                "input": media,
                "output": media,
                "interleaved": no,
            },
            "cost": { "input": 0, "output": 0, "cache": { "read": 0, "write": 0 } },
            "limit": { "context": 0, "output": 0 },
            "status": "active",
            "options": {},
            "headers": {},
            "release_date": "",
        } },
    })
}

/// The directory that a request is about. The service's own folders are nobody's business.
pub(super) async fn path(
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

/// The project of the directory that a request is about; before its first session, one that has no id.
pub(super) async fn current_project(
    access: CanRead,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Json<ProjectView>, ApiError> {
    let worktree = named.or_default(state.settings()).await?.directory;
    let projects = state.store().projects(access.org).await?;
    let known = projects.into_iter().find(|project| project.worktree == worktree);
    Ok(Json(known.map_or_else(|| ProjectView::unknown(worktree), Into::into)))
}
