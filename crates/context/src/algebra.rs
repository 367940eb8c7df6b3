use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One Context Source, observed: its value and how it is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// What is compared and kept in the snapshot.
    pub value: Value,
    /// How it is told in a baseline, or when it appears.
    pub baseline: String,
    /// How a change to it is told.
    pub update: String,
    /// How its disappearance is told, for a source that may be removed.
    pub removal: Option<String>,
}

/// What looking at a Context Source gave.
#[derive(Debug, Clone, PartialEq)]
pub enum Observed {
    /// A value.
    Value(Observation),
    /// It could not be looked at for now: what was told last stays in effect. Not the same as absence.
    Unavailable,
}

/// The Context Sources of one boundary, in the order in which they are told.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SystemContext(Vec<(String, Observed)>);

/// The result of combining contexts.
pub type Combined = Result<SystemContext, DuplicateKey>;

/// Two sources have one key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two Context Sources have the key `{0}`")]
pub struct DuplicateKey(pub String);

/// A first baseline cannot be rendered: it would be incomplete. Try again at the next boundary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the System Context is not available yet: {}", keys.join(", "))]
pub struct Blocked {
    /// The sources that were unavailable.
    pub keys: Vec<String>,
}

/// The values last admitted to a turn, by source.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContextSnapshot(pub BTreeMap<String, SourceState>);

/// One source in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceState {
    /// The value.
    pub value: Value,
    /// What to say should the source disappear; rendered in advance, since its code may be gone then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal: Option<String>,
}

/// The start of a Context Epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Initialized {
    /// The exact joined text.
    pub baseline: String,
    /// What it told.
    pub snapshot: ContextSnapshot,
}

/// What a boundary must do about the context.
#[derive(Debug, Clone, PartialEq)]
pub enum Reconciled {
    /// Nothing.
    Unchanged,
    /// Admit one Mid-Conversation System Message, and advance the snapshot with it.
    Updated {
        /// The exact combined text.
        rendered: String,
        /// The snapshot after it.
        snapshot: ContextSnapshot,
    },
}

impl ContextSnapshot {
    /// Reads a stored snapshot.
    ///
    /// # Errors
    /// When the text is not one.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// As it is stored.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(&self.0).expect("a snapshot holds only JSON values")
    }
}

impl SystemContext {
    /// A context of one source. Keys are namespaced: `core/date`.
    #[must_use]
    pub fn make(key: impl Into<String>, observed: Observed) -> Self {
        Self(vec![(key.into(), observed)])
    }

    /// Joins contexts in the order given.
    ///
    /// # Errors
    /// [`DuplicateKey`] when two have a source in common.
    pub fn combine(contexts: impl IntoIterator<Item = Self>) -> Combined {
        let mut all = Vec::new();
        for context in contexts {
            for (key, observed) in context.0 {
                if all.iter().any(|(known, _)| *known == key) {
                    return Err(DuplicateKey(key));
                }
                all.push((key, observed));
            }
        }
        Ok(Self(all))
    }

    /// Renders a fresh baseline with its snapshot.
    ///
    /// # Errors
    /// [`Blocked`] while any source is unavailable.
    pub fn initialize(&self) -> Result<Initialized, Blocked> {
        let mut texts = Vec::new();
        let mut snapshot = ContextSnapshot::default();
        let mut blocked = Vec::new();
        for (key, observed) in &self.0 {
            match observed {
                Observed::Value(seen) => {
                    texts.push(seen.baseline.as_str());
                    snapshot.0.insert(key.clone(), seen.state());
                }
                Observed::Unavailable => blocked.push(key.clone()),
            }
        }
        if blocked.is_empty() {
            Ok(Initialized { baseline: texts.join("\n\n"), snapshot })
        } else {
            Err(Blocked { keys: blocked })
        }
    }

    /// Compares with what was told last.
    #[must_use]
    pub fn reconcile(&self, told: &ContextSnapshot) -> Reconciled {
        let mut texts = Vec::new();
        let mut next = told.clone();
        for (key, observed) in &self.0 {
            let Observed::Value(seen) = observed else { continue };
            match told.0.get(key) {
                Some(state) if state.value == seen.value => {}
                Some(_) => texts.push(seen.update.clone()),
                None => texts.push(seen.baseline.clone()),
            }
            next.0.insert(key.clone(), seen.state());
        }
        for (key, state) in &told.0 {
            if self.0.iter().any(|(known, _)| known == key) {
                continue;
            }
            if let Some(removal) = &state.removal {
                texts.push(removal.clone());
                next.0.remove(key);
            }
        }
        if texts.is_empty() {
            Reconciled::Unchanged
        } else {
            Reconciled::Updated { rendered: texts.join("\n\n"), snapshot: next }
        }
    }
}

impl Observation {
    fn state(&self) -> SourceState {
        SourceState { value: self.value.clone(), removal: self.removal.clone() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source(key: &str, value: &str) -> SystemContext {
        SystemContext::make(
            key,
            Observed::Value(Observation {
                value: json!(value),
                baseline: format!("{key} is {value}"),
                update: format!("{key} is now {value}"),
                removal: Some(format!("{key} is gone")),
            }),
        )
    }

    fn told(contexts: Vec<SystemContext>) -> ContextSnapshot {
        SystemContext::combine(contexts)
            .expect("distinct")
            .initialize()
            .expect("available")
            .snapshot
    }

    #[test]
    fn a_baseline_keeps_the_callers_order() {
        let context =
            SystemContext::combine([source("z", "1"), source("a", "2")]).expect("distinct");
        assert_eq!(context.initialize().expect("available").baseline, "z is 1\n\na is 2");
    }

    #[test]
    fn one_key_twice_is_refused() {
        let error =
            SystemContext::combine([source("a", "1"), source("a", "2")]).expect_err("twice");
        assert_eq!(error, DuplicateKey("a".into()));
    }

    #[test]
    fn an_unavailable_source_blocks_a_baseline_and_nothing_else() {
        let blocked = SystemContext::make("a", Observed::Unavailable);
        assert_eq!(blocked.initialize().expect_err("blocked"), Blocked { keys: vec!["a".into()] });
        assert_eq!(blocked.reconcile(&told(vec![source("a", "1")])), Reconciled::Unchanged);
    }

    #[test]
    fn changes_appearances_and_removals_make_one_message() {
        let before = told(vec![source("a", "1"), source("b", "1")]);
        let now = SystemContext::combine([source("a", "2"), source("c", "1")]).expect("distinct");
        let Reconciled::Updated { rendered, snapshot } = now.reconcile(&before) else {
            panic!("changed");
        };
        assert_eq!(rendered, "a is now 2\n\nc is 1\n\nb is gone");
        assert_eq!(now.reconcile(&snapshot), Reconciled::Unchanged);
    }

    #[test]
    fn a_snapshot_reads_back_as_it_was_stored() {
        let snapshot = told(vec![source("a", "1")]);
        assert_eq!(ContextSnapshot::read(&snapshot.text()).expect("ours"), snapshot);
    }
}
