//! The agent and the model that a request chooses.

use std::cmp::Reverse;

use domain::{ErrorCode, ModelRef, OrgId, SessionError};
use schemars::JsonSchema;
use serde::Deserialize;
use settings::Effective;

use super::models::{Shown, ShownProvider, shown_models};
use crate::ApiState;
use crate::error::ApiError;
use crate::text::shown;

const MAX_MODEL_CHARS: usize = 200;

/// A model: `provider/model`, a bare name of the default provider's, or the fields that stock clients send.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ModelRequest {
    /// `provider/model`, where the model's name may contain slashes, or a bare name of the default provider's.
    Text(String),
    /// Provider and model in two fields, with an optional variant.
    Fields {
        #[serde(rename = "providerID", alias = "provider")]
        provider_id: String,
        #[serde(rename = "modelID", alias = "id", alias = "model")]
        model_id: String,
        variant: Option<String>,
    },
}

impl ModelRequest {
    pub(crate) fn parse(self, default_provider: &str) -> Result<ModelRef, ApiError> {
        let (provider, model, variant) = match self {
            Self::Fields { provider_id, model_id, variant } => {
                (provider_id, model_id, self::variant(variant)?)
            }
            Self::Text(text) => match text.split_once('/') {
                Some((provider, model)) => (provider.to_owned(), model.to_owned(), None),
                None => (default_provider.to_owned(), text, None),
            },
        };
        if is_name(&provider) && is_name(&model) {
            Ok(ModelRef { provider, model, variant })
        } else {
            Err(ApiError::invalid("a model is `provider/model`, each of 1 to 200 characters"))
        }
    }
}

fn is_name(name: &str) -> bool {
    let chars = name.chars().count();
    (1..=MAX_MODEL_CHARS).contains(&chars) && !name.chars().any(char::is_control)
}

/// Returns a variant's name, or `None` for an empty one. Only the turn finds out whether the model has the variant.
pub(super) fn variant(asked: Option<String>) -> Result<Option<String>, ApiError> {
    let variant = asked.filter(|name| !name.is_empty());
    if variant.as_deref().is_none_or(is_name) {
        Ok(variant)
    } else {
        Err(ApiError::invalid("a variant of a model is a name of at most 200 characters"))
    }
}

/// Refuses a model that the simulated provider does not have, since that provider would answer for any name. Real
/// providers know their models better than a gateway does, so the turn asks them.
pub(crate) async fn has_model(
    state: &ApiState,
    org: OrgId,
    model: Option<&ModelRef>,
) -> Result<(), ApiError> {
    let own = state.settings().default_model.get();
    let Some(model) = model.filter(|model| model.provider == own.provider) else { return Ok(()) };
    if !state.settings().simulated || model.model == own.model {
        return Ok(());
    }
    // The organisation's settings may add names.
    let listed = shown_models(state, org).await?;
    let mut known = listed.providers.iter().filter(|provider| provider.entry.id == own.provider);
    if known.any(|provider| provider.entry.models.contains_key(&model.model)) {
        return Ok(());
    }
    let (provider, asked) = (&own.provider, shown(&model.model));
    let mut meant = find_elsewhere(&listed, provider, &model.model);
    if meant.is_empty() {
        meant.push(format!("`{provider}/{}`", own.model));
    }
    let meant = meant.join(", ");
    let message = format!("there is no model `{provider}/{asked}`; did you mean {meant}?");
    Err(ApiError::NoSuch(SessionError { code: ErrorCode::ModelUnknown.into(), message }))
}

/// Returns at most three models of this name that other providers have: first those that can be used, then those of
/// their makers. A maker is who resellers name before the model, as in `openai/gpt-5`.
fn find_elsewhere(listed: &Shown, own: &str, model: &str) -> Vec<String> {
    const MOST: usize = 3;
    let has = |provider: &ShownProvider, model: &str| provider.entry.models.contains_key(model);
    let others = listed.providers.iter().filter(|it| it.entry.id != own && has(it, model));
    let ranked = others.map(|it| {
        let full = format!("{}/{model}", it.entry.id);
        let resellers = listed.providers.iter().filter(|reseller| has(reseller, &full)).count();
        ((it.source.is_none(), Reverse(resellers)), full)
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_unstable();
    ranked.into_iter().take(MOST).map(|(_, full)| format!("`{full}`")).collect()
}

/// Returns the agent's name, or an error that lists the known agents.
pub(crate) fn agent(
    settings: &Effective,
    asked: Option<String>,
) -> Result<Option<String>, ApiError> {
    let Some(name) = asked.filter(|name| !name.is_empty()) else { return Ok(None) };
    if settings.agent(&name).is_some() {
        return Ok(Some(name));
    }
    let known = settings.agents.keys().filter(|name| settings.agent(name).is_some());
    let known: Vec<_> = known.map(|name| format!("`{name}`")).collect();
    let why = settings.why_no_agent(&name);
    let (name, known) = (shown(&name), known.join(", "));
    let message = match why {
        Some(why) => format!("the agent `{name}` cannot be used: {why}, or choose one of {known}"),
        None => format!("there is no agent `{name}`: choose one of {known}"),
    };
    let code = ErrorCode::SessionAgentUnknown.into();
    Err(ApiError::NoSuch(SessionError { code, message }))
}
