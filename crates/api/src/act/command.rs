//! Runs a command: its template with the arguments is a prompt like any other.

use domain::{ModelRef, OrgId, SessionId};
use schemars::JsonSchema;
use serde::Deserialize;
use store::SettingsOf;

use super::admit::{AdmitRequest, PartRequest};
use super::choice::ModelRequest;
use super::effective::settings_of;
use crate::ApiState;
use crate::error::ApiError;
use crate::text::{plain, shown};

/// A command as stock clients send it.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CommandRequest {
    command: String,
    #[serde(default)]
    arguments: String,
    #[serde(rename = "messageID")]
    message_id: Option<String>,
    agent: Option<String>,
    model: Option<ModelRequest>,
    variant: Option<String>,
    #[serde(default)]
    parts: Vec<PartRequest>,
}

/// Returns the prompt that a command of the session's Location makes. Its own agent and model come before the request's.
///
/// # Errors
/// 404 without such a command; 413 when the prompt would be too long.
pub(crate) async fn prompt_of(
    state: &ApiState,
    org: OrgId,
    session: &SessionId,
    request: CommandRequest,
) -> Result<AdmitRequest, ApiError> {
    let CommandRequest { command, arguments, message_id, agent, model, variant, parts } = request;
    let settings = settings_of(state, org, SettingsOf::Session(session.clone())).await?;
    let Some(command) = settings.commands.get(&command) else {
        let known: Vec<_> = settings.commands.keys().map(|name| format!("`{name}`")).collect();
        let (name, known) = (shown(&command), known.join(", "));
        return Err(ApiError::Invalid(format!(
            "there is no command `{name}` in this project: choose one of {known}"
        )));
    };
    let text = command.expand(&plain(&arguments));
    let text = text.map_err(|too_long| ApiError::TooLarge(too_long.to_string()))?;
    let of_command = command.model.clone();
    let (model, variant) = match of_command {
        Some(ModelRef { provider, model, variant }) => {
            let fields = ModelRequest::Fields { provider_id: provider, model_id: model, variant };
            (Some(fields), None)
        }
        None => (model, variant),
    };
    let agent = command.agent.clone().or(agent);
    let text = Some(text);
    Ok(AdmitRequest { message_id, parts, text, agent, model, variant, ..AdmitRequest::default() })
}
