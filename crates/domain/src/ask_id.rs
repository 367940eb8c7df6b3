use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{IdError, PermissionId, QuestionId};

/// An ask of a call. Its prefix says what is asked, as released clients expect.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline, with = "String", extend("pattern" = "^(per|que)_"))]
pub enum AskId {
    /// Whether a call may do something.
    Permission(PermissionId),
    /// Questions of the model.
    Question(QuestionId),
}

impl AskId {
    /// Returns the id's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Permission(id) => id.as_str(),
            Self::Question(id) => id.as_str(),
        }
    }
}

impl FromStr for AskId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        match text.parse() {
            Ok(question) => Ok(Self::Question(question)),
            Err(IdError::Form) => Err(IdError::Form),
            Err(IdError::Prefix(_)) => text.parse().map(Self::Permission),
        }
    }
}

impl TryFrom<String> for AskId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<AskId> for String {
    fn from(id: AskId) -> Self {
        match id {
            AskId::Permission(id) => id.into(),
            AskId::Question(id) => id.into(),
        }
    }
}

impl fmt::Display for AskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ask_is_told_by_its_prefix() {
        let read = |text: &str| text.parse::<AskId>();
        assert!(matches!(read("per_1"), Ok(AskId::Permission(_))));
        assert!(matches!(read("que_1"), Ok(AskId::Question(_))));
        assert_eq!(read("msg_1"), Err(IdError::Prefix("per")));
        assert_eq!(read("que_"), Err(IdError::Form));
    }
}
