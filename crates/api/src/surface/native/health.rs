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

/// Succeeds while the database answers and the gateway is not shutting down.
pub(crate) async fn readyz(State(state): State<ApiState>) -> Result<Json<Value>, ApiError> {
    if !state.is_serving() {
        let message = "this gateway is shutting down; ask another";
        return Err(ApiError::Unavailable { message, cause: None });
    }
    match tokio::time::timeout(PATIENCE, state.store().ping()).await {
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
