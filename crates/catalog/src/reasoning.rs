//! The default options and the variants of reasoning models.
//!
//! For some models models.dev lists the ways to set reasoning (`reasoning_options`); for the others we know
//! them by package and name. If a provider outgrows a rule, its model refuses a variant but still works:
//! variants are only sent when chosen, and an organisation can set or remove them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::domains::Domains;
use crate::model::{CatalogModel, ReasoningOption};
use crate::partition::Family;

/// Returns the package whose options a model accepts. GitLab's package serves two vendors.
pub(crate) fn package<'a>(npm: &'a str, model: &CatalogModel) -> &'a str {
    match npm {
        "gitlab-ai-provider" if model.api_id().contains("gpt") => "@ai-sdk/openai",
        npm => npm,
    }
}

/// Returns the options that this model always gets.
pub(crate) fn defaults(npm: &str, model: &CatalogModel) -> Domains {
    let npm = package(npm, model);
    let mut domains = Domains::default();
    let is_chat = model.shape.as_deref() == Some("completions");
    match Family::of(npm) {
        // We store the conversation, so OpenAI need not; encrypted reasoning goes back instead.
        Family::OpenAi if !is_chat && model.reasoning => domains.ask(
            "openai",
            json!({ "store": false, "include": ["reasoning.encrypted_content"], "reasoningSummary": "auto" }),
        ),
        Family::OpenAi if !is_chat => domains.ask("openai", json!({ "store": false })),
        Family::Google if model.reasoning => {
            domains.ask("google", json!({ "thinkingConfig": { "includeThoughts": true } }));
        }
        Family::OpenAi
        | Family::Compatible
        | Family::Anthropic
        | Family::Google
        | Family::Bedrock
        | Family::OpenRouter => {}
    }
    domains
}

/// Returns the variants: each name, and its options besides the defaults.
pub(crate) fn variants(npm: &str, model: &CatalogModel) -> BTreeMap<String, Domains> {
    if !model.reasoning {
        return BTreeMap::new();
    }
    let npm = package(npm, model);
    let asked = if model.reasoning_options.is_empty() {
        by_name(npm, model)
    } else {
        by_options(npm, model)
    };
    asked
        .into_iter()
        .map(|(name, (namespace, options))| {
            let mut domains = Domains::default();
            domains.ask(namespace, options);
            (name, domains)
        })
        .collect()
}

type Asked = Vec<(String, (&'static str, Value))>;

/// Returns the variants that metadata lists.
fn by_options(npm: &str, model: &CatalogModel) -> Asked {
    let mut asked = Asked::new();
    for option in &model.reasoning_options {
        match option {
            ReasoningOption::Effort { values } => {
                asked.extend(
                    values
                        .iter()
                        .filter_map(|word| Some((word.clone(), effort(npm, model, word)?))),
                );
            }
            ReasoningOption::BudgetTokens { min, max } => {
                for (name, tokens) in budgets(model) {
                    let tokens = tokens.min(max.unwrap_or(u64::MAX)).max(min.unwrap_or(0));
                    asked.extend(budget(npm, tokens).map(|budget| (name.to_owned(), budget)));
                }
            }
            ReasoningOption::Toggle => {
                asked.extend(off(npm).map(|off| ("none".to_owned(), off)));
                if let Some((_, most)) = budgets(model).first() {
                    asked.extend(budget(npm, *most).map(|budget| ("thinking".to_owned(), budget)));
                }
            }
        }
    }
    asked
}

/// Returns the variants that we know by name.
fn by_name(npm: &str, model: &CatalogModel) -> Asked {
    let id = model.api_id().to_ascii_lowercase();
    let words = |words: &[&str]| -> Asked {
        let asked =
            words.iter().filter_map(|word| Some(((*word).to_owned(), effort(npm, model, word)?)));
        asked.collect()
    };
    let budgets = || -> Asked {
        let asked = budgets(model).into_iter();
        asked.filter_map(|(name, tokens)| Some((name.to_owned(), budget(npm, tokens)?))).collect()
    };
    match Family::of(npm) {
        Family::OpenAi => words(&openai_efforts(&id, &model.release_date)),
        Family::Anthropic | Family::Bedrock if is_adaptive(&id) => {
            words(&["low", "medium", "high", "max"])
        }
        Family::Anthropic => budgets(),
        Family::Bedrock if id.contains("anthropic") || id.contains("claude") => budgets(),
        Family::Bedrock if id.contains("nova") => words(&["low", "medium", "high"]),
        Family::Bedrock => Asked::new(),
        Family::Google if id.contains("gemini-3") => words(&["low", "high"]),
        Family::Google if id.contains("gemini-2.5") => budgets(),
        Family::Google => Asked::new(),
        Family::OpenRouter if takes_no_effort(&id) => Asked::new(),
        Family::OpenRouter => words(&["low", "medium", "high"]),
        Family::Compatible if npm == "@ai-sdk/xai" => match id.contains("grok-3-mini") {
            true => words(&["low", "high"]),
            false => Asked::new(),
        },
        Family::Compatible if npm == "@ai-sdk/mistral" || takes_no_effort(&id) => Asked::new(),
        Family::Compatible => words(&["low", "medium", "high"]),
    }
}

/// Returns the efforts that an OpenAI model accepts; newer models accept more.
fn openai_efforts(id: &str, released: &str) -> Vec<&'static str> {
    let has = |word: &str| id.contains(word);
    if has("chat") || has("o1-mini") || has("o1-preview") {
        return vec![];
    }
    if has("deep-research") {
        return vec!["medium"];
    }
    if has("gpt-5-pro") {
        return vec!["high"];
    }
    let mut words = vec!["low", "medium", "high"];
    let is_gpt5 = has("gpt-5");
    if is_gpt5 && !has("codex") && !has("pro") {
        words.insert(0, if released < "2025-11-13" { "minimal" } else { "none" });
    }
    if is_gpt5 && (released >= "2025-12-04" || has("codex-max")) {
        words.push("xhigh");
    }
    words
}

/// Returns whether the model decides itself how long to think and accepts an effort: Claude from 4.6 on.
fn is_adaptive(id: &str) -> bool {
    ["opus-4-6", "opus-4-7", "sonnet-4-6", "opus-4.6", "opus-4.7", "sonnet-4.6"]
        .iter()
        .any(|name| id.contains(name))
}

/// Returns whether a model ignores reasoning effort, on any OpenAI-compatible server.
fn takes_no_effort(id: &str) -> bool {
    ["deepseek", "minimax", "glm", "mistral", "magistral", "kimi", "qwen", "big-pickle"]
        .iter()
        .any(|name| id.contains(name))
}

/// Returns a package's option for an effort.
fn effort(npm: &str, model: &CatalogModel, word: &str) -> Option<(&'static str, Value)> {
    let id = model.api_id().to_ascii_lowercase();
    Some(match Family::of(npm) {
        Family::OpenAi | Family::Compatible => ("openai", json!({ "reasoningEffort": word })),
        Family::OpenRouter => ("openai-chat", json!({ "reasoning": { "effort": word } })),
        Family::Anthropic => {
            ("anthropic", json!({ "thinking": { "type": "adaptive" }, "effort": word }))
        }
        Family::Google => (
            "google",
            json!({ "thinkingConfig": { "includeThoughts": true, "thinkingLevel": word } }),
        ),
        Family::Bedrock if id.contains("claude") => (
            "bedrock-converse",
            json!({ "additionalModelRequestFields":
                { "thinking": { "type": "adaptive" }, "output_config": { "effort": word } } }),
        ),
        Family::Bedrock if id.contains("nova") => (
            "bedrock-converse",
            json!({ "additionalModelRequestFields":
                { "reasoningConfig": { "type": "enabled", "maxReasoningEffort": word } } }),
        ),
        Family::Bedrock => return None,
    })
}

/// Returns the offered budgets, each at least one token below the limit of an answer.
fn budgets(model: &CatalogModel) -> Vec<(&'static str, u64)> {
    let most = model.limits.output.map_or(31_999, |output| output.saturating_sub(1));
    [("high", 16_000.min(most)), ("max", 31_999.min(most))]
        .into_iter()
        .filter(|(_, tokens)| *tokens >= 1_024)
        .collect()
}

/// Returns a package's option for a budget in tokens.
fn budget(npm: &str, tokens: u64) -> Option<(&'static str, Value)> {
    Some(match Family::of(npm) {
        Family::Anthropic => {
            ("anthropic", json!({ "thinking": { "type": "enabled", "budgetTokens": tokens } }))
        }
        Family::Bedrock => {
            ("bedrock", json!({ "reasoningConfig": { "type": "enabled", "budgetTokens": tokens } }))
        }
        Family::Google => (
            "google",
            json!({ "thinkingConfig": { "includeThoughts": true, "thinkingBudget": tokens.min(24_576) } }),
        ),
        Family::OpenRouter => ("openai-chat", json!({ "reasoning": { "max_tokens": tokens } })),
        Family::OpenAi | Family::Compatible => return None,
    })
}

/// Returns a package's option to turn reasoning off.
fn off(npm: &str) -> Option<(&'static str, Value)> {
    Some(match Family::of(npm) {
        Family::Anthropic => ("anthropic", json!({ "thinking": { "type": "disabled" } })),
        Family::Google => ("google", json!({ "thinkingConfig": { "thinkingBudget": 0 } })),
        Family::OpenRouter => ("openai-chat", json!({ "reasoning": { "enabled": false } })),
        Family::OpenAi | Family::Compatible | Family::Bedrock => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(id: &str, released: &str, output: u64) -> CatalogModel {
        let mut model = CatalogModel { id: id.into(), reasoning: true, ..CatalogModel::default() };
        model.release_date = released.into();
        model.limits.output = Some(output);
        model
    }

    fn names(npm: &str, id: &str, released: &str) -> String {
        let names: Vec<String> = variants(npm, &model(id, released, 64_000)).into_keys().collect();
        names.join(" ")
    }

    #[test]
    fn each_package_has_the_variants_that_its_models_take() {
        let openai = |id, released| names("@ai-sdk/openai", id, released);
        assert_eq!(openai("gpt-5", "2025-08-07"), "high low medium minimal");
        assert_eq!(openai("gpt-5.1", "2025-11-13"), "high low medium none");
        assert_eq!(openai("gpt-5.5", "2026-04-23"), "high low medium none xhigh");
        assert_eq!(openai("gpt-5.1-codex-max", "2025-11-13"), "high low medium xhigh");
        assert_eq!(openai("gpt-5-chat-latest", "2025-08-07"), "");
        assert_eq!(openai("o3", "2025-04-16"), "high low medium");
        assert_eq!(names("@ai-sdk/anthropic", "claude-sonnet-4-5", ""), "high max");
        assert_eq!(names("@ai-sdk/anthropic", "claude-opus-4-7", ""), "high low max medium");
        assert_eq!(names("@ai-sdk/google", "gemini-3-pro-preview", ""), "high low");
        assert_eq!(
            names("@ai-sdk/amazon-bedrock", "us.anthropic.claude-opus-4-5-v1:0", ""),
            "high max"
        );
        assert_eq!(names("@ai-sdk/amazon-bedrock", "qwen.qwen3", ""), "");
        assert_eq!(names("@ai-sdk/xai", "grok-4", ""), "");
        assert_eq!(names("@ai-sdk/xai", "grok-3-mini", ""), "high low");
        assert_eq!(names("@openrouter/ai-sdk-provider", "openai/gpt-5", ""), "high low medium");
        assert_eq!(names("@ai-sdk/openai-compatible", "gpt-oss-120b", ""), "high low medium");
        assert_eq!(names("@ai-sdk/openai-compatible", "deepseek-reasoner", ""), "");
    }

    #[test]
    fn a_budget_is_less_than_an_answer() {
        let asked = |output: u64| {
            let variants = variants("@ai-sdk/anthropic", &model("claude-sonnet-4-5", "", output));
            let budget = |domains: &Domains| {
                domains.request_options["anthropic"]["thinking"]["budgetTokens"].as_u64().unwrap()
            };
            variants.values().map(budget).collect::<Vec<_>>()
        };
        assert_eq!(asked(64_000), [16_000, 31_999]);
        assert_eq!(asked(20_000), [16_000, 19_999]);
        assert!(asked(500).is_empty());
    }

    #[test]
    fn what_the_metadata_says_comes_before_what_we_know() {
        let mut model = model("gpt-9", "2027-01-01", 64_000);
        model.reasoning_options = serde_json::from_value(json!([
            { "type": "effort", "values": ["gentle", "wild"] },
        ]))
        .unwrap();
        let names: Vec<String> = variants("@ai-sdk/openai", &model).into_keys().collect();
        assert_eq!(names, ["gentle", "wild"]);
        model.reasoning_options = serde_json::from_value(
            json!([{ "type": "toggle" }, { "type": "budget_tokens", "max": 9_000 }]),
        )
        .unwrap();
        let variants = variants("@ai-sdk/anthropic", &model);
        let names: Vec<&String> = variants.keys().collect();
        assert_eq!(names, ["high", "max", "none", "thinking"]);
        assert_eq!(
            variants["max"].request_options["anthropic"]["thinking"]["budgetTokens"],
            json!(9_000)
        );
        model.reasoning = false;
        assert!(super::variants("@ai-sdk/openai", &model).is_empty());
    }

    #[test]
    fn openai_keeps_nothing_for_us_and_sends_its_reasoning_encrypted() {
        let domains = defaults("@ai-sdk/openai", &model("gpt-5", "", 1));
        let expected = json!({ "openai": { "store": false, "include": ["reasoning.encrypted_content"], "reasoningSummary": "auto" } });
        assert_eq!(serde_json::Value::Object(domains.request_options), expected);
    }
}
