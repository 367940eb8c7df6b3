//! Providers and models in the shape of stock clients.

use catalog::{CatalogModel, Domains, Modality, ModelStatus, Prices, ProviderEntry, Rates};
use serde_json::{Map, Value, json};

use crate::act::{ShownProvider, Source};
use crate::surface::redacted::{hidden, hide};
use crate::view::usd;

/// Shows a provider with its models. Unknown limits and prices are zero, as in the stock catalog.
pub(crate) fn provider(shown: &ShownProvider) -> Value {
    let ShownProvider { entry, source } = shown;
    let source = match source {
        Some(Source::Config) => "config",
        Some(Source::Env) => "env",
        Some(Source::Api) => "api",
        None => "custom",
    };
    let models = entry.models.values().map(|its| (its.id.clone(), model(entry, its)));
    json!({
        "id": entry.id,
        "name": entry.name,
        "source": source,
        "env": entry.env,
        "options": {},
        "models": models.collect::<Map<String, Value>>(),
    })
}

fn model(provider: &ProviderEntry, model: &CatalogModel) -> Value {
    let media = |kinds: &std::collections::BTreeSet<Modality>| {
        let has = |kind| kinds.contains(&kind);
        json!({ "text": has(Modality::Text), "audio": has(Modality::Audio), "image": has(Modality::Image),
            "video": has(Modality::Video), "pdf": has(Modality::Pdf) })
    };
    let interleaved = match &model.interleaved {
        Some(field) => json!({ "field": field }),
        None => Value::Bool(false),
    };
    let mut limit = json!({ "context": model.limits.context.unwrap_or(0), "output": model.limits.output.unwrap_or(0) });
    if let Some(input) = model.limits.input {
        limit["input"] = input.into();
    }
    let variants = model.variants.iter().map(|(name, asked)| (name.clone(), options(asked)));
    let mut shown = json!({
        "id": model.id,
        "providerID": provider.id,
        "api": {
            "id": model.api_id(),
            "url": model.api.as_ref().or(provider.api.as_ref()).map_or("", String::as_str),
            "npm": model.npm.as_ref().unwrap_or(&provider.npm),
        },
        "name": model.name,
        "capabilities": {
            "temperature": model.temperature.unwrap_or(false),
            "reasoning": model.reasoning,
            "attachment": model.attachment,
            "toolcall": model.tool_call,
            "input": media(&model.modalities.input),
            "output": media(&model.modalities.output),
            "interleaved": interleaved,
        },
        "cost": cost(model.prices.as_ref()),
        "limit": limit,
        "status": status(model.status),
        "options": options(&model.domains),
        "headers": hidden(&model.domains.headers),
        "release_date": model.release_date,
        "variants": variants.collect::<Map<String, Value>>(),
    });
    if let Some(family) = &model.family {
        shown["family"] = family.clone().into();
    }
    shown
}

/// Returns the status under its stock name.
pub(crate) fn status(status: ModelStatus) -> &'static str {
    match status {
        ModelStatus::Available | ModelStatus::Hidden => "active",
        ModelStatus::Deprecated => "deprecated",
    }
}

/// Merges a model's options into one object. A client only shows that there are options and sends back the variant's
/// name.
pub(crate) fn options(asked: &Domains) -> Value {
    let mut options = asked.body.clone();
    for (namespace, members) in &asked.request_options {
        match members.as_object() {
            Some(members) => options.extend(members.clone()),
            None => {
                options.insert(namespace.clone(), members.clone());
            }
        }
    }
    hide(&mut options);
    options.into()
}

fn cost(prices: Option<&Prices>) -> Value {
    let rates = |rates: &Rates| {
        json!({ "input": usd(rates.input), "output": usd(rates.output),
            "cache": { "read": usd(rates.cache_read), "write": usd(rates.cache_write) } })
    };
    let Some(prices) = prices else { return rates(&Rates::default()) };
    let mut cost = rates(&prices.base);
    if !prices.tiers.is_empty() {
        let tier = |(above, its): &(u64, Rates)| {
            let mut tier = rates(its);
            tier["tier"] = json!({ "type": "context", "size": above });
            tier
        };
        cost["tiers"] = prices.tiers.iter().map(tier).collect();
    }
    cost
}
