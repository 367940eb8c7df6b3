//! Seals and opens an organisation's secrets with its data key. The first secret creates the data key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::{Clock, OrgId};
use store::{Sealed, Store, StoreError, WrappedKey};

use crate::envelope::{DataKey, Row};
use crate::{CredentialsError, EnvelopeError, MasterKeys};

/// The most data keys that one query returns.
const BATCH: i64 = 1_000;

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

    /// Returns the data key for an organisation's new secrets.
    pub(crate) async fn data_key(&self, org: OrgId) -> Result<DataKey, CredentialsError> {
        let keys = self.keys()?;
        let unwrap = |wrapped: &WrappedKey| {
            keys.unwrap(org, wrapped).map_err(|why| CredentialsError::CannotSeal { org, why })
        };
        if let Some(wrapped) = self.store.newest_secret(org).await? {
            return unwrap(&wrapped);
        }
        let (key, wrapped) = keys.new_data_key(org, 1);
        if self.store.add_secret(org, wrapped, self.clock.now_ms()).await? {
            return Ok(key);
        }
        // Another process created it first.
        unwrap(&self.store.secret(org, 1).await?)
    }

    /// Returns the number of an organisation's newest data key, and the reason if it does not open. `None`:
    /// the organisation has no data key yet.
    pub(crate) async fn newest(
        &self,
        org: OrgId,
    ) -> Result<Option<(i32, Option<EnvelopeError>)>, CredentialsError> {
        let keys = self.keys()?;
        let newest = self.store.newest_secret(org).await?;
        Ok(newest.map(|wrapped| (wrapped.id, keys.unwrap(org, &wrapped).err())))
    }

    /// Makes a data key after `newest`, which does not open. `false`: another process was faster.
    pub(crate) async fn replace(&self, org: OrgId, newest: i32) -> Result<bool, CredentialsError> {
        let (_, wrapped) = self.keys()?.new_data_key(org, newest + 1);
        Ok(self.store.add_secret(org, wrapped, self.clock.now_ms()).await?)
    }

    /// Returns the id of the master key that wraps new data keys.
    pub(crate) fn master(&self) -> Result<&str, CredentialsError> {
        Ok(self.keys()?.current())
    }

    /// Opens a secret of `row` that the data key in `wrapped` sealed.
    pub(crate) fn open_with(
        &self,
        wrapped: &WrappedKey,
        row: &Row<'_>,
        sealed: &Sealed,
    ) -> Result<Vec<u8>, CredentialsError> {
        Ok(self.keys()?.unwrap(row.org, wrapped)?.open(row, sealed)?)
    }

    /// Fetches the data key and opens a secret.
    pub(crate) async fn open(
        &self,
        row: &Row<'_>,
        sealed: &Sealed,
    ) -> Result<Vec<u8>, CredentialsError> {
        self.keys()?;
        let wrapped = self.store.secret(row.org, sealed.secret).await?;
        self.open_with(&wrapped, row, sealed)
    }

    /// Rewraps every data key that an older master key wraps.
    pub(crate) async fn rewrap(&self) -> Result<Rewrapped, CredentialsError> {
        let keys = self.keys()?;
        let mut told = Rewrapped { key: keys.current().to_owned(), ..Rewrapped::default() };
        let mut left = BTreeSet::new();
        loop {
            let stale = self.store.secrets_not_under(told.key.clone(), BATCH).await?;
            let is_whole = i64::try_from(stale.len()).is_ok_and(|count| count < BATCH);
            let before = (told.done, told.removed, left.len());
            for (org, id) in stale {
                if left.contains(&(org, id)) {
                    continue;
                }
                let old = match self.store.secret(org, id).await {
                    Ok(old) => old,
                    Err(StoreError::NotFound) => continue, // its organisation is gone
                    Err(error) => return Err(error.into()),
                };
                match keys.unwrap(org, &old) {
                    Ok(key) => {
                        let new = keys.wrap(org, &key);
                        // Another process may have been first.
                        if self.store.rewrap_secret(org, old.key_id, new).await? {
                            told.done += 1;
                        }
                    }
                    // A data key that seals nothing can go.
                    Err(_) if self.store.remove_unused_secret(org, id).await? => told.removed += 1,
                    Err(error) => {
                        left.insert((org, id));
                        told.why.entry(error.to_string()).or_default().push(org);
                    }
                }
            }
            // The remaining keys fill the batch, so later ones stay out of sight.
            told.is_cut = !is_whole && before == (told.done, told.removed, left.len());
            if is_whole || told.is_cut {
                return Ok(told);
            }
        }
    }
}

/// The result of rewrapping the data keys of older master keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rewrapped {
    /// The current master key.
    pub key: String,
    /// The number of keys that it now wraps.
    pub done: u64,
    /// The number of removed keys: they could not be opened and sealed nothing.
    pub removed: u64,
    /// The organisations whose data keys remain, by reason. They still open with the key that wraps them.
    pub why: BTreeMap<String, Vec<OrgId>>,
    /// So many keys remain that not all were tried.
    pub is_cut: bool,
}

impl Rewrapped {
    /// Returns whether the older master keys are no longer needed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.why.is_empty() && !self.is_cut
    }
}
