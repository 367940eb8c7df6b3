//! Lists the models that an organisation may see, and the providers that it can reach.

use std::collections::BTreeSet;
use std::sync::Arc;

use catalog::{Catalog, CatalogModel, Freshness, Modality, OrgSettings, ProviderEntry, may_read};
use domain::{ModelRef, OrgId};
use serde_json::json;
use tracing::warn;

use crate::ApiState;
use crate::error::ApiError;

/// The models and providers that an organisation sees.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The catalog that they are from; `None` without one.
    pub(crate) catalog: Option<ShownCatalog>,
    /// The providers; the default model's comes first.
    pub(crate) providers: Vec<ShownProvider>,
    /// Models that the organisation does not allow, of the provider that is listed in full.
    pub(crate) not_allowed: BTreeSet<String>,
}

/// A catalog's version, and its freshness.
#[derive(Debug)]
pub(crate) struct ShownCatalog {
    pub(crate) version: String,
    pub(crate) updated: String,
    pub(crate) freshness: Freshness,
}

/// A provider with the organisation's settings.
#[derive(Debug)]
pub(crate) struct ShownProvider {
    pub(crate) entry: ProviderEntry,
    /// How the provider is set up; `None` if it is not, so that its models cannot be used yet.
    pub(crate) source: Option<Source>,
}

/// The origin of a provider's set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The service's flags, or the organisation's settings.
    Config,
    /// A key in the process's environment.
    Env,
    /// A credential of the organisation.
    Api,
}

impl Shown {
    /// Returns the providers that can be used.
    pub(crate) fn connected(&self) -> impl Iterator<Item = &ShownProvider> {
        self.providers.iter().filter(|provider| provider.source.is_some())
    }
}

impl ShownProvider {
    /// Returns the newest model that calls tools; `None` for a provider without models.
    pub(crate) fn default_model(&self) -> Option<&str> {
        let models = self.entry.models.values().filter(|model| model.tool_call);
        let newest = models.max_by_key(|model| {
            (model.status == catalog::ModelStatus::Available, &model.release_date)
        });
        newest.map(|model| model.id.as_str())
    }
}

/// All that the list of an organisation follows from, beside settings that stay the same while the process lives.
#[derive(Debug)]
pub(crate) struct Basis {
    catalog: Option<(Arc<Catalog>, Freshness)>,
    /// Providers and the organisation's settings of them.
    settings: Vec<(String, String)>,
    /// The providers that turns have a credential for.
    credentialed: BTreeSet<String>,
    default: ModelRef,
    /// The other models of the server that has the default one.
    others: Vec<String>,
}

impl Basis {
    /// Takes one or two round trips.
    pub(crate) async fn read(state: &ApiState, org: OrgId) -> Result<Self, ApiError> {
        let served = &state.settings().default_model;
        let (default, others) = (served.get(), served.others());
        let (mut settings, mut credentialed) = (Vec::new(), BTreeSet::new());
        let feed = state.models().catalog.as_ref();
        if feed.is_some() {
            let rows = state.credentials().read_settings(org).await?;
            settings = rows.into_iter().map(|row| (row.provider, row.settings)).collect();
            let credentials = state.credentials().list(org).await?;
            // API keys have no users, so turns use the organisation's credentials.
            let usable = credentials
                .into_iter()
                .filter(|it| it.active && it.fault.is_none() && it.owner.is_empty());
            credentialed = usable.map(|it| it.provider).collect();
        }
        let catalog = feed.map(|feed| (feed.current(), feed.freshness()));
        Ok(Self { catalog, settings, credentialed, default, others })
    }

    /// Returns a text that is equal for equal lists. The freshness of a catalog shows in none.
    pub(crate) fn key(&self) -> String {
        let version = self.catalog.as_ref().map(|(catalog, _)| &catalog.version);
        json!([version, self.settings, self.credentialed, self.default, self.others]).to_string()
    }
}

/// Lists the models of an organisation. Takes one or two round trips.
pub(crate) async fn shown_models(state: &ApiState, org: OrgId) -> Result<Shown, ApiError> {
    shown_with(state, org, None).await
}

/// Like [`shown_models`], with all models of the provider `whole`, even hidden and disallowed ones.
pub(crate) async fn shown_with(
    state: &ApiState,
    org: OrgId,
    whole: Option<&str>,
) -> Result<Shown, ApiError> {
    Ok(shown_from(state, &Basis::read(state, org).await?, whole))
}

/// Lists what follows from `basis`.
pub(crate) fn shown_from(state: &ApiState, basis: &Basis, whole: Option<&str>) -> Shown {
    let Basis { catalog, settings, credentialed, default, others } = basis;
    let names = || std::iter::once(&default.model).chain(others);
    let Some((catalog, freshness)) = catalog else {
        let entry = own(state, &default.provider, names(), None);
        let own = ShownProvider { entry, source: Some(Source::Config) };
        return Shown { catalog: None, providers: vec![own], not_allowed: BTreeSet::new() };
    };
    let texts = settings.iter().map(|(provider, text)| (provider.as_str(), text.as_str()));
    let (settings, unreadable) = OrgSettings::read(texts);
    for (provider, error) in unreadable {
        warn!(provider, %error, "the settings of a provider cannot be read: its models are not shown");
    }
    let list = state.models();
    let own_id = &default.provider;
    let source = |entry: &ProviderEntry| {
        if credentialed.contains(entry.id.as_str()) {
            return Some(Source::Api);
        }
        // The process's keys are only for the addresses in the catalog. Only workers read their values.
        let env = |name: &str| {
            let has = list.keys.contains(name) && may_read(&entry.id, &entry.env, name);
            has.then(|| "set".to_owned())
        };
        if !settings.redirects(&entry.id)
            && catalog::is_set_up(catalog, &settings.overrides, &entry.id, &env)
        {
            return Some(Source::Env);
        }
        // An own server may need no key, and a provider without known variables needs none.
        let wants_none = settings.has_address(&entry.id) || entry.env.is_empty();
        wants_none.then_some(Source::Config)
    };
    let mut providers = Vec::new();
    let mut of_catalog = None;
    let mut listed = catalog::list(catalog, &settings.overrides);
    let whole = whole.and_then(|id| catalog::whole(catalog, &settings.overrides, id));
    let mut not_allowed = BTreeSet::new();
    if let Some(whole) = whole {
        let is_allowed = |model: &&String| settings.overrides.allows(&whole.id, model);
        not_allowed = whole.models.keys().filter(|id| !is_allowed(id)).cloned().collect();
        listed.retain(|entry| entry.id != whole.id);
        listed.push(whole);
    }
    for entry in listed {
        if entry.id == *own_id {
            of_catalog = Some(entry);
        } else {
            let source = source(&entry);
            providers.push(ShownProvider { entry, source });
        }
    }
    if settings.overrides.allows(&default.provider, &default.model) {
        // If nothing else has set it up, flags have.
        let source = of_catalog.as_ref().and_then(source).or(Some(Source::Config));
        let allowed = names().filter(|name| settings.overrides.allows(&default.provider, name));
        let entry = own(state, &default.provider, allowed, of_catalog);
        providers.insert(0, ShownProvider { entry, source });
    } else if let Some(entry) = of_catalog {
        // The organisation may allow other models of this provider.
        let source = source(&entry);
        providers.push(ShownProvider { entry, source });
    }
    let freshness = freshness.clone();
    let (version, updated) = (catalog.version.clone(), catalog.updated.clone());
    let catalog = Some(ShownCatalog { version, updated, freshness });
    Shown { catalog, providers, not_allowed }
}

/// Returns the catalog's entry of the default model's provider, or a new one. Adds the models of `names` that the catalog
/// does not have.
fn own<'a>(
    state: &ApiState,
    provider: &str,
    names: impl Iterator<Item = &'a String>,
    entry: Option<ProviderEntry>,
) -> ProviderEntry {
    let settings = state.settings();
    let named = |name: &str| {
        if settings.simulated { format!("{name} (simulated)") } else { name.to_owned() }
    };
    let mut entry = entry.unwrap_or_else(|| ProviderEntry {
        id: provider.to_owned(),
        name: named(provider),
        npm: "@ai-sdk/openai-compatible".to_owned(),
        ..ProviderEntry::default()
    });
    for name in names {
        entry.models.entry(name.clone()).or_insert_with(|| {
            let mut model = CatalogModel {
                id: name.clone(),
                name: named(name),
                tool_call: true,
                temperature: Some(true),
                ..CatalogModel::default()
            };
            model.modalities.input.insert(Modality::Text);
            model.modalities.output.insert(Modality::Text);
            model
        });
    }
    entry
}
