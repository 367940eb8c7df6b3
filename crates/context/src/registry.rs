use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::future::join_all;

use crate::{DuplicateKey, SourceKey, SystemContext};

/// Observes some Context Sources of a place `P`. Infallible: a source that cannot be read now is
/// *unavailable*. A producer bounds its own time.
#[async_trait]
pub trait Producer<P: Sync>: Send + Sync {
    /// Observes its sources once.
    async fn observe(&self, at: &P) -> SystemContext;
}

/// The System Context Registry of one Location: the contributors to its System Context.
///
/// Producers run at the same time, and their results are combined in the order of their contributions' keys.
/// So the bytes do not depend on timing or on the order of registration. Clones share the contributions.
pub struct Registry<P> {
    contributions: Arc<Mutex<Contributions<P>>>,
}

type Contributions<P> = BTreeMap<SourceKey, Arc<dyn Producer<P>>>;

/// The reason why a contribution cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Another contribution has its key. Drop that one's [`Registration`] first.
    #[error("there is a contribution `{0}` to the System Context already")]
    Taken(SourceKey),
    /// The registry already has [`Registry::MAX`] contributions.
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
    /// The most contributions at a time.
    pub const MAX: usize = 64;

    /// Makes a registry without contributions.
    #[must_use]
    pub fn new() -> Self {
        Self { contributions: Arc::new(Mutex::new(BTreeMap::new())) }
    }

    /// Adds a contribution, in effect from the next boundary on.
    ///
    /// # Errors
    /// [`RegisterError`] if its key is taken, or there are too many.
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
    /// Runs all producers at the same time.
    ///
    /// # Errors
    /// [`DuplicateKey`] if two contribute the same source.
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
