//! The usable part of the catalog in the newer shape of stock clients: `/api/model` and `/api/provider`.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use catalog::{CatalogModel, Prices, ProviderEntry, Rates};
use domain::OrgId;
use http::request::Parts;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::{Value, json};

use super::catalog::{options, status};
use super::place::Named;
use crate::ApiState;
use crate::act::shown_models;
use crate::error::ApiError;
use crate::surface::extract::{CanRead, Params};
use crate::surface::redacted::hidden;
use crate::view::usd;

/// The directory from `?location[directory]=`, otherwise from [`Named`].
pub(crate) struct At(Named);

#[derive(Deserialize)]
struct Query {
    #[serde(rename = "location[directory]")]
    directory: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for At {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Params(query) = Params::<Query>::from_request_parts(parts, state).await?;
        let Named(named) = Named::from_request_parts(parts, state).await?;
        Ok(Self(Named(query.directory.filter(|directory| !directory.is_empty()).or(named))))
    }
}

/// Lists the models that can be used, newest first.
pub(crate) async fn models(
    access: CanRead,
    State(state): State<ApiState>,
    At(named): At,
) -> Result<Json<Value>, ApiError> {
    let shown = shown_models(&state, access.org).await?;
    let connected = shown
        .connected()
        .flat_map(|provider| provider.entry.models.values().map(|its| (&provider.entry, its)));
    let mut models: Vec<(&ProviderEntry, &CatalogModel)> = connected.collect();
    models.sort_by(|(_, one), (_, other)| other.release_date.cmp(&one.release_date));
    let data = models.into_iter().map(|(provider, its)| model(provider, its)).collect();
    located(&state, access.org, &named, data).await
}

/// Lists the providers that can be used.
pub(crate) async fn providers(
    access: CanRead,
    State(state): State<ApiState>,
    At(named): At,
) -> Result<Json<Value>, ApiError> {
    let shown = shown_models(&state, access.org).await?;
    let data = shown.connected().map(|provider| self::provider(&provider.entry)).collect();
    located(&state, access.org, &named, data).await
}

/// Adds the request's directory and its project. The list is the same in every directory.
async fn located(
    state: &ApiState,
    org: OrgId,
    named: &Named,
    data: Vec<Value>,
) -> Result<Json<Value>, ApiError> {
    let directory = named.or_default(state.settings()).await?.directory;
    let projects = state.store().projects(org).await?;
    let known = projects.into_iter().find(|project| project.worktree == directory);
    let id = known.map_or_else(|| "global".to_owned(), |project| project.id.into());
    let project = json!({ "id": id, "directory": directory });
    Ok(Json(json!({ "location": { "directory": directory, "project": project }, "data": data })))
}

fn provider(entry: &ProviderEntry) -> Value {
    let mut api = json!({ "type": "aisdk", "package": entry.npm });
    if let Some(url) = &entry.api {
        api["url"] = url.clone().into();
    }
    json!({
        "id": entry.id,
        "name": entry.name,
        "api": api,
        "request": { "headers": hidden(&entry.headers), "body": {} },
    })
}

fn model(provider: &ProviderEntry, model: &CatalogModel) -> Value {
    let package = model.npm.as_ref().unwrap_or(&provider.npm);
    let mut api = json!({ "id": model.api_id(), "type": "aisdk", "package": package });
    if let Some(url) = model.api.as_ref().or(provider.api.as_ref()) {
        api["url"] = url.clone().into();
    }
    let variants = model
        .variants
        .iter()
        .map(|(id, asked)| json!({ "id": id, "headers": hidden(&asked.headers), "body": options(asked) }));
    let mut limit = json!({ "context": model.limits.context.unwrap_or(0), "output": model.limits.output.unwrap_or(0) });
    if let Some(input) = model.limits.input {
        limit["input"] = input.into();
    }
    let mut shown = json!({
        "id": model.id,
        "providerID": provider.id,
        "name": model.name,
        "api": api,
        "capabilities": {
            "tools": model.tool_call,
            "input": model.modalities.input,
            "output": model.modalities.output,
        },
        "request": { "headers": hidden(&model.domains.headers), "body": options(&model.domains) },
        "variants": variants.collect::<Vec<_>>(),
        "time": { "released": released_ms(&model.release_date) },
        "cost": cost(model.prices.as_ref()),
        "status": status(model.status),
        "enabled": true,
        "limit": limit,
    });
    if let Some(family) = &model.family {
        shown["family"] = family.clone().into();
    }
    shown
}

/// Returns the first millisecond of the day, or zero for an unknown day.
fn released_ms(date: &str) -> i64 {
    let day = date.parse::<Date>().ok().and_then(|day| day.to_zoned(TimeZone::UTC).ok());
    day.map_or(0, |day| day.timestamp().as_millisecond())
}

/// Returns the base price, then its tiers.
fn cost(prices: Option<&Prices>) -> Value {
    let rates = |rates: &Rates| {
        json!({ "input": usd(rates.input), "output": usd(rates.output),
            "cache": { "read": usd(rates.cache_read), "write": usd(rates.cache_write) } })
    };
    let Some(prices) = prices else { return json!([]) };
    let tiers = prices.tiers.iter().map(|(above, its)| {
        let mut tier = rates(its);
        tier["tier"] = json!({ "type": "context", "size": above });
        tier
    });
    std::iter::once(rates(&prices.base)).chain(tiers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_a_moment_and_no_day_is_none() {
        assert_eq!(released_ms("1970-01-02"), 86_400_000);
        assert_eq!((released_ms(""), released_ms("2026")), (0, 0));
    }
}
