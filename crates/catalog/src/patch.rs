//! A model in models.dev's and configurations' form, where every field is optional.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domains::Domains;
use crate::model::{CatalogModel, Home, Limits, Modality, ModelStatus, ReasoningOption};
use crate::partition::partition;
use crate::prices::Prices;
use crate::reasoning;

/// Facts about a model, in models.dev's form with OpenCode's `options`, `headers` and `variants`. Absent
/// fields change nothing; unknown members are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelPatch {
    /// The provider's own name for the model; the listed id if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The family, such as `claude-opus`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// `alpha`, `beta` and `active` count as available; otherwise `deprecated` or `hidden`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// It accepts files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachment: Option<bool>,
    /// It reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<bool>,
    /// Ways to set its reasoning. Unknown kinds are ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_options: Option<Vec<Value>>,
    /// It accepts a temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<bool>,
    /// It calls tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call: Option<bool>,
    /// `true` or `{"field": "reasoning_content"}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interleaved: Option<Value>,
    /// `{"input", "output", "cache_read", "cache_write", "tiers", "context_over_200k"}`, USD per million tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Value>,
    /// `{"context", "input", "output"}` in tokens; zero means unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Map<String, Value>>,
    /// `{"input": ["text", …], "output": […]}`. Unknown kinds are ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modalities: Option<Map<String, Value>>,
    /// The longest silence before and within an answer, in milliseconds. Not a field of models.dev's.
    #[serde(rename = "silenceMs", skip_serializing_if = "Option::is_none")]
    pub silence_ms: Option<u64>,
    /// The release date, as `2026-04-23`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_date: Option<String>,
    /// The date of its last change, as `2026-04-23`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<String>,
    /// Differences from the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<ModelProvider>,
    /// Options for every request, in any form that [`partition`] accepts.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
    /// Headers for its requests.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Additional options by variant; `{"disabled": true}` removes one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variants: BTreeMap<String, Map<String, Value>>,
    /// Modes of running it that become separate models: `<id>-<mode>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experimental: Option<Experimental>,
}

/// A model's differences from its provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelProvider {
    /// The npm package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub npm: Option<String>,
    /// The base URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// `completions` or `responses`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Compatibility body fields.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub body: Map<String, Value>,
    /// Headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// The experimental part of models.dev's entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Experimental {
    /// Modes by name. Each becomes a model with its own price, body and headers.
    pub modes: BTreeMap<String, Mode>,
}

/// A mode of running a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mode {
    /// Its price, in the form of a model's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Value>,
    /// Additional body fields and headers.
    pub provider: ModelProvider,
}

impl ModelPatch {
    /// Applies these facts to `model`, which is offered at `home`.
    pub(crate) fn apply(&self, model: &mut CatalogModel, home: Home<'_>, is_new: bool) {
        self.apply_facts(model);
        let npm = home.package(model).to_owned();
        let changes_reasoning = self.reasoning.is_some() || self.reasoning_options.is_some();
        if is_new || changes_reasoning || self.provider.as_ref().is_some_and(|it| it.npm.is_some())
        {
            let mut domains = reasoning::defaults(&npm, model);
            domains.lay(&model.domains);
            model.domains = domains;
            model.variants = reasoning::variants(&npm, model);
        }
        let package = reasoning::package(&npm, model);
        model.domains.lay(&partition(package, &self.options));
        model.domains.lay(&Domains { headers: self.headers.clone(), ..Domains::default() });
        if let Some(provider) = &self.provider {
            model.domains.lay(&provider.domains());
        }
        for (name, options) in &self.variants {
            if options.get("disabled") == Some(&Value::Bool(true)) {
                model.variants.remove(name);
                continue;
            }
            let mut options = options.clone();
            options.remove("disabled");
            model.variants.entry(name.clone()).or_default().lay(&partition(package, &options));
        }
    }

    fn apply_facts(&self, model: &mut CatalogModel) {
        fn set<T: Clone>(place: &mut T, said: Option<&T>) {
            if let Some(said) = said {
                place.clone_from(said);
            }
        }
        if let Some(id) = &self.id {
            model.api_id = Some(id.clone()).filter(|id| *id != model.id);
        }
        set(&mut model.name, self.name.as_ref());
        set(&mut model.attachment, self.attachment.as_ref());
        set(&mut model.reasoning, self.reasoning.as_ref());
        set(&mut model.tool_call, self.tool_call.as_ref());
        set(&mut model.release_date, self.release_date.as_ref());
        model.family = self.family.clone().or(model.family.take());
        model.temperature = self.temperature.or(model.temperature);
        model.silence_ms = self.silence_ms.or(model.silence_ms);
        if let Some(status) = self.status.as_deref() {
            model.status = match status {
                "deprecated" => ModelStatus::Deprecated,
                "hidden" => ModelStatus::Hidden,
                // `alpha`, `beta`, `active`, and any future status: it is available.
                _ => ModelStatus::Available,
            };
        }
        if let Some(options) = &self.reasoning_options {
            let known = |option: &Value| ReasoningOption::deserialize(option).ok();
            model.reasoning_options = options.iter().filter_map(known).collect();
        }
        if let Some(interleaved) = &self.interleaved {
            let field = interleaved.get("field").and_then(Value::as_str);
            let usual = (*interleaved == Value::Bool(true)).then_some("reasoning_content");
            model.interleaved = field.or(usual).map(str::to_owned);
        }
        if let Some(cost) = &self.cost {
            model.prices = Prices::read(cost);
        }
        if let Some(limit) = &self.limit {
            let of = |name: &str, was: Option<u64>| match limit.get(name) {
                Some(said) => said.as_u64().filter(|tokens| *tokens > 0),
                None => was,
            };
            let Limits { context, input, output } = model.limits;
            model.limits = Limits {
                context: of("context", context),
                input: of("input", input),
                output: of("output", output),
            };
        }
        for (name, place) in
            [("input", &mut model.modalities.input), ("output", &mut model.modalities.output)]
        {
            let said = self.modalities.as_ref().and_then(|all| all.get(name)?.as_array());
            if let Some(said) = said {
                *place = said.iter().filter_map(|kind| Modality::deserialize(kind).ok()).collect();
            }
        }
        if let Some(provider) = &self.provider {
            model.npm = provider.npm.clone().or(model.npm.take());
            model.api = provider.api.clone().or(model.api.take());
            model.shape = provider.shape.clone().or(model.shape.take());
        }
    }

    /// Returns the models for its modes.
    pub(crate) fn modes(&self, model: &CatalogModel) -> Vec<CatalogModel> {
        let modes = self.experimental.iter().flat_map(|experimental| &experimental.modes);
        modes
            .map(|(name, mode)| {
                let mut run = model.clone();
                run.id = format!("{}-{name}", model.id);
                run.api_id = Some(model.api_id().to_owned());
                let mut letters = name.chars();
                let first = letters.next().map(|letter| letter.to_ascii_uppercase());
                run.name = format!(
                    "{} {}{}",
                    model.name,
                    first.map(String::from).unwrap_or_default(),
                    letters.as_str()
                );
                if let Some(cost) = &mode.cost {
                    run.prices = Prices::read(cost);
                }
                run.domains.lay(&mode.provider.domains());
                run
            })
            .collect()
    }
}

impl ModelProvider {
    fn domains(&self) -> Domains {
        Domains { body: self.body.clone(), headers: self.headers.clone(), ..Domains::default() }
    }
}
