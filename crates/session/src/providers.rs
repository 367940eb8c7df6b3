//! The models that an organisation can call, and the routes of requests to them.
//!
//! ```text
//! flags ───▶ ConfiguredModels ─┐
//! catalog ──▶ newest good one ─┼─▶ OrgModels ─▶ decisions, which read it and nothing else
//! settings of the organisation ┘        └────▶ ways, with the organisation's credential, or the process's
//! ```

mod opened;
mod way;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use catalog::{Access, Catalog, Feed, OrgSettings, Overrides, Resolved};
use credentials::{Credentials, Found};
use domain::{ErrorCode, ModelRef, OrgId, PriceTier, Prices, Rates, SessionError};
use history::ModelEntry;
use llm_client::{Auth, AwsAccess, Client, LlmError, Route, Secret};
use llm_protocol::{ErrorReason, Generation};
use session_rules::{ModelSource, Models, ResolvedModel, TurnPlan};
use store::{ProviderSetting, RateLimit, Store, StoreError};
use tokio::time::Instant;
use tracing::warn;

use self::opened::Opened;
pub(crate) use self::way::{Blocked, Way};
use self::way::{Whose, keyless, whose};
use crate::models::ConfiguredModels;

/// How long an organisation's settings are cached.
const BELIEVED: Duration = Duration::from_secs(5);
/// The most organisations with cached settings.
const MOST_KNOWN: usize = 10_000;
/// The most output tokens to request from a model of the catalog, which may allow more.
const MOST_OUTPUT: u64 = 32_000;
/// All providers of a process. Cheap to clone.
#[derive(Clone)]
pub struct ProviderHub {
    shared: Arc<Shared>,
    credentials: Option<Credentials>,
}

struct Shared {
    configured: Arc<ConfiguredModels>,
    catalog: Option<Arc<Feed>>,
    env: Arc<BTreeMap<String, Secret>>,
    known: Mutex<HashMap<OrgId, (Instant, Arc<OrgModels>)>>,
}

impl ProviderHub {
    /// Returns providers that were configured by hand, without a catalog.
    #[must_use]
    pub fn of(configured: ConfiguredModels) -> Self {
        Self::new(configured, None, BTreeMap::new())
    }

    /// Returns providers that take precedence over those of the `catalog`. `env` has keys and settings of providers
    /// by the catalog's names, for organisations without their own.
    #[must_use]
    pub fn new(
        configured: ConfiguredModels,
        catalog: Option<Arc<Feed>>,
        env: BTreeMap<String, Secret>,
    ) -> Self {
        let (known, env) = (Mutex::default(), Arc::new(env));
        let shared = Arc::new(Shared { configured: Arc::new(configured), catalog, env, known });
        Self { shared, credentials: None }
    }

    /// Adds the organisations' credentials. They take precedence over the configured ones and the environment.
    #[must_use]
    pub fn with_credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Returns the providers that were configured by hand.
    #[must_use]
    pub fn configured(&self) -> &ConfiguredModels {
        &self.shared.configured
    }

    /// Returns the models that an organisation can call, from settings that are at most seconds old. Seldom takes a
    /// round trip.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn of_org(
        &self,
        store: &Store,
        org: OrgId,
    ) -> Result<Arc<OrgModels>, StoreError> {
        let now = Instant::now();
        let known = self.known().get(&org).cloned();
        if let Some((_, models)) = known.filter(|(read, _)| now.duration_since(*read) < BELIEVED) {
            return Ok(models);
        }
        let settings = store.provider_settings(org).await?;
        let shared = &self.shared;
        let catalog = shared.catalog.as_ref().map(|feed| feed.current());
        let mut models = OrgModels::new(shared.configured.clone(), catalog, &shared.env, &settings);
        models.kept = self.credentials.clone().map(|credentials| (credentials, org));
        let models = Arc::new(models);
        let mut known = self.known();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(org, (now, models.clone()));
        Ok(models)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<OrgId, (Instant, Arc<OrgModels>)>> {
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ProviderHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderHub")
            .field("configured", &self.shared.configured)
            .finish_non_exhaustive()
    }
}

/// The models that an organisation can call. Immutable, so that repeated decisions agree.
#[derive(Debug)]
pub(crate) struct OrgModels {
    rules: Models,
    known: Arc<Known>,
    /// The organisation's credentials. They are looked up for each request, so that a removed one is not used again.
    kept: Option<(Credentials, OrgId)>,
    /// The settings with sealed parts, by provider. They are opened for each request.
    sealed: BTreeMap<String, ProviderSetting>,
}

#[derive(Debug)]
struct Known {
    configured: Arc<ConfiguredModels>,
    catalog: Option<Arc<Catalog>>,
    settings: OrgSettings,
    /// The process's keys and settings.
    env: Arc<BTreeMap<String, Secret>>,
}

impl OrgModels {
    fn new(
        configured: Arc<ConfiguredModels>,
        catalog: Option<Arc<Catalog>>,
        env: &Arc<BTreeMap<String, Secret>>,
        rows: &[ProviderSetting],
    ) -> Self {
        let sealed = rows.iter().filter(|row| row.sealed.is_some());
        let sealed = sealed.map(|row| (row.provider.clone(), row.clone())).collect();
        let rows = rows.iter().map(|row| (row.provider.as_str(), row.settings.as_str()));
        let (settings, unreadable) = OrgSettings::read(rows);
        for (provider, error) in unreadable {
            warn!(provider, %error, "the settings of a provider cannot be read: its models are not used");
        }
        let default = configured.default_model().clone();
        let known = Arc::new(Known { configured, catalog, settings, env: env.clone() });
        Self { rules: Models { default, source: known.clone() }, known, kept: None, sealed }
    }

    /// Returns the models for decisions.
    pub(crate) fn rules(&self) -> &Models {
        &self.rules
    }

    /// Returns the limit of the organisation's requests to a provider.
    pub(crate) fn limit(&self, provider: &str) -> RateLimit {
        let limits = self.known.settings.overrides.limits(provider);
        RateLimit {
            requests_per_minute: limits.requests_per_minute,
            tokens_per_minute: limits.tokens_per_minute,
        }
    }

    /// Returns the route of a planned request, whose body was written in this protocol and dialect. `kept` is the
    /// organisation's credential, and `opened` its settings with their hidden values, if it has them.
    ///
    /// # Errors
    /// An error that says what is missing, before anything is sent.
    fn route(
        &self,
        plan: &TurnPlan,
        kept: Option<&Found>,
        opened: Option<&Opened>,
    ) -> Result<(Route, Whose), LlmError> {
        let of_kept = |kept: &Found| Whose::Kept { id: kept.id.clone(), kind: kept.kind };
        if let Some(mut route) = self.known.configured.route(plan) {
            let whose = kept.map_or_else(|| whose(&route), of_kept);
            if let Some(kept) = kept {
                route.auth = kept.auth.clone();
            }
            return Ok((route, whose));
        }
        let unsent = |message: &str| LlmError::unsent(ErrorReason::InvalidRequest, message);
        let overrides = opened.map(|opened| &opened.overrides);
        let overrides = overrides.unwrap_or(&self.known.settings.overrides);
        let found = self.known.find_in(overrides, &plan.model);
        let found = found.map_err(|error| unsent(&error.message))?;
        let provider = &plan.model.provider;
        // The process's keys are for the catalog's addresses, not for one that an organisation has chosen. Its
        // accounts belong to its keys.
        let is_ours = kept.is_none() && !self.known.settings.redirects(provider);
        let ours =
            |name: &str| self.known.env.get(name).filter(|_| is_ours && found.may_read(name));
        let own = self.known.settings.env.get(provider);
        let own = |name: &str| own.and_then(|own| own.get(name)).cloned();
        let auth = match kept.map(|kept| kept.auth.clone()) {
            // The signature's region is where the request goes.
            Some(Auth::SigV4(access)) => Auth::SigV4(AwsAccess {
                region: own("AWS_REGION").unwrap_or_else(|| access.region.clone()),
                ..access
            }),
            Some(auth) => auth,
            None => {
                let key = found.key_names.iter().find_map(|name| ours(name));
                key.cloned().map_or(Auth::None, Auth::Key)
            }
        };
        let env = |name: &str| {
            let its = kept.and_then(|kept| kept.env.get(name).cloned());
            own(name).or(its).or_else(|| ours(name).map(|value| value.expose().to_owned()))
        };
        let access = Access { base_url: None, env: &env, auth: &auth };
        let mut route = found.route(&access).map_err(|error| unsent(&error.to_string()))?;
        let entry = &plan.components.model;
        route.protocol = entry.protocol;
        route.model.clone_from(&entry.id);
        route.dialect.clone_from(&entry.dialect);
        let whose = kept.map_or_else(|| whose(&route), of_kept);
        if whose == Whose::Nobody && self.wants_key(provider, &found, &route) {
            let name = found.key_names.first().filter(|_| is_ours);
            return Err(keyless(provider, name.map(String::as_str)));
        }
        Ok((route, whose))
    }

    fn is_configured(&self, plan: &TurnPlan) -> bool {
        self.known.configured.has(&plan.model.provider)
    }

    fn configured_client(&self) -> Option<Client> {
        self.known.configured.client().cloned()
    }

    /// Returns whether the organisation influences the address of requests to the provider.
    fn redirects(&self, provider: &str) -> bool {
        self.known.settings.redirects(provider)
    }

    /// Returns whether a provider of the catalog refuses requests without a key. A server of the organisation or the
    /// machine may need no key, and a header may be one.
    fn wants_key(&self, provider: &str, found: &Resolved, route: &Route) -> bool {
        let may_be_key = |name: &String| {
            let name = name.to_ascii_lowercase();
            ["auth", "key", "token"].iter().any(|part| name.contains(part))
        };
        found.wants_credentials()
            && !self.known.settings.has_address(provider)
            && credentials::is_of_internet(&route.endpoint.base_url)
            && !found.domains.headers.keys().any(may_be_key)
    }
}

impl Known {
    fn find(&self, choice: &ModelRef) -> Result<Resolved, SessionError> {
        self.find_in(&self.settings.overrides, choice)
    }

    fn find_in(&self, overrides: &Overrides, choice: &ModelRef) -> Result<Resolved, SessionError> {
        let Some(catalog) = &self.catalog else {
            return Err(SessionError {
                code: ErrorCode::ModelUnknown.into(),
                message: format!("no provider `{}` is configured", choice.provider),
            });
        };
        let asked = (choice.provider.as_str(), choice.model.as_str(), choice.variant.as_deref());
        catalog::resolve(catalog, overrides, asked).map_err(|error| SessionError {
            code: error.code().to_owned().into(),
            message: error.to_string(),
        })
    }
}

impl ModelSource for Known {
    fn resolve(&self, choice: &ModelRef) -> Result<ResolvedModel, SessionError> {
        let is_configured = self.configured.has(&choice.provider);
        if is_configured && !self.settings.overrides.allows(&choice.provider, &choice.model) {
            return Err(SessionError {
                code: ErrorCode::ModelNotAllowed.into(),
                message: format!(
                    "the organisation does not allow `{}/{}`; choose another model, or ask an administrator",
                    choice.provider, choice.model,
                ),
            });
        }
        if is_configured || self.catalog.is_none() {
            return self.configured.rules().source.resolve(choice);
        }
        self.find(choice).map(|found| self.configured.with_said(resolved(choice, found)))
    }
}

/// Converts a model of the catalog for decisions.
fn resolved(choice: &ModelRef, found: Resolved) -> ResolvedModel {
    let output = found.model.limits.output.filter(|limit| *limit > 0);
    let asked = Generation {
        max_tokens: output.map(|limit| limit.min(MOST_OUTPUT)),
        ..Generation::default()
    };
    ResolvedModel {
        reference: choice.clone(),
        generation: found.generation(&asked),
        entry: ModelEntry {
            provider: found.provider.clone(),
            id: found.api_id().to_owned(),
            protocol: found.protocol,
            context_limit: found.model.limits.context.filter(|limit| *limit > 0),
            input_limit: found.model.limits.input.filter(|limit| *limit > 0),
            output_limit: output,
            dialect: found.dialect,
        },
        options: found.domains.request_options,
        prices: found.prices.map(prices),
        takes_tools: found.model.tool_call,
        price_version: found.price_version,
        notice: found.notice,
    }
}

fn prices(known: catalog::Prices) -> Prices {
    let rates = |rates: catalog::Rates| Rates {
        input: rates.input,
        output: rates.output,
        reasoning: rates.reasoning,
        cache_read: rates.cache_read,
        cache_write: rates.cache_write,
    };
    let tier = |(above, its): (u64, catalog::Rates)| PriceTier { above, rates: rates(its) };
    Prices { base: rates(known.base), tiers: known.tiers.into_iter().map(tier).collect() }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use domain::{AttemptId, AttemptStarted, ComponentList, IdMint, MessageId, Seq, Stamp, TurnId};
    use history::Components;
    use llm_client::Endpoint;
    use llm_protocol::{Generation, Protocol, ToolChoice};

    use super::*;

    fn row(provider: &str, settings: &str) -> ProviderSetting {
        ProviderSetting {
            provider: provider.into(),
            settings: settings.into(),
            sealed: None,
            version: 1,
            updated_ms: 1,
        }
    }

    fn models(rows: &[ProviderSetting]) -> OrgModels {
        let default = ModelRef::new("own", "m");
        let own = ConfiguredModels::single(default, Endpoint::new("http://127.0.0.1:9"));
        let keys = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"];
        let env = keys.map(|name| (name.to_owned(), Secret::new("sk-1"))).into();
        OrgModels::new(Arc::new(own), Some(catalog::shipped()), &Arc::new(env), rows)
    }

    #[test]
    fn a_model_of_the_catalog_is_spoken_to_as_its_provider_wants_and_paid_with_its_prices() {
        let models = models(&[]);
        let found =
            models.known.find(&ModelRef::new("anthropic", "claude-sonnet-4-5")).expect("known");
        let model = resolved(&ModelRef::new("anthropic", "claude-sonnet-4-5"), found);
        assert_eq!(model.entry.protocol, Protocol::AnthropicMessages);
        assert!(model.generation.max_tokens.is_some_and(|most| most <= MOST_OUTPUT));
        let prices = model.prices.expect("prices");
        assert!(prices.base.input > 0 && model.price_version.starts_with("models.dev:"));
        let unknown = models.rules().source.resolve(&ModelRef::new("nobody", "m"));
        assert_eq!(unknown.expect_err("there is none").code, ErrorCode::ModelUnknown);
    }

    // Finding conformance FR-07: the input limit of the metadata reaches the rules.
    #[test]
    fn the_input_limit_of_a_model_is_resolved() {
        let limit = |provider: &str, model: &str| {
            let choice = ModelRef::new(provider, model);
            let entry = models(&[]).rules().source.resolve(&choice).expect("known").entry;
            (entry.context_limit, entry.input_limit)
        };
        assert_eq!(limit("openai", "gpt-5"), (Some(400_000), Some(272_000)));
        assert_eq!(limit("anthropic", "claude-sonnet-4-5").1, None);
    }

    fn plan(models: &OrgModels, provider: &str, model: &str) -> TurnPlan {
        let choice = ModelRef::new(provider, model);
        let entry = models.rules().source.resolve(&choice).expect("known").entry;
        let mut mint = IdMint::after(Stamp::default(), 1);
        let turn = TurnId::mint(&mut mint);
        let started = AttemptStarted {
            attempt: AttemptId::mint(&mut mint),
            turn: turn.clone(),
            ordinal: 1,
            body_hash: String::new(),
            wire_version: 1,
            epoch: 1,
            through: Seq(1),
            components: ComponentList::Inline(BTreeMap::new()),
            pricing: None,
        };
        let message = MessageId::mint(&mut mint);
        let body = Bytes::new();
        let components = Components {
            agent: String::new(),
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            generation: Generation::default(),
            options: serde_json::Map::new(),
            model: entry,
        };
        TurnPlan { turn, message, started, model: choice, components, body, title: None }
    }

    #[test]
    fn the_processs_key_goes_to_the_catalogs_address_and_to_none_that_an_organisation_chose() {
        let route = |settings: &str| {
            let models = models(&[row("anthropic", settings)]);
            let plan = plan(&models, "anthropic", "claude-sonnet-4-5");
            models.route(&plan, None, None).expect("a route").0
        };
        let ours = route(r#"{"limits":{"requestsPerMinute":1}}"#);
        assert!(matches!(&ours.auth, Auth::Key(key) if key.expose() == "sk-1"), "{ours:?}");
        assert!(ours.endpoint.base_url.contains("anthropic.com"));
        for settings in [
            r#"{"baseUrl":"https://a.example/v1"}"#,
            r#"{"overrides":{"api":"https://a.example/${ANTHROPIC_API_KEY}"},"env":{"ANTHROPIC_API_KEY":"own"}}"#,
        ] {
            let own = route(settings);
            assert!(
                !format!("{:?}{}", own.auth, own.endpoint.base_url).contains("sk-1"),
                "{own:?}"
            );
            assert!(matches!(own.auth, Auth::None), "{own:?}");
        }
    }

    #[test]
    fn a_provider_that_wants_a_key_is_not_asked_without_one() {
        let route = |provider: &str, model: &str, settings: &str| {
            let models = models(&[row(provider, settings)]);
            models.route(&plan(&models, provider, model), None, None).map(|(_, whose)| whose)
        };
        let refused = |provider: &str, model: &str, settings: &str| {
            let error = route(provider, model, settings).expect_err("no key");
            assert_eq!(error.reason, ErrorReason::Authentication, "{error}");
            error.provider_message
        };
        let said = refused("groq", "llama-3.3-70b-versatile", "{}");
        for part in [
            "`groq`",
            "opencode-cloud credential add groq",
            "GROQ_API_KEY",
            "opencode-cloud models",
        ] {
            assert!(said.contains(part), "{said}");
        }
        // An organisation with its own settings does not get the process's key.
        let own = r#"{"env":{"ANTHROPIC_API_KEY":"own"}}"#;
        let said = refused("anthropic", "claude-sonnet-4-5", own);
        assert!(!said.contains("ANTHROPIC_API_KEY"), "{said}");
        // Google's tokens are in no variable that is read as one.
        let vertex = r#"{"env":{"GOOGLE_VERTEX_PROJECT":"p"}}"#;
        refused("google-vertex", "gemini-2.5-pro", vertex);

        let local = r#"{"overrides":{"api":"https://llm.example/v1"}}"#;
        let header = r#"{"overrides":{"headers":{"X-Api-Key":"sk-own"}}}"#;
        for (provider, model, settings) in [
            ("ollama", "qwen3:8b", "{}"),
            ("groq", "llama-3.3-70b-versatile", local),
            ("groq", "llama-3.3-70b-versatile", header),
        ] {
            let whose = route(provider, model, settings).expect("a route");
            assert_eq!(whose, Whose::Nobody, "{provider}");
        }
    }

    #[test]
    fn an_organisations_settings_are_its_limits_and_its_refusals() {
        let models = models(&[
            row("own", r#"{"overrides":{"limits":{"requestsPerMinute":60}}}"#),
            row("*", r#"{"overrides":{"deny":["own/big"]}}"#),
            row("openai", r#"{"overrides":{"limits":{"rpm":1}}}"#),
        ]);
        assert_eq!(models.limit("own").requests_per_minute, Some(60));
        assert!(!models.limit("anthropic").is_set());
        let resolve = |provider: &str, model: &str| {
            models
                .rules()
                .source
                .resolve(&ModelRef::new(provider, model))
                .map_err(|error| error.code)
        };
        assert!(resolve("own", "small").is_ok());
        assert_eq!(resolve("own", "big").expect_err("denied"), ErrorCode::ModelNotAllowed);
        assert_eq!(resolve("openai", "gpt-5").expect_err("unreadable"), ErrorCode::ModelNotAllowed);
    }
}
