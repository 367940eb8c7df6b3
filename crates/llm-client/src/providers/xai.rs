//! xAI. <https://docs.x.ai/docs/api-reference>

use llm_protocol::Dialect;

use super::{Model, Provider, Spoken};

pub(super) const PROVIDER: Provider =
    Provider { speaks, ..Provider::chat("xai", &["@ai-sdk/xai"], "https://api.x.ai/v1") };

/// Uses chat, with its own names for options and state.
fn speaks(model: &Model<'_>) -> Spoken {
    let chat = Spoken::chat(model);
    Spoken { dialect: Dialect { state_key: Some("xai".to_owned()), ..chat.dialect }, ..chat }
}
