//! Servers that are compatible with OpenAI's chat, and their addresses.

use llm_protocol::{CallIdForm, Dialect, Instructions, Protocol};

use super::{COMPATIBLE, Model, Provider, Spoken};

pub(super) const ALL: &[Provider] = &[
    Provider::chat("groq", &["@ai-sdk/groq"], "https://api.groq.com/openai/v1"),
    Provider {
        speaks: deepseek,
        ..Provider::chat(
            "deepseek",
            &["@ai-sdk/deepseek", COMPATIBLE],
            "https://api.deepseek.com/v1",
        )
    },
    Provider {
        speaks: mistral,
        ..Provider::chat("mistral", &["@ai-sdk/mistral"], "https://api.mistral.ai/v1")
    },
    Provider::chat("togetherai", &["@ai-sdk/togetherai"], "https://api.together.xyz/v1"),
    Provider::chat(
        "fireworks-ai",
        &["@ai-sdk/fireworks", COMPATIBLE],
        "https://api.fireworks.ai/inference/v1",
    ),
    Provider {
        speaks: cerebras,
        ..Provider::chat("cerebras", &["@ai-sdk/cerebras"], "https://api.cerebras.ai/v1")
    },
    Provider::chat("digitalocean", &[COMPATIBLE], "https://inference.do-ai.run/v1"),
    Provider::chat("deepinfra", &["@ai-sdk/deepinfra"], "https://api.deepinfra.com/v1/openai"),
    Provider::chat("perplexity", &["@ai-sdk/perplexity"], "https://api.perplexity.ai/v1"),
    Provider::chat("cohere", &["@ai-sdk/cohere"], "https://api.cohere.ai/compatibility/v1"),
    Provider::chat("vercel", &["@ai-sdk/gateway"], "https://ai-gateway.vercel.sh/v1"),
    Provider::chat("v0", &["@ai-sdk/vercel"], "https://api.v0.dev/v1"),
    Provider::chat("venice", &["venice-ai-sdk-provider"], "https://api.venice.ai/api/v1"),
    Provider::chat("aihubmix", &["@aihubmix/ai-sdk-provider"], "https://aihubmix.com/v1"),
    local("ollama", "http://127.0.0.1:11434/v1"),
    local("vllm", "http://127.0.0.1:8000/v1"),
    local("llama.cpp", "http://127.0.0.1:8080/v1"),
];

/// Makes a server that runs any model with that model's own chat template.
const fn local(id: &'static str, url: &'static str) -> Provider {
    Provider { speaks: Spoken::compatible, ..Provider::chat(id, &[COMPATIBLE], url) }
}

/// DeepSeek. Its reasoning models want the reasoning back with every call, and an empty one if there is none.
/// <https://api-docs.deepseek.com/guides/thinking_mode>
fn deepseek(model: &Model<'_>) -> Spoken {
    let field = model.reasoning.then_some(super::REASONING_CONTENT);
    Spoken::thinking(&Model { reasoning_field: model.reasoning_field.or(field), ..*model })
}

/// Mistral. Ids of calls are nine letters and digits (<https://github.com/anomalyco/opencode/issues/1680>).
/// It refuses user messages and instructions right after results
/// (<https://github.com/zed-industries/zed/issues/37021>), and has refused `stream_options`
/// (<https://github.com/BerriAI/litellm/issues/8978>); its last frame reports the usage anyway. Its seed has
/// another name. <https://docs.mistral.ai/api/endpoint/chat>
fn mistral(model: &Model<'_>) -> Spoken {
    let dialect = Dialect {
        instructions: Some(Instructions::Wrapped),
        call_ids: Some(CallIdForm::Nine),
        answers_results: true,
        omit: ["stream_options", "seed"].map(str::to_owned).into(),
        ..Spoken::chat(model).dialect
    };
    Spoken { protocol: Protocol::OpenAiChat, dialect }
}

/// Cerebras. <https://inference-docs.cerebras.ai/api-reference/chat-completions>
fn cerebras(model: &Model<'_>) -> Spoken {
    let chat = Spoken::chat(model).dialect;
    let dialect = Dialect { max_tokens_field: Some("max_completion_tokens".to_owned()), ..chat };
    Spoken { protocol: Protocol::OpenAiChat, dialect }
}
