//! The ingestion adapter: sorts options as people and metadata write them into the three domains.
//!
//! Options come in two forms. The legacy form uses the provider's body fields (`reasoning_effort`,
//! `max_tokens`). The AI SDK's form is camelCase (`reasoningEffort`, `maxOutputTokens`), flat or below
//! `providerOptions.<namespace>`. Both may be mixed.
//!
//! ```text
//! temperature, maxTokens, stop_sequences, generationConfig.topK …  ─▶ Generation Controls
//! what the family's models understand, in either spelling          ─▶ Model Request Options (AI SDK names)
//! headers                                                          ─▶ headers
//! any other field of a body                                        ─▶ compatibility body fields
//! baseURL, apiKey, timeout …: of the connection                    ─▶ nowhere: they are no options
//! ```

use llm_protocol::Generation;
use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::domains::{Domains, merge};

/// A family of packages with the same option names and places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// OpenAI itself, Azure, and full copies of OpenAI's API.
    OpenAi,
    /// Servers compatible with OpenAI's chat. Their own fields go into the body unchanged.
    Compatible,
    Anthropic,
    Google,
    Bedrock,
    OpenRouter,
}

impl Family {
    pub(crate) fn of(npm: &str) -> Self {
        match npm {
            "@ai-sdk/openai" | "@ai-sdk/azure" => Self::OpenAi,
            "@ai-sdk/anthropic" | "@ai-sdk/google-vertex/anthropic" | "gitlab-ai-provider" => {
                Self::Anthropic
            }
            "@ai-sdk/google" | "@ai-sdk/google-vertex" => Self::Google,
            "@ai-sdk/amazon-bedrock" => Self::Bedrock,
            "@openrouter/ai-sdk-provider" => Self::OpenRouter,
            _ => Self::Compatible,
        }
    }

    /// Returns the namespace of its options in a request.
    pub(crate) fn namespace(self) -> &'static str {
        match self {
            Self::OpenAi | Self::Compatible => "openai",
            Self::Anthropic => "anthropic",
            Self::Google => "google",
            Self::Bedrock => "bedrock",
            Self::OpenRouter => "openrouter",
        }
    }

    /// Returns its models' options, in the AI SDK's spelling.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::OpenAi => &[
                "include",
                "instructions",
                "logitBias",
                "logprobs",
                "maxToolCalls",
                "metadata",
                "parallelToolCalls",
                "prediction",
                "previousResponseId",
                "promptCacheKey",
                "promptCacheRetention",
                "reasoningEffort",
                "reasoningSummary",
                "safetyIdentifier",
                "serviceTier",
                "store",
                "strictJsonSchema",
                "textVerbosity",
                "truncation",
                "user",
            ],
            Self::Compatible => {
                &["parallelToolCalls", "reasoningEffort", "serviceTier", "textVerbosity", "user"]
            }
            Self::Anthropic => &[
                "container",
                "contextManagement",
                "disableParallelToolUse",
                "effort",
                "mcpServers",
                "metadata",
                "serviceTier",
                "thinking",
            ],
            Self::Google => &[
                "cachedContent",
                "labels",
                "mediaResolution",
                "responseModalities",
                "safetySettings",
                "thinkingConfig",
            ],
            Self::Bedrock => {
                &["additionalModelRequestFields", "guardrailConfig", "reasoningConfig"]
            }
            Self::OpenRouter => {
                &["models", "plugins", "provider", "reasoning", "transforms", "usage", "user"]
            }
        }
    }
}

/// Sorts options of the package `npm` into the three domains. Connection settings (`apiKey`, `baseURL`,
/// `timeout`, …) are dropped: they belong to a provider, and a key must never get into a body.
#[must_use]
pub fn partition(npm: &str, options: &Map<String, Value>) -> Domains {
    let family = Family::of(npm);
    let mut domains = Domains::default();
    let mut asked = Map::new();
    for (name, value) in options {
        let camel = camel(name);
        match (camel.as_str(), value) {
            (setting, _) if CONNECTION.contains(&setting) => {}
            ("headers", Value::Object(headers)) => {
                let text = |(name, value): (&String, &Value)| {
                    Some((name.clone(), value.as_str()?.to_owned()))
                };
                domains.headers.extend(headers.iter().filter_map(text));
            }
            ("providerOptions", Value::Object(namespaces)) => {
                merge(&mut domains.request_options, namespaces);
            }
            ("extraBody" | "body", Value::Object(body)) => merge(&mut domains.body, body),
            ("generationConfig" | "inferenceConfig", Value::Object(config)) => {
                for (name, value) in config {
                    one(family, name, value, Some(&camel), &mut domains, &mut asked);
                }
            }
            _ => one(family, name, value, None, &mut domains, &mut asked),
        }
    }
    if !asked.is_empty() {
        domains.ask(family.namespace(), asked.into());
    }
    domains
}

/// Connection settings, in the AI SDK's names.
const CONNECTION: [&str; 18] = [
    "accessKeyId",
    "apiKey",
    "apiVersion",
    "baseURL",
    "baseUrl",
    "chunkTimeout",
    "credentialProvider",
    "endpoint",
    "enterpriseUrl",
    "fetch",
    "organization",
    "profile",
    "project",
    "region",
    "resourceName",
    "secretAccessKey",
    "sessionToken",
    "timeout",
];

/// Sorts one option. `within` is the member of the body that contained it.
fn one(
    family: Family,
    name: &str,
    value: &Value,
    within: Option<&str>,
    domains: &mut Domains,
    asked: &mut Map<String, Value>,
) {
    let camel = camel(name);
    if control(&mut domains.generation, &camel, value) {
        return;
    }
    if family.options().contains(&camel.as_str()) {
        asked.insert(camel, in_camel(name, value));
        return;
    }
    let is_camel = name.contains(char::is_uppercase);
    let place = match (family, within) {
        (_, Some(within)) => Some(within),
        // Fields of the models besides Converse's own, which are all camelCase.
        (Family::Bedrock, None) if !is_camel => Some("additionalModelRequestFields"),
        // Not a body field, but an SDK option without a meaning here.
        (Family::OpenAi | Family::Anthropic | Family::OpenRouter, None) if is_camel => {
            asked.insert(camel, value.clone());
            return;
        }
        (_, None) => None,
    };
    let field = Map::from_iter([(name.to_owned(), value.clone())]);
    match place {
        Some(place) => {
            merge(&mut domains.body, &Map::from_iter([(place.to_owned(), field.into())]))
        }
        None => merge(&mut domains.body, &field),
    }
}

/// Sets a Generation Control. Returns `false` if the option is not a control or its value is unusable.
fn control(generation: &mut Generation, name: &str, value: &Value) -> bool {
    fn set<T>(place: &mut Option<T>, value: Option<T>) -> bool {
        let is_one = value.is_some();
        *place = value.or(place.take());
        is_one
    }
    match name {
        "temperature" => set(&mut generation.temperature, value.as_f64()),
        "topP" => set(&mut generation.top_p, value.as_f64()),
        "topK" => set(&mut generation.top_k, value.as_u64()),
        "maxTokens" | "maxOutputTokens" | "maxCompletionTokens" => {
            set(&mut generation.max_tokens, value.as_u64())
        }
        "seed" => set(&mut generation.seed, value.as_i64()),
        "stop" | "stopSequences" => {
            let word = value.as_str().map(|word| vec![word.to_owned()]);
            let words = word.or_else(|| Vec::<String>::deserialize(value).ok());
            let is_one = words.is_some();
            generation.stop = words.unwrap_or_else(|| std::mem::take(&mut generation.stop));
            is_one
        }
        _ => false,
    }
}

/// Converts `reasoning_effort` to `reasoningEffort`.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut camel, word| {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
        camel
    })
}

/// Returns an option's value in the AI SDK's spelling. Only reasoning settings have members to rename; in
/// other options (`metadata`, `logit_bias`) the names are data.
fn in_camel(name: &str, value: &Value) -> Value {
    let is_ours = ["thinking", "thinkingConfig", "reasoningConfig"].contains(&camel(name).as_str());
    let Some(members) = value.as_object().filter(|_| is_ours) else { return value.clone() };
    members.iter().map(|(name, value)| (camel(name), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parted(npm: &str, options: Value) -> Value {
        let Value::Object(options) = options else { panic!("an object") };
        serde_json::to_value(partition(npm, &options)).unwrap()
    }

    #[test]
    fn both_shapes_come_to_the_same() {
        let expected = json!({
            "requestOptions": { "openai": { "reasoningEffort": "low", "store": false, "metadata": { "a_b": "c" } } },
            "generation": { "maxTokens": 100, "topP": 0.5, "stop": ["x"] },
        });
        let legacy = json!({ "reasoning_effort": "low", "store": false, "metadata": { "a_b": "c" },
            "max_completion_tokens": 100, "top_p": 0.5, "stop": "x" });
        let sdk = json!({ "reasoningEffort": "low", "store": false, "metadata": { "a_b": "c" },
            "maxOutputTokens": 100, "topP": 0.5, "stopSequences": ["x"] });
        let named = json!({ "maxTokens": 100, "topP": 0.5, "stop": ["x"], "providerOptions":
            { "openai": { "reasoningEffort": "low", "store": false, "metadata": { "a_b": "c" } } } });
        for options in [legacy, sdk, named] {
            assert_eq!(parted("@ai-sdk/openai", options), expected);
        }
    }

    #[test]
    fn each_family_has_its_own_names_and_what_is_left_is_a_field_of_the_body() {
        let thinking = json!({ "thinking": { "type": "enabled", "budget_tokens": 9 }, "top_k": 3, "speed": "fast" });
        assert_eq!(
            parted("@ai-sdk/anthropic", thinking.clone()),
            json!({
                "requestOptions": { "anthropic": { "thinking": { "type": "enabled", "budgetTokens": 9 } } },
                "generation": { "topK": 3 }, "body": { "speed": "fast" },
            })
        );
        assert_eq!(
            parted("@ai-sdk/openai-compatible", thinking),
            json!({ "generation": { "topK": 3 }, "body": {
                "thinking": { "type": "enabled", "budget_tokens": 9 }, "speed": "fast" } })
        );
        let google = json!({ "generationConfig": { "topK": 3, "responseMimeType": "application/json",
            "thinkingConfig": { "thinking_budget": 7 } }, "safetySettings": [] });
        assert_eq!(
            parted("@ai-sdk/google", google),
            json!({
                "requestOptions": { "google": { "thinkingConfig": { "thinkingBudget": 7 }, "safetySettings": [] } },
                "generation": { "topK": 3 },
                "body": { "generationConfig": { "responseMimeType": "application/json" } },
            })
        );
        let bedrock = json!({ "inferenceConfig": { "maxTokens": 5 }, "anthropic_beta": ["x"],
            "performanceConfig": { "latency": "optimized" }, "reasoningConfig": { "budgetTokens": 4 } });
        assert_eq!(
            parted("@ai-sdk/amazon-bedrock", bedrock),
            json!({
                "requestOptions": { "bedrock": { "reasoningConfig": { "budgetTokens": 4 } } },
                "generation": { "maxTokens": 5 },
                "body": { "additionalModelRequestFields": { "anthropic_beta": ["x"] },
                    "performanceConfig": { "latency": "optimized" } },
            })
        );
    }

    #[test]
    fn keys_and_other_settings_of_the_connection_get_into_no_request() {
        let settings = json!({ "apiKey": "sk-1", "api_key": "sk-1", "baseURL": "http://h", "timeout": 1,
            "headers": { "x-team": "a", "x-odd": 3 }, "extraBody": { "y": 1 }, "temperature": "hot" });
        for npm in
            ["@ai-sdk/openai", "@ai-sdk/openai-compatible", "@ai-sdk/amazon-bedrock", "who-knows"]
        {
            let parted = parted(npm, settings.clone());
            assert!(!parted.to_string().contains("sk-1"), "{parted}");
            assert_eq!(parted["headers"], json!({ "x-team": "a" }));
            assert_eq!((&parted["body"]["y"], &parted["generation"]), (&json!(1), &json!({})));
        }
    }
}
