//! An organisation's settings for model providers.

use axum::Json;
use axum::extract::{Path, State};
use catalog::{Overrides, ProviderOverride};
use credentials::{ALL_PROVIDERS, ClientSecret, ProviderSettings, ProviderSetup};
use http::StatusCode;
use llm_client::Secret;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::{Body, CanAdminister};

/// A provider's settings without the OAuth client's secret and without values of headers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SetupView {
    provider: String,
    #[serde(flatten)]
    #[schemars(with = "Map<String, Value>")]
    settings: ProviderSettings,
    has_client_secret: bool,
    updated: i64,
}

impl From<ProviderSetup> for SetupView {
    fn from(setup: ProviderSetup) -> Self {
        let ProviderSetup { provider, settings, has_client_secret, updated_ms } = setup;
        Self { provider, settings, has_client_secret, updated: updated_ms }
    }
}

pub(crate) async fn list(
    access: CanAdminister,
    State(state): State<ApiState>,
) -> Result<Json<Vec<SetupView>>, ApiError> {
    let all = state.credentials().providers(access.org).await?;
    Ok(Json(all.into_iter().map(Into::into).collect()))
}

pub(crate) async fn show(
    access: CanAdminister,
    State(state): State<ApiState>,
    Path(provider): Path<String>,
) -> Result<Json<SetupView>, ApiError> {
    let all = state.credentials().providers(access.org).await?;
    let found = all.into_iter().find(|setup| setup.provider == provider);
    found
        .map(|setup| Json(setup.into()))
        .ok_or(ApiError::NotFound("settings of this provider were"))
}

/// Sets up a provider, or with the id `*` all of them. An absent `oauth.clientSecret` keeps the stored one; null
/// removes it. Values of headers and keys that are sent as they are shown keep the stored ones.
pub(crate) async fn set(
    access: CanAdminister,
    State(state): State<ApiState>,
    Path(provider): Path<String>,
    Body(mut request): Body<Map<String, Value>>,
) -> Result<Json<SetupView>, ApiError> {
    let secret = match request.get_mut("oauth").and_then(|oauth| oauth.as_object_mut()) {
        Some(oauth) => match oauth.remove("clientSecret") {
            None => ClientSecret::Keep,
            Some(Value::Null) => ClientSecret::Remove,
            Some(Value::String(text)) if !text.trim().is_empty() => {
                ClientSecret::Set(Secret::new(&text))
            }
            Some(_) => return Err(ApiError::invalid("`oauth.clientSecret` is a text, or null")),
        },
        None => ClientSecret::Remove,
    };
    let settings: ProviderSettings =
        serde_json::from_value(Value::Object(request)).map_err(ApiError::invalid)?;
    check_overrides(&provider, &settings.overrides)?;
    let set = state.credentials().set_provider(access.org, &provider, &settings, &secret);
    Ok(Json(set.await?.into()))
}

pub(crate) async fn remove(
    access: CanAdminister,
    State(state): State<ApiState>,
    Path(provider): Path<String>,
) -> Result<StatusCode, ApiError> {
    state.credentials().remove_provider(access.org, &provider).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Refuses overrides that the catalog could not read.
fn check_overrides(provider: &str, overrides: &Map<String, Value>) -> Result<(), ApiError> {
    let value = Value::Object(overrides.clone());
    let named = |error: serde_json::Error| ApiError::invalid(format!("`overrides`: {error}"));
    if provider == ALL_PROVIDERS {
        let read: Overrides = serde_json::from_value(value).map_err(named)?;
        if !read.providers.is_empty() {
            let message =
                "`overrides` of all providers are `allow` and `deny`; each provider has its own";
            return Err(ApiError::invalid(message));
        }
        return Ok(());
    }
    let read: ProviderOverride = serde_json::from_value(value).map_err(named)?;
    if read.limits.requests_per_minute == Some(0) || read.limits.tokens_per_minute == Some(0) {
        return Err(ApiError::invalid("a limit is at least 1; leave it out for none"));
    }
    Ok(())
}
