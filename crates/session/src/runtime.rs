use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{Clock, OrgId};
use llm_client::Client;
use signals::Signals;
use store::Store;

use crate::providers::ProviderHub;
use crate::settings::DrainSettings;

/// What every drain of a worker shares. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    /// The database.
    pub store: Store,
    /// Hints to followers.
    pub signals: Arc<dyn Signals>,
    /// Calls providers.
    pub llm: Client,
    /// The tools.
    pub tools: Arc<tools::Registry>,
    /// Where large outputs go.
    pub blobs: blobs::Blobs,
    /// The models that can be called.
    pub models: ProviderHub,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// How drains behave.
    pub settings: Arc<DrainSettings>,
    /// Components that are known to be stored.
    pub stored: StoredComponents,
}

impl Runtime {
    /// Which of these (hash in hex, bytes) must be stored with an attempt that names them.
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

/// Remembers which request components are stored, so that they are not sent again with every turn.
/// Bounded: it forgets everything when it holds 10,000.
#[derive(Debug, Clone, Default)]
pub struct StoredComponents {
    known: Arc<Mutex<HashSet<(OrgId, String)>>>,
}

impl StoredComponents {
    const BOUND: usize = 10_000;

    fn contains(&self, org: OrgId, hash: &str) -> bool {
        self.lock().contains(&(org, hash.to_owned()))
    }

    /// Notes what a committed attempt named.
    pub(crate) fn note(&self, org: OrgId, hashes: impl IntoIterator<Item = String>) {
        let mut known = self.lock();
        if known.len() > Self::BOUND {
            known.clear();
        }
        known.extend(hashes.into_iter().map(|hash| (org, hash)));
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(OrgId, String)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
