use std::collections::BTreeSet;

use domain::{ModelRef, SessionError};
use history::ModelEntry;
use llm_protocol::Protocol;

use crate::cost::Prices;

/// The models that can be called, as far as a decision needs to know.
#[derive(Debug, Clone)]
pub struct Models {
    /// The model of a session that chose none.
    pub default: ModelRef,
    /// The ids of the providers that are configured.
    pub providers: BTreeSet<String>,
    /// What is known of models; of any other, nothing.
    pub known: Vec<(ModelRef, ModelFacts)>,
}

/// What is known of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelFacts {
    /// The most tokens that fit into a request and its answer.
    pub context_limit: Option<u64>,
    /// The most tokens of an answer.
    pub output_limit: Option<u64>,
    /// What its tokens cost.
    pub prices: Option<Prices>,
}

/// A model that can be called.
#[derive(Debug, Clone)]
pub struct ResolvedModel {
    /// As clients name it.
    pub reference: ModelRef,
    /// As much of it as shapes the request.
    pub entry: ModelEntry,
}

impl Models {
    /// Resolves a choice; `None` is the default.
    ///
    /// # Errors
    /// `model.unknown` when no configured provider has the choice's id.
    pub fn resolve(&self, choice: Option<&ModelRef>) -> Result<ResolvedModel, SessionError> {
        let reference = choice.unwrap_or(&self.default).clone();
        if !self.providers.contains(&reference.provider) {
            let known: Vec<&str> = self.providers.iter().map(String::as_str).collect();
            return Err(SessionError {
                code: "model.unknown".into(),
                message: format!(
                    "no provider `{}` is configured (there is {}); choose one of them, or start the \
                     service with --model-url or a provider's key",
                    reference.provider,
                    known.join(", "),
                ),
            });
        }
        Ok(ResolvedModel { entry: self.entry(&reference), reference })
    }

    /// As much of a model as shapes its requests.
    pub(crate) fn entry(&self, reference: &ModelRef) -> ModelEntry {
        let facts = self.facts(reference);
        ModelEntry {
            provider: reference.provider.clone(),
            id: reference.model.clone(),
            protocol: Protocol::OpenAiChat,
            context_limit: facts.context_limit,
            output_limit: facts.output_limit,
            dialect: llm_protocol::Dialect::default(),
        }
    }

    /// What is known of a model.
    pub(crate) fn facts(&self, reference: &ModelRef) -> ModelFacts {
        let known = self.known.iter().find(|(known, _)| known == reference);
        known.map(|(_, facts)| *facts).unwrap_or_default()
    }
}
