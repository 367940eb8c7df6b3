use crate::key::SourceKey;
use crate::snapshot::ContextSnapshot;
use crate::source::{Compared, ContextSource, Hidden, Loaded, Rendered};

/// The Context Sources of one boundary, each read once, in the order of the model's text.
#[derive(Debug, Clone, Default)]
pub struct SystemContext(Vec<(SourceKey, Loaded<Hidden>)>);

/// The error for two sources with the same key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two Context Sources have the key `{0}`")]
pub struct DuplicateKey(pub SourceKey);

/// The error for a baseline that would be incomplete. Retry at the next boundary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the System Context is not available yet: {}", told(sources))]
pub struct Blocked {
    /// The unavailable sources, with the reasons.
    pub sources: Vec<(SourceKey, String)>,
}

fn told(sources: &[(SourceKey, String)]) -> String {
    let told: Vec<_> = sources.iter().map(|(key, why)| format!("{key} ({why})")).collect();
    told.join(", ")
}

/// The start of a Context Epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Initialized {
    /// The exact text of the baseline.
    pub baseline: String,
    /// The values in that text.
    pub snapshot: ContextSnapshot,
}

/// The change of the context at a boundary.
#[derive(Debug, Clone, PartialEq)]
pub enum Reconciled {
    /// Nothing.
    Unchanged,
    /// Admit one Mid-Conversation System Message, and advance the snapshot with it.
    Updated {
        /// The exact text of the message.
        rendered: String,
        /// The snapshot after it.
        snapshot: ContextSnapshot,
    },
    /// No message can express the change: start a new Context Epoch with this baseline.
    ReplacementReady(Initialized),
    /// A new epoch is needed, but its baseline would be incomplete. Keep the epoch, send nothing, and retry
    /// at the next boundary.
    ReplacementBlocked(Blocked),
}

impl From<Result<Initialized, Blocked>> for Reconciled {
    fn from(replacement: Result<Initialized, Blocked>) -> Self {
        match replacement {
            Ok(fresh) => Self::ReplacementReady(fresh),
            Err(blocked) => Self::ReplacementBlocked(blocked),
        }
    }
}

impl SystemContext {
    /// Makes a context of one source, whose type is hidden from here on.
    #[must_use]
    pub fn make<S: ContextSource>(key: SourceKey, loaded: Loaded<S>) -> Self {
        Self(vec![(key, loaded.map(|value| std::sync::Arc::new(value) as Hidden))])
    }

    /// Joins contexts in the given order.
    ///
    /// # Errors
    /// [`DuplicateKey`] if two have a source in common.
    pub fn combine(contexts: impl IntoIterator<Item = Self>) -> Result<Self, DuplicateKey> {
        let mut keys = std::collections::BTreeSet::new();
        let mut all = Vec::new();
        for (key, loaded) in contexts.into_iter().flat_map(|context| context.0) {
            if !keys.insert(key.clone()) {
                return Err(DuplicateKey(key));
            }
            all.push((key, loaded));
        }
        Ok(Self(all))
    }

    /// Marks the source `key`, if it is here, as unavailable.
    #[must_use]
    pub fn unavailable(mut self, key: &SourceKey, why: &str) -> Self {
        for (_, loaded) in self.0.iter_mut().filter(|(known, _)| known == key) {
            *loaded = Loaded::Unavailable(why.to_owned());
        }
        self
    }

    /// Renders a first baseline with its snapshot. Absent sources are in neither.
    ///
    /// # Errors
    /// [`Blocked`] if any source is unavailable.
    pub fn initialize(&self) -> Result<Initialized, Blocked> {
        self.begin(&ContextSnapshot::default(), |_| true)
    }

    /// Renders the baseline of a later epoch, with its snapshot. An unavailable source that the model never
    /// received is left out until it is available.
    ///
    /// # Errors
    /// [`Blocked`] if a source in `told` is unavailable, because the model would forget it.
    pub fn replace(&self, told: &ContextSnapshot) -> Result<Initialized, Blocked> {
        self.begin(told, |key| told.0.contains_key(key.as_str()))
    }

    fn begin(
        &self,
        told: &ContextSnapshot,
        blocks: impl Fn(&SourceKey) -> bool,
    ) -> Result<Initialized, Blocked> {
        let mut texts = Vec::new();
        let mut snapshot = ContextSnapshot::default();
        let mut sources = Vec::new();
        for (key, loaded) in &self.0 {
            match loaded {
                Loaded::Value(seen) => {
                    let before = told.0.get(key.as_str()).map(|state| &state.value);
                    let Rendered { text, state } = seen.begin(before);
                    texts.push(text);
                    snapshot.0.insert(key.as_str().to_owned(), state);
                }
                Loaded::Unavailable(why) if blocks(key) => sources.push((key.clone(), why.clone())),
                Loaded::Unavailable(_) | Loaded::Absent => {}
            }
        }
        if sources.is_empty() {
            Ok(Initialized { baseline: texts.join("\n\n"), snapshot })
        } else {
            Err(Blocked { sources })
        }
    }

    /// Compares with the values that the model last received. Removed sources come after changed ones, in the
    /// order of keys.
    #[must_use]
    pub fn reconcile(&self, told: &ContextSnapshot) -> Reconciled {
        let mut texts = Vec::new();
        let mut next = told.clone();
        let mut gone = told.0.clone();
        for (key, loaded) in &self.0 {
            let before = told.0.get(key.as_str());
            let rendered = match (loaded, before) {
                (Loaded::Absent, _) => continue,
                (Loaded::Unavailable(_), _) => None,
                (Loaded::Value(seen), None) => Some(seen.begin(None)),
                (Loaded::Value(seen), Some(before)) => match seen.compare(&before.value) {
                    Compared::Same => None,
                    Compared::Changed(rendered) => Some(rendered),
                    Compared::Incompatible => return self.replace(told).into(),
                },
            };
            gone.remove(key.as_str());
            if let Some(Rendered { text, state }) = rendered {
                texts.push(text);
                next.0.insert(key.as_str().to_owned(), state);
            }
        }
        for (key, state) in gone {
            let Some(removal) = state.removal else { return self.replace(told).into() };
            texts.push(removal);
            next.0.remove(&key);
        }
        if texts.is_empty() {
            Reconciled::Unchanged
        } else {
            Reconciled::Updated { rendered: texts.join("\n\n"), snapshot: next }
        }
    }
}

#[cfg(test)]
mod tests;
