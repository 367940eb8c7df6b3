//! The list of models that an organisation may use.

use axum::Json;
use axum::extract::State;
use catalog::{CatalogModel, Freshness, Limits, Modalities, ModelStatus, Prices, Rates};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ApiState;
use crate::act::{ShownCatalog, ShownProvider, shown_with};
use crate::error::ApiError;
use crate::surface::extract::{CanRead, Params};
use crate::view::usd;

/// The filter of the list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ModelQuery")]
pub(crate) struct Query {
    /// Only models of this provider.
    provider: Option<String>,
    /// Whether to include providers that are not set up; for a single provider, also its hidden and disallowed
    /// models.
    all: bool,
}

/// The models that may be used.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ModelsView {
    /// The version of the catalog and its prices; `None` without a catalog.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// The catalog's origin and freshness.
    #[serde(skip_serializing_if = "Option::is_none")]
    catalog: Option<CatalogView>,
    /// The model of a session that has not chosen one.
    default: String,
    models: Vec<ModelView>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CatalogView {
    /// The date of the catalog's newest change, `2026-05-01`.
    updated: String,
    /// The catalog's URL without its query, which may contain a token; `None` for the catalog shipped with the
    /// service.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// The time of the last successful fetch, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<i64>,
    /// The reason why this gateway's last fetch failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

impl From<ShownCatalog> for CatalogView {
    fn from(catalog: ShownCatalog) -> Self {
        let ShownCatalog { version: _, updated, freshness } = catalog;
        let Freshness { source, seen_ms, failure } = freshness;
        let plain = |url: String| url.split(['?', '#']).next().unwrap_or_default().to_owned();
        Self { updated, source: source.map(plain), seen: seen_ms, failure }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Model")]
struct ModelView {
    /// `provider/model`, as a prompt chooses it.
    id: String,
    name: String,
    status: ModelStatus,
    /// Whether the provider is set up.
    connected: bool,
    /// Whether the organisation allows it. Disallowed models are listed on request only.
    #[serde(skip_serializing_if = "is_true")]
    allowed: bool,
    tool_call: bool,
    reasoning: bool,
    attachment: bool,
    modalities: Modalities,
    limits: Limits,
    #[serde(skip_serializing_if = "Option::is_none")]
    usd_per_million_tokens: Option<PricesView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variants: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    released: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_true(is_so: &bool) -> bool {
    *is_so
}

#[derive(Debug, Serialize, JsonSchema)]
struct PricesView {
    #[serde(flatten)]
    base: RatesView,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tiers: Vec<TierView>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TierView {
    /// The number of input tokens above which this price applies.
    above_tokens: u64,
    #[serde(flatten)]
    rates: RatesView,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RatesView {
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
}

impl From<Rates> for RatesView {
    fn from(rates: Rates) -> Self {
        Self {
            input: usd(rates.input),
            output: usd(rates.output),
            cache_read: usd(rates.cache_read),
            cache_write: usd(rates.cache_write),
        }
    }
}

impl From<Prices> for PricesView {
    fn from(prices: Prices) -> Self {
        let tier =
            |(above_tokens, rates): (u64, Rates)| TierView { above_tokens, rates: rates.into() };
        Self { base: prices.base.into(), tiers: prices.tiers.into_iter().map(tier).collect() }
    }
}

pub(crate) async fn list(
    access: CanRead,
    State(state): State<ApiState>,
    Params(query): Params<Query>,
) -> Result<Json<ModelsView>, ApiError> {
    let whole = query.provider.as_deref().filter(|_| query.all);
    let shown = shown_with(&state, access.org, whole).await?;
    let default = state.settings().default_model.get();
    let asked = shown.providers.into_iter().filter(|provider| match &query.provider {
        Some(id) => provider.entry.id == *id,
        None => query.all || provider.source.is_some(),
    });
    let models = asked.flat_map(|ShownProvider { entry, source }| {
        let (id, not_allowed) = (entry.id, &shown.not_allowed);
        entry.models.into_values().map(move |model| {
            let allowed = !not_allowed.contains(&model.id);
            view(&id, model, source.is_some(), allowed)
        })
    });
    Ok(Json(ModelsView {
        version: shown.catalog.as_ref().map(|catalog| catalog.version.clone()),
        catalog: shown.catalog.map(Into::into),
        default: format!("{}/{}", default.provider, default.model),
        models: models.collect(),
    }))
}

fn view(provider: &str, model: CatalogModel, connected: bool, allowed: bool) -> ModelView {
    ModelView {
        id: format!("{provider}/{}", model.id),
        name: model.name,
        status: model.status,
        connected,
        allowed,
        tool_call: model.tool_call,
        reasoning: model.reasoning,
        attachment: model.attachment,
        modalities: model.modalities,
        limits: model.limits,
        usd_per_million_tokens: model.prices.map(Into::into),
        variants: model.variants.into_keys().collect(),
        released: model.release_date,
    }
}
