//! Recovery codes of owners, for when nobody can sign in otherwise.

use access::Actor;
use auth::RecoveryCode;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use domain::UserId;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::Caller;

/// The recovery codes that an owner has, without the codes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RecoveryView {
    /// When they were made; null: there are none.
    made_at: Option<i64>,
    used: i64,
    /// How many still work.
    left: i64,
}

/// New recovery codes. Nobody can read them again.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NewCodesView {
    codes: Vec<String>,
    made_at: i64,
}

/// An answer with 201.
pub(crate) struct MadeCodes(NewCodesView);

impl IntoResponse for MadeCodes {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, Json(self.0)).into_response()
    }
}

fn owner(caller: &Caller) -> Result<UserId, ApiError> {
    match &caller.standing().actor {
        Actor::User(user) => Ok(user.clone()),
        Actor::Service(_) => Err(ApiError::Conflict(
            "a service account is never an owner, and has no recovery codes".to_owned(),
        )),
    }
}

pub(crate) async fn show(
    caller: Caller,
    State(state): State<ApiState>,
) -> Result<Json<RecoveryView>, ApiError> {
    let codes = state.store().recovery_codes(caller.org(), owner(&caller)?).await?;
    let (used, left) = codes.as_ref().map_or((0, 0), |codes| (codes.used, codes.left));
    Ok(Json(RecoveryView { made_at: codes.map(|codes| codes.made_ms), used, left }))
}

/// Makes codes in place of all before. Each logs the caller in once, without a provider, key or link.
pub(crate) async fn make(
    caller: Caller,
    State(state): State<ApiState>,
) -> Result<MadeCodes, ApiError> {
    let (user, now) = (owner(&caller)?, state.clock().now_ms());
    let set = RecoveryCode::set();
    let hashes = set.iter().map(|code| code.hash().to_vec()).collect();
    let about = json!({}).to_string();
    state.store().set_recovery_codes(caller.org(), user.clone(), hashes, about, now).await?;
    tracing::info!(%user, by = caller.via().id(), "an owner has made new recovery codes");
    let codes = set.iter().map(RecoveryCode::text).collect();
    Ok(MadeCodes(NewCodesView { codes, made_at: now }))
}
