use crate::{IssuerRefused, NotAdmitted, TokenRefused};

/// The reason why a sign-in at a provider does not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OidcError {
    /// The provider does not answer. Trying again may help.
    #[error("the identity provider does not answer: {0}")]
    Unreachable(String),
    /// The provider's configuration, or the connection, cannot be used.
    #[error("the identity provider cannot be used: {0}")]
    Setup(String),
    /// The provider said no to the person or to our client.
    #[error("the identity provider says `{code}`{}{words}", if .words.is_empty() { "" } else { ": " })]
    Denied {
        /// Its code, such as `access_denied`.
        code: String,
        /// Its words, without control characters.
        words: String,
    },
    /// The answer came from another provider than the one that was asked.
    #[error("the answer is of another identity provider ({0}); begin the sign-in again")]
    OtherIssuer(String),
    /// The browser brought back neither a code nor an error.
    #[error("the browser brought no code back; begin the sign-in again")]
    NoCode,
    /// The token is not believed.
    #[error(transparent)]
    Token(#[from] TokenRefused),
    /// The person is not among those that the connection is for.
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
}

impl OidcError {
    /// Returns the short name for a page's address.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "provider_down",
            Self::Setup(_) => "provider_setup",
            Self::Denied { .. } => "provider_denied",
            Self::OtherIssuer(_) | Self::NoCode => "start_again",
            Self::Token(_) => "token_refused",
            Self::NotAdmitted(_) => "not_admitted",
        }
    }
}

impl From<IssuerRefused> for OidcError {
    fn from(error: IssuerRefused) -> Self {
        Self::Setup(error.to_string())
    }
}
