use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{Clock, OrgId};
use llm_client::Client;
use signals::Signals;
use store::Store;

use crate::providers::ProviderHub;
use crate::settings::DrainSettings;
use crate::spending::Spending;

/// The state that all drains of a worker share. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    /// The database.
    pub store: Store,
    /// Hints to followers.
    pub signals: Arc<dyn Signals>,
    /// The client for providers.
    pub llm: Client,
    /// The tools of Locations that have none of their own.
    pub tools: tools::ToolSet,
    /// The store of large outputs.
    pub blobs: blobs::Blobs,
    /// The models that can be called.
    pub models: ProviderHub,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The settings of drains.
    pub settings: Arc<DrainSettings>,
    /// Components that are known to be stored.
    pub stored: StoredComponents,
    /// What is known of monthly limits.
    pub spending: Spending,
}

impl Runtime {
    /// Returns the components (hash in hex, bytes) that must be stored with an attempt that names them.
    pub(crate) fn new_components(
        &self,
        org: OrgId,
        components: &[(String, Vec<u8>)],
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        components
            .iter()
            .filter(|(hash, _)| !self.stored.contains(org, hash))
            .filter_map(|(hash, bytes)| Some((hex::decode(hash).ok()?, bytes.clone())))
            .collect()
    }
}

/// A cache of stored request components, so that they are not sent again with every turn. At 10,000 entries it
/// forgets everything.
#[derive(Debug, Clone, Default)]
pub struct StoredComponents {
    known: Arc<Mutex<HashSet<(OrgId, String)>>>,
}

impl StoredComponents {
    const BOUND: usize = 10_000;

    fn contains(&self, org: OrgId, hash: &str) -> bool {
        self.lock().contains(&(org, hash.to_owned()))
    }

    /// Notes the components of a committed attempt.
    pub(crate) fn note(&self, org: OrgId, hashes: impl IntoIterator<Item = String>) {
        let mut known = self.lock();
        if known.len() > Self::BOUND {
            known.clear();
        }
        known.extend(hashes.into_iter().map(|hash| (org, hash)));
    }

    /// Forgets all: the database may be another one.
    pub fn forget_all(&self) {
        self.lock().clear();
    }

    /// Forgets the components of an organisation: some are not stored any more.
    pub(crate) fn forget(&self, org: OrgId) {
        self.lock().retain(|(of, _)| *of != org);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(OrgId, String)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
