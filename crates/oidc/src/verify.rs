//! Proves a token: signature, issuer, audience, time, nonce. Does no I/O and reads no clock.

use chrono::{DateTime, Utc};
use domain::TimestampMs;
use openidconnect::{
    ClaimsVerificationError as Refusal, ClientId, IdTokenVerifier, IssuerUrl, Nonce,
    SignatureVerificationError as BadSignature,
};
use serde_json::{Map, Value};

use crate::claims::seconds;
use crate::twin::Twin;
use crate::{Algorithm, Claims, Issuer, Keys};

/// The difference between a provider's clock and ours that does no harm, in milliseconds.
pub const SKEW_MS: TimestampMs = 60_000;

/// The facts that a token must agree with.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The connection's issuer.
    pub issuer: &'a Issuer,
    /// Our client at the provider.
    pub client_id: &'a str,
    /// The nonce of this attempt.
    pub nonce: &'a str,
    /// The only algorithm, or any of [`Algorithm::ALL`].
    pub algorithm: Option<Algorithm>,
}

/// A proved token.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    /// Its claims.
    pub claims: Claims,
    /// The algorithm that signed it.
    pub algorithm: Algorithm,
    /// The provider's clock minus ours when it was issued, in milliseconds. Negative by the time it travelled.
    pub clock_ms: TimestampMs,
}

/// The reason why a token is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// It cannot be read.
    #[error("the provider's token cannot be read: {0}")]
    Unreadable(String),
    /// Another algorithm signed it, or none.
    #[error("the token is signed by an algorithm that this connection does not accept: {0}")]
    Algorithm(String),
    /// No key of the provider has its key id.
    #[error("the token is signed by a key that the provider does not publish")]
    UnknownKey,
    /// The signature is not the key's.
    #[error("the token's signature is not the provider's: {0}")]
    Signature(String),
    /// Another issuer made it.
    #[error("the token is of another issuer: {0}")]
    Issuer(String),
    /// It is for another client.
    #[error("the token is for another client: {0}")]
    Audience(String),
    /// It belongs to another attempt.
    #[error("the token belongs to another sign-in: its nonce is not the one that was sent")]
    Nonce,
    /// Its time is over, or has not begun.
    #[error("{0}; check the clocks of the provider and of this service")]
    Time(String),
    /// It names no person.
    #[error("the token names no person: the claim `{0}` is missing")]
    NoSubject(&'static str),
}

/// Proves a token and returns its claims. Those that the proof does not compare may be of any type.
///
/// # Errors
/// It is not believed. [`TokenRefused::UnknownKey`] may be cured by newer keys.
pub fn verify(
    token: &str,
    keys: &Keys,
    expected: &Expected<'_>,
    now_ms: TimestampMs,
) -> Result<Verified, TokenRefused> {
    let twin = Twin::of_token(token).ok_or_else(|| unreadable("it is no signed token"))?;
    prove_twin(twin, keys, expected, now_ms)
}

/// Proves signed user information and returns its claims, which may be of any type. It needs no time, and no nonce: the
/// provider gives it for an access token of this attempt.
///
/// # Errors
/// It is not believed.
pub(crate) fn verify_information(
    information: &str,
    keys: &Keys,
    expected: &Expected<'_>,
    now_ms: TimestampMs,
) -> Result<Map<String, Value>, TokenRefused> {
    let twin = Twin::of_information(information, expected.nonce, now_ms);
    let twin = twin.ok_or_else(|| unreadable("it is no signed user information"))?;
    let claims = twin.claims.clone();
    prove_twin(twin, keys, expected, now_ms).map(|_| claims)
}

fn unreadable(why: &str) -> TokenRefused {
    TokenRefused::Unreadable(why.to_owned())
}

fn prove_twin(
    twin: Twin,
    keys: &Keys,
    expected: &Expected<'_>,
    now_ms: TimestampMs,
) -> Result<Verified, TokenRefused> {
    let issuer = IssuerUrl::new(expected.issuer.as_str().to_owned());
    let issuer = issuer.map_err(|_| unreadable("the issuer is no address"))?;
    let client_id = ClientId::new(expected.client_id.to_owned());
    let at = |ms: TimestampMs| -> DateTime<Utc> {
        DateTime::from_timestamp_millis(ms).unwrap_or(DateTime::<Utc>::MAX_UTC)
    };
    let algorithms = match expected.algorithm {
        Some(pinned) => vec![pinned],
        None => Algorithm::ALL.to_vec(),
    };
    // Some providers add audiences of their own to ours. The token is ours if they issued it to us.
    let is_to_us = twin.claims.get("azp").and_then(Value::as_str) == Some(expected.client_id);
    // A verifier for a public client: the client's secret is never a key, so no HMAC can pass.
    let verifier = IdTokenVerifier::new_public_client(client_id, issuer, twin.keys(keys))
        .set_allowed_algs(algorithms.iter().map(|algorithm| algorithm.core()))
        .set_other_audience_verifier_fn(move |_| is_to_us)
        .set_time_fn(move || at(now_ms - SKEW_MS))
        .set_issue_time_verifier_fn(move |issued| {
            let ahead = issued.timestamp_millis() - now_ms;
            if ahead <= SKEW_MS {
                Ok(())
            } else {
                Err(format!("it was issued {} s in the future", ahead / 1_000))
            }
        });
    let nonce = Nonce::new(expected.nonce.to_owned());
    let proved = twin.token.claims(&verifier, &nonce).map_err(|error| refused(error, now_ms))?;
    let clock_ms = proved.issue_time().timestamp_millis() - now_ms;
    let signed_by = twin.token.signing_alg().map_err(|error| signature(&error))?;
    let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.core() == *signed_by);
    let algorithm = algorithm.ok_or_else(|| TokenRefused::Algorithm(String::new()))?;
    let claims = twin.claims;
    let not_before = claims.get("nbf").and_then(seconds).unwrap_or(i64::MIN / 2_000);
    if not_before.saturating_mul(1_000) > now_ms + SKEW_MS {
        return Err(TokenRefused::Time("the token is not valid yet".to_owned()));
    }
    if claims.get("azp").is_some_and(|party| party.as_str() != Some(expected.client_id)) {
        return Err(TokenRefused::Audience("its authorised party (`azp`) is another".to_owned()));
    }
    Ok(Verified { claims: Claims::new(claims), algorithm, clock_ms })
}

fn refused(error: Refusal, now_ms: TimestampMs) -> TokenRefused {
    match error {
        Refusal::Expired(why) => {
            let now = DateTime::<Utc>::from_timestamp_millis(now_ms).unwrap_or_default();
            TokenRefused::Time(format!("the token's time does not fit: {why}; it is {now}"))
        }
        Refusal::InvalidAudience(why) => TokenRefused::Audience(format!(
            "{why}; with more audiences than this client, its authorised party (`azp`) must be this client"
        )),
        Refusal::InvalidIssuer(why) => TokenRefused::Issuer(why),
        Refusal::InvalidNonce(_) => TokenRefused::Nonce,
        Refusal::InvalidSubject(_) => TokenRefused::NoSubject("sub"),
        Refusal::SignatureVerification(error) => signature(&error),
        other @ (Refusal::InvalidAuthContext(_)
        | Refusal::InvalidAuthTime(_)
        | Refusal::Other(_)
        | Refusal::Unsupported(_)
        | _) => TokenRefused::Unreadable(other.to_string()),
    }
}

fn signature(error: &BadSignature) -> TokenRefused {
    match error {
        BadSignature::NoMatchingKey => TokenRefused::UnknownKey,
        BadSignature::DisallowedAlg(why) | BadSignature::UnsupportedAlg(why) => {
            TokenRefused::Algorithm(why.clone())
        }
        BadSignature::NoSignature => TokenRefused::Algorithm("it has no signature".to_owned()),
        other @ (BadSignature::AmbiguousKeyId(_)
        | BadSignature::CryptoError(_)
        | BadSignature::InvalidKey(_)
        | BadSignature::Other(_)
        | _) => TokenRefused::Signature(other.to_string()),
    }
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
