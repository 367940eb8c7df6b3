//! Lists in the newer shape of stock clients, `{location, data}`: models, providers and agents, and those of which we
//! have none.

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use catalog::{CatalogModel, Prices, ProviderEntry, Rates};
use domain::OrgId;
use http::request::Parts;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::{Value, json};

use super::catalog::{options, status};
use super::local::Looker;
use super::place::Named;
use super::settings::{second_command, settings_at, skill_view, skills_at};
use crate::ApiState;
use crate::act::shown_models;
use crate::error::ApiError;
use crate::surface::extract::{CanRead, Params};
use crate::surface::redacted::hidden;
use crate::view::{second_agents, usd};

/// The directory from `?location[directory]=`, otherwise from [`Named`].
pub(crate) struct At(pub(super) Named);

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

/// Shows a provider of the catalog.
pub(crate) async fn provider_route(
    access: CanRead,
    State(state): State<ApiState>,
    Path(provider): Path<String>,
    At(named): At,
) -> Result<Json<Value>, ApiError> {
    let shown = shown_models(&state, access.org).await?;
    let found = shown.providers.iter().find(|shown| shown.entry.id == provider);
    let found = found.ok_or(ApiError::NotFound("a provider with this id was"))?;
    located(&state, access.org, &named, self::provider(&found.entry)).await
}

/// Lists the agents.
pub(crate) async fn agents(
    access: CanRead,
    looker: Looker,
    State(state): State<ApiState>,
    At(named): At,
) -> Result<Json<Value>, ApiError> {
    let settings = settings_at(&state, &looker, &named).await?;
    let data = second_agents(&settings).into();
    located(&state, access.org, &named, data).await
}

/// Lists the commands.
pub(crate) async fn commands(
    access: CanRead,
    looker: Looker,
    State(state): State<ApiState>,
    At(named): At,
) -> Result<Json<Value>, ApiError> {
    let settings = settings_at(&state, &looker, &named).await?;
    let data = settings.commands.values().map(second_command).collect();
    located(&state, access.org, &named, data).await
}

/// Lists the skills.
pub(crate) async fn skills(
    access: CanRead,
    looker: Looker,
    State(state): State<ApiState>,
    At(named): At,
) -> Result<Json<Value>, ApiError> {
    let skills = skills_at(&state, &looker, &named).await?;
    located(&state, access.org, &named, skills.into_iter().map(skill_view).collect()).await
}

/// Answers the empty list: there are none of these in any directory.
pub(crate) async fn none(
    access: CanRead,
    State(state): State<ApiState>,
    At(named): At,
) -> Result<Json<Value>, ApiError> {
    located(&state, access.org, &named, json!([])).await
}

/// Shows the request's directory and its project.
pub(crate) async fn location(
    access: CanRead,
    State(state): State<ApiState>,
    At(named): At,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(place(&state, access.org, &named).await?))
}

/// Adds the request's location to `data`, which is the same in every directory.
pub(super) async fn located(
    state: &ApiState,
    org: OrgId,
    named: &Named,
    data: Value,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(json!({ "location": place(state, org, named).await?, "data": data })))
}

async fn place(state: &ApiState, org: OrgId, named: &Named) -> Result<Value, ApiError> {
    let directory = named.or_default(state.settings()).await?.directory;
    let projects = state.store().projects(org).await?;
    let known = projects.into_iter().find(|project| project.worktree == directory);
    let id = known.map_or_else(|| "global".to_owned(), |project| project.id.into());
    Ok(json!({ "directory": directory, "project": { "id": id, "directory": directory } }))
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
