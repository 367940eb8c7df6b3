//! Agents, commands and skills of the request's directory.

use axum::Json;
use axum::extract::State;
use checkouts::ShownSkill;
use serde_json::{Map, Value, json};
use settings::{CommandDefinition, Effective};
use store::{SessionFilter, SessionsOf, SettingsOf};

use super::local::{Looker, local_directory};
use super::place::Named;
use crate::ApiState;
use crate::act::{settings_in, settings_of};
use crate::error::ApiError;
use crate::surface::extract::CanRead;

/// Returns the settings of the directory, otherwise of the service's default. A directory that cannot be used here, such as
/// that of a client on another machine, has the organisation's.
pub(super) async fn settings_at(
    state: &ApiState,
    looker: &Looker,
    named: &Named,
) -> Result<Effective, ApiError> {
    let Ok(place) = named.or_default(state.settings()).await else {
        return settings_of(state, looker.org, SettingsOf::Organisation).await;
    };
    let of = SettingsOf::Directory(place.directory.clone());
    match local_directory(state, looker, named).await? {
        Some(_) => settings_in(state, looker.org, of, &place.directory).await,
        None => settings_of(state, looker.org, of).await,
    }
}

/// Lists the skills that a model is offered.
pub(crate) async fn skills(
    _: CanRead,
    looker: Looker,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Json<Vec<Value>>, ApiError> {
    let skills = skills_at(&state, &looker, &named).await?;
    Ok(Json(skills.into_iter().map(skill_view).collect()))
}

const SKILLS_ELSEWHERE: &str =
    "the skills of this directory are known to its worker only: ask the agent which ones it has";

/// Returns the skills of the directory, otherwise of the service's default.
pub(super) async fn skills_at(
    state: &ApiState,
    looker: &Looker,
    named: &Named,
) -> Result<Vec<ShownSkill>, ApiError> {
    if let Some(local) = local_directory(state, looker, named).await? {
        return Ok(local.checkouts.read_skills(&local.path).await?);
    }
    let Ok(place) = named.or_default(state.settings()).await else { return Ok(Vec::new()) };
    let of = SessionsOf::Directory(place.directory);
    let any = SessionFilter { of, with_archived: true, ..SessionFilter::default() };
    let has_files = !state.store().sessions(looker.org, any, 1).await?.rows.is_empty();
    if has_files { Err(ApiError::NotOffered(SKILLS_ELSEWHERE)) } else { Ok(Vec::new()) }
}

/// Shows a skill, in both shapes of stock clients.
pub(super) fn skill_view(skill: ShownSkill) -> Value {
    let members = [
        ("name", skill.name),
        ("description", skill.description),
        ("location", skill.file.to_string_lossy().into_owned()),
        ("content", skill.text),
    ];
    let members = members.map(|(name, value)| (name.to_owned(), value.into()));
    Map::from_iter(members).into()
}

pub(crate) async fn agents(
    _: CanRead,
    looker: Looker,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Json<Value>, ApiError> {
    let settings = settings_at(&state, &looker, &named).await?;
    Ok(Json(crate::view::agents(&settings).into()))
}

pub(crate) async fn commands(
    _: CanRead,
    looker: Looker,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Json<Value>, ApiError> {
    let settings = settings_at(&state, &looker, &named).await?;
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
