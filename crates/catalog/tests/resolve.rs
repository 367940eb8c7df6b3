//! Choices of models in the shipped catalog and in an organisation's view of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use catalog::{Access, Overrides, ResolveError, Resolved, list, resolve, shipped};
use llm_client::Auth;
use llm_protocol::{Generation, LlmRequest, Message};
use serde_json::{Value, json};

fn overrides(json: Value) -> Overrides {
    serde_json::from_value(json).unwrap()
}

fn resolved(choice: (&str, &str, Option<&str>)) -> Resolved {
    resolve(&shipped(), &Overrides::default(), choice).unwrap()
}

/// Returns the body of a request to the model.
fn body(resolved: &Resolved) -> Value {
    let mut request = LlmRequest::new(resolved.api_id(), vec![Message::user("hello")]);
    request.provider_options.clone_from(&resolved.domains.request_options);
    request.generation =
        resolved.generation(&Generation { temperature: Some(0.5), ..Generation::default() });
    serde_json::from_slice(&resolved.protocol.encode_for(&request, &resolved.dialect)).unwrap()
}

#[test]
fn a_variant_is_in_the_body_as_its_provider_understands_it() {
    let openai = body(&resolved(("openai", "gpt-5.5", Some("low"))));
    assert_eq!(openai["reasoning"], json!({ "effort": "low", "summary": "auto" }));
    assert_eq!(
        (&openai["store"], &openai["include"]),
        (&json!(false), &json!(["reasoning.encrypted_content"]))
    );
    assert_eq!(openai["model"], "gpt-5.5");
    assert!(openai.get("temperature").is_none(), "its reasoning models refuse one");
    let fast = body(&resolved(("openai", "gpt-5.5-fast", None)));
    assert_eq!((&fast["model"], &fast["service_tier"]), (&json!("gpt-5.5"), &json!("priority")));
    let claude = body(&resolved(("anthropic", "claude-sonnet-4-5", Some("high"))));
    assert_eq!(claude["thinking"], json!({ "type": "enabled", "budget_tokens": 16_000 }));
    let adaptive = body(&resolved(("anthropic", "claude-opus-4-7", Some("max"))));
    assert_eq!(
        (&adaptive["thinking"], &adaptive["output_config"]),
        (&json!({ "type": "adaptive" }), &json!({ "effort": "max" }))
    );
    let gemini = body(&resolved(("google", "gemini-2.5-pro", Some("high"))));
    let thinking = json!({ "includeThoughts": true, "thinkingBudget": 16_000 });
    assert_eq!(gemini["generationConfig"]["thinkingConfig"], thinking);
    let bedrock = body(&resolved((
        "amazon-bedrock",
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        Some("max"),
    )));
    let reasoning = &bedrock["additionalModelRequestFields"]["reasoning_config"];
    assert_eq!(reasoning["budget_tokens"], 31_999, "{bedrock}");
    let openrouter = body(&resolved(("openrouter", "openai/gpt-5", Some("high"))));
    assert_eq!(openrouter["reasoning"], json!({ "effort": "high" }));
    let groq = body(&resolved(("groq", "openai/gpt-oss-120b", Some("low"))));
    assert_eq!(groq["reasoning_effort"], "low");
}

#[test]
fn what_one_host_sent_to_see_again_is_not_sent_to_another() {
    let metadata = json!({
        "minimax-x": { "npm": "@ai-sdk/anthropic", "api": "https://m.example/v1", "models": { "m": { "reasoning": true } } },
        "router": { "npm": "@openrouter/ai-sdk-provider", "api": "https://r.example/v1",
            "models": { "m": { "options": { "provider": { "order": ["a"] } } } } },
    });
    let (invented, _) = catalog::ingest(metadata.to_string().as_bytes()).unwrap();
    let all = shipped();
    let key = |catalog, provider, model| {
        let none = Overrides::default();
        resolve(catalog, &none, (provider, model, None)).unwrap().dialect.state_key
    };
    let own = |provider: &str| Some(provider.to_owned());
    for (provider, model) in [
        ("minimax", "MiniMax-M2"),
        ("azure", "claude-opus-4-6"),
        ("azure", "gpt-5"),
        ("google-vertex", "gemini-2.5-pro"),
        ("google-vertex-anthropic", "claude-sonnet-4-5@20250929"),
        ("openrouter", "openai/gpt-5"),
        ("deepseek", "deepseek-reasoner"),
    ] {
        assert_eq!(key(&all, provider, model), own(provider), "{provider}/{model}");
    }
    for (provider, model) in [
        ("openai", "gpt-5"),
        ("anthropic", "claude-opus-4-7"),
        ("google", "gemini-2.5-pro"),
        ("amazon-bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0"),
    ] {
        assert_eq!(key(&all, provider, model), None, "{provider}/{model}");
    }
    assert_eq!(key(&invented, "minimax-x", "m"), own("minimax-x"));
    // Options under the package's key move to the new key.
    let none = Overrides::default();
    let routed = resolve(&invented, &none, ("router", "m", None)).unwrap();
    assert_eq!(routed.dialect.state_key, own("router"));
    assert_eq!(body(&routed)["provider"], json!({ "order": ["a"] }));
}

#[test]
fn a_provider_is_set_up_by_its_key_and_what_its_address_needs() {
    let (catalog, none) = (shipped(), Overrides::default());
    let is_set_up = |provider: &str, names: &[&str]| {
        let env = |name: &str| names.contains(&name).then(|| "value".to_owned());
        catalog::is_set_up(&catalog, &none, provider, &env)
    };
    assert!(is_set_up("anthropic", &["ANTHROPIC_API_KEY"]));
    assert!(!is_set_up("anthropic", &["OPENAI_API_KEY"]));
    assert!(!is_set_up("azure", &["AZURE_API_KEY"]));
    assert!(is_set_up("azure", &["AZURE_API_KEY", "AZURE_RESOURCE_NAME"]));
    let aws = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"];
    assert!(is_set_up("amazon-bedrock", &aws) && !is_set_up("amazon-bedrock", &aws[..2]));
    assert!(!is_set_up("google-vertex", &["GOOGLE_VERTEX_PROJECT"]));
    assert!(!is_set_up("nobody", &["NOBODY_API_KEY"]));
}

#[test]
fn every_model_of_the_catalog_resolves_and_every_variant_of_it_can_be_encoded() {
    let catalog = shipped();
    let none = Overrides::default();
    let mut variants = 0;
    for provider in catalog.providers() {
        for model in provider.models.values() {
            let plain = resolve(&catalog, &none, (&provider.id, &model.id, None)).unwrap();
            assert_eq!(plain.price_version, catalog.version);
            assert_eq!(body(&plain).get("apiKey"), None);
            for variant in model.variants.keys() {
                let choice = (provider.id.as_str(), model.id.as_str(), Some(variant.as_str()));
                let chosen = resolve(&catalog, &none, choice).unwrap();
                assert_ne!(body(&chosen), body(&plain), "{choice:?} changes nothing");
                variants += 1;
            }
        }
    }
    assert!(variants > 1_000, "{variants}");
}

#[test]
fn what_cannot_be_resolved_says_what_there_is() {
    let catalog = shipped();
    let open = Overrides::default();
    let refused = |choice| resolve(&catalog, &open, choice).unwrap_err();
    let provider = refused(("antropic", "claude", None));
    assert_eq!(provider.code(), "model.unknown");
    assert!(provider.to_string().contains("did you mean `anthropic`"), "{provider}");
    let model = refused(("anthropic", "claude-sonet-4-5", None)).to_string();
    assert!(model.contains("`claude-sonnet-4-5`"), "{model}");
    let elsewhere = refused(("anthropic", "gpt-5-mini", None)).to_string();
    assert!(elsewhere.contains("did you mean `openai/gpt-5-mini`"), "{elsewhere}");
    let variant = refused(("openai", "gpt-5", Some("wild")));
    assert_eq!(variant.code(), "model.variant_unknown");
    assert!(variant.to_string().contains("`high`, `low`, `medium`, `minimal`"), "{variant}");
}

#[test]
fn an_organisation_has_the_models_that_it_allows_and_no_others() {
    let catalog = shipped();
    let overrides = overrides(
        json!({ "allow": ["anthropic", "openai/gpt-5*"], "deny": ["anthropic/claude-3*"] }),
    );
    let allowed = |provider, model| match resolve(&catalog, &overrides, (provider, model, None)) {
        Ok(_) => true,
        Err(ResolveError::NotAllowed { .. }) => false,
        Err(other) => panic!("{other}"),
    };
    assert!(allowed("anthropic", "claude-opus-4-7") && allowed("openai", "gpt-5.5"));
    assert!(!allowed("anthropic", "claude-3-7-sonnet-20250219") && !allowed("openai", "o3"));
    assert!(!allowed("google", "gemini-2.5-pro"));
    let listed = list(&catalog, &overrides);
    let ids: Vec<&str> = listed.iter().map(|entry| entry.id.as_str()).collect();
    assert_eq!(ids, ["anthropic", "openai"]);
    assert!(
        listed
            .iter()
            .flat_map(|entry| entry.models.keys())
            .all(|id| !id.starts_with("claude-3") && id != "o3")
    );
}

#[test]
fn a_deprecated_model_keeps_working_with_a_notice_and_a_hidden_one_is_not_listed() {
    let catalog = shipped();
    let (provider, model) = catalog
        .providers()
        .flat_map(|provider| provider.models.values().map(move |model| (provider, model)))
        .find(|(_, model)| model.status == catalog::ModelStatus::Deprecated)
        .unwrap();
    let notice = resolved((&provider.id, &model.id, None)).notice.unwrap();
    assert!(notice.contains(&model.id) && notice.contains("deprecated"), "{notice}");
    assert_eq!(resolved(("openai", "gpt-5.5", None)).notice, None);
    let overrides = overrides(json!({ "providers": { "openai": { "models": {
        "gpt-5": { "status": "hidden" }, "gpt-5.5": { "status": "deprecated" } } } } }));
    let listed = list(&catalog, &overrides);
    let openai = listed.iter().find(|entry| entry.id == "openai").unwrap();
    assert!(!openai.models.contains_key("gpt-5"));
    assert_eq!(openai.models["gpt-5.5"].status, catalog::ModelStatus::Deprecated);
    let hidden = resolve(&catalog, &overrides, ("openai", "gpt-5", None)).unwrap();
    assert_eq!(hidden.notice, None);
}

#[test]
fn an_organisation_changes_what_it_names_and_nothing_else() {
    let catalog = shipped();
    let overrides = overrides(json!({ "providers": {
        "openai": {
            "api": "https://proxy.example/openai", "headers": { "x-team": "a" }, "options": { "user": "org-1" },
            "limits": { "requestsPerMinute": 60 },
            "models": {
                "gpt-5": {
                    "limit": { "output": 1000 }, "cost": { "input": 7, "output": 8 },
                    "options": { "textVerbosity": "low", "max_output_tokens": 99 },
                    "variants": { "high": { "disabled": true }, "mine": { "reasoningEffort": "low", "seed": 5 } },
                },
                "my-tune": { "id": "ft:gpt-5:me", "name": "Mine", "reasoning": true },
            },
        },
    } }));
    let stock = resolved(("openai", "gpt-5", None));
    let ours = resolve(&catalog, &overrides, ("openai", "gpt-5", Some("mine"))).unwrap();
    assert_eq!(ours.model.limits.context, stock.model.limits.context);
    assert_eq!(ours.model.limits.output, Some(1000));
    assert_eq!(ours.prices.as_ref().unwrap().base.input, 7_000_000);
    assert!(ours.price_version.starts_with("organisation:"), "{}", ours.price_version);
    assert_eq!(ours.limits.requests_per_minute, Some(60));
    let known: Vec<&str> = ours.model.variants.keys().map(String::as_str).collect();
    assert_eq!(known, ["low", "medium", "mine", "minimal"]);
    let sent = body(&ours);
    assert_eq!((&sent["user"], &sent["max_output_tokens"]), (&json!("org-1"), &json!(99)));
    assert_eq!(
        (&sent["text"]["verbosity"], &sent["reasoning"]["effort"]),
        (&json!("low"), &json!("low"))
    );
    let access = Access { base_url: None, env: &|_| None, auth: &Auth::None };
    let route = ours.route(&access).unwrap();
    let url = route.endpoint.request_url(route.protocol, &route.model).unwrap();
    assert_eq!(url.as_str(), "https://proxy.example/openai/responses");
    assert_eq!(route.endpoint.headers[0].0, "x-team");
    let tune = resolve(&catalog, &overrides, ("openai", "my-tune", Some("medium"))).unwrap();
    assert_eq!((tune.api_id(), tune.protocol.id()), ("ft:gpt-5:me", "openai-responses"));
    assert_eq!(tune.prices, None);
    assert_eq!(tune.price_version, catalog.version);
    let other = resolve(&catalog, &overrides, ("openai", "gpt-5.5", None)).unwrap();
    assert_eq!(other.model.variants, resolved(("openai", "gpt-5.5", None)).model.variants);
}

#[test]
fn a_model_is_reached_through_whoever_offers_it() {
    let env = |name: &str| match name {
        "AZURE_RESOURCE_NAME" => Some("res".to_owned()),
        "GOOGLE_VERTEX_PROJECT" => Some("proj".to_owned()),
        "GOOGLE_VERTEX_LOCATION" => Some("global".to_owned()),
        "CLOUDFLARE_ACCOUNT_ID" | "CLOUDFLARE_GATEWAY_ID" => Some("cf".to_owned()),
        _ => None,
    };
    let url = |provider: &str, model: &str| {
        let access = Access { base_url: None, env: &env, auth: &Auth::None };
        let route = resolved((provider, model, None)).route(&access).unwrap();
        route.endpoint.request_url(route.protocol, &route.model).unwrap().to_string()
    };
    let vertex = "https://aiplatform.googleapis.com/v1/projects/proj/locations/global";
    let expected = [
        (
            "azure",
            "kimi-k2.6",
            "https://res.services.ai.azure.com/models/chat/completions".to_owned(),
        ),
        (
            "azure",
            "claude-opus-4-6",
            "https://res.services.ai.azure.com/anthropic/v1/messages".to_owned(),
        ),
        ("azure", "gpt-5", "https://res.openai.azure.com/openai/v1/responses".to_owned()),
        (
            "google-vertex",
            "zai-org/glm-5-maas",
            format!("{vertex}/endpoints/openapi/chat/completions"),
        ),
        (
            "google-vertex",
            "claude-sonnet-4-6@default",
            format!(
                "{vertex}/publishers/anthropic/models/claude-sonnet-4-6%40default:streamRawPredict"
            ),
        ),
        (
            "cloudflare-ai-gateway",
            "anthropic/claude-opus-4-7",
            "https://gateway.ai.cloudflare.com/v1/cf/cf/compat/chat/completions".to_owned(),
        ),
        ("minimax", "MiniMax-M2", "https://api.minimax.io/anthropic/v1/messages".to_owned()),
        ("deepseek", "deepseek-chat", "https://api.deepseek.com/v1/chat/completions".to_owned()),
        ("bailing", "Ling-1T", "https://api.tbox.cn/api/llm/v1/chat/completions".to_owned()),
    ];
    for (provider, model, expected) in expected {
        assert_eq!(url(provider, model), expected, "{provider}/{model}");
    }
    let local = resolve(&shipped(), &Overrides::default(), ("ollama", "qwen3:8b", None)).unwrap();
    let route = local.route(&Access { base_url: None, env: &|_| None, auth: &Auth::None }).unwrap();
    assert_eq!(route.endpoint.base_url, "http://127.0.0.1:11434/v1");
}

// Finding llm 5: the longest silence is longer for reasoning models, and an organisation can set it.
#[test]
fn the_silence_is_the_organisations_or_longer_for_reasoning() {
    let seconds = |resolved: &Resolved| resolved.silence.map(|silence| silence.as_secs());
    assert_eq!(seconds(&resolved(("openai", "gpt-5", None))), Some(600));
    assert_eq!(seconds(&resolved(("openai", "gpt-4o", None))), None);
    let overrides = overrides(json!({ "providers": { "openai": {
        "silenceMs": 900_000, "models": { "gpt-5-mini": { "silenceMs": 5 } },
    } } }));
    let of = |model| resolve(&shipped(), &overrides, ("openai", model, None)).unwrap();
    assert_eq!(seconds(&of("gpt-4o")), Some(900));
    assert_eq!(seconds(&of("gpt-5-mini")), Some(1), "within its bounds");
    let access = Access { base_url: None, env: &|_| None, auth: &Auth::None };
    let route = of("gpt-5").route(&access).unwrap();
    assert_eq!(route.silence.map(|silence| silence.as_secs()), Some(900));
}
