use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::OrganisationInstructions;

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::{Body, CanAdminister};
use crate::text::plain;

/// The largest text, in bytes.
const MAX_BYTES: usize = 64 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct InstructionsRequest {
    text: String,
}

/// An organisation's instructions; an empty text if it has none.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct InstructionsView {
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated: Option<i64>,
}

impl From<OrganisationInstructions> for InstructionsView {
    fn from(found: OrganisationInstructions) -> Self {
        Self { text: found.text, updated: Some(found.updated_ms) }
    }
}

pub(crate) async fn show(
    access: CanAdminister,
    State(state): State<ApiState>,
) -> Result<Json<InstructionsView>, ApiError> {
    let found = state.store().organisation_instructions(access.org).await?;
    Ok(Json(found.map(Into::into).unwrap_or_default()))
}

/// Sets the instructions that all sessions of the organisation get at their next boundary. An empty text removes
/// them.
pub(crate) async fn set(
    access: CanAdminister,
    State(state): State<ApiState>,
    Body(request): Body<InstructionsRequest>,
) -> Result<Json<InstructionsView>, ApiError> {
    let text = plain(&request.text);
    if text.len() > MAX_BYTES {
        return Err(ApiError::TooLarge(format!(
            "instructions have at most {MAX_BYTES} bytes, these {}",
            text.len()
        )));
    }
    let text = Some(text).filter(|text| !text.trim().is_empty());
    let now = state.clock().now_ms();
    state.store().set_organisation_instructions(access.org, text, now).await?;
    show(access, State(state)).await
}
