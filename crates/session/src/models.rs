use std::collections::BTreeMap;

use domain::{ModelRef, SessionError};
use history::ModelEntry;
use llm_client::Endpoint;
use llm_protocol::Protocol;

/// A model that can be called.
#[derive(Debug, Clone)]
pub struct ResolvedModel {
    /// As clients name it.
    pub reference: ModelRef,
    /// As much of it as shapes the request.
    pub entry: ModelEntry,
    /// Where it answers.
    pub endpoint: Endpoint,
}

/// The providers that this process was configured with. (The catalog comes with a later issue; this is
/// what stands where it will.)
#[derive(Debug, Clone)]
pub struct ConfiguredModels {
    /// The model of a session that chose none.
    pub default: ModelRef,
    /// Provider id → its endpoint.
    pub providers: BTreeMap<String, Endpoint>,
}

impl ConfiguredModels {
    /// One provider with one default model.
    #[must_use]
    pub fn single(default: ModelRef, endpoint: Endpoint) -> Self {
        let providers = BTreeMap::from([(default.provider.clone(), endpoint)]);
        Self { default, providers }
    }

    /// Resolves a choice; `None` is the default.
    ///
    /// # Errors
    /// `model.unknown` when no configured provider has the choice's id.
    pub fn resolve(&self, choice: Option<&ModelRef>) -> Result<ResolvedModel, SessionError> {
        let reference = choice.unwrap_or(&self.default).clone();
        let Some(endpoint) = self.providers.get(&reference.provider) else {
            let known: Vec<&str> = self.providers.keys().map(String::as_str).collect();
            return Err(SessionError {
                code: "model.unknown".into(),
                message: format!(
                    "no provider `{}` is configured (there is {}); choose one of them, or start the \
                     service with --model-url or a provider's key",
                    reference.provider,
                    known.join(", "),
                ),
            });
        };
        Ok(ResolvedModel {
            entry: ModelEntry {
                provider: reference.provider.clone(),
                id: reference.model.clone(),
                protocol: Protocol::OpenAiChat,
                context_limit: None,
                output_limit: None,
            },
            endpoint: endpoint.clone(),
            reference,
        })
    }
}
