//! Resolves a choice of model into everything a request needs. Pure: resolving again gives the same result.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use llm_client::providers::{self, Model, Provider, Setup, SetupError, Spoken};
use llm_client::{Auth, Route, Secret};
use llm_protocol::{Dialect, Generation, Protocol};
use sha2::{Digest, Sha256};

use crate::domains::{Domains, drop_keys, merge};
use crate::model::{Catalog, CatalogModel, ModelStatus};
use crate::overrides::{Overrides, RateLimits};
use crate::prices::Prices;
use crate::view::View;

/// The reason why a choice cannot be resolved. [`ResolveError::code`] names its page in `docs/errors`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The provider does not exist.
    #[error("there is no provider `{provider}` in the catalog or the organisation's settings{}", like(.near))]
    UnknownProvider {
        /// The chosen provider.
        provider: String,
        /// Similar ids.
        near: Vec<String>,
    },
    /// The provider has no such model.
    #[error("the provider `{provider}` has no model `{model}`{}; an organisation can add it in the provider's settings", like(.near))]
    UnknownModel {
        /// The chosen provider.
        provider: String,
        /// The chosen model.
        model: String,
        /// Similar ids, or else the same model of other providers, as `provider/model`.
        near: Vec<String>,
    },
    /// The model has no such variant.
    #[error("`{provider}/{model}` has no variant `{variant}`; it has: {}", list_of(.known))]
    UnknownVariant {
        /// The chosen provider.
        provider: String,
        /// The chosen model.
        model: String,
        /// The chosen variant.
        variant: String,
        /// The model's variants.
        known: Vec<String>,
    },
    /// The organisation does not allow the model.
    #[error(
        "the organisation does not allow `{provider}/{model}`; choose another model, or ask an administrator"
    )]
    NotAllowed {
        /// The chosen provider.
        provider: String,
        /// The chosen model.
        model: String,
    },
}

impl ResolveError {
    /// Returns the stable code of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownProvider { .. } | Self::UnknownModel { .. } => "model.unknown",
            Self::UnknownVariant { .. } => "model.variant_unknown",
            Self::NotAllowed { .. } => "model.not_allowed",
        }
    }
}

fn like(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", list_of(near)) }
}

fn list_of(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// A model that can be called, and everything a request to it needs except credentials.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The provider's id.
    pub provider: String,
    /// The model in the organisation's view.
    pub model: CatalogModel,
    /// The variant, if one was chosen.
    pub variant: Option<String>,
    /// The model's protocol.
    pub protocol: Protocol,
    /// The differences from the protocol's owner, including the compatibility body fields.
    pub dialect: Dialect,
    /// The three domains, of model and variant. `body` is already in the dialect; `headers` go with the
    /// route.
    pub domains: Domains,
    /// The prices, if known.
    pub prices: Option<Prices>,
    /// The version of the prices: the catalog's, or `organisation:` and a hash of the prices.
    pub price_version: String,
    /// A notice for the user: the model is deprecated.
    pub notice: Option<String>,
    /// The longest silence. None: the default timeout.
    pub silence: Option<Duration>,
    /// The organisation's rate limits for the provider.
    pub limits: RateLimits,
    /// The environment variables that may hold its key, best first.
    pub key_names: Vec<String>,
    /// All environment variables that configure it.
    env: Vec<String>,
    speaker: &'static Provider,
    base_url: Option<String>,
}

/// The address settings and credentials for a route.
#[derive(Clone, Copy)]
pub struct Access<'a> {
    /// A base URL in place of every other.
    pub base_url: Option<&'a str>,
    /// Returns account, region, project and the like, by models.dev's names.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The credentials.
    pub auth: &'a Auth,
}

impl std::fmt::Debug for Access<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut access = f.debug_struct("Access");
        access.field("base_url", &self.base_url).field("auth", &self.auth).finish_non_exhaustive()
    }
}

/// Resolves a choice: provider, model and variant.
///
/// # Errors
/// The choice does not exist, or the organisation does not allow it.
pub fn resolve(
    catalog: &Catalog,
    overrides: &Overrides,
    (provider, model, variant): (&str, &str, Option<&str>),
) -> Result<Resolved, ResolveError> {
    let Some(view) = View::of(catalog, overrides, provider) else {
        let ids = View::all(catalog, overrides).map(|view| view.id());
        let near = find_nearest(provider, ids);
        return Err(ResolveError::UnknownProvider { provider: provider.to_owned(), near });
    };
    if !overrides.allows(provider, model) {
        let (provider, model) = (provider.to_owned(), model.to_owned());
        return Err(ResolveError::NotAllowed { provider, model });
    }
    let Some(found) = view.model(model) else {
        let allowed = view.model_ids().into_iter().filter(|id| overrides.allows(provider, id));
        let mut near = find_nearest(model, allowed);
        if near.is_empty() {
            near = find_elsewhere(catalog, overrides, model);
        }
        let (provider, model) = (provider.to_owned(), model.to_owned());
        return Err(ResolveError::UnknownModel { provider, model, near });
    };
    let mut domains = found.domains.clone();
    if let Some(variant) = variant {
        let Some(over) = found.variants.get(variant) else {
            return Err(ResolveError::UnknownVariant {
                provider: provider.to_owned(),
                model: model.to_owned(),
                variant: variant.to_owned(),
                known: found.variants.keys().cloned().collect(),
            });
        };
        domains.lay(over);
    }
    let mut headers = view.headers();
    headers.append(&mut domains.headers);
    domains.headers = headers;
    drop_keys(&mut domains.body);
    drop_keys(&mut domains.request_options);
    let speaker = speaker(&view, &found);
    let Spoken { protocol, mut dialect } = (speaker.speaks)(&spoken_to(&found));
    keep_state_apart(provider, protocol, &mut dialect, &mut domains);
    merge(&mut dialect.body, &domains.body);
    if found.temperature == Some(false) {
        domains.generation.temperature = None;
        domains.generation.top_p = None;
        dialect.omit.extend(["temperature", "top_p"].map(str::to_owned));
    }
    let own_prices = overrides.providers.get(provider).and_then(|over| over.models.get(model));
    let price_version = match own_prices.filter(|patch| patch.cost.is_some()) {
        Some(_) => organisation_version(found.prices.as_ref()),
        None => catalog.version.clone(),
    };
    let base_url = view.own_api().or(found.api.as_deref()).or(view.api()).map(str::to_owned);
    Ok(Resolved {
        provider: provider.to_owned(),
        variant: variant.map(str::to_owned),
        protocol,
        dialect,
        domains,
        prices: found.prices.clone(),
        price_version,
        notice: notice(provider, &found),
        silence: silence(overrides, provider, &found),
        limits: overrides.limits(provider),
        key_names: crate::model::key_names(view.env()).map(str::to_owned).collect(),
        env: view.env().to_vec(),
        speaker,
        base_url,
        model: found,
    })
}

/// Returns whether a provider can be called with only the values in `env`: its key or signature, and the
/// parts of its address.
#[must_use]
pub fn is_set_up(
    catalog: &Catalog,
    overrides: &Overrides,
    provider: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> bool {
    let Some(view) = View::of(catalog, overrides, provider) else { return false };
    // Models of one provider differ in path, not in credentials.
    let model = view.model_ids().into_iter().next().unwrap_or("any");
    let Some(found) = view.model(model) else { return false };
    let key = crate::model::key_names(view.env()).find_map(env);
    let auth = key.map_or(Auth::None, |key| Auth::Key(Secret::new(&key)));
    let mut setup = Setup::new(spoken_to(&found), env, &auth);
    let base_url = view.own_api().or(found.api.as_deref()).or(view.api());
    setup.base_url = base_url;
    let route = speaker(&view, &found).route(&setup);
    route.is_ok_and(|route| !matches!(route.auth, Auth::None))
}

impl Resolved {
    /// Returns whether its requests may contain this variable of the process's environment.
    #[must_use]
    pub fn may_read(&self, name: &str) -> bool {
        crate::env::may_read(&self.provider, &self.env, name)
    }

    /// Returns whether the provider needs credentials: metadata lists variables that configure it.
    #[must_use]
    pub fn wants_credentials(&self) -> bool {
        !self.env.is_empty()
    }

    /// Returns the provider's own name for the model, as requests use it.
    #[must_use]
    pub fn api_id(&self) -> &str {
        self.model.api_id()
    }

    /// Returns the Generation Controls with `asked` on top, without those that this model refuses.
    #[must_use]
    pub fn generation(&self, asked: &Generation) -> Generation {
        let mut all = Domains { generation: self.domains.generation.clone(), ..Domains::default() };
        all.lay(&Domains { generation: asked.clone(), ..Domains::default() });
        if self.model.temperature == Some(false) {
            (all.generation.temperature, all.generation.top_p) = (None, None);
        }
        all.generation
    }

    /// Returns the route to the model with these credentials.
    ///
    /// # Errors
    /// The provider's base URL or a required setting is missing; the error names it.
    pub fn route(&self, access: &Access<'_>) -> Result<Route, SetupError> {
        let base_url = access.base_url.or(self.base_url.as_deref());
        let mut setup = Setup::new(spoken_to(&self.model), access.env, access.auth);
        setup.base_url = base_url;
        let route = self.speaker.route(&setup);
        let mut route = route.map_err(|error| error.for_provider(&self.provider))?;
        route.dialect = self.dialect.clone();
        route.silence = self.silence;
        for (name, value) in &self.domains.headers {
            route.endpoint = route.endpoint.with_header(name, Secret::new(value));
        }
        Ok(route)
    }
}

/// The longest silence of reasoning models by default. Gaps of 300 s have been seen.
const REASONING_SILENCE: Duration = Duration::from_mins(10);
/// The upper bound on a configured silence: a dead stream occupies a slot.
const LONGEST_SILENCE: Duration = Duration::from_hours(1);
/// The lower bound on a configured silence: with less, every answer would time out.
const SHORTEST_SILENCE: Duration = Duration::from_secs(1);

fn silence(overrides: &Overrides, provider: &str, model: &CatalogModel) -> Option<Duration> {
    let of_provider = overrides.providers.get(provider).and_then(|over| over.silence_ms);
    let asked = model.silence_ms.or(of_provider).map(Duration::from_millis);
    let asked = asked.map(|asked| asked.clamp(SHORTEST_SILENCE, LONGEST_SILENCE));
    asked.or(model.reasoning.then_some(REASONING_SILENCE))
}

fn spoken_to(model: &CatalogModel) -> Model<'_> {
    Model {
        id: model.api_id(),
        shape: model.shape.as_deref(),
        reasoning: model.reasoning,
        reasoning_field: model.interleaved.as_deref(),
    }
}

/// Gives a provider its own key for provider state, so that state goes back to that provider alone and not to
/// another with the same protocol, package or even model. Options under the package's key move to the new
/// key.
fn keep_state_apart(
    provider: &str,
    protocol: Protocol,
    dialect: &mut Dialect,
    domains: &mut Domains,
) {
    let owner = match protocol.state_key() {
        "bedrock" => "amazon-bedrock",
        key => key,
    };
    if provider == owner {
        return;
    }
    let of_package = dialect.state_key.replace(provider.to_owned());
    let options = of_package.filter(|key| key != provider);
    if let Some(options) = options.and_then(|key| domains.request_options.remove(&key)) {
        domains.ask(provider, options);
    }
}

/// Returns the provider code for a model.
fn speaker(view: &View<'_>, model: &CatalogModel) -> &'static Provider {
    let home = view.home();
    match home.package(model) {
        npm if npm == home.npm => providers::find(view.id(), npm),
        own => providers::of_npm(own).unwrap_or(&providers::OPENAI_COMPATIBLE),
    }
}

fn notice(provider: &str, model: &CatalogModel) -> Option<String> {
    (model.status == ModelStatus::Deprecated).then(|| {
        format!(
            "{} (`{provider}/{}`) is deprecated: it works until its provider ends it; choose another model in time",
            model.name, model.id
        )
    })
}

fn organisation_version(prices: Option<&Prices>) -> String {
    let bytes = serde_json::to_vec(&prices).expect("numbers are always written");
    format!("organisation:{}", &hex::encode(Sha256::digest(bytes))[..16])
}

/// Returns at most three ids that resemble an unknown name.
#[must_use]
pub fn find_nearest<'a>(name: &str, ids: impl Iterator<Item = &'a str>) -> Vec<String> {
    const MOST: usize = 3;
    let name = name.to_ascii_lowercase();
    let mut near: BTreeMap<(usize, &str), ()> = BTreeMap::new();
    for id in ids {
        let lower = id.to_ascii_lowercase();
        let distance = distance(&name, &lower);
        let is_part = name.len() >= 3 && (lower.contains(&name) || name.contains(&lower));
        if is_part || distance <= name.len().max(3) / 3 {
            near.insert((distance, id), ());
        }
    }
    near.into_keys().take(MOST).map(|(_, id)| id.to_owned()).collect()
}

/// Returns at most three models of this name that any provider has, as `provider/model`, those of their makers first. A
/// maker is who resellers name before the model, as in `openai/gpt-5`.
fn find_elsewhere(catalog: &Catalog, overrides: &Overrides, model: &str) -> Vec<String> {
    const MOST: usize = 3;
    let views = View::all(catalog, overrides).map(|view| (view.id(), view.model_ids()));
    let views: Vec<(&str, BTreeSet<&str>)> = views.collect();
    let mut ranked = Vec::new();
    for (id, models) in &views {
        if models.contains(model) && overrides.allows(id, model) {
            let full = format!("{id}/{model}");
            let resellers = views.iter().filter(|(_, all)| all.contains(full.as_str())).count();
            ranked.push((Reverse(resellers), full));
        }
    }
    ranked.sort_unstable();
    ranked.into_iter().take(MOST).map(|(_, full)| full).collect()
}

/// Returns the edit distance in bytes, over the first 128 bytes of each name.
fn distance(one: &str, other: &str) -> usize {
    const MOST: usize = 128;
    let (one, other) =
        (&one.as_bytes()[..one.len().min(MOST)], &other.as_bytes()[..other.len().min(MOST)]);
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, byte) in one.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (place, against) in other.iter().enumerate() {
            let kept = diagonal + usize::from(byte != against);
            diagonal = row[place + 1];
            row[place + 1] = kept.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}
