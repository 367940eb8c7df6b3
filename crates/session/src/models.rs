use std::collections::BTreeMap;

use domain::ModelRef;
use llm_client::Endpoint;
use session_rules::{ModelFacts, Models};

/// The providers that this process was configured with. (The catalog comes with a later issue; this is
/// what stands where it will.)
#[derive(Debug, Clone)]
pub struct ConfiguredModels {
    rules: Models,
    /// Provider id → its endpoint; the same providers as the rules'.
    endpoints: BTreeMap<String, Endpoint>,
}

impl ConfiguredModels {
    /// Providers by their ids. `default` is the model of a session that chose none.
    #[must_use]
    pub fn new(default: ModelRef, endpoints: BTreeMap<String, Endpoint>) -> Self {
        let providers = endpoints.keys().cloned().collect();
        let rules = Models { default, providers, known: Vec::new() };
        Self { rules, endpoints }
    }

    /// One provider with one default model.
    #[must_use]
    pub fn single(default: ModelRef, endpoint: Endpoint) -> Self {
        let endpoints = BTreeMap::from([(default.provider.clone(), endpoint)]);
        Self::new(default, endpoints)
    }

    /// Says what is known of a model: its limits and prices.
    #[must_use]
    pub fn with_facts(mut self, model: ModelRef, facts: ModelFacts) -> Self {
        self.rules.known.retain(|(known, _)| *known != model);
        self.rules.known.push((model, facts));
        self
    }

    /// The model of a session that chose none.
    #[must_use]
    pub fn default_model(&self) -> &ModelRef {
        &self.rules.default
    }

    /// As decisions see them.
    pub(crate) fn rules(&self) -> &Models {
        &self.rules
    }

    /// Where a model that was resolved answers.
    pub(crate) fn endpoint(&self, model: &ModelRef) -> &Endpoint {
        self.endpoints
            .get(&model.provider)
            .expect("the rules resolve only providers that have an endpoint")
    }
}
