use std::collections::BTreeMap;
use std::sync::Arc;

use domain::ModelRef;
use llm_client::{Auth, Endpoint, Route};
use llm_protocol::{Dialect, Protocol};
use session_rules::{FixedModels, ModelFacts, Models, ResolvedModel, TurnPlan};

/// Whose word prices are that were given by hand.
const CONFIGURED: &str = "configured";

/// The providers that this process was configured with by hand: they come before those of the catalog.
#[derive(Debug, Clone)]
pub struct ConfiguredModels {
    fixed: FixedModels,
    rules: Models,
    /// What was said of models by hand, for those of the catalog too.
    said: Vec<(ModelRef, ModelFacts)>,
    /// By id; the same providers as the rules'.
    providers: BTreeMap<String, ProviderSetup>,
}

/// A provider that was configured by hand.
#[derive(Debug, Clone)]
pub struct ProviderSetup {
    /// Where it is.
    pub endpoint: Endpoint,
    /// How it knows us, besides the endpoint's key.
    pub auth: Auth,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// What it does otherwise.
    pub dialect: Dialect,
}

impl ProviderSetup {
    /// A provider that speaks `protocol` as its owner does.
    #[must_use]
    pub fn new(protocol: Protocol, endpoint: Endpoint) -> Self {
        Self { endpoint, auth: Auth::None, protocol, dialect: Dialect::default() }
    }
}

impl From<Endpoint> for ProviderSetup {
    /// What is compatible with OpenAI's chat completions.
    fn from(endpoint: Endpoint) -> Self {
        Self::new(Protocol::OpenAiChat, endpoint)
    }
}

impl ConfiguredModels {
    /// Providers by their ids. `default` is the model of a session that chose none.
    #[must_use]
    pub fn new(default: ModelRef, providers: BTreeMap<String, ProviderSetup>) -> Self {
        let fixed = providers.iter().fold(FixedModels::default(), |fixed, (id, setup)| {
            fixed.with_provider(id, setup.protocol, setup.dialect.clone())
        });
        let rules = Models { default, source: Arc::new(fixed.clone()) };
        Self { fixed, rules, said: Vec::new(), providers }
    }

    /// One provider with one default model.
    #[must_use]
    pub fn single(default: ModelRef, provider: impl Into<ProviderSetup>) -> Self {
        let providers = BTreeMap::from([(default.provider.clone(), provider.into())]);
        Self::new(default, providers)
    }

    /// Says what is known of a model: its limits and prices.
    #[must_use]
    pub fn with_facts(mut self, model: ModelRef, facts: ModelFacts) -> Self {
        self.said.retain(|(known, _)| *known != model);
        self.said.push((model.clone(), facts.clone()));
        self.fixed = self.fixed.with_facts(model, facts);
        self.rules.source = Arc::new(self.fixed.clone());
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

    /// A model of the catalog, with what was said of it by hand in place of what the catalog says.
    pub(crate) fn with_said(&self, mut model: ResolvedModel) -> ResolvedModel {
        let choice = &model.reference;
        let is_it =
            |known: &ModelRef| (&known.provider, &known.model) == (&choice.provider, &choice.model);
        let Some((_, facts)) = self.said.iter().find(|(known, _)| is_it(known)) else {
            return model;
        };
        model.entry.context_limit = facts.context_limit.or(model.entry.context_limit);
        if let Some(limit) = facts.output_limit {
            model.entry.output_limit = Some(limit);
            model.generation.max_tokens = Some(limit);
        }
        if let Some(prices) = &facts.prices {
            model.prices = Some(prices.clone());
            model.price_version = CONFIGURED.to_owned();
        }
        model
    }

    /// Whether it is one of these.
    pub(crate) fn has(&self, provider: &str) -> bool {
        self.providers.contains_key(provider)
    }

    /// Where a request that was decided on goes, if its provider is one of these.
    pub(crate) fn route(&self, plan: &TurnPlan) -> Option<Route> {
        let setup = self.providers.get(&plan.model.provider)?;
        let route = Route::new(plan.entry.protocol, &plan.entry.id, setup.endpoint.clone());
        Some(route.with_auth(setup.auth.clone()).with_dialect(plan.entry.dialect.clone()))
    }
}
