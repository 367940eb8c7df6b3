//! The algorithms that may sign a token.

use std::fmt;
use std::str::FromStr;

use openidconnect::core::CoreJwsSigningAlgorithm;

/// An algorithm that may sign a token. All are asymmetric: whoever knows the client's secret or a public key cannot
/// sign, and `none` is not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RSA PKCS#1 v1.5 with SHA-256. Most providers use it.
    Rs256,
    /// RSA PSS with SHA-256.
    Ps256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

/// The error for the name of another algorithm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not RS256, PS256, ES256 or EdDSA, which are the algorithms that may sign a sign-in"
)]
pub struct UnknownAlgorithm(pub String);

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Rs256, Self::Ps256, Self::Es256, Self::EdDsa];

    /// Returns the name in a token's header.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Ps256 => "PS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    pub(crate) fn core(self) -> CoreJwsSigningAlgorithm {
        match self {
            Self::Rs256 => CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
            Self::Ps256 => CoreJwsSigningAlgorithm::RsaSsaPssSha256,
            Self::Es256 => CoreJwsSigningAlgorithm::EcdsaP256Sha256,
            Self::EdDsa => CoreJwsSigningAlgorithm::EdDsa,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == text);
        found.ok_or_else(|| UnknownAlgorithm(text.chars().take(20).collect()))
    }
}
