//! The answers of a provider's token and user-information addresses, of which we read what we use.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, HeaderValue};
use futures::FutureExt;
use futures::future::BoxFuture;
use openidconnect::core::{
    CoreGenderClaim, CoreIdToken, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm,
    CoreTokenType,
};
use openidconnect::{
    AccessToken, EmptyAdditionalClaims, HttpRequest, HttpResponse, OAuth2TokenResponse,
    RefreshToken, Scope, TokenResponse,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::http::HttpError;

/// The answer to a code: what we use of it. The rest, such as the access token's lifetime, may be of any type.
#[derive(Serialize, Deserialize)]
pub(crate) struct TokenAnswer {
    access_token: AccessToken,
    /// The token as it came: it is read when it is proved.
    pub(crate) id_token: Option<String>,
}

impl fmt::Debug for TokenAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenAnswer").finish_non_exhaustive()
    }
}

impl OAuth2TokenResponse for TokenAnswer {
    type TokenType = CoreTokenType;

    fn access_token(&self) -> &AccessToken {
        &self.access_token
    }

    fn token_type(&self) -> &CoreTokenType {
        &CoreTokenType::Bearer
    }

    fn expires_in(&self) -> Option<Duration> {
        None
    }

    fn refresh_token(&self) -> Option<&RefreshToken> {
        None
    }

    fn scopes(&self) -> Option<&Vec<Scope>> {
        None
    }
}

impl
    TokenResponse<
        EmptyAdditionalClaims,
        CoreGenderClaim,
        CoreJweContentEncryptionAlgorithm,
        CoreJwsSigningAlgorithm,
    > for TokenAnswer
{
    /// Returns `None`: the OpenID crate would read all claims at once.
    fn id_token(&self) -> Option<&CoreIdToken> {
        None
    }
}

/// The claims of a user-information answer, as they came.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Option<Map<String, Value>>>>);

impl Seen {
    /// Takes the claims that came.
    pub(crate) fn take(&self) -> Option<Map<String, Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, claims: Map<String, Value>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(claims);
    }

    /// Makes a client that notes the claims and hands on the subject alone, which the OpenID crate compares. `prove` returns
    /// the claims of a signed answer. An answer that it does not believe, and that is no JSON object, passes as it is.
    pub(crate) fn note_answers<C, P>(
        &self,
        caller: C,
        prove: P,
    ) -> impl Fn(HttpRequest) -> BoxFuture<'static, Result<HttpResponse, HttpError>> + Send + Sync
    where
        C: Fn(HttpRequest) -> BoxFuture<'static, Result<HttpResponse, HttpError>> + Send + Sync,
        P: Fn(&str) -> Option<Map<String, Value>> + Send + Sync + 'static,
    {
        let (seen, prove) = (self.clone(), Arc::new(prove));
        move |request| {
            let (answering, seen, prove) = (caller(request), seen.clone(), prove.clone());
            async move {
                let mut answer = answering.await?;
                if !answer.status().is_success() {
                    return Ok(answer);
                }
                let claims = match serde_json::from_slice(answer.body()) {
                    Ok(Value::Object(claims)) => Some(claims),
                    Ok(_) | Err(_) => {
                        let text = std::str::from_utf8(answer.body()).ok();
                        let claims = text.and_then(|text| prove(text.trim()));
                        if claims.is_some() {
                            let json = HeaderValue::from_static("application/json");
                            answer.headers_mut().insert(CONTENT_TYPE, json);
                        }
                        claims
                    }
                };
                if let Some(claims) = claims {
                    let subject = json!({ "sub": claims.get("sub") });
                    *answer.body_mut() = subject.to_string().into_bytes();
                    seen.put(claims);
                }
                Ok(answer)
            }
            .boxed()
        }
    }
}
