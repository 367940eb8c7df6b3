//! Agents and commands of the request's directory.

use axum::Json;
use axum::extract::State;
use domain::OrgId;
use serde_json::{Value, json};
use settings::{CommandDefinition, Effective};
use store::SettingsOf;

use super::place::Named;
use crate::ApiState;
use crate::act::settings_of;
use crate::error::ApiError;
use crate::surface::extract::CanRead;

/// Returns the settings of the directory, otherwise of the service's default.
pub(super) async fn settings_at(
    state: &ApiState,
    org: OrgId,
    named: &Named,
) -> Result<Effective, ApiError> {
    let directory = named.or_default(state.settings()).await?.directory;
    settings_of(state, org, SettingsOf::Directory(directory)).await
}

pub(crate) async fn agents(
    access: CanRead,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Json<Value>, ApiError> {
    let settings = settings_at(&state, access.org, &named).await?;
    Ok(Json(crate::view::agents(&settings).into()))
}

pub(crate) async fn commands(
    access: CanRead,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Json<Value>, ApiError> {
    let settings = settings_at(&state, access.org, &named).await?;
    Ok(Json(settings.commands.values().map(command).collect()))
}

fn command(command: &CommandDefinition) -> Value {
    let mut view = json!({
        "name": command.name,
        "description": command.description,
        "template": command.template,
        "source": "command",
        "subtask": command.subtask,
        "hints": command.hints(),
    });
    if let Some(agent) = &command.agent {
        view["agent"] = agent.as_str().into();
    }
    if let Some(model) = &command.model {
        view["model"] = format!("{}/{}", model.provider, model.model).into();
    }
    view
}

/// Returns a command in the second API's shape.
pub(super) fn second_command(command: &CommandDefinition) -> Value {
    let mut view = json!({
        "name": command.name,
        "description": command.description,
        "template": command.template,
        "subtask": command.subtask,
    });
    if let Some(agent) = &command.agent {
        view["agent"] = agent.as_str().into();
    }
    if let Some(model) = &command.model {
        view["model"] = json!({ "id": model.model, "providerID": model.provider });
    }
    view
}
