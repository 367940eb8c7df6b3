use domain::OrgId;
use store::StoreError;

use crate::{EnvelopeError, StoredSecret};

/// The page in `docs/errors/` on a credential that was entered for other hosts.
pub const OTHER_HOST: &str = "provider.credential-origin";

/// Why a credential, a sign-in or a setting is not what was asked for. No text of it holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// There is none of this id for this organisation.
    #[error("{0} not found")]
    NotFound(&'static str),
    /// What was sent cannot be taken.
    #[error("{0}")]
    Invalid(String),
    /// Its name is another's, or somebody has changed it meanwhile.
    #[error("{0}")]
    Conflict(String),
    /// No more of these.
    #[error("{0}")]
    Full(String),
    /// The process was started without a key to seal secrets with.
    #[error(
        "credentials cannot be kept: the service was started without a secrets key (--secrets-key)"
    )]
    NoSecretsKey,
    /// A stored secret cannot be opened.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// The same, of one that people can set again.
    #[error("{}", .secret.unreadable(.why))]
    Unreadable {
        /// Which it is.
        secret: Box<StoredSecret>,
        /// Why.
        why: EnvelopeError,
    },
    /// The data key that new secrets of an organisation are sealed with cannot be opened.
    #[error(
        "the organisation can keep no secret: {why}, on all gateways and workers; if that key is lost, whoever runs the service sees `opencode-cloud credentials reset-key --org {org}`"
    )]
    CannotSeal {
        /// The organisation.
        org: OrgId,
        /// Why.
        why: EnvelopeError,
    },
    /// The organisation has not set up an OAuth client of the provider, or not for this method.
    #[error("signing in to {provider} is not set up: {missing} is missing in its settings")]
    NotConfigured {
        /// The provider.
        provider: String,
        /// The member of its settings.
        missing: &'static str,
    },
    /// The provider did not let the sign-in go on; its own words are in it.
    #[error("the sign-in failed: {0}")]
    SignIn(String),
    /// The sign-in has expired, succeeded or failed before.
    #[error("the sign-in has ended ({0}): begin another")]
    Ended(&'static str),
    /// The provider cannot be asked now. Try again.
    #[error("the provider's sign-in does not answer: {0}")]
    Unavailable(String),
    /// The database failed. Try again.
    #[error(transparent)]
    Store(StoreError),
}

impl CredentialsError {
    /// The page in `docs/errors/` that says more, if there is one.
    #[must_use]
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Self::NoSecretsKey => Some("provider.secrets-key-missing"),
            Self::Envelope(_) | Self::Unreadable { .. } | Self::CannotSeal { .. } => {
                Some("provider.secret-unreadable")
            }
            Self::NotConfigured { .. } => Some("provider.sign-in-not-set-up"),
            Self::SignIn(_) | Self::Ended(_) => Some("provider.sign-in-failed"),
            Self::NotFound(_)
            | Self::Invalid(_)
            | Self::Conflict(_)
            | Self::Full(_)
            | Self::Unavailable(_)
            | Self::Store(_) => None,
        }
    }

    /// Says which secret it is that does not open.
    pub(crate) fn about(self, secret: impl FnOnce() -> StoredSecret) -> Self {
        if let Self::Envelope(why) = self {
            return Self::Unreadable { secret: Box::new(secret()), why };
        }
        self
    }

    /// An error of the store about `what`.
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
