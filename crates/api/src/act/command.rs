//! Runs a command: its template with the arguments is a prompt like any other.

use domain::{ModelRef, OrgId, SessionId};
use schemars::JsonSchema;
use serde::Deserialize;
use store::SettingsOf;

use super::admit::{AdmitRequest, PartRequest};
use super::choice::ModelRequest;
use super::effective::settings_in;
use super::sessions::home;
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

/// A request for the command `init`, as stock clients send it to a route of its own.
#[derive(Debug, Deserialize)]
pub(crate) struct InitRequest {
    #[serde(rename = "messageID")]
    message_id: String,
    #[serde(rename = "providerID")]
    provider_id: String,
    #[serde(rename = "modelID")]
    model_id: String,
}

impl From<InitRequest> for CommandRequest {
    fn from(request: InitRequest) -> Self {
        let InitRequest { message_id, provider_id, model_id } = request;
        let model = ModelRequest::Fields { provider_id, model_id, variant: None };
        Self {
            command: "init".to_owned(),
            arguments: String::new(),
            message_id: Some(message_id),
            agent: None,
            model: Some(model),
            variant: None,
            parts: Vec::new(),
        }
    }
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
    let directory = home(state, org, session).await?.directory.clone();
    let of = SettingsOf::Session(session.clone());
    let settings = settings_in(state, org, of, &directory).await?;
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
