//! Azure OpenAI and Foundry, with version 1 of the API.
//! <https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle>

use llm_protocol::Protocol;

use super::{Model, Provider, Spoken, openai};

pub(super) const PROVIDER: Provider = Provider {
    id: "azure",
    npm: &["@ai-sdk/azure"],
    url: Some("https://${AZURE_RESOURCE_NAME}.openai.azure.com/openai/v1"),
    speaks,
    // A token from Entra stays a bearer token.
    reach: |setup| Ok(setup.at_its_url()?.with_key_in("api-key", str::to_owned)),
};

pub(super) const COGNITIVE_SERVICES: Provider = Provider {
    id: "azure-cognitive-services",
    url: Some(
        "https://${AZURE_COGNITIVE_SERVICES_RESOURCE_NAME}.cognitiveservices.azure.com/openai/v1",
    ),
    ..PROVIDER
};

/// OpenAI's models as at OpenAI, others in chat. The provider state is not OpenAI's.
fn speaks(model: &Model<'_>) -> Spoken {
    let openais = ["gpt-", "o1", "o3", "o4", "codex", "computer-use"];
    if !openais.iter().any(|name| model.id.starts_with(name)) {
        return Spoken::chat(model);
    }
    let mut spoken = openai::cached(model);
    if spoken.protocol == Protocol::OpenAiResponses {
        spoken.dialect.state_key = Some("azure".to_owned());
    }
    spoken
}
