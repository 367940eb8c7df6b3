//! OpenAI. <https://platform.openai.com/docs/api-reference>

use llm_protocol::{Dialect, Instructions, Protocol};

use super::{Model, Provider, Reach, Spoken};

pub(super) const PROVIDER: Provider = Provider {
    id: "openai",
    npm: &["@ai-sdk/openai"],
    url: Some("https://api.openai.com/v1"),
    speaks,
    reach: Reach::at_its_url,
};

/// Responses, or chat where the metadata says so. Its reasoning models take instructions from a developer.
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
