//! What is left of an organisation's secrets when a master key is lost, and how it goes on: new ones are sealed with
//! another data key, the old ones stay as they are until people set them again.

use std::fmt;

use domain::OrgId;
use store::{CredentialKind, CredentialRow};

use crate::envelope::Row;
use crate::{Credentials, CredentialsError, EnvelopeError};

/// A secret that an organisation keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredSecret {
    /// A credential.
    Credential {
        /// Its id.
        id: String,
        /// Whose it is; empty for the organisation's.
        owner: String,
        /// The provider.
        provider: String,
        /// What people call it.
        label: String,
        /// What it is.
        kind: CredentialKind,
    },
    /// The secret of the organisation's OAuth client at a provider.
    Client {
        /// The provider.
        provider: String,
    },
}

impl StoredSecret {
    fn of(row: &CredentialRow) -> Self {
        let CredentialRow { id, owner, provider, label, kind, .. } = row.clone();
        Self::Credential { id, owner, provider, label, kind }
    }

    /// What people call it, if they call it anything.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        match self {
            Self::Credential { label, .. } => Some(label),
            Self::Client { .. } => None,
        }
    }

    /// What its people do to have it again.
    #[must_use]
    pub fn again(&self) -> String {
        match self {
            Self::Credential { kind: CredentialKind::OAuth, provider, .. } => {
                format!("sign in again (POST /platform/oauth/{provider})")
            }
            Self::Credential { id, kind: CredentialKind::ApiKey | CredentialKind::Aws, .. } => {
                format!("set it again (PATCH /platform/credential/{id})")
            }
            Self::Client { provider } => {
                format!("set it again (PUT /platform/provider/{provider})")
            }
        }
    }

    /// That it cannot be opened, and what to do.
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

/// Without the label: what people write there may be anything, and this is kept in the logs of sessions.
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
        }
    }
}

/// Says of an error which credential it is about.
pub(crate) fn unreadable(row: &CredentialRow) -> impl Fn(CredentialsError) -> CredentialsError {
    move |error| error.about(|| StoredSecret::of(row))
}

/// What the master keys of a process open of an organisation's secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretsState {
    /// The master key that wraps what is new.
    pub key: String,
    /// The number of the newest data key, which seals what is new.
    pub data_key: i32,
    /// Why that one does not open, so that nothing new can be sealed; `None`: it does.
    pub stuck: Option<EnvelopeError>,
    /// What does not open, and why. Sign-ins under way are not among it: they are begun again.
    pub unreadable: Vec<(StoredSecret, EnvelopeError)>,
}

impl Credentials {
    /// What of an organisation's secrets opens with the keys that are given. Changes nothing. `None`: there is no such
    /// organisation, or it has never kept a secret.
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

    /// Gives an organisation whose newest data key does not open another one, under the current master key: from now on
    /// its new secrets are sealed with that. Nothing is removed: what the older data keys sealed opens again when their
    /// master key is given again. Does nothing where the newest one opens.
    ///
    /// # Errors
    /// The store fails; there is no secrets key, or no data key; another process makes one at the same time.
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
