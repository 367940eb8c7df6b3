//! OpenAI. <https://platform.openai.com/docs/api-reference>

use llm_protocol::{Dialect, Instructions, Protocol};

use super::{Model, Provider, Reach, Spoken};

pub(super) const PROVIDER: Provider = Provider {
    id: "openai",
    npm: &["@ai-sdk/openai"],
    url: Some("https://api.openai.com/v1"),
    speaks: cached,
    reach: Reach::at_its_url,
};

/// Returns [`speaks`] with a cache key. <https://platform.openai.com/docs/guides/prompt-caching>
pub(super) fn cached(model: &Model<'_>) -> Spoken {
    let mut spoken = speaks(model);
    spoken.dialect.cache_key = true;
    spoken
}

/// Uses Responses, or chat if metadata says so. Reasoning models take instructions in the developer role.
pub(super) fn speaks(model: &Model<'_>) -> Spoken {
    let instructions = model.reasoning.then_some(Instructions::Developer);
    let mut dialect = Dialect { instructions, ..Dialect::default() };
    if model.shape != Some("completions") {
        return Spoken { protocol: Protocol::OpenAiResponses, dialect };
    }
    dialect.max_tokens_field = Some("max_completion_tokens".to_owned());
    dialect.reasoning_field = model.reasoning_field.map(str::to_owned);
    Spoken { protocol: Protocol::OpenAiChat, dialect }
}
