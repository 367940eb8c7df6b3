use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use domain::{ErrorCode, ModelRef, Prices, Pricing, SessionError};
use history::ModelEntry;
use llm_protocol::{Dialect, Generation, Protocol};
use serde_json::{Map, Value};

/// The callable models, as far as decisions need them.
#[derive(Debug, Clone)]
pub struct Models {
    /// The model of a session that has not chosen one.
    pub default: ModelRef,
    /// The source of the other models.
    pub source: Arc<dyn ModelSource>,
}

/// A source of models. The same choice gives the same answer while decisions use it.
pub trait ModelSource: Send + Sync + fmt::Debug {
    /// Resolves a choice.
    ///
    /// # Errors
    /// An error for the user, such as `model.unknown`.
    fn resolve(&self, choice: &ModelRef) -> Result<ResolvedModel, SessionError>;
}

/// A callable model.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedModel {
    /// The name that clients use.
    pub reference: ModelRef,
    /// The part of it that shapes the request.
    pub entry: ModelEntry,
    /// Generation Controls.
    pub generation: Generation,
    /// Model Request Options.
    pub options: Map<String, Value>,
    /// Whether it calls tools. Otherwise it is offered none.
    pub takes_tools: bool,
    /// The prices of its tokens.
    pub prices: Option<Prices>,
    /// The version of the price table.
    pub price_version: String,
    /// A notice for its users: that it is deprecated, for example.
    pub notice: Option<String>,
}

impl ResolvedModel {
    /// Returns the prices of a request of about `input` tokens.
    pub(crate) fn pricing(&self, input: impl FnOnce() -> u64) -> Option<Pricing> {
        let prices = self.prices.clone()?;
        let output_max = self.generation.max_tokens.or(self.entry.output_limit);
        let estimate = prices.estimate(input(), output_max);
        Some(Pricing { version: self.price_version.clone(), prices, estimate })
    }
}

impl Models {
    /// Resolves a choice; `None` is the default.
    ///
    /// # Errors
    /// Those of [`ModelSource::resolve`].
    pub fn resolve(&self, choice: Option<&ModelRef>) -> Result<ResolvedModel, SessionError> {
        self.source.resolve(choice.unwrap_or(&self.default))
    }
}

/// Models of providers that are configured by hand. All models of a provider are alike, whatever their names.
#[derive(Debug, Clone, Default)]
pub struct FixedModels {
    providers: BTreeMap<String, FixedProvider>,
    /// Known facts about models. Other models have none.
    known: Vec<(ModelRef, ModelFacts)>,
}

#[derive(Debug, Clone)]
struct FixedProvider {
    protocol: Protocol,
    dialect: Dialect,
}

/// The known facts about a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelFacts {
    /// The most tokens of a request and its answer together.
    pub context_limit: Option<u64>,
    /// The most tokens of a request, if fewer than the context.
    pub input_limit: Option<u64>,
    /// The most tokens of an answer.
    pub output_limit: Option<u64>,
    /// The prices of its tokens.
    pub prices: Option<Prices>,
    /// Generation Controls of every request.
    pub generation: Generation,
    /// Model Request Options of every request.
    pub options: Map<String, Value>,
    /// Its variants: further Model Request Options.
    pub variants: BTreeMap<String, Map<String, Value>>,
    /// A notice for its users.
    pub notice: Option<String>,
}

/// The price version of a [`FixedModels`].
const CONFIGURED: &str = "configured";

impl FixedModels {
    /// Adds a provider's models, or replaces them.
    #[must_use]
    pub fn with_provider(
        mut self,
        id: impl Into<String>,
        protocol: Protocol,
        dialect: Dialect,
    ) -> Self {
        self.providers.insert(id.into(), FixedProvider { protocol, dialect });
        self
    }

    /// Sets the known facts about a model.
    #[must_use]
    pub fn with_facts(mut self, model: ModelRef, facts: ModelFacts) -> Self {
        self.known.retain(|(known, _)| *known != model);
        self.known.push((model, facts));
        self
    }
}

impl ModelSource for FixedModels {
    fn resolve(&self, choice: &ModelRef) -> Result<ResolvedModel, SessionError> {
        let Some(provider) = self.providers.get(&choice.provider) else {
            let known: Vec<&str> = self.providers.keys().map(String::as_str).collect();
            return Err(SessionError {
                code: ErrorCode::ModelUnknown.into(),
                message: format!(
                    "no provider `{}` is configured (there is {}); choose one of them, or start the \
                     service with --model-url or a provider's key",
                    choice.provider,
                    known.join(", "),
                ),
            });
        };
        let plain = ModelRef { variant: None, ..choice.clone() };
        let known = self.known.iter().find(|(known, _)| *known == plain);
        let mut facts = known.map(|(_, facts)| facts.clone()).unwrap_or_default();
        if let Some(variant) = &choice.variant {
            let Some(asked) = facts.variants.remove(variant) else {
                return Err(no_such_variant(choice, variant, facts.variants.keys()));
            };
            for (namespace, asked) in asked {
                lay(&mut facts.options, namespace, asked);
            }
        }
        Ok(ResolvedModel {
            reference: choice.clone(),
            entry: ModelEntry {
                provider: choice.provider.clone(),
                id: choice.model.clone(),
                protocol: provider.protocol,
                context_limit: facts.context_limit,
                input_limit: facts.input_limit,
                output_limit: facts.output_limit,
                dialect: provider.dialect.clone(),
            },
            generation: facts.generation,
            options: facts.options,
            takes_tools: true,
            prices: facts.prices,
            price_version: CONFIGURED.to_owned(),
            notice: facts.notice,
        })
    }
}

fn no_such_variant<'a>(
    choice: &ModelRef,
    variant: &str,
    known: impl Iterator<Item = &'a String>,
) -> SessionError {
    let known: Vec<_> = known.map(|name| format!("`{name}`")).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let ModelRef { provider, model, .. } = choice;
    SessionError {
        code: ErrorCode::ModelVariantUnknown.into(),
        message: format!("`{provider}/{model}` has no variant `{variant}`; it has: {known}"),
    }
}

/// Merges a namespace's options into the existing ones.
fn lay(options: &mut Map<String, Value>, namespace: String, asked: Value) {
    if let Value::Object(asked) = &asked
        && let Some(Value::Object(known)) = options.get_mut(&namespace)
    {
        known.extend(asked.clone());
        return;
    }
    options.insert(namespace, asked);
}

#[cfg(test)]
mod tests {
    use domain::Rates;
    use serde_json::json;

    use super::*;

    fn own() -> FixedModels {
        FixedModels::default().with_provider("own", Protocol::OpenAiChat, Dialect::default())
    }

    #[test]
    fn a_provider_that_is_not_configured_and_a_variant_that_there_is_not_are_refused() {
        let source = own();
        let refused = |choice: ModelRef| source.resolve(&choice).expect_err("refused");
        let error = refused(ModelRef::new("other", "m"));
        assert_eq!(error.code, ErrorCode::ModelUnknown);
        assert!(error.message.contains("`other`") && error.message.contains("there is own"));
        let error = refused(ModelRef { variant: Some("high".into()), ..ModelRef::new("own", "m") });
        assert_eq!(error.code, ErrorCode::ModelVariantUnknown);
        assert_eq!(error.message, "`own/m` has no variant `high`; it has: none");
    }

    #[test]
    fn a_variant_asks_for_more_than_its_model_alone() {
        let object = |value: Value| value.as_object().expect("an object").clone();
        let model = ModelRef::new("own", "m");
        let high = object(json!({"openai": {"reasoningEffort": "high"}, "other": {"a": 1}}));
        let facts = ModelFacts {
            options: object(json!({"openai": {"store": false, "reasoningEffort": "low"}})),
            variants: BTreeMap::from([("high".into(), high), ("wild".into(), Map::new())]),
            notice: Some("it is old".into()),
            ..ModelFacts::default()
        };
        let source = own().with_facts(model.clone(), facts);
        let choice = ModelRef { variant: Some("high".into()), ..model.clone() };
        let resolved = source.resolve(&choice).expect("known");
        assert_eq!((&resolved.reference, resolved.notice.as_deref()), (&choice, Some("it is old")));
        let asked =
            json!({"openai": {"store": false, "reasoningEffort": "high"}, "other": {"a": 1}});
        assert_eq!(Value::Object(resolved.options), asked);
        let plain = source.resolve(&model).expect("known").options;
        assert_eq!(plain["openai"]["reasoningEffort"], "low");
        let unknown = ModelRef { variant: Some("h".into()), ..model };
        let error = source.resolve(&unknown).expect_err("refused");
        assert_eq!(error.message, "`own/m` has no variant `h`; it has: `high`, `wild`");
    }

    #[test]
    fn a_model_is_paid_with_what_is_known_of_it() {
        let model = ModelRef::new("own", "m");
        let prices = Prices::from(Rates { input: 1_000, output: 2_000, ..Rates::default() });
        let facts = ModelFacts {
            output_limit: Some(50),
            prices: Some(prices.clone()),
            ..ModelFacts::default()
        };
        let models =
            Models { source: Arc::new(own().with_facts(model.clone(), facts)), default: model };
        let known = models.resolve(None).expect("the default").pricing(|| 10).expect("a price");
        assert_eq!((known.version.as_str(), known.prices), ("configured", prices));
        assert_eq!((known.estimate.output_max, known.estimate.cost), (Some(50), 110));
        let other =
            models.resolve(Some(&ModelRef::new("own", "other"))).expect("any of its models");
        assert_eq!(other.pricing(|| unreachable!("it has no prices")), None);
    }
}
