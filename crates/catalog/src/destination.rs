//! The addresses that an organisation's requests to a provider go to. Credentials are bound to them.

use std::collections::BTreeSet;

use llm_client::{Auth, Route, Secret};

use crate::model::Catalog;
use crate::resolve::{Access, resolve};
use crate::settings::OrgSettings;
use crate::view::View;

/// The origins that requests to a provider go to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// The origins of all its models, such as `https://api.example.com`, with a port if it is not the
    /// scheme's default. Empty if the address is unknown: a setting is missing, or no such provider is known.
    pub origins: BTreeSet<String>,
    /// The catalog alone determines the origins: the organisation has set nothing that could redirect
    /// requests.
    pub is_catalogs: bool,
}

impl Destination {
    /// Returns the destination of requests to `provider` under these settings. `env` gives the other values
    /// that its address needs.
    #[must_use]
    pub fn of(
        catalog: &Catalog,
        settings: &OrgSettings,
        provider: &str,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let urls = destination_urls(catalog, settings, provider, env);
        let origins = urls.iter().map(|url| origin(url)).collect();
        Self { origins, is_catalogs: !settings.redirects(provider) }
    }
}

/// Returns the addresses of all models of a provider, and of the exchange of its credentials.
#[must_use]
pub fn destination_urls(
    catalog: &Catalog,
    settings: &OrgSettings,
    provider: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> BTreeSet<String> {
    let Some(view) = View::of(catalog, &settings.overrides, provider) else {
        return BTreeSet::new();
    };
    let own = settings.env.get(provider);
    let env = |name: &str| own.and_then(|own| own.get(name)).cloned().or_else(|| env(name));
    // Addresses do not depend on the credential, but some credentials are exchanged at another address first.
    let auth = Auth::Key(Secret::new("any"));
    let mut models = view.model_ids();
    if models.is_empty() {
        models.insert("any");
    }
    // Allow and deny lists do not affect addresses.
    let mut overrides = settings.overrides.clone();
    (overrides.allow, overrides.deny) = (None, Vec::new());
    let mut found = BTreeSet::new();
    for model in models {
        let Ok(resolved) = resolve(catalog, &overrides, (provider, model, None)) else { continue };
        let access = Access { base_url: None, env: &env, auth: &auth };
        if let Ok(route) = resolved.route(&access) {
            found.extend(route_urls(&route));
        }
    }
    found
}

/// Returns the origins that a route's credential goes to: the provider's, and that of an exchange.
#[must_use]
pub fn route_origins(route: &Route) -> Vec<String> {
    route_urls(route).iter().map(|url| origin(url)).collect()
}

/// Returns the addresses that a route's credential goes to.
#[must_use]
pub fn route_urls(route: &Route) -> Vec<String> {
    let exchange = match &route.auth {
        Auth::Exchanged(exchange) => Some(exchange.url.as_str()),
        Auth::None
        | Auth::Key(_)
        | Auth::Bearer(_)
        | Auth::Header { .. }
        | Auth::SigV4(_)
        | Auth::Source(_) => None,
    };
    let urls = [Some(route.endpoint.base_url.as_str()), exchange];
    urls.into_iter().flatten().map(str::to_owned).collect()
}

/// Returns a URL's origin. Text without an origin is returned unchanged, so it equals no other origin.
#[must_use]
pub fn origin(url: &str) -> String {
    match reqwest::Url::parse(url.trim()) {
        Ok(parsed) if parsed.origin().is_tuple() => parsed.origin().ascii_serialization(),
        Ok(_) | Err(_) => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(rows: &[(&str, &str)], provider: &str) -> Destination {
        let (settings, unreadable) = OrgSettings::read(rows.iter().copied());
        assert!(unreadable.is_empty());
        Destination::of(&crate::shipped(), &settings, provider, &|_| None)
    }

    fn origins(rows: &[(&str, &str)], provider: &str) -> Vec<String> {
        destination(rows, provider).origins.into_iter().collect()
    }

    #[test]
    fn a_destination_has_every_origin_that_settings_lead_to() {
        let plain = destination(&[], "openai");
        assert!(plain.is_catalogs);
        assert_eq!(Vec::from_iter(plain.origins), ["https://api.openai.com"]);
        for settings in [
            r#"{"overrides":{"api":"https://x.example:8443/v1"}}"#,
            r#"{"overrides":{"options":{"baseURL":"https://x.example:8443"}}}"#,
            r#"{"overrides":{"options":{"baseUrl":"https://x.example:8443"}}}"#,
            r#"{"baseUrl":"https://${HOST}:8443/v1","env":{"HOST":"x.example"}}"#,
        ] {
            let rows = [("openai", settings)];
            assert!(!destination(&rows, "openai").is_catalogs);
            assert_eq!(origins(&rows, "openai"), ["https://x.example:8443"], "{settings}");
        }
        let one = r#"{"overrides":{"models":{"m":{"provider":{"api":"https://x.example"}}}}}"#;
        let found = origins(&[("openai", one)], "openai");
        assert_eq!(found, ["https://api.openai.com", "https://x.example"]);
        let gitlab = r#"{"env":{"GITLAB_INSTANCE_URL":"https://git.example"}}"#;
        let found = origins(&[("gitlab", gitlab)], "gitlab");
        assert_eq!(found, ["https://cloud.gitlab.com", "https://git.example"]);
        assert_eq!(origins(&[], "nobody"), Vec::<String>::new());
    }
}
