use domain::{Control, Delivery, IdMint, MessageId, Stamp};
use schemars::JsonSchema;
use serde::Deserialize;
use store::{AdmittedControl, SessionRow};

use super::control::Asked;
use crate::ApiState;
use crate::error::ApiError;
use crate::text::id;

/// A request to put a compaction into the inbox.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct CompactRequest {
    #[serde(rename = "messageID", alias = "id")]
    message_id: Option<String>,
    delivery: Option<Delivery>,
    resume: Option<bool>,
}

/// Admits a compaction. Once this returns, it cannot be lost.
pub(crate) async fn admit_compaction(
    state: &ApiState,
    row: &SessionRow,
    request: CompactRequest,
) -> Result<AdmittedControl, ApiError> {
    let now = state.clock().now_ms();
    let message: MessageId = match request.message_id.as_deref() {
        Some(text) => id(text)?,
        None => MessageId::mint(&mut IdMint::after(Stamp::default(), now)),
    };
    let asked = Asked {
        message,
        delivery: request.delivery.unwrap_or_default(),
        control: Control::Compaction,
        wake: request.resume.unwrap_or(true),
    };
    asked.admit(state, row).await
}
