use super::*;
use crate::{Auth, Secret};

const ENV: [(&str, &str); 12] = [
    ("AWS_REGION", "eu-west-1"),
    ("AWS_ACCESS_KEY_ID", "AKID"),
    ("AWS_SECRET_ACCESS_KEY", "aws-secret"),
    ("AZURE_RESOURCE_NAME", "res"),
    ("AZURE_COGNITIVE_SERVICES_RESOURCE_NAME", "cog"),
    ("CLOUDFLARE_ACCOUNT_ID", "acc"),
    ("CLOUDFLARE_GATEWAY_ID", "gw"),
    ("GOOGLE_VERTEX_PROJECT", "proj"),
    ("GOOGLE_VERTEX_LOCATION", "europe-west4"),
    ("SNOWFLAKE_ACCOUNT", "org-acc"),
    ("COPILOT_INTEGRATION_ID", "ours"),
    ("EMPTY", "  "),
];

fn env(name: &str) -> Option<String> {
    ENV.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
}

fn route(id: &str, model: &str) -> Route {
    let auth = Auth::Key(Secret::new("key-12345678"));
    let model = Model { id: model, reasoning: true, ..Model::default() };
    of(id).unwrap().route(&Setup::new(model, &env, &auth)).unwrap()
}

/// Returns protocol, address, and the key's header if it is not the protocol's own.
fn told(id: &str, model: &str) -> (&'static str, String, String) {
    let route = route(id, model);
    let url = route.endpoint.request_url(route.protocol, &route.model).unwrap();
    let auth = match &route.auth {
        Auth::Key(_) => "key".to_owned(),
        Auth::Bearer(_) => "bearer".to_owned(),
        Auth::Header { name, value } => format!("{name}: {}", value.expose()),
        Auth::Exchanged(exchange) => format!("exchanged at {}", exchange.url),
        other @ (Auth::None | Auth::SigV4(_) | Auth::Source(_)) => format!("{other:?}"),
    };
    (route.protocol.id(), url.to_string(), auth)
}

#[test]
fn every_provider_is_reached_in_its_protocol_where_it_is() {
    let chat = "openai-chat";
    let expected = [
        ("openai", "gpt-5", "openai-responses", "https://api.openai.com/v1/responses", "key"),
        (
            "anthropic",
            "claude",
            "anthropic-messages",
            "https://api.anthropic.com/v1/messages",
            "key",
        ),
        (
            "google",
            "gemini-3",
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-3:streamGenerateContent?alt=sse",
            "key",
        ),
        (
            "google-vertex",
            "gemini-3",
            "gemini",
            "https://europe-west4-aiplatform.googleapis.com/v1/projects/proj/locations/europe-west4/publishers/google/models/gemini-3:streamGenerateContent?alt=sse",
            "bearer",
        ),
        (
            "google-vertex-anthropic",
            "claude@1",
            "anthropic-messages",
            "https://europe-west4-aiplatform.googleapis.com/v1/projects/proj/locations/europe-west4/publishers/anthropic/models/claude%401:streamRawPredict",
            "bearer",
        ),
        (
            "amazon-bedrock",
            "us.nova:0",
            "bedrock-converse",
            "https://bedrock-runtime.eu-west-1.amazonaws.com/model/us.nova%3A0/converse-stream",
            "key",
        ),
        (
            "azure",
            "gpt-5",
            "openai-responses",
            "https://res.openai.azure.com/openai/v1/responses",
            "api-key: key-12345678",
        ),
        (
            "azure",
            "phi-4",
            chat,
            "https://res.openai.azure.com/openai/v1/chat/completions",
            "api-key: key-12345678",
        ),
        (
            "azure-cognitive-services",
            "o3",
            "openai-responses",
            "https://cog.cognitiveservices.azure.com/openai/v1/responses",
            "api-key: key-12345678",
        ),
        (
            "openrouter",
            "anthropic/claude",
            chat,
            "https://openrouter.ai/api/v1/chat/completions",
            "key",
        ),
        ("xai", "grok-4", chat, "https://api.x.ai/v1/chat/completions", "key"),
        ("groq", "llama", chat, "https://api.groq.com/openai/v1/chat/completions", "key"),
        ("deepseek", "deepseek-chat", chat, "https://api.deepseek.com/v1/chat/completions", "key"),
        ("mistral", "devstral", chat, "https://api.mistral.ai/v1/chat/completions", "key"),
        ("togetherai", "llama", chat, "https://api.together.xyz/v1/chat/completions", "key"),
        (
            "fireworks-ai",
            "kimi",
            chat,
            "https://api.fireworks.ai/inference/v1/chat/completions",
            "key",
        ),
        ("cerebras", "gpt-oss", chat, "https://api.cerebras.ai/v1/chat/completions", "key"),
        (
            "github-copilot",
            "claude-sonnet-4.5",
            chat,
            "https://api.githubcopilot.com/chat/completions",
            "bearer",
        ),
        (
            "github-copilot",
            "gpt-5.2",
            "openai-responses",
            "https://api.githubcopilot.com/responses",
            "bearer",
        ),
        (
            "cloudflare-ai-gateway",
            "openai/gpt-5",
            chat,
            "https://gateway.ai.cloudflare.com/v1/acc/gw/compat/chat/completions",
            "cf-aig-authorization: Bearer key-12345678",
        ),
        (
            "cloudflare-workers-ai",
            "@cf/x/y",
            chat,
            "https://api.cloudflare.com/client/v4/accounts/acc/ai/v1/chat/completions",
            "key",
        ),
        ("digitalocean", "llama", chat, "https://inference.do-ai.run/v1/chat/completions", "key"),
        (
            "snowflake-cortex",
            "claude",
            chat,
            "https://org-acc.snowflakecomputing.com/api/v2/cortex/v1/chat/completions",
            "key",
        ),
        (
            "gitlab",
            "duo-chat-opus-4-5",
            "anthropic-messages",
            "https://cloud.gitlab.com/ai/v1/proxy/anthropic/v1/messages",
            "exchanged at https://gitlab.com/api/v4/ai/third_party_agents/direct_access",
        ),
        (
            "gitlab",
            "duo-chat-gpt-5-1",
            "openai-responses",
            "https://cloud.gitlab.com/ai/v1/proxy/openai/v1/responses",
            "exchanged at https://gitlab.com/api/v4/ai/third_party_agents/direct_access",
        ),
        ("ollama", "llama", chat, "http://127.0.0.1:11434/v1/chat/completions", "key"),
        ("vllm", "llama", chat, "http://127.0.0.1:8000/v1/chat/completions", "key"),
        ("llama.cpp", "llama", chat, "http://127.0.0.1:8080/v1/chat/completions", "key"),
    ];
    for (id, model, protocol, url, auth) in expected {
        assert_eq!(told(id, model), (protocol, url.to_owned(), auth.to_owned()), "{id}/{model}");
    }
}

#[test]
fn what_a_provider_has_of_its_own_is_in_its_dialect_and_headers() {
    let dialect = |id, model| serde_json::to_string(&route(id, model).dialect).unwrap();
    assert_eq!(dialect("openai", "gpt-5"), r#"{"instructions":"developer","cacheKey":true}"#);
    assert_eq!(
        dialect("azure", "gpt-5"),
        r#"{"stateKey":"azure","instructions":"developer","cacheKey":true}"#
    );
    assert_eq!(
        dialect("google-vertex-anthropic", "claude"),
        r#"{"omit":["model"],"body":{"anthropic_version":"vertex-2023-10-16"}}"#
    );
    assert_eq!(
        dialect("openrouter", "anthropic/claude"),
        r#"{"stateKey":"openrouter","reasoningField":"reasoning_details","inlineCache":true,"cacheKey":true}"#
    );
    assert_eq!(
        dialect("openrouter", "openai/gpt-5"),
        r#"{"stateKey":"openrouter","reasoningField":"reasoning_details","cacheKey":true}"#
    );
    assert_eq!(
        dialect("deepseek", "deepseek-reasoner"),
        r#"{"reasoningField":"reasoning_content","reasoningWithCalls":true}"#
    );
    assert_eq!(dialect("cerebras", "x"), r#"{"maxTokensField":"max_completion_tokens"}"#);
    assert_eq!(dialect("groq", "x"), "{}");
    let copilot = route("github-copilot", "gpt-4.1").endpoint.headers;
    let names: Vec<_> =
        copilot.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    assert_eq!(
        names,
        [("openai-intent", "conversation-edits"), ("copilot-integration-id", "ours")]
    );
    assert!(route("github-copilot", "gpt-4.1").endpoint.by_body.is_some());
    assert_eq!(dialect("gitlab", "duo-chat-opus-4-6"), r#"{"model":"claude-opus-4-6"}"#);
    let shaped = Model { id: "gpt-4o", shape: Some("completions"), ..Model::default() };
    let spoken = (of("openai").unwrap().speaks)(&shaped);
    assert_eq!(spoken.protocol, Protocol::OpenAiChat);
}

#[test]
fn metadata_finds_a_provider_by_id_while_its_package_is_the_same_and_else_by_package() {
    let found = |id, npm| find(id, npm).id;
    assert_eq!(found("deepseek", COMPATIBLE), "deepseek");
    assert_eq!(found("deepseek", "@ai-sdk/anthropic"), "anthropic");
    assert_eq!(found("minimax", "@ai-sdk/anthropic"), "anthropic");
    assert_eq!(found("azure-cognitive-services", "@ai-sdk/azure"), "azure-cognitive-services");
    assert_eq!(found("my-azure", "@ai-sdk/azure"), "azure");
    assert_eq!(found("new", COMPATIBLE), "openai-compatible");
    assert_eq!(found("new", "a-package-of-tomorrow"), "openai-compatible");
}

#[test]
fn a_setting_that_is_missing_is_named_and_one_url_takes_the_place_of_all() {
    let auth = Auth::None;
    let none = |_: &str| None;
    let setup = Setup::new(Model { id: "m", ..Model::default() }, &none, &auth);
    let missing = |id: &str| of(id).unwrap().route(&setup).unwrap_err().to_string();
    assert!(missing("azure").contains("`azure` needs `AZURE_RESOURCE_NAME`"));
    assert!(missing("amazon-bedrock").contains("`AWS_REGION`"));
    assert!(missing("google-vertex").contains("`GOOGLE_VERTEX_PROJECT`"));
    let error = OPENAI_COMPATIBLE.route(&setup).unwrap_err();
    assert!(error.to_string().contains("set one in the provider's settings"), "{error}");
    for provider in ALL.iter().copied().flatten().filter(|provider| provider.id != "amazon-bedrock")
    {
        let base_url = Some("http://127.0.0.1:9/own");
        let route = provider.route(&Setup { base_url, ..setup }).unwrap();
        assert_eq!(route.endpoint.base_url, "http://127.0.0.1:9/own", "{}", provider.id);
    }
    let setup = Setup::new(setup.model, &env, &auth);
    assert_eq!(setup.fill("a${AWS_REGION}b${EMPTY").unwrap(), "aeu-west-1b${EMPTY");
    assert!(setup.fill("${EMPTY}").is_err());
    for elsewhere in ["127.0.0.1/#", "a.b/c?d=", "me@host", "ä"] {
        let env = |_: &str| Some(elsewhere.to_owned());
        let setup = Setup::new(setup.model, &env, &auth);
        let error = of("azure").unwrap().route(&setup).unwrap_err().to_string();
        assert!(error.contains("`azure` has a `AZURE_RESOURCE_NAME` that is no name"), "{error}");
        assert_eq!(setup.fill("${HOST}/v1").unwrap(), format!("{elsewhere}/v1"));
    }
    for (location, host) in [
        ("global", "aiplatform.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
        ("us", "aiplatform.us.rep.googleapis.com"),
        ("us-east5", "us-east5-aiplatform.googleapis.com"),
    ] {
        let env = |name: &str| match name {
            "GOOGLE_VERTEX_LOCATION" => Some(location.to_owned()),
            name => env(name),
        };
        let route = of("google-vertex").unwrap().route(&Setup::new(setup.model, &env, &auth));
        let url = route.unwrap().endpoint.base_url;
        assert!(url.starts_with(&format!("https://{host}/v1/projects/proj/locations/{location}/")));
    }
    let vertex = "https://${GOOGLE_VERTEX_ENDPOINT}/v1";
    assert_eq!(setup.fill(vertex).unwrap(), "https://europe-west4-aiplatform.googleapis.com/v1");
}

#[test]
fn bedrock_signs_with_the_settings_where_no_credentials_are_given() {
    let auth = Auth::None;
    let model = Model { id: "m", ..Model::default() };
    let route = of("amazon-bedrock").unwrap().route(&Setup::new(model, &env, &auth)).unwrap();
    let Auth::SigV4(access) = &route.auth else { panic!("{:?}", route.auth) };
    assert_eq!((access.access_key.as_str(), access.region.as_str()), ("AKID", "eu-west-1"));
    assert!(!format!("{route:?}").contains("aws-secret"));
    let with_key = |name: &str| match name {
        "AWS_BEARER_TOKEN_BEDROCK" => Some("bedrock-key".to_owned()),
        name => env(name),
    };
    let route = of("amazon-bedrock").unwrap().route(&Setup::new(model, &with_key, &auth)).unwrap();
    assert!(matches!(route.auth, Auth::Bearer(_)));
}

// Finding llm 3: Mistral's own API, and its models on other hosts.
#[test]
fn mistrals_models_get_what_they_take() {
    let own = route("mistral", "devstral-medium").dialect;
    assert_eq!((own.call_ids, own.answers_results), (Some(CallIdForm::Nine), true));
    assert!(own.omit.contains(&"stream_options".to_owned()));
    assert_eq!(own.instructions, Some(llm_protocol::Instructions::Wrapped));
    let elsewhere = route("vllm", "mistralai/Devstral-Small-2").dialect;
    assert_eq!((elsewhere.call_ids, elsewhere.answers_results), (Some(CallIdForm::Nine), true));
    assert!(elsewhere.omit.is_empty());
    let other = route("vllm", "qwen3-coder").dialect;
    assert_eq!((other.call_ids, other.answers_results), (None, false));
}

// Finding next report 20, 21: chat templates refuse instructions in the middle, and two messages of one role in a row.
#[test]
fn unknown_servers_get_no_system_in_the_middle() {
    let model = Model { id: "qwen3.5", ..Model::default() };
    let dialect = |provider: &Provider| {
        let dialect = (provider.speaks)(&model).dialect;
        (dialect.instructions, dialect.joins_messages)
    };
    let strict = (Some(Instructions::Wrapped), true);
    assert_eq!(dialect(&OPENAI_COMPATIBLE), strict);
    for id in ["ollama", "vllm", "llama.cpp"] {
        assert_eq!(dialect(of(id).unwrap()), strict, "{id}");
    }
    for id in ["openrouter", "groq", "deepseek"] {
        assert_eq!(dialect(of(id).unwrap()), (None, false), "{id}");
    }
}

// Finding reports 9: a history whose calls another model made was refused, with or without metadata about the model.
#[test]
fn models_that_think_get_reasoning_with_calls() {
    let dialect = |provider: &Provider, id, reasoning, field| {
        let model = Model { id, reasoning, reasoning_field: field, ..Model::default() };
        (provider.speaks)(&model).dialect
    };
    let (deepseek, own) = (of("deepseek").unwrap(), &OPENAI_COMPATIBLE);
    let content = Some("reasoning_content");
    let wanted = [
        dialect(deepseek, "deepseek-reasoner", false, None),
        dialect(deepseek, "deepseek-v4-pro", true, content),
        dialect(own, "deepseek-reasoner", false, None),
        dialect(own, "kimi-k2-thinking", false, None),
        dialect(own, "kimi-k2.6", true, content),
        dialect(own, "moonshotai/Kimi-K2.5", true, content),
        dialect(own, "mimo-v2-pro", true, content),
    ];
    for dialect in wanted {
        assert_eq!(dialect.reasoning_field.as_deref(), content, "{dialect:?}");
        assert!(dialect.reasoning_with_calls, "{dialect:?}");
    }
    let others = [
        dialect(own, "glm-5", true, content),
        dialect(own, "kimi-k2-instruct", false, None),
        dialect(deepseek, "deepseek-chat", false, None),
        dialect(of("groq").unwrap(), "moonshotai/kimi-k2.5", true, None),
        dialect(own, "deepseek/deepseek-r1", true, Some("reasoning_details")),
    ];
    assert!(others.iter().all(|dialect| !dialect.reasoning_with_calls), "{others:?}");
}
