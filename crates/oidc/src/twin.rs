//! Reads tokens of which only the claims that the proof needs must be of their type.
//!
//! The OpenID crate reads all standard claims of a token before it proves any, so that an address of another type would
//! end a sign-in that needs no address. It gets a twin of the token: the same header and signature, and the claims that
//! it compares. The keys that it proves the twin with look at the token as it came, so that nothing else passes.

use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::TimestampMs;
use openidconnect::core::{
    CoreIdToken, CoreJsonWebKey, CoreJsonWebKeyType, CoreJsonWebKeyUse, CoreJwsSigningAlgorithm,
};
use openidconnect::{
    JsonWebKey, JsonWebKeyAlgorithm, JsonWebKeyId, JsonWebKeySet, SignatureVerificationError,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Keys;
use crate::claims::seconds;

/// The claims that the proof compares.
const COMPARED: [&str; 6] = ["iss", "sub", "aud", "exp", "iat", "nonce"];
/// Those of them that are times. Some providers write them as text.
const TIMES: [&str; 2] = ["exp", "iat"];

/// A token and its twin.
pub(crate) struct Twin {
    /// The token with the compared claims alone. Its signature is the token's.
    pub(crate) token: CoreIdToken,
    /// All claims of the token, which are not proved yet.
    pub(crate) claims: Map<String, Value>,
    /// The bytes that are signed.
    signed: Arc<[u8]>,
}

impl Twin {
    /// Makes the twin of a token. `None` if it is no signed token.
    pub(crate) fn of_token(token: &str) -> Option<Self> {
        Self::of_signed(token, |_| {})
    }

    /// Makes the twin of signed user information, with the claims that only the token of a sign-in must have. `None` if it is
    /// not signed.
    pub(crate) fn of_information(
        information: &str,
        nonce: &str,
        now_ms: TimestampMs,
    ) -> Option<Self> {
        let now = now_ms / 1_000;
        Self::of_signed(information, |compared| {
            compared.insert("nonce".to_owned(), nonce.into());
            compared.entry("iat").or_insert_with(|| now.into());
            compared.entry("exp").or_insert_with(|| (now + 1).into());
        })
    }

    fn of_signed(token: &str, complete: impl FnOnce(&mut Map<String, Value>)) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let claims: Map<String, Value> =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
        let mut compared = claims.clone();
        compared.retain(|name, _| COMPARED.contains(&name.as_str()));
        for name in TIMES {
            if let Some(time) = compared.get_mut(name)
                && let Some(read) = seconds(time)
            {
                *time = read.into();
            }
        }
        complete(&mut compared);
        let compared = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&compared).ok()?);
        let token = CoreIdToken::from_str(&format!("{header}.{compared}.{signature}")).ok()?;
        Some(Self { token, claims, signed: signed.as_bytes().into() })
    }

    /// Returns the keys that prove the twin by the token.
    pub(crate) fn keys(&self, keys: &Keys) -> JsonWebKeySet<TokenKey> {
        let of_token =
            |key: &CoreJsonWebKey| TokenKey { key: key.clone(), signed: self.signed.clone() };
        JsonWebKeySet::new(keys.core().keys().iter().map(of_token).collect())
    }
}

/// A provider's key, for one token: whatever it is shown, it verifies the signature over what was signed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TokenKey {
    #[serde(flatten)]
    key: CoreJsonWebKey,
    #[serde(skip)]
    signed: Arc<[u8]>,
}

impl JsonWebKey for TokenKey {
    type KeyUse = CoreJsonWebKeyUse;
    type SigningAlgorithm = CoreJwsSigningAlgorithm;

    fn key_id(&self) -> Option<&JsonWebKeyId> {
        self.key.key_id()
    }

    fn key_type(&self) -> &CoreJsonWebKeyType {
        self.key.key_type()
    }

    fn key_use(&self) -> Option<&CoreJsonWebKeyUse> {
        self.key.key_use()
    }

    fn signing_alg(&self) -> JsonWebKeyAlgorithm<&CoreJwsSigningAlgorithm> {
        self.key.signing_alg()
    }

    fn new_symmetric(key: Vec<u8>) -> Self {
        Self { key: CoreJsonWebKey::new_symmetric(key), signed: Arc::default() }
    }

    fn verify_signature(
        &self,
        algorithm: &CoreJwsSigningAlgorithm,
        _twin: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureVerificationError> {
        self.key.verify_signature(algorithm, &self.signed, signature)
    }

    fn hash_bytes(
        &self,
        bytes: &[u8],
        algorithm: &CoreJwsSigningAlgorithm,
    ) -> Result<Vec<u8>, String> {
        self.key.hash_bytes(bytes, algorithm)
    }
}
