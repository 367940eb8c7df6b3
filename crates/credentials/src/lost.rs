//! Lost master keys: which of an organisation's secrets still open, and how to continue. New secrets get
//! another data key; the old ones stay until people set them again.

use std::fmt;

use domain::OrgId;
use store::{CredentialKind, CredentialRow};

use crate::envelope::Row;
use crate::{Credentials, CredentialsError, EnvelopeError};

/// A secret that an organisation stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredSecret {
    /// A credential.
    Credential {
        /// The credential's id.
        id: String,
        /// The owner; empty for the organisation.
        owner: String,
        /// The provider.
        provider: String,
        /// The display name.
        label: String,
        /// The kind.
        kind: CredentialKind,
    },
    /// The secret of the organisation's OAuth client at a provider.
    Client {
        /// The provider.
        provider: String,
    },
    /// The values of headers and keys in the settings of a provider, with its OAuth client's secret.
    Settings {
        /// The provider.
        provider: String,
    },
}

impl StoredSecret {
    fn of(row: &CredentialRow) -> Self {
        let CredentialRow { id, owner, provider, label, kind, .. } = row.clone();
        Self::Credential { id, owner, provider, label, kind }
    }

    /// Returns the display name, if there is one.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        match self {
            Self::Credential { label, .. } => Some(label),
            Self::Client { .. } | Self::Settings { .. } => None,
        }
    }

    /// Returns the action by which people set the secret again.
    #[must_use]
    pub fn again(&self) -> String {
        match self {
            Self::Credential { kind: CredentialKind::OAuth, provider, .. } => {
                format!("sign in again (POST /platform/oauth/{provider})")
            }
            Self::Credential { id, kind: CredentialKind::ApiKey | CredentialKind::Aws, .. } => {
                format!("set it again (PATCH /platform/credential/{id})")
            }
            Self::Client { provider } | Self::Settings { provider } => {
                format!("set it again (PUT /platform/provider/{provider})")
            }
        }
    }

    /// Returns the message that it cannot be opened, and what to do.
    pub(crate) fn unreadable(&self, why: &EnvelopeError) -> String {
        let again = self.again();
        match why {
            EnvelopeError::MissingKey(_) | EnvelopeError::OtherKey(_) => format!(
                "{self} cannot be opened: {why}, on all gateways and workers; if that key is lost, {again}"
            ),
            EnvelopeError::Refused | EnvelopeError::Keys(_) => {
                format!("{self} cannot be opened: {why}; {again}")
            }
        }
    }
}

/// Shows no label: people may write anything there, and this text ends up in session logs.
impl fmt::Display for StoredSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credential { id, owner, provider, .. } if owner.is_empty() => {
                write!(f, "the organisation's credential {id} for `{provider}`")
            }
            Self::Credential { id, owner, provider, .. } => {
                write!(f, "the credential {id} of {owner} for `{provider}`")
            }
            Self::Client { provider } => {
                write!(f, "the secret of the OAuth client at `{provider}`")
            }
            Self::Settings { provider } => {
                write!(f, "what is hidden in the settings of `{provider}` (headers, keys)")
            }
        }
    }
}

/// Adds the credential to an error.
pub(crate) fn unreadable(row: &CredentialRow) -> impl Fn(CredentialsError) -> CredentialsError {
    move |error| error.about(|| StoredSecret::of(row))
}

/// The state of an organisation's secrets under the master keys of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretsState {
    /// The id of the master key that wraps new data keys.
    pub key: String,
    /// The number of the newest data key, which seals new secrets.
    pub data_key: i32,
    /// The reason why that data key does not open, so that nothing new can be sealed; `None` if it opens.
    pub stuck: Option<EnvelopeError>,
    /// The secrets that do not open, with the reasons. Unfinished sign-ins are not included: people start
    /// those again.
    pub unreadable: Vec<(StoredSecret, EnvelopeError)>,
}

impl Credentials {
    /// Returns which of an organisation's secrets open with the current keys. Changes nothing. `None`: the
    /// organisation does not exist or has never stored a secret.
    ///
    /// # Errors
    /// The store fails, or there is no secrets key.
    pub async fn secrets_state(
        &self,
        org: OrgId,
    ) -> Result<Option<SecretsState>, CredentialsError> {
        let Some((data_key, stuck)) = self.vault().newest(org).await? else { return Ok(None) };
        let mut unreadable = self.setups().unreadable(org).await?;
        for stored in self.store().sealed_credentials(org).await? {
            let row = Row { org, id: &stored.row.id, version: stored.row.version };
            match self.vault().open_with(&stored.key, &row, &stored.sealed) {
                Ok(_) => {}
                Err(CredentialsError::Envelope(why)) => {
                    unreadable.push((StoredSecret::of(&stored.row), why));
                }
                Err(error) => return Err(error),
            }
        }
        let key = self.vault().master()?.to_owned();
        Ok(Some(SecretsState { key, data_key, stuck, unreadable }))
    }

    /// Gives an organisation whose newest data key does not open another one, under the current master key.
    /// It seals new secrets from now on. Nothing is removed: secrets under older data keys open again once
    /// their master key is back. Does nothing if the newest data key opens.
    ///
    /// # Errors
    /// The store fails, there is no secrets key or no data key, or another process makes one at the same
    /// time.
    pub async fn reset_key(&self, org: OrgId) -> Result<(), CredentialsError> {
        let newest = self.vault().newest(org).await?;
        let (id, stuck) = newest.ok_or(CredentialsError::NotFound("a data key was"))?;
        if stuck.is_none() || self.vault().replace(org, id).await? {
            return Ok(());
        }
        let message = "another data key was made at the same time: look, and run it again";
        Err(CredentialsError::Conflict(message.to_owned()))
    }
}
