use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::ApiState;
use crate::error::ApiError;

/// How long `readyz` waits for the database. A probe must fail rather than hang.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers as long as the process runs.
pub(crate) async fn healthz(State(state): State<ApiState>) -> Json<Value> {
    Json(json!({ "healthy": true, "version": state.settings().version }))
}

/// Succeeds while the database answers, placement does not refuse the cluster secret, and the gateway is not shutting
/// down. Without placement it admits prompts, which wait.
pub(crate) async fn readyz(State(state): State<ApiState>) -> Result<Json<Value>, ApiError> {
    if !state.is_serving() {
        let message = "this gateway is shutting down; ask another";
        return Err(ApiError::Unavailable { message, cause: None });
    }
    let ping = tokio::time::timeout(PATIENCE, state.store().ping());
    let (answer, accepted) = tokio::join!(ping, state.placement().prove_secret());
    if accepted.is_err() {
        let message = "placement refuses this gateway's cluster secret: give every role the same --cluster-secret, and \
                       start this one again";
        return Err(ApiError::Unavailable { message, cause: None });
    }
    match answer {
        Ok(Ok(())) => Ok(Json(json!({ "ready": true }))),
        Ok(Err(error)) => Err(ApiError::Unavailable {
            message: "the database does not answer",
            cause: Some(error.into()),
        }),
        Err(_) => Err(ApiError::Unavailable {
            message: "the database did not answer within 2 s",
            cause: None,
        }),
    }
}
