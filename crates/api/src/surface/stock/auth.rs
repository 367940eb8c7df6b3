//! Keys at model providers, as stock clients set them: `/connect` in the terminal, settings in the web client.

use axum::Json;
use axum::extract::{Path, State};
use credentials::{CredentialRow, Material, NewSecret, SecretChange};
use domain::OrgId;
use llm_client::Secret;
use serde::Deserialize;
use std::collections::BTreeMap;

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::{Body, CanAdminister};
use crate::text::{id, secret};

/// The label of the credential that these routes set and remove. `POST /platform/credential` uses it too when a request
/// names none.
const LABEL: &str = "default";

/// A client's request. It has no `Debug`, so that no log shows the secret.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum AuthRequest {
    /// An API key.
    Api {
        key: String,
        #[serde(default)]
        metadata: BTreeMap<String, String>,
    },
    /// The tokens of a sign-in that the client made.
    Oauth {},
    /// The tokens of a server's own sign-in.
    Wellknown {},
}

/// Sets the organisation's key at a provider. Its next turns use it.
pub(crate) async fn set(
    access: CanAdminister,
    State(state): State<ApiState>,
    Path(provider): Path<String>,
    Body(request): Body<AuthRequest>,
) -> Result<Json<bool>, ApiError> {
    let key = match request {
        AuthRequest::Api { key, metadata } if metadata.is_empty() => key,
        AuthRequest::Api { .. } => {
            return Err(ApiError::NotOffered(
                "a key has no `metadata` here: set the options of a provider with `PUT /platform/provider/{provider}`",
            ));
        }
        AuthRequest::Oauth {} | AuthRequest::Wellknown {} => {
            return Err(ApiError::NotOffered(
                "tokens of a sign-in are not taken from a client, since two would renew them: begin the sign-in with \
                 `POST /platform/oauth/{provider}`",
            ));
        }
    };
    let material = Material::ApiKey(Secret::new(secret("key", &key)?));
    match known(&state, access.org, &provider).await? {
        Some(row) => {
            let change = SecretChange {
                active: Some(true),
                material: Some(material),
                ..SecretChange::default()
            };
            state.credentials().change(access.org, id(&row.id)?, change).await?;
        }
        None => {
            let (owner, label) = (String::new(), LABEL.to_owned());
            let new = NewSecret { owner, provider, label, material };
            state.credentials().add(access.org, new).await?;
        }
    }
    Ok(Json(true))
}

/// Removes the organisation's key at a provider. Answers `true` if there was none, as the released server does.
pub(crate) async fn remove(
    access: CanAdminister,
    State(state): State<ApiState>,
    Path(provider): Path<String>,
) -> Result<Json<bool>, ApiError> {
    if let Some(row) = known(&state, access.org, &provider).await? {
        state.credentials().remove(access.org, id(&row.id)?).await?;
    }
    Ok(Json(true))
}

/// Returns the organisation's credential that these routes set.
async fn known(
    state: &ApiState,
    org: OrgId,
    provider: &str,
) -> Result<Option<CredentialRow>, ApiError> {
    let rows = state.credentials().list(org).await?;
    let is_it = |row: &CredentialRow| {
        row.provider == provider && row.owner.is_empty() && row.label == LABEL
    };
    Ok(rows.into_iter().find(is_it))
}
