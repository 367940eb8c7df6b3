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

/// Returns the settings of the directory, otherwise of the service's default. A directory that cannot be used here, such as
/// that of a client on another machine, has the organisation's.
pub(super) async fn settings_at(
    state: &ApiState,
    org: OrgId,
    named: &Named,
) -> Result<Effective, ApiError> {
    let usable = named.or_default(state.settings()).await;
    let of = usable
        .map_or(SettingsOf::Organisation, |workspace| SettingsOf::Directory(workspace.directory));
    settings_of(state, org, of).await
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
