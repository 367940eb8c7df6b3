//! An organisation's settings of providers, with the secrets of its OAuth clients.

use domain::{OrgId, TimestampMs};
use llm_client::Secret;
use store::ProviderSetting;

use crate::envelope::Row;
use crate::flow::{OAuthClient, Transport};
use crate::settings::{Addresses, ProviderSettings};
use crate::vault::Vault;
use crate::{CredentialsError, EnvelopeError, StoredSecret};

/// How often a change is tried that others come in between of.
const TRIES: u32 = 3;
const MAX_BYTES: usize = 256 * 1024;

/// What an organisation has set up about a provider.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderSetup {
    /// The provider.
    pub provider: String,
    /// The settings.
    pub settings: ProviderSettings,
    /// Whether its OAuth client has a secret.
    pub has_client_secret: bool,
    /// When they were changed.
    pub updated_ms: TimestampMs,
}

/// What becomes of the secret of an OAuth client when settings are changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ClientSecret {
    /// It stays.
    #[default]
    Keep,
    /// It goes.
    Remove,
    /// This is it.
    Set(Secret),
}

/// Reads and writes settings. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Setups {
    pub(crate) vault: Vault,
    pub(crate) transport: Transport,
    pub(crate) addresses: Addresses,
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
        settings.check(self.addresses)?;
        let text = serde_json::to_string(settings).map_err(|error| {
            CredentialsError::Invalid(format!("the settings cannot be written: {error}"))
        })?;
        if text.len() > MAX_BYTES {
            let message = format!("settings have at most {MAX_BYTES} bytes");
            return Err(CredentialsError::Invalid(message));
        }
        for _ in 0..TRIES {
            let before = self.find(org, provider).await?;
            let version = before.as_ref().map_or(0, |before| before.version) + 1;
            let secret = match secret {
                ClientSecret::Remove => None,
                ClientSecret::Set(secret) => Some(secret.clone()),
                ClientSecret::Keep => match &before {
                    Some(before) => self.secret(org, before).await?,
                    None => None,
                },
            };
            let sealed = match secret.filter(|_| settings.oauth.is_some()) {
                Some(secret) => {
                    let key = self.vault.data_key(org).await?;
                    let id = row_id(provider);
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

    /// The organisation's OAuth client at a provider.
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
        let id = row_id(&setting.provider);
        let row = Row { org, id: &id, version: setting.version };
        let opened =
            self.vault.open(&row, sealed).await.and_then(|bytes| {
                Ok(String::from_utf8(bytes).map_err(|_| EnvelopeError::Refused)?)
            });
        let client = || StoredSecret::Client { provider: setting.provider.clone() };
        let text = opened.map_err(|error| error.about(client))?;
        Ok(Some(Secret::new(&text)))
    }

    /// The providers whose client has a secret that does not open, with why.
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

fn row_id(provider: &str) -> String {
    format!("provider_setting/{provider}")
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
