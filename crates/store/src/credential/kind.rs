//! Kinds of credentials, as they are stored.

use std::str::FromStr;

use crate::StoreError;

/// The kind of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialKind {
    /// A provider's API key.
    ApiKey,
    /// Tokens of an OAuth sign-in.
    OAuth,
    /// An access key of AWS.
    Aws,
}

impl CredentialKind {
    /// As stored, and as clients see it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "api-key",
            Self::OAuth => "oauth",
            Self::Aws => "aws",
        }
    }
}

impl FromStr for CredentialKind {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        match text {
            "api-key" => Ok(Self::ApiKey),
            "oauth" => Ok(Self::OAuth),
            "aws" => Ok(Self::Aws),
            other => Err(StoreError::Unreadable(format!("a credential of the kind `{other}`"))),
        }
    }
}
