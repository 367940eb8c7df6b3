//! The organisation's settings: agents, commands, permission rules and bounds of all its projects.

use axum::Json;
use axum::extract::State;
use domain::TimestampMs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::{Diagnostic, OrganisationSettings, Severity, text_hash};
use store::{KnownSettings, SettingsOf, SettingsSeen, SettingsText};

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::{Body, CanAdminister};
use crate::text::plain;

/// The largest text, in bytes.
const MAX_BYTES: usize = 256 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SettingsRequest {
    /// JSON with comments, in the form of an `opencode.json`. An empty text removes the settings.
    text: String,
}

/// An organisation's settings; an empty text if it has none.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct SettingsView {
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated: Option<TimestampMs>,
    /// Remarks on entries that do less than their author may expect.
    diagnostics: Vec<DiagnosticView>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DiagnosticView {
    severity: Severity,
    /// From 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    message: String,
}

impl From<Diagnostic> for DiagnosticView {
    fn from(diagnostic: Diagnostic) -> Self {
        let Diagnostic { severity, path: _, line, message, is_told: _ } = diagnostic;
        Self { severity, line, message }
    }
}

pub(crate) async fn show(
    access: CanAdminister,
    State(state): State<ApiState>,
) -> Result<Json<SettingsView>, ApiError> {
    let (of, known) = (SettingsOf::Organisation, KnownSettings::default());
    let stored = state.store().settings(access.org, of, known).await?;
    let text = match stored.organisation {
        SettingsSeen::New(text) => text.bytes,
        SettingsSeen::Nothing | SettingsSeen::Known => return Ok(Json(SettingsView::default())),
    };
    let remarks = OrganisationSettings::parse(&text).diagnostics;
    let diagnostics = remarks.into_iter().map(Into::into).collect();
    Ok(Json(SettingsView { text, updated: stored.organisation_ms, diagnostics }))
}

/// Sets the settings for drains that start from now on. A text with a wrong entry is refused as a whole: nobody should
/// believe that a rule counts when it does not.
pub(crate) async fn set(
    access: CanAdminister,
    State(state): State<ApiState>,
    Body(request): Body<SettingsRequest>,
) -> Result<Json<SettingsView>, ApiError> {
    let bytes = plain(&request.text);
    if bytes.len() > MAX_BYTES {
        return Err(ApiError::TooLarge(format!(
            "settings have at most {MAX_BYTES} bytes, these {}",
            bytes.len()
        )));
    }
    let wrong = OrganisationSettings::parse(&bytes).diagnostics.into_iter();
    let wrong: Vec<_> =
        wrong.filter(|remark| remark.severity == Severity::Error).map(told).collect();
    if !wrong.is_empty() {
        return Err(ApiError::Invalid(format!("the settings are as before: {}", wrong.join("; "))));
    }
    let text = Some(SettingsText { hash: text_hash(&bytes), bytes });
    let text = text.filter(|text| !text.bytes.trim().is_empty());
    state.store().set_organisation_settings(access.org, text, state.clock().now_ms()).await?;
    show(access, State(state)).await
}

fn told(remark: Diagnostic) -> String {
    match remark.line {
        Some(line) => format!("line {line}: {}", remark.message),
        None => remark.message,
    }
}
