use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::{ErrorCode, ModelRef, SessionError};
use llm_client::{Auth, Client, Endpoint, Route};
use llm_protocol::{Dialect, Protocol};
use session_rules::{FixedModels, ModelFacts, ModelSource, Models, ResolvedModel, TurnPlan};

/// The price version of prices that were configured by hand.
const CONFIGURED: &str = "configured";

/// The providers that were configured by hand. They take precedence over the catalog's.
#[derive(Debug, Clone)]
pub struct ConfiguredModels {
    fixed: FixedModels,
    rules: Models,
    /// Facts about models that were configured by hand, also about the catalog's.
    said: Vec<(ModelRef, ModelFacts)>,
    /// The providers by id, the same as in the rules.
    providers: BTreeMap<String, ProviderSetup>,
    placeholder: Option<Placeholder>,
    /// A client for these providers, where the runtime's may not: the operator has chosen their addresses.
    client: Option<Client>,
}

/// A model name that stands for the server's model until the server has told its name.
#[derive(Debug, Clone)]
struct Placeholder {
    model: ModelRef,
    /// The server's name for it; set once.
    name: Arc<OnceLock<String>>,
}

/// Models configured by hand, of which one may be a [`Placeholder`].
#[derive(Debug)]
struct NamedLater {
    fixed: FixedModels,
    placeholder: Placeholder,
}

impl ModelSource for NamedLater {
    fn resolve(&self, choice: &ModelRef) -> Result<ResolvedModel, SessionError> {
        let mut found = self.fixed.resolve(choice)?;
        let Placeholder { model, name } = &self.placeholder;
        if (&choice.provider, &choice.model) == (&model.provider, &model.model) {
            let name = name.get().ok_or_else(|| SessionError {
                code: ErrorCode::ModelUnknown.into(),
                message: format!(
                    "the model server of `{}` has not answered yet, so its model is not known; try again when it runs, \
                     or start the service with --model",
                    model.provider
                ),
            })?;
            found.entry.id.clone_from(name);
        }
        Ok(found)
    }
}

/// A provider that was configured by hand.
#[derive(Debug, Clone)]
pub struct ProviderSetup {
    /// Its address.
    pub endpoint: Endpoint,
    /// Its credentials, besides the endpoint's key.
    pub auth: Auth,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its differences from the protocol.
    pub dialect: Dialect,
    /// How long it may be silent, before and within an answer. Nobody knows whether its models reason.
    pub silence: Duration,
}

impl ProviderSetup {
    /// How long an unknown provider may be silent.
    pub const SILENCE: Duration = Duration::from_mins(10);
}

impl ProviderSetup {
    /// Returns a provider that speaks `protocol` like its owner.
    #[must_use]
    pub fn new(protocol: Protocol, endpoint: Endpoint) -> Self {
        let (auth, dialect) = (Auth::None, Dialect::default());
        Self { endpoint, auth, protocol, dialect, silence: Self::SILENCE }
    }
}

impl From<Endpoint> for ProviderSetup {
    /// Returns a provider that is compatible with OpenAI's chat completions.
    fn from(endpoint: Endpoint) -> Self {
        Self::new(Protocol::OpenAiChat, endpoint)
    }
}

impl ConfiguredModels {
    /// Returns providers by their ids. `default` is the model of a session that has not chosen one.
    #[must_use]
    pub fn new(default: ModelRef, providers: BTreeMap<String, ProviderSetup>) -> Self {
        let fixed = providers.iter().fold(FixedModels::default(), |fixed, (id, setup)| {
            fixed.with_provider(id, setup.protocol, setup.dialect.clone())
        });
        let rules = Models { default, source: Arc::new(fixed.clone()) };
        Self { fixed, rules, said: Vec::new(), providers, placeholder: None, client: None }
    }

    /// Makes `model` stand for the server's model: requests carry `name` once that is set, and turns fail with
    /// `model.unknown` until then.
    #[must_use]
    pub fn with_placeholder(mut self, model: ModelRef, name: Arc<OnceLock<String>>) -> Self {
        self.placeholder = Some(Placeholder { model, name });
        self.rules.source = self.source();
        self
    }

    fn source(&self) -> Arc<dyn ModelSource> {
        let fixed = self.fixed.clone();
        match self.placeholder.clone() {
            Some(placeholder) => Arc::new(NamedLater { fixed, placeholder }),
            None => Arc::new(fixed),
        }
    }

    /// Returns one provider with one default model.
    #[must_use]
    pub fn single(default: ModelRef, provider: impl Into<ProviderSetup>) -> Self {
        let providers = BTreeMap::from([(default.provider.clone(), provider.into())]);
        Self::new(default, providers)
    }

    /// Sets the client for these providers. It may reach more than organisations may, because the operator has chosen
    /// the addresses.
    #[must_use]
    pub fn with_client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    pub(crate) fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// Sets the known facts about a model: its limits and prices.
    #[must_use]
    pub fn with_facts(mut self, model: ModelRef, facts: ModelFacts) -> Self {
        self.said.retain(|(known, _)| *known != model);
        self.said.push((model.clone(), facts.clone()));
        self.fixed = self.fixed.with_facts(model, facts);
        self.rules.source = self.source();
        self
    }

    /// Returns the model of a session that has not chosen one.
    #[must_use]
    pub fn default_model(&self) -> &ModelRef {
        &self.rules.default
    }

    /// Returns the models for decisions.
    pub(crate) fn rules(&self) -> &Models {
        &self.rules
    }

    /// Replaces facts of a catalog's model by those configured by hand.
    pub(crate) fn with_said(&self, mut model: ResolvedModel) -> ResolvedModel {
        let choice = &model.reference;
        let is_it =
            |known: &ModelRef| (&known.provider, &known.model) == (&choice.provider, &choice.model);
        let Some((_, facts)) = self.said.iter().find(|(known, _)| is_it(known)) else {
            return model;
        };
        model.entry.context_limit = facts.context_limit.or(model.entry.context_limit);
        model.entry.input_limit = facts.input_limit.or(model.entry.input_limit);
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

    /// Returns whether a provider is one of these.
    pub(crate) fn has(&self, provider: &str) -> bool {
        self.providers.contains_key(provider)
    }

    /// Returns the route of a planned request, if its provider is one of these.
    pub(crate) fn route(&self, plan: &TurnPlan) -> Option<Route> {
        let setup = self.providers.get(&plan.model.provider)?;
        let entry = &plan.components.model;
        let route = Route::new(entry.protocol, &entry.id, setup.endpoint.clone());
        let route = route.with_auth(setup.auth.clone()).with_dialect(entry.dialect.clone());
        Some(route.with_silence(Some(setup.silence)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding cluster 7: a process that started before its model server requested the model `default` for its whole
    // life.
    #[test]
    fn a_placeholder_takes_the_servers_name_once_it_is_known() {
        let default = ModelRef::new("custom", "default");
        let name = Arc::new(OnceLock::new());
        let models = ConfiguredModels::single(default.clone(), Endpoint::new("http://127.0.0.1:9"))
            .with_placeholder(default.clone(), name.clone())
            .with_facts(default.clone(), ModelFacts::default());
        let resolve = |model: &ModelRef| models.rules().source.resolve(model);
        let error = resolve(&default).expect_err("not known yet");
        assert!(error.message.contains("has not answered yet"), "{error:?}");
        assert_eq!(resolve(&ModelRef::new("custom", "other")).expect("by name").entry.id, "other");
        name.set("qwen3:8b".to_owned()).expect("once");
        let found = resolve(&default).expect("known");
        assert_eq!((found.entry.id.as_str(), &found.reference), ("qwen3:8b", &default));
    }
}
