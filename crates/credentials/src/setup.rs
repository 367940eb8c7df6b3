//! An organisation's provider settings, with the secrets of its OAuth clients and in its headers.

use std::sync::Arc;

use catalog::{Catalog, Feed, OrgSettings, destination_urls};
use domain::{OrgId, TimestampMs};
use egress::Egress;
use llm_client::Secret;
use store::ProviderSetting;

use crate::binding::sign_in_origins;
use crate::flow::{OAuthClient, Transport};
use crate::hidden::{self, HIDDEN};
use crate::settings::{OAuthSettings, ProviderSettings, check_address};
use crate::stored::{self, Secrets, Shown};
use crate::vault::Vault;
use crate::{CredentialsError, EnvelopeError, StoredSecret};

/// The most attempts after concurrent changes.
const TRIES: u32 = 3;
const MAX_BYTES: usize = 256 * 1024;

/// An organisation's setup of a provider.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderSetup {
    /// The provider.
    pub provider: String,
    /// The settings, with [`HIDDEN`] for values of headers and for keys.
    pub settings: ProviderSettings,
    /// Its OAuth client has a secret.
    pub has_client_secret: bool,
    /// The time of the last change.
    pub updated_ms: TimestampMs,
}

/// The change to an OAuth client's secret when settings change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ClientSecret {
    /// Keeps the secret.
    #[default]
    Keep,
    /// Removes the secret.
    Remove,
    /// Replaces the secret.
    Set(Secret),
}

/// Reads and writes settings. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Setups {
    pub(crate) vault: Vault,
    pub(crate) transport: Transport,
    pub(crate) egress: Egress,
    pub(crate) catalog: Option<Arc<Feed>>,
}

impl Setups {
    pub(crate) async fn set(
        &self,
        org: OrgId,
        provider: &str,
        settings: &ProviderSettings,
        secret: &ClientSecret,
    ) -> Result<ProviderSetup, CredentialsError> {
        settings.check(self.egress.rules())?;
        let text = serde_json::to_string(settings).map_err(|error| {
            CredentialsError::Invalid(format!("the settings cannot be written: {error}"))
        })?;
        if text.len() > MAX_BYTES {
            let message = format!("settings have at most {MAX_BYTES} bytes");
            return Err(CredentialsError::Invalid(message));
        }
        self.check_destination(provider, &text)?;
        let binding = stored::binding(&self.catalog(), provider, &text);
        let mut shown = settings.clone();
        let values = hidden::take(&mut shown.overrides);
        let keeps_values = values.values().any(|value| value == HIDDEN);
        for _ in 0..TRIES {
            let before = self.find(org, provider).await?;
            let version = before.as_ref().map_or(0, |before| before.version) + 1;
            let has_client = match &before {
                Some(before) => Shown::of(before)?.has_client_secret,
                None => false,
            };
            let keeps_client = *secret == ClientSecret::Keep && has_client;
            let old = match &before {
                Some(before) if keeps_client || keeps_values => self.secrets(org, before).await?,
                Some(_) | None => Secrets::default(),
            };
            if let Some(before) = before.as_ref().filter(|_| keeps_client) {
                same_client(before, settings)?;
            }
            let hidden = stored::kept(values.clone(), &old, &binding)?;
            let client = match secret {
                ClientSecret::Remove => None,
                ClientSecret::Set(secret) => Some(secret.clone()),
                ClientSecret::Keep => old.client,
            };
            let client = client.filter(|_| settings.oauth.is_some());
            let secrets = Secrets { client, hidden, binding: binding.clone() };
            let row = (provider, version);
            let (text, sealed) = stored::seal(&self.vault, org, row, &shown, &secrets).await?;
            let new = ProviderSetting {
                provider: provider.to_owned(),
                settings: text,
                sealed,
                version,
                updated_ms: self.vault.clock.now_ms(),
            };
            if self.vault.store.put_provider_setting(org, new.clone()).await? {
                return read(&new);
            }
        }
        let message = "the settings are being changed by somebody else, or there are too many";
        Err(CredentialsError::Conflict(message.to_owned()))
    }

    pub(crate) async fn remove(&self, org: OrgId, provider: &str) -> Result<(), CredentialsError> {
        let removed = self.vault.store.remove_provider_setting(org, provider.to_owned()).await;
        removed.map_err(CredentialsError::of("settings of this provider were"))
    }

    /// Returns the organisation's OAuth client at a provider.
    pub(crate) async fn client(
        &self,
        org: OrgId,
        provider: &str,
    ) -> Result<OAuthClient, CredentialsError> {
        let missing = || CredentialsError::NotConfigured {
            provider: provider.to_owned(),
            missing: "`oauth`",
        };
        let found = self.find(org, provider).await?.ok_or_else(missing)?;
        let settings = read(&found)?.settings.oauth.ok_or_else(missing)?;
        let secret = self.secrets(org, &found).await?.client;
        Ok(OAuthClient { settings, secret, transport: self.transport.clone() })
    }

    /// Returns the current catalog.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.as_ref().map(|feed| feed.current()).unwrap_or_default()
    }

    /// Checks every address that requests would go to with these settings.
    fn check_destination(&self, provider: &str, text: &str) -> Result<(), CredentialsError> {
        let (settings, unreadable) = OrgSettings::read([(provider, text)]);
        if let Some((_, error)) = unreadable.first() {
            return Err(CredentialsError::Invalid(format!("`overrides`: {error}")));
        }
        let none = |_: &str| None;
        let catalog = self.catalog();
        let before = destination_urls(&catalog, &OrgSettings::default(), provider, &none);
        let after = destination_urls(&catalog, &settings, provider, &none);
        let mut new = after.difference(&before);
        new.try_for_each(|url| check_address(self.egress.rules(), "overrides", url.trim()))
    }

    async fn find(
        &self,
        org: OrgId,
        provider: &str,
    ) -> Result<Option<ProviderSetting>, CredentialsError> {
        let all = self.vault.store.provider_settings(org).await?;
        Ok(all.into_iter().find(|setting| setting.provider == provider))
    }

    /// Opens the secrets of a row.
    async fn secrets(
        &self,
        org: OrgId,
        setting: &ProviderSetting,
    ) -> Result<Secrets, CredentialsError> {
        stored::open(&self.vault, &self.catalog(), org, setting).await
    }

    /// Returns the providers whose secrets do not open, with the reasons.
    pub(crate) async fn unreadable(
        &self,
        org: OrgId,
    ) -> Result<Vec<(StoredSecret, EnvelopeError)>, CredentialsError> {
        let mut found = Vec::new();
        for setting in self.vault.store.provider_settings(org).await? {
            match self.secrets(org, &setting).await {
                Ok(_) => {}
                Err(CredentialsError::Unreadable { secret, why }) => found.push((*secret, why)),
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// Checks that a kept client secret goes only to the hosts that it was entered for.
fn same_client(before: &ProviderSetting, after: &ProviderSettings) -> Result<(), CredentialsError> {
    let before = read(before)?.settings.oauth.as_ref().map(sign_in_origins).unwrap_or_default();
    let after = after.oauth.as_ref().map(sign_in_origins).unwrap_or_default();
    if after == before {
        return Ok(());
    }
    let message = "the client's secret was entered for other hosts than `oauth` has now: send `oauth.clientSecret` \
                   again, or null to remove it";
    Err(CredentialsError::Invalid(message.to_owned()))
}

/// Returns the OAuth client of a row, if it has one.
pub(crate) fn oauth_of(row: &ProviderSetting) -> Result<Option<OAuthSettings>, CredentialsError> {
    Ok(read(row)?.settings.oauth)
}

/// Reads a row as people see it.
pub(crate) fn read(setting: &ProviderSetting) -> Result<ProviderSetup, CredentialsError> {
    let Shown { mut settings, has_client_secret, .. } = Shown::of(setting)?;
    hidden::hide(&mut settings.overrides);
    let (provider, updated_ms) = (setting.provider.clone(), setting.updated_ms);
    Ok(ProviderSetup { provider, settings, has_client_secret, updated_ms })
}
