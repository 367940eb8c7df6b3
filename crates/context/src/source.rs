use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::snapshot::SourceState;

/// An independently observed, typed value of the System Context, and its renderers.
///
/// The renderers are pure: the same values give the same bytes on every worker. No text is empty.
pub trait ContextSource: fmt::Debug + Clone + Send + Sync + 'static {
    /// The part of a value that a Context Snapshot stores as JSON: enough to detect a change. A type that
    /// gains fields must still read its older form; an unreadable form starts a new Context Epoch.
    type Told: Serialize + DeserializeOwned + PartialEq;

    /// Returns the part of this value for the snapshot.
    fn told(&self) -> Self::Told;

    /// Renders the value for a baseline, or when it appears.
    fn baseline(&self) -> String;

    /// Renders the value after another value. Afterwards the model knows this value.
    fn update(&self, told: &Self::Told) -> String;

    /// Renders the removal of the value. Done in advance and stored in the snapshot, because the source's
    /// code may be gone by then. `None`: it cannot disappear within an epoch; if it does, the epoch ends.
    fn removal(&self) -> Option<String> {
        None
    }

    /// Returns the value that takes effect if this one is observed after `told`.
    #[must_use]
    fn follow(self, told: &Self::Told) -> Self {
        let _ = told;
        self
    }
}

/// The result of reading a Context Source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded<T> {
    /// A value.
    Value(T),
    /// The source was read and has no value. If it had one before, the model is told.
    Absent,
    /// The source could not be read now, for this reason. The last value stays in effect.
    Unavailable(String),
}

impl<T> Loaded<T> {
    /// Converts the value's type.
    #[must_use]
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Loaded<U> {
        match self {
            Self::Value(value) => Loaded::Value(f(value)),
            Self::Absent => Loaded::Absent,
            Self::Unavailable(why) => Loaded::Unavailable(why),
        }
    }
}

/// A text, and the snapshot's state after it.
pub(crate) struct Rendered {
    pub(crate) text: String,
    pub(crate) state: SourceState,
}

/// The comparison of a value with the one that the model last received.
pub(crate) enum Compared {
    Same,
    Changed(Rendered),
    /// The stored value cannot be read, so no update is possible.
    Incompatible,
}

/// A value with its type hidden, so that values of several types combine.
pub(crate) type Hidden = Arc<dyn Tellable>;

pub(crate) trait Tellable: fmt::Debug + Send + Sync {
    /// Renders the first text in an epoch, after `told` in the previous one if that can be read.
    fn begin(&self, told: Option<&Value>) -> Rendered;
    fn compare(&self, told: &Value) -> Compared;
}

impl<S: ContextSource> Tellable for S {
    fn begin(&self, told: Option<&Value>) -> Rendered {
        let value = match told.and_then(read::<S>) {
            Some(told) => self.clone().follow(&told),
            None => self.clone(),
        };
        rendered(&value, value.baseline())
    }

    fn compare(&self, told: &Value) -> Compared {
        let Some(told) = read::<S>(told) else { return Compared::Incompatible };
        let value = self.clone().follow(&told);
        if value.told() == told {
            return Compared::Same;
        }
        Compared::Changed(rendered(&value, value.update(&told)))
    }
}

fn read<S: ContextSource>(told: &Value) -> Option<S::Told> {
    S::Told::deserialize(told).ok()
}

fn rendered<S: ContextSource>(value: &S, text: String) -> Rendered {
    debug_assert!(!text.is_empty(), "{value:?} has no text");
    let told = serde_json::to_value(value.told()).expect("a source's codec gives JSON");
    Rendered { text, state: SourceState { value: told, removal: value.removal() } }
}
