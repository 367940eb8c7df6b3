//! Providers that models.dev does not list. An organisation can use them with only its own settings.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use llm_client::providers;

use crate::model::ProviderEntry;

/// Id, name, and the environment variables that configure each.
const OURS: [(&str, &str, &[&str]); 4] = [
    ("snowflake-cortex", "Snowflake Cortex", &["SNOWFLAKE_ACCOUNT", "SNOWFLAKE_PAT"]),
    ("ollama", "Ollama", &["OLLAMA_API_KEY"]),
    ("vllm", "vLLM", &["VLLM_API_KEY"]),
    ("llama.cpp", "llama.cpp", &["LLAMA_API_KEY"]),
];

/// Returns these providers. They have no list of models, so any name is accepted.
pub(crate) fn ours() -> &'static BTreeMap<&'static str, ProviderEntry> {
    static ENTRIES: LazyLock<BTreeMap<&'static str, ProviderEntry>> = LazyLock::new(|| {
        let entry = |(id, name, env): (&'static str, &str, &[&str])| {
            let entry = ProviderEntry {
                id: id.to_owned(),
                name: name.to_owned(),
                npm: providers::COMPATIBLE.to_owned(),
                env: env.iter().map(|name| (*name).to_owned()).collect(),
                ..ProviderEntry::default()
            };
            (id, entry)
        };
        OURS.into_iter().map(entry).collect()
    });
    &ENTRIES
}
