//! Sign-ins at model providers: begin, poll, complete.

use axum::Json;
use axum::extract::{Path, State};
use credentials::{NewSignInRequest, NextStep, SignInMethod, SignInProgress, SignInState};
use domain::OrgId;
use http::StatusCode;
use llm_client::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::{Body, CanAdminister};
use crate::text::id;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct BeginRequest {
    method: Method,
    #[serde(default)]
    owner: String,
    #[serde(default)]
    label: Option<String>,
    redirect_url: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "SignInMethod")]
enum Method {
    Code,
    Device,
}

/// The values that the browser came back with. It has no `Debug`, because they are as good as a password.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct CompleteRequest {
    code: String,
    state: String,
}

/// The state of a sign-in.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SignInView {
    attempt: String,
    provider: String,
    method: &'static str,
    status: &'static str,
    expires: i64,
    /// The page for the browser to open.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// The code to type in at `verificationUrl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    user_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification_url_complete: Option<String>,
    /// How often to poll.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl From<SignInProgress> for SignInView {
    fn from(progress: SignInProgress) -> Self {
        let SignInProgress { id, provider, method, state, expires_ms } = progress;
        let base = Self {
            attempt: id,
            provider,
            method: method.as_str(),
            expires: expires_ms,
            ..Self::default()
        };
        match state {
            SignInState::Pending(NextStep::Open { url }) => {
                Self { status: "pending", url: Some(url), ..base }
            }
            SignInState::Pending(NextStep::Type { user_code, url, complete_url, interval_ms }) => {
                Self {
                    status: "pending",
                    user_code: Some(user_code),
                    verification_url: Some(url),
                    verification_url_complete: complete_url,
                    interval_ms: Some(interval_ms),
                    ..base
                }
            }
            SignInState::Complete(credential) => {
                Self { status: "complete", credential: Some(credential), ..base }
            }
            SignInState::Failed(message) => {
                Self { status: "failed", message: Some(message), ..base }
            }
            SignInState::Expired => Self { status: "expired", ..base },
        }
    }
}

/// The sign-in in a path: its provider and its id.
#[derive(Debug, Deserialize)]
pub(crate) struct AtSignIn {
    provider: String,
    attempt: String,
}

impl AtSignIn {
    /// # Errors
    /// 404 if this provider has no sign-in with this id.
    async fn find(&self, state: &ApiState, org: OrgId) -> Result<SignInProgress, ApiError> {
        let found = state.credentials().sign_in(org, id(&self.attempt)?).await?;
        if found.provider == self.provider {
            Ok(found)
        } else {
            Err(ApiError::NotFound("a sign-in of this id was"))
        }
    }
}

pub(crate) async fn begin(
    access: CanAdminister,
    State(state): State<ApiState>,
    Path(provider): Path<String>,
    Body(request): Body<BeginRequest>,
) -> Result<Json<SignInView>, ApiError> {
    let BeginRequest { method, owner, label, redirect_url } = request;
    let method = match method {
        Method::Code => SignInMethod::Code,
        Method::Device => SignInMethod::Device,
    };
    let label = label.unwrap_or_else(|| "default".to_owned());
    let request = NewSignInRequest { provider, method, owner, label, redirect_url };
    Ok(Json(state.credentials().begin_sign_in(access.org, request).await?.into()))
}

/// Returns the state of a sign-in. For a device sign-in it asks the provider, as often as the provider allows.
pub(crate) async fn show(
    access: CanAdminister,
    State(state): State<ApiState>,
    Path(at): Path<AtSignIn>,
) -> Result<Json<SignInView>, ApiError> {
    Ok(Json(at.find(&state, access.org).await?.into()))
}

/// Completes a sign-in with the code and the state that the browser came back with.
pub(crate) async fn complete(
    access: CanAdminister,
    State(state): State<ApiState>,
    Path(at): Path<AtSignIn>,
    Body(request): Body<CompleteRequest>,
) -> Result<Json<SignInView>, ApiError> {
    let found = at.find(&state, access.org).await?;
    let (code, given) = (Secret::new(&request.code), request.state);
    let sign_in = id(&found.id)?;
    let done = state.credentials().complete_sign_in(access.org, sign_in, code, &given).await?;
    Ok(Json(done.into()))
}

pub(crate) async fn remove(
    access: CanAdminister,
    State(state): State<ApiState>,
    Path(at): Path<AtSignIn>,
) -> Result<StatusCode, ApiError> {
    let found = at.find(&state, access.org).await?;
    state.credentials().remove_sign_in(access.org, id(&found.id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
