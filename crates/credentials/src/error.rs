use domain::{ErrorCode, OrgId};
use store::StoreError;

use crate::{EnvelopeError, StoredSecret};

/// The page in `docs/errors/` about a credential that was entered for other hosts.
pub const OTHER_HOST: &str = "provider.credential-origin";

/// The reasons why an operation on credentials fails. No text contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The organisation has nothing with this id.
    #[error("{0} not found")]
    NotFound(&'static str),
    /// The input is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The name is taken, or someone changed it at the same time.
    #[error("{0}")]
    Conflict(String),
    /// The organisation has too many.
    #[error("{0}")]
    Full(String),
    /// The process has no key to seal secrets with.
    #[error(
        "credentials cannot be kept: the service was started without a secrets key (--secrets-key)"
    )]
    NoSecretsKey,
    /// A stored secret cannot be opened.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// A stored secret that people can set again cannot be opened.
    #[error("{}", .secret.unreadable(.why))]
    Unreadable {
        /// The secret.
        secret: Box<StoredSecret>,
        /// The cause.
        why: EnvelopeError,
    },
    /// The data key for an organisation's new secrets cannot be opened.
    #[error(
        "the organisation can keep no secret: {why}, on all gateways and workers; if that key is lost, whoever runs the service sees `opencode-cloud credentials reset-key --org {org}`"
    )]
    CannotSeal {
        /// The organisation.
        org: OrgId,
        /// The cause.
        why: EnvelopeError,
    },
    /// The organisation has not set up an OAuth client for the provider or the method.
    #[error("signing in to {provider} is not set up: {missing} is missing in its settings")]
    NotConfigured {
        /// The provider.
        provider: String,
        /// The missing member of its settings.
        missing: &'static str,
    },
    /// The provider refused the sign-in; the text quotes it.
    #[error("the sign-in failed: {0}")]
    SignIn(String),
    /// The sign-in has already expired, succeeded or failed.
    #[error("the sign-in has ended ({0}): begin another")]
    Ended(&'static str),
    /// The provider does not answer now. Retry.
    #[error("the provider's sign-in does not answer: {0}")]
    Unavailable(String),
    /// The database failed. Retry.
    #[error(transparent)]
    Store(StoreError),
}

impl CredentialsError {
    /// Returns the code of the error's page in `docs/errors/`, if it has one.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::NoSecretsKey => Some(ErrorCode::ProviderSecretsKeyMissing),
            Self::Envelope(_) | Self::Unreadable { .. } | Self::CannotSeal { .. } => {
                Some(ErrorCode::ProviderSecretUnreadable)
            }
            Self::NotConfigured { .. } => Some(ErrorCode::ProviderSignInNotSetUp),
            Self::SignIn(_) | Self::Ended(_) => Some(ErrorCode::ProviderSignInFailed),
            Self::NotFound(_)
            | Self::Invalid(_)
            | Self::Conflict(_)
            | Self::Full(_)
            | Self::Unavailable(_)
            | Self::Store(_) => None,
        }
    }

    /// Adds the secret to an error about opening it.
    pub(crate) fn about(self, secret: impl FnOnce() -> StoredSecret) -> Self {
        if let Self::Envelope(why) = self {
            return Self::Unreadable { secret: Box::new(secret()), why };
        }
        self
    }

    /// Converts an error of the store about `what`.
    pub(crate) fn of(what: &'static str) -> impl Fn(StoreError) -> Self {
        move |error| {
            if matches!(error, StoreError::NotFound) {
                Self::NotFound(what)
            } else if let StoreError::Conflict { what } = error {
                Self::Conflict(format!("{what} already exists; choose another"))
            } else {
                Self::Store(error)
            }
        }
    }
}

impl From<StoreError> for CredentialsError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
