//! Credentials of an organisation and its people at model providers. Secrets come in and never go out.

use axum::Json;
use axum::extract::{Path, State};
use credentials::{CredentialRow, Material, NewSecret, SecretChange, ServiceAccount};
use http::StatusCode;
use llm_client::{AwsAccess, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::{Body, CanAdminister};
use crate::text::{id, secret};

/// The only shape in which a credential is shown.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CredentialView {
    id: String,
    provider: String,
    /// The owner; empty means the organisation.
    owner: String,
    label: String,
    kind: &'static str,
    /// The last four characters.
    hint: String,
    active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<i64>,
    /// The reason why the provider no longer accepts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    created: i64,
    updated: i64,
}

impl From<CredentialRow> for CredentialView {
    fn from(row: CredentialRow) -> Self {
        Self {
            kind: row.kind.as_str(),
            id: row.id,
            provider: row.provider,
            owner: row.owner,
            label: row.label,
            hint: row.hint,
            active: row.active,
            expires: row.expires_ms,
            fault: row.fault,
            created: row.created_ms,
            updated: row.updated_ms,
        }
    }
}

/// A request with a secret: `key`, `aws` or `serviceAccount`. It has no `Debug`, so that no log shows the secret.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct CredentialRequest {
    provider: Option<String>,
    owner: Option<String>,
    label: Option<String>,
    active: Option<bool>,
    key: Option<String>,
    aws: Option<AwsRequest>,
    /// The JSON file that Google's console writes.
    service_account: Option<serde_json::Value>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AwsRequest {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    region: String,
    #[serde(default = "bedrock")]
    service: String,
}

fn bedrock() -> String {
    "bedrock".to_owned()
}

impl CredentialRequest {
    fn material(&mut self) -> Result<Option<Material>, ApiError> {
        match (self.key.take(), self.aws.take(), self.service_account.take()) {
            (None, None, None) => Ok(None),
            (None, None, Some(account)) => {
                let account = ServiceAccount::read(&account)?;
                Ok(Some(Material::ServiceAccount(Box::new(account))))
            }
            (Some(key), None, None) => {
                secret("key", &key)?;
                Ok(Some(Material::ApiKey(Secret::new(&key))))
            }
            (None, Some(aws), None) => {
                let texts = [
                    ("aws.accessKeyId", Some(&aws.access_key_id)),
                    ("aws.secretAccessKey", Some(&aws.secret_access_key)),
                    ("aws.sessionToken", aws.session_token.as_ref()),
                    ("aws.region", Some(&aws.region)),
                    ("aws.service", Some(&aws.service)),
                ];
                for (name, text) in texts {
                    text.map_or(Ok(""), |text| secret(name, text))?;
                }
                Ok(Some(Material::Aws(AwsAccess {
                    access_key: aws.access_key_id,
                    secret_key: Secret::new(&aws.secret_access_key),
                    session_token: aws.session_token.as_deref().map(Secret::new),
                    region: aws.region,
                    service: aws.service,
                })))
            }
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => {
                Err(ApiError::invalid("a credential is one of `key`, `aws` and `serviceAccount`"))
            }
        }
    }
}

pub(crate) async fn list(
    access: CanAdminister,
    State(state): State<ApiState>,
) -> Result<Json<Vec<CredentialView>>, ApiError> {
    let rows = state.credentials().list(access.org).await?;
    Ok(Json(rows.into_iter().map(Into::into).collect()))
}

/// Stores a credential. Its owner's turns use it from now on.
pub(crate) async fn add(
    access: CanAdminister,
    State(state): State<ApiState>,
    Body(mut request): Body<CredentialRequest>,
) -> Result<Json<CredentialView>, ApiError> {
    let material = request.material()?;
    let material =
        material.ok_or_else(|| ApiError::invalid("`key`, `aws` or `serviceAccount` is missing"))?;
    let provider = request.provider.ok_or_else(|| ApiError::invalid("`provider` is missing"))?;
    if request.active == Some(false) {
        return Err(ApiError::invalid("a new credential is active; change it afterwards"));
    }
    let label = request.label.unwrap_or_else(|| "default".to_owned());
    let owner = request.owner.unwrap_or_default();
    let new = NewSecret { owner, provider, label, material };
    Ok(Json(state.credentials().add(access.org, new).await?.into()))
}

/// Changes a credential's label or secret, or whether it is used.
pub(crate) async fn change(
    access: CanAdminister,
    State(state): State<ApiState>,
    Path(credential): Path<String>,
    Body(mut request): Body<CredentialRequest>,
) -> Result<Json<CredentialView>, ApiError> {
    let material = request.material()?;
    if request.provider.is_some() || request.owner.is_some() {
        let message = "a credential keeps its provider and owner: add another one";
        return Err(ApiError::invalid(message));
    }
    let change = SecretChange { label: request.label, active: request.active, material };
    let changed = state.credentials().change(access.org, id(&credential)?, change);
    Ok(Json(changed.await?.into()))
}

pub(crate) async fn remove(
    access: CanAdminister,
    State(state): State<ApiState>,
    Path(credential): Path<String>,
) -> Result<StatusCode, ApiError> {
    state.credentials().remove(access.org, id(&credential)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
