use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::future::join_all;

use crate::{DuplicateKey, SourceKey, SystemContext};

/// Looks at some Context Sources of a place `P`. Infallible: what cannot be looked at for now is *unavailable*,
/// and a producer bounds its own time.
#[async_trait]
pub trait Producer<P: Sync>: Send + Sync {
    /// Looks once.
    async fn observe(&self, at: &P) -> SystemContext;
}

/// The System Context Registry of one Location: who contributes to its System Context.
///
/// Producers are asked at the same time, and what they saw is composed in the order of their contributions' keys:
/// the same bytes, whoever is slow and whoever came first. Clones share the contributions.
pub struct Registry<P> {
    contributions: Arc<Mutex<Contributions<P>>>,
}

type Contributions<P> = BTreeMap<SourceKey, Arc<dyn Producer<P>>>;

/// A contribution cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Another one has its key: drop that one's [`Registration`] first.
    #[error("there is a contribution `{0}` to the System Context already")]
    Taken(SourceKey),
    /// There are [`Registry::MAX`].
    #[error("the System Context has {} contributions already", Registry::<()>::MAX)]
    Full,
}

/// A contribution that is in effect until this is dropped. At the next boundary its sources are gone.
#[must_use = "dropping it takes the contribution away"]
pub struct Registration<P> {
    key: SourceKey,
    registry: Registry<P>,
}

impl<P> Registry<P> {
    /// Contributions at once.
    pub const MAX: usize = 64;

    /// Without contributions.
    #[must_use]
    pub fn new() -> Self {
        Self { contributions: Arc::new(Mutex::new(BTreeMap::new())) }
    }

    /// Adds a contribution, asked from the next boundary on.
    ///
    /// # Errors
    /// [`RegisterError`] when its key is taken, or there are too many.
    pub fn register(
        &self,
        key: SourceKey,
        producer: Arc<dyn Producer<P>>,
    ) -> Result<Registration<P>, RegisterError> {
        let mut contributions = self.lock();
        if contributions.contains_key(&key) {
            return Err(RegisterError::Taken(key));
        }
        if contributions.len() >= Self::MAX {
            return Err(RegisterError::Full);
        }
        contributions.insert(key.clone(), producer);
        Ok(Registration { key, registry: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Contributions<P>> {
        self.contributions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Sync> Registry<P> {
    /// Asks all producers at the same time.
    ///
    /// # Errors
    /// [`DuplicateKey`] when two have contributed one source.
    pub async fn observe(&self, at: &P) -> Result<SystemContext, DuplicateKey> {
        let producers: Vec<_> = self.lock().values().cloned().collect();
        let seen = join_all(producers.iter().map(|producer| producer.observe(at))).await;
        SystemContext::combine(seen)
    }
}

impl<P> Clone for Registry<P> {
    fn clone(&self) -> Self {
        Self { contributions: Arc::clone(&self.contributions) }
    }
}

impl<P> Default for Registry<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> fmt::Debug for Registry<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

impl<P> fmt::Debug for Registration<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registration").field(&self.key).finish()
    }
}

impl<P> Drop for Registration<P> {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.key);
    }
}
