//! A provider in an organisation's view: the catalog's entry with the override on top.

use std::collections::{BTreeMap, BTreeSet};

use crate::domains::Domains;
use crate::ingest::new_model;
use crate::model::{Catalog, CatalogModel, Home, ModelStatus, ProviderEntry};
use crate::ours::ours;
use crate::overrides::{Overrides, ProviderOverride};
use crate::partition::partition;
use crate::reasoning;

/// A provider from `catalog`, `overrides` or both.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    id: &'a str,
    entry: Option<&'a ProviderEntry>,
    over: Option<&'a ProviderOverride>,
}

impl<'a> View<'a> {
    pub(crate) fn of(catalog: &'a Catalog, overrides: &'a Overrides, id: &'a str) -> Option<Self> {
        let entry = catalog.provider(id).or_else(|| ours().get(id));
        let over = overrides.providers.get(id);
        (entry.is_some() || over.is_some()).then_some(Self { id, entry, over })
    }

    /// Returns all providers, ordered by id.
    pub(crate) fn all(
        catalog: &'a Catalog,
        overrides: &'a Overrides,
    ) -> impl Iterator<Item = Self> {
        let known = catalog.providers.keys().chain(overrides.providers.keys());
        let ids: BTreeSet<&str> = known.map(String::as_str).chain(ours().keys().copied()).collect();
        ids.into_iter().filter_map(|id| Self::of(catalog, overrides, id))
    }

    pub(crate) fn id(&self) -> &'a str {
        self.id
    }

    pub(crate) fn name(&self) -> &'a str {
        let own = self.over.and_then(|over| over.name.as_deref());
        own.or(self.entry.map(|entry| entry.name.as_str())).unwrap_or(self.id)
    }

    pub(crate) fn npm(&self) -> &'a str {
        let own = self.over.and_then(|over| over.npm.as_deref());
        let npm = own.or(self.entry.map(|entry| entry.npm.as_str()));
        npm.unwrap_or(llm_client::providers::COMPATIBLE)
    }

    pub(crate) fn home(&self) -> Home<'a> {
        Home { npm: self.npm(), has_url: self.own_api().or(self.api()).is_some() }
    }

    /// Returns the organisation's base URL, which applies to every model.
    pub(crate) fn own_api(&self) -> Option<&'a str> {
        self.over?.own_api()
    }

    /// Returns the catalog's base URL.
    pub(crate) fn api(&self) -> Option<&'a str> {
        self.entry?.api.as_deref()
    }

    pub(crate) fn env(&self) -> &'a [String] {
        let own = self.over.and_then(|over| over.env.as_deref());
        own.or(self.entry.map(|entry| entry.env.as_slice())).unwrap_or_default()
    }

    pub(crate) fn headers(&self) -> BTreeMap<String, String> {
        let mut headers = self.entry.map(|entry| entry.headers.clone()).unwrap_or_default();
        headers.extend(self.over.map(|over| over.headers.clone()).unwrap_or_default());
        headers
    }

    /// Returns whether it has no list of models and accepts any name.
    pub(crate) fn is_open(&self) -> bool {
        self.entry.is_none_or(|entry| entry.models.is_empty())
            && self.over.is_none_or(|over| over.models.is_empty())
    }

    pub(crate) fn model_ids(&self) -> BTreeSet<&'a str> {
        let entry = self.entry.into_iter().flat_map(|entry| entry.models.keys());
        let over = self.over.into_iter().flat_map(|over| over.models.keys());
        entry.chain(over).map(String::as_str).collect()
    }

    /// Returns a model with the organisation's changes.
    pub(crate) fn model(&self, id: &str) -> Option<CatalogModel> {
        let entry = self.entry.and_then(|entry| entry.models.get(id));
        let over = self.over;
        let patch = over.and_then(|over| over.models.get(id));
        if entry.is_none() && patch.is_none() && !self.is_open() {
            return None;
        }
        let home = self.home();
        let mut model = entry.cloned().unwrap_or_else(|| new_model(id));
        let is_new = entry.is_none() || over.is_some_and(|over| over.npm.is_some());
        if is_new && entry.is_none() {
            model.tool_call = true; // assume tools, because nothing says otherwise
        }
        if let Some(over) = over {
            let package = reasoning::package(home.package(&model), &model);
            let options: Domains = partition(package, &over.options);
            model.domains.lay(&options);
        }
        match patch {
            Some(patch) => patch.apply(&mut model, home, is_new),
            None if is_new => crate::ModelPatch::default().apply(&mut model, home, true),
            None => {}
        }
        Some(model)
    }

    /// Returns the provider with all listed and allowed models.
    pub(crate) fn listed(&self, overrides: &Overrides) -> ProviderEntry {
        let mut entry = self.whole();
        entry.models.retain(|id, model| {
            model.status != ModelStatus::Hidden && overrides.allows(self.id, id)
        });
        entry
    }

    /// Returns the provider with all its models.
    fn whole(&self) -> ProviderEntry {
        let models = self.model_ids().into_iter();
        let models = models.filter_map(|id| Some((id.to_owned(), self.model(id)?))).collect();
        ProviderEntry {
            id: self.id.to_owned(),
            name: self.name().to_owned(),
            npm: self.npm().to_owned(),
            api: self.own_api().or(self.api()).map(str::to_owned),
            env: self.env().to_vec(),
            headers: self.headers(),
            models,
        }
    }
}

/// Returns the providers that an organisation sees, with models that are listed, allowed and not hidden. A
/// provider without any such model is left out, unless it accepts any name and the organisation has
/// configured it.
#[must_use]
pub fn list(catalog: &Catalog, overrides: &Overrides) -> Vec<ProviderEntry> {
    let all = View::all(catalog, overrides);
    let listed = all.filter_map(|view| {
        let entry = view.listed(overrides);
        let is_open = view.is_open() && view.over.is_some() && overrides.allows(view.id(), "");
        (is_open || !entry.models.is_empty()).then_some(entry)
    });
    listed.collect()
}

/// Returns a provider in the organisation's view with all its models, including hidden and disallowed ones.
#[must_use]
pub fn whole(catalog: &Catalog, overrides: &Overrides, provider: &str) -> Option<ProviderEntry> {
    View::of(catalog, overrides, provider).map(|view| view.whole())
}
