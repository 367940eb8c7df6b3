//! Enums of our own words. Rows, requests and logs hold them as text; code decides on the enum and never on the text.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An enum whose variants are words of ours. [`words!`](crate::words) makes one.
pub trait Word: Copy + Eq + Sized + 'static {
    /// Every word that this build knows, in the order of its declaration.
    const ALL: &'static [Self];

    /// The word as rows and requests hold it.
    fn as_str(self) -> &'static str;

    /// The variant of this text. `None`: this build knows no such word.
    #[must_use]
    fn read(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|word| word.as_str() == text)
    }
}

/// A word as it is stored: one that this build knows, or one of a newer build. A newer one is kept and shown as it is, and
/// nothing is decided on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored<W> {
    /// One of this build's.
    Known(W),
    /// A newer build's.
    Newer(NewerWord),
}

/// A word that this build does not know. Only [`Stored`] makes one, so that it is never the text of a known one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewerWord(Box<str>);

impl<W: Word> Stored<W> {
    /// The word, if this build knows it.
    #[must_use]
    pub fn known(&self) -> Option<W> {
        match self {
            Self::Known(word) => Some(*word),
            Self::Newer(_) => None,
        }
    }

    /// The text, as it was read.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(word) => word.as_str(),
            Self::Newer(NewerWord(text)) => text,
        }
    }
}

impl<W: Word> From<W> for Stored<W> {
    fn from(word: W) -> Self {
        Self::Known(word)
    }
}

impl<W: Word> From<String> for Stored<W> {
    fn from(text: String) -> Self {
        W::read(&text).map_or_else(|| Self::Newer(NewerWord(text.into())), Self::Known)
    }
}

impl<W: Word> PartialEq<W> for Stored<W> {
    fn eq(&self, other: &W) -> bool {
        self.known() == Some(*other)
    }
}

impl<W: Word> fmt::Display for Stored<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<W: Word> Serialize for Stored<W> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, W: Word> Deserialize<'de> for Stored<W> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// Any word: a newer build knows more than the examples.
impl<W: Word> JsonSchema for Stored<W> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Stored".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let known: Vec<&str> = W::ALL.iter().map(|word| word.as_str()).collect();
        json_schema!({ "type": "string", "examples": known })
    }
}

/// Makes an enum of words: `ALL`, `as_str`, [`Display`](fmt::Display), and serde by the same texts. Deserialising refuses
/// a word that is not among them; where a newer build's may come, the field is a [`Stored`].
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        $vis enum $name {
            $($(#[$doc])* #[serde(rename = $text)] $variant),+
        }

        impl $name {
            /// Every word of it that this build knows.
            $vis const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// As rows and requests hold it.
            #[must_use]
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        impl $crate::Word for $name {
            const ALL: &'static [Self] = Self::ALL;

            fn as_str(self) -> &'static str {
                self.as_str()
            }
        }

        impl $crate::schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut $crate::schemars::SchemaGenerator) -> $crate::schemars::Schema {
                let words: Vec<&str> = Self::ALL.iter().map(|word| word.as_str()).collect();
                $crate::schemars::json_schema!({ "type": "string", "enum": words })
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::{
        AskStatus, AttemptOutcome, CompactionReason, Delivery, DrainEnd, DrainOutcome, EpochReason,
        ErrorCode, Feature, FileStatus, Finish, InputKind, InputStatus, LeftReason, MessageRole,
        NoticeKind, PartKind, SideOutcome, TitledBy, ToolClass, ToolOutcomeKind, ToolState,
        TurnKind, TurnOutcome, TurnStatus, WakeScope,
    };

    use super::*;

    /// Every word is read back, alone and as stored, and no text is two words.
    fn goes_around<W: Word + fmt::Debug + fmt::Display + Serialize + for<'de> Deserialize<'de>>() {
        let texts: BTreeSet<&str> = W::ALL.iter().map(|word| word.as_str()).collect();
        assert_eq!(texts.len(), W::ALL.len(), "{texts:?}");
        for word in W::ALL.iter().copied() {
            let json = serde_json::to_string(&word).expect("a text");
            assert_eq!(json, format!("\"{word}\""));
            assert_eq!(serde_json::from_str::<W>(&json).expect("its own"), word);
            assert_eq!(
                serde_json::from_str::<Stored<W>>(&json).expect("text"),
                Stored::Known(word)
            );
            assert_eq!(W::read(word.as_str()), Some(word));
        }
        let newer = "a.newer-build_says";
        assert!(serde_json::from_str::<W>(&format!("\"{newer}\"")).is_err());
        let stored: Stored<W> = newer.to_owned().into();
        assert_eq!((stored.known(), stored.as_str()), (None, newer));
        assert_eq!(serde_json::to_string(&stored).expect("a text"), format!("\"{newer}\""));
        assert!(W::ALL.iter().all(|word| stored != *word));
    }

    #[test]
    fn words_go_around_and_newer_ones_are_kept() {
        goes_around::<AskStatus>();
        goes_around::<AttemptOutcome>();
        goes_around::<CompactionReason>();
        goes_around::<Delivery>();
        goes_around::<DrainEnd>();
        goes_around::<DrainOutcome>();
        goes_around::<EpochReason>();
        goes_around::<ErrorCode>();
        goes_around::<Feature>();
        goes_around::<FileStatus>();
        goes_around::<Finish>();
        goes_around::<InputKind>();
        goes_around::<InputStatus>();
        goes_around::<LeftReason>();
        goes_around::<MessageRole>();
        goes_around::<NoticeKind>();
        goes_around::<PartKind>();
        goes_around::<SideOutcome>();
        goes_around::<TitledBy>();
        goes_around::<ToolClass>();
        goes_around::<ToolOutcomeKind>();
        goes_around::<ToolState>();
        goes_around::<TurnKind>();
        goes_around::<TurnOutcome>();
        goes_around::<TurnStatus>();
        goes_around::<WakeScope>();
    }
}
