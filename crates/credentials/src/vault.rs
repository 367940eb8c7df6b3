//! Seals and opens an organisation's secrets with its data key, which is made when the first is kept.

use std::sync::Arc;

use domain::{Clock, OrgId};
use store::{Sealed, Store, WrappedKey};

use crate::envelope::{DataKey, Row};
use crate::{CredentialsError, MasterKeys};

/// Data keys that are rewrapped in one go.
const BATCH: i64 = 100;

/// Seals and opens. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Vault {
    pub(crate) store: Store,
    keys: Option<Arc<MasterKeys>>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Vault {
    pub(crate) fn new(store: Store, keys: Option<MasterKeys>, clock: Arc<dyn Clock>) -> Self {
        Self { store, keys: keys.map(Arc::new), clock }
    }

    fn keys(&self) -> Result<&MasterKeys, CredentialsError> {
        self.keys.as_deref().ok_or(CredentialsError::NoSecretsKey)
    }

    /// The data key that new secrets of an organisation are sealed with.
    pub(crate) async fn data_key(&self, org: OrgId) -> Result<DataKey, CredentialsError> {
        let keys = self.keys()?;
        if let Some(wrapped) = self.store.newest_secret(org).await? {
            return Ok(keys.unwrap(org, &wrapped)?);
        }
        let (key, wrapped) = keys.new_data_key(org, 1);
        if self.store.add_secret(org, wrapped, self.clock.now_ms()).await? {
            return Ok(key);
        }
        // Another process was first.
        Ok(keys.unwrap(org, &self.store.secret(org, 1).await?)?)
    }

    /// Opens what `wrapped` has sealed for `row`.
    pub(crate) fn open_with(
        &self,
        wrapped: &WrappedKey,
        row: &Row<'_>,
        sealed: &Sealed,
    ) -> Result<Vec<u8>, CredentialsError> {
        Ok(self.keys()?.unwrap(row.org, wrapped)?.open(row, sealed)?)
    }

    /// The same, after a look for the data key.
    pub(crate) async fn open(
        &self,
        row: &Row<'_>,
        sealed: &Sealed,
    ) -> Result<Vec<u8>, CredentialsError> {
        self.keys()?;
        let wrapped = self.store.secret(row.org, sealed.secret).await?;
        self.open_with(&wrapped, row, sealed)
    }

    /// Rewraps every data key that an older master key wraps; gives how many.
    pub(crate) async fn rewrap(&self) -> Result<u64, CredentialsError> {
        let keys = self.keys()?;
        let mut done = 0;
        loop {
            let stale = self.store.secrets_not_under(keys.current().to_owned(), BATCH).await?;
            if stale.is_empty() {
                return Ok(done);
            }
            for (org, id) in stale {
                let old = self.store.secret(org, id).await?;
                let new = keys.wrap(org, &keys.unwrap(org, &old)?);
                if self.store.rewrap_secret(org, old.key_id, new).await? {
                    done += 1;
                }
            }
        }
    }
}
