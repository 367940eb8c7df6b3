//! An organisation's provider settings, with the secrets of its OAuth clients.

use std::sync::Arc;

use catalog::{Catalog, Feed, OrgSettings, destination_urls};
use domain::{OrgId, TimestampMs};
use egress::Egress;
use llm_client::Secret;
use store::ProviderSetting;

use crate::binding::sign_in_origins;
use crate::envelope::Row;
use crate::flow::{OAuthClient, Transport};
use crate::settings::{OAuthSettings, ProviderSettings, check_address};
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
    /// The settings.
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
    pub(crate) async fn all(&self, org: OrgId) -> Result<Vec<ProviderSetup>, CredentialsError> {
        self.vault.store.provider_settings(org).await?.iter().map(read).collect()
    }

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
        for _ in 0..TRIES {
            let before = self.find(org, provider).await?;
            let version = before.as_ref().map_or(0, |before| before.version) + 1;
            let secret = match secret {
                ClientSecret::Remove => None,
                ClientSecret::Set(secret) => Some(secret.clone()),
                ClientSecret::Keep => match &before {
                    Some(before) => {
                        let kept = self.secret(org, before).await?;
                        if kept.is_some() {
                            same_client(before, settings)?;
                        }
                        kept
                    }
                    None => None,
                },
            };
            let sealed = match secret.filter(|_| settings.oauth.is_some()) {
                Some(secret) => {
                    let key = self.vault.data_key(org).await?;
                    let id = row_id(provider, settings);
                    let row = Row { org, id: &id, version };
                    Some(key.seal(&row, secret.expose().as_bytes()))
                }
                None => None,
            };
            let new = ProviderSetting {
                provider: provider.to_owned(),
                settings: text.clone(),
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
        let secret = self.secret(org, &found).await?;
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

    async fn secret(
        &self,
        org: OrgId,
        setting: &ProviderSetting,
    ) -> Result<Option<Secret>, CredentialsError> {
        let Some(sealed) = &setting.sealed else { return Ok(None) };
        let id = row_id(&setting.provider, &read(setting)?.settings);
        let row = Row { org, id: &id, version: setting.version };
        let opened =
            self.vault.open(&row, sealed).await.and_then(|bytes| {
                Ok(String::from_utf8(bytes).map_err(|_| EnvelopeError::Refused)?)
            });
        let client = || StoredSecret::Client { provider: setting.provider.clone() };
        let text = opened.map_err(|error| error.about(client))?;
        Ok(Some(Secret::new(&text)))
    }

    /// Returns the providers whose client secret does not open, with the reasons.
    pub(crate) async fn unreadable(
        &self,
        org: OrgId,
    ) -> Result<Vec<(StoredSecret, EnvelopeError)>, CredentialsError> {
        let mut found = Vec::new();
        for setting in self.vault.store.provider_settings(org).await? {
            match self.secret(org, &setting).await {
                Ok(_) => {}
                Err(CredentialsError::Unreadable { secret, why }) => found.push((*secret, why)),
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// Returns the row id that a client's secret is sealed for. It contains the hosts, so the secret opens only
/// for those.
fn row_id(provider: &str, settings: &ProviderSettings) -> String {
    let origins = settings.oauth.as_ref().map(sign_in_origins).unwrap_or_default();
    let origins = Vec::from_iter(origins).join(" ");
    format!("provider_setting/{provider} {origins}")
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

fn read(setting: &ProviderSetting) -> Result<ProviderSetup, CredentialsError> {
    let settings = serde_json::from_str(&setting.settings).map_err(|error| {
        store::StoreError::Unreadable(format!("the settings of {}: {error}", setting.provider))
    })?;
    Ok(ProviderSetup {
        provider: setting.provider.clone(),
        settings,
        has_client_secret: setting.sealed.is_some(),
        updated_ms: setting.updated_ms,
    })
}
