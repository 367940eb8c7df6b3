use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::snapshot::SourceState;

/// One independently observed, typed value of the System Context, and how it is told.
///
/// The renderers are pure: the same values give the same bytes, on whichever worker. No text is empty.
pub trait ContextSource: fmt::Debug + Clone + Send + Sync + 'static {
    /// What a Context Snapshot keeps of a value: enough to see a change by, and as JSON. A type that grows
    /// reads what it wrote before; what it cannot read starts a new Context Epoch.
    type Told: Serialize + DeserializeOwned + PartialEq;

    /// What the snapshot keeps of this value.
    fn told(&self) -> Self::Told;

    /// How it is told in a baseline, or when it appears.
    fn baseline(&self) -> String;

    /// How it is told once another value was told. What the model then knows is this value.
    fn update(&self, told: &Self::Told) -> String;

    /// How its disappearance is told. Rendered in advance and kept in the snapshot, since its code may be
    /// gone by then. `None`: it cannot disappear within an epoch, and one in which it does has ended.
    fn removal(&self) -> Option<String> {
        None
    }

    /// The value that is in effect when this one is seen after `told` was told.
    #[must_use]
    fn follow(self, told: &Self::Told) -> Self {
        let _ = told;
        self
    }
}

/// What looking at a Context Source gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded<T> {
    /// A value.
    Value(T),
    /// It was looked at, and there is none. If there was one before, the model is told of that.
    Absent,
    /// It could not be looked at for now, and why: what was told last stays in effect.
    Unavailable(String),
}

impl<T> Loaded<T> {
    /// The same of another type.
    #[must_use]
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Loaded<U> {
        match self {
            Self::Value(value) => Loaded::Value(f(value)),
            Self::Absent => Loaded::Absent,
            Self::Unavailable(why) => Loaded::Unavailable(why),
        }
    }
}

/// A text and what the snapshot holds once it is told.
pub(crate) struct Rendered {
    pub(crate) text: String,
    pub(crate) state: SourceState,
}

/// A value against what was told last.
pub(crate) enum Compared {
    Same,
    Changed(Rendered),
    /// What was told cannot be read: no update can be made of it.
    Incompatible,
}

/// A value whose type is hidden, so that values of several types compose.
pub(crate) type Hidden = Arc<dyn Tellable>;

pub(crate) trait Tellable: fmt::Debug + Send + Sync {
    /// Its first telling in an epoch; after `told` in the one before, if that can be read.
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
