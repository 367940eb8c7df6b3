//! OpenRouter. <https://openrouter.ai/docs/use-cases/reasoning-tokens#preserving-reasoning-blocks>

use llm_protocol::{Dialect, Protocol};

use super::{Model, Provider, Spoken};

pub(super) const PROVIDER: Provider = Provider {
    speaks,
    ..Provider::chat("openrouter", &["@openrouter/ai-sdk-provider"], "https://openrouter.ai/api/v1")
};

/// Reasoning goes back verbatim. Anthropic's models want cache marks.
fn speaks(model: &Model<'_>) -> Spoken {
    let dialect = Dialect {
        state_key: Some("openrouter".to_owned()),
        reasoning_field: model.reasoning.then(|| "reasoning_details".to_owned()),
        cache_key: true,
        inline_cache: model.id.starts_with("anthropic/"),
        ..Dialect::default()
    };
    Spoken { protocol: Protocol::OpenAiChat, dialect }
}
