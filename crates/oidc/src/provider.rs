//! The providers that this process has asked, with their configuration and keys.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::Clock;
use llm_client::ProviderTransport;
use openidconnect::core::{
    CoreAuthDisplay, CoreClaimName, CoreClaimType, CoreClientAuthMethod, CoreGrantType,
    CoreJsonWebKey, CoreJsonWebKeySet, CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm, CoreResponseMode, CoreResponseType, CoreSubjectIdentifierType,
};
use openidconnect::{
    AdditionalProviderMetadata, DiscoveryError, EndSessionUrl, IssuerUrl, JsonWebKeySet,
    ProviderMetadata,
};
use serde::{Deserialize, Serialize};

use crate::http::{HttpError, caller};
use crate::{Issuer, OidcError};

/// A provider's configuration and keys count so long.
const KEPT: Duration = Duration::from_secs(60 * 60);
/// Unknown keys are asked for again after this time, whoever sends tokens with them.
const KEYS_AGAIN: Duration = Duration::from_secs(60);
/// A provider that does not answer is asked again after this time.
const FAILED_AGAIN: Duration = Duration::from_secs(3);
/// The most providers that a process remembers.
const MAX_PROVIDERS: usize = 512;

/// The parts of a configuration that other standards than the basic one define.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct More {
    pub(crate) end_session_endpoint: Option<EndSessionUrl>,
    #[serde(default)]
    pub(crate) authorization_response_iss_parameter_supported: bool,
}

impl AdditionalProviderMetadata for More {}

pub(crate) type Metadata = ProviderMetadata<
    More,
    CoreAuthDisplay,
    CoreClientAuthMethod,
    CoreClaimName,
    CoreClaimType,
    CoreGrantType,
    CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm,
    CoreJsonWebKey,
    CoreResponseMode,
    CoreResponseType,
    CoreSubjectIdentifierType,
>;

/// The public keys of a provider. Cheap to clone.
#[derive(Clone)]
pub struct Keys(Arc<CoreJsonWebKeySet>);

impl Keys {
    pub(crate) fn new(keys: CoreJsonWebKeySet) -> Self {
        Self(Arc::new(keys))
    }

    pub(crate) fn core(&self) -> &CoreJsonWebKeySet {
        &self.0
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keys").field(&self.0.keys().len()).finish()
    }
}

/// A provider at one moment.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) metadata: Arc<Metadata>,
    pub(crate) keys: Keys,
    since: Duration,
    keys_since: Duration,
}

#[derive(Default)]
struct Entry {
    known: Option<Known>,
    failed: Option<(Duration, OidcError)>,
}

/// The providers. Cheap to clone; clones share what they know. Nothing is asked before the first sign-in needs it.
#[derive(Clone)]
pub struct Providers {
    pub(crate) transport: Arc<dyn ProviderTransport>,
    pub(crate) clock: Arc<dyn Clock>,
    /// One lock per provider is held while it is asked, so that many sign-ins ask once.
    entries: Arc<Mutex<HashMap<Issuer, Arc<tokio::sync::Mutex<Entry>>>>>,
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Providers").finish_non_exhaustive()
    }
}

impl Providers {
    /// Makes the providers of a process. `transport` must be the one for addresses that organisations choose.
    #[must_use]
    pub fn new(transport: Arc<dyn ProviderTransport>, clock: Arc<dyn Clock>) -> Self {
        Self { transport, clock, entries: Arc::default() }
    }

    fn entry(&self, issuer: &Issuer) -> Arc<tokio::sync::Mutex<Entry>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MAX_PROVIDERS && !entries.contains_key(issuer) {
            entries.retain(|_, entry| Arc::strong_count(entry) > 1); // those that are being asked
        }
        entries.entry(issuer.clone()).or_default().clone()
    }

    /// Returns a provider's configuration, which is at most an hour old.
    pub(crate) async fn known(&self, issuer: &Issuer) -> Result<Known, OidcError> {
        let entry = self.entry(issuer);
        let mut entry = entry.lock().await;
        let now = self.clock.monotonic();
        if let Some(known) = entry.known.as_ref().filter(|known| now < known.since + KEPT) {
            return Ok(known.clone());
        }
        if let Some((_, error)) = entry.failed.as_ref().filter(|(at, _)| now < *at + FAILED_AGAIN) {
            return Err(error.clone());
        }
        match self.discover(issuer, now).await {
            Ok(known) => {
                *entry = Entry { known: Some(known.clone()), failed: None };
                Ok(known)
            }
            Err(error) => {
                tracing::info!(%issuer, %error, "an identity provider cannot be asked");
                entry.failed = Some((self.clock.monotonic(), error.clone()));
                Err(error)
            }
        }
    }

    /// Returns newer keys than `seen`, if the provider has some and was not asked within the last minute.
    pub(crate) async fn newer_keys(&self, issuer: &Issuer, seen: &Keys) -> Option<Keys> {
        let entry = self.entry(issuer);
        let mut entry = entry.lock().await;
        let now = self.clock.monotonic();
        let known = entry.known.as_mut()?;
        if !known.keys.is_same(seen) {
            return Some(known.keys.clone()); // another sign-in has asked meanwhile
        }
        if now < known.keys_since + KEYS_AGAIN {
            return None;
        }
        known.keys_since = now;
        let caller = caller(self.transport.clone());
        match JsonWebKeySet::fetch_async(known.metadata.jwks_uri(), &caller).await {
            Ok(keys) => {
                known.keys = Keys::new(keys);
                Some(known.keys.clone())
            }
            Err(error) => {
                let error = unusable(&error);
                tracing::info!(%issuer, %error, "an identity provider's keys cannot be had");
                None
            }
        }
    }

    async fn discover(&self, issuer: &Issuer, now: Duration) -> Result<Known, OidcError> {
        let url = IssuerUrl::new(issuer.as_str().to_owned());
        let url = url.map_err(|_| OidcError::Setup("its issuer is no address".to_owned()))?;
        let caller = caller(self.transport.clone());
        let metadata =
            Metadata::discover_async(url, &caller).await.map_err(|error| unusable(&error))?;
        let keys = Keys::new(metadata.jwks().clone());
        Ok(Known { metadata: Arc::new(metadata), keys, since: now, keys_since: now })
    }
}

fn unusable(error: &DiscoveryError<HttpError>) -> OidcError {
    match error {
        DiscoveryError::Request(error) => OidcError::Unreachable(error.to_string()),
        DiscoveryError::Response(status, ..) => OidcError::Setup(format!(
            "its configuration (/.well-known/openid-configuration below the issuer) has the status {status}"
        )),
        DiscoveryError::Parse(error) => {
            OidcError::Setup(format!("its configuration cannot be read at `{}`", error.path()))
        }
        DiscoveryError::Validation(why) => OidcError::Setup(format!(
            "{why}; the issuer of the connection must be the provider's own word for word"
        )),
        other @ (DiscoveryError::Other(_) | DiscoveryError::UrlParse(_) | _) => {
            OidcError::Setup(other.to_string())
        }
    }
}
