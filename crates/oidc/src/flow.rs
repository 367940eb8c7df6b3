//! One sign-in from start to end.

use std::fmt;

use domain::TimestampMs;
use llm_client::Secret;
use openidconnect::core::{
    CoreAuthDisplay, CoreAuthPrompt, CoreAuthenticationFlow, CoreClientAuthMethod,
    CoreErrorResponseType, CoreGenderClaim, CoreJsonWebKey, CoreJweContentEncryptionAlgorithm,
    CoreRequestTokenError, CoreRevocableToken, CoreRevocationErrorResponse,
    CoreTokenIntrospectionResponse,
};
use openidconnect::{
    AdditionalClaims, AuthType, AuthorizationCode, ClientId, ClientSecret, CsrfToken,
    EmptyAdditionalClaims, EndpointMaybeSet, EndpointNotSet, EndpointSet, LogoutRequest, Nonce,
    OAuth2TokenResponse, PkceCodeChallenge, PkceCodeVerifier, PostLogoutRedirectUrl, RedirectUrl,
    RequestTokenError, Scope, StandardErrorResponse, SubjectIdentifier, UserInfoClaims,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use url::Url;

use crate::answer::{Seen, TokenAnswer};
use crate::http::{HttpError, caller};
use crate::provider::{Known, Providers};
use crate::verify::verify_information;
use crate::{
    Algorithm, Claims, Expected, Issuer, OidcError, Person, TokenRefused, Verified, verify,
};

/// The bytes of a state and of a nonce, before their encoding.
const RANDOM_BYTES: u32 = 32;
const MAX_CODE_BYTES: usize = 8 * 1024;
const MAX_WORDS_CHARS: usize = 300;

/// A connection as a sign-in needs it.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The provider.
    pub issuer: Issuer,
    /// Our client there.
    pub client_id: String,
    /// The client's secret. `None`: a public client, which has PKCE alone.
    pub client_secret: Option<Secret>,
    /// The callback of this connection, which no other connection has.
    pub redirect: Url,
    /// Scopes to ask for besides `openid`.
    pub scopes: Vec<String>,
    /// The only algorithm that may sign its tokens. `None`, while it is set up: any of [`Algorithm::ALL`].
    pub algorithm: Option<Algorithm>,
    /// The claim of groups, if somebody wants it: the user information is asked for it when the token lacks it.
    pub groups_claim: Option<String>,
}

/// The secrets of one sign-in between its start and its end.
#[derive(Clone, Serialize, Deserialize)]
pub struct Attempt {
    /// Comes back with the browser.
    pub state: String,
    /// Comes back inside the token.
    pub nonce: String,
    /// Proves to the provider that who redeems the code is who began.
    pub verifier: String,
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").finish_non_exhaustive()
    }
}

/// The parameters with which a browser comes back.
#[derive(Clone, Default)]
pub struct Return {
    /// The code.
    pub code: Option<String>,
    /// The issuer of the answer (RFC 9207).
    pub iss: Option<String>,
    /// The provider's error.
    pub error: Option<String>,
    /// The provider's words.
    pub error_description: Option<String>,
}

impl fmt::Debug for Return {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, iss, error, .. } = self;
        f.debug_struct("Return")
            .field("has_code", &code.is_some())
            .field("iss", iss)
            .field("error", error)
            .finish_non_exhaustive()
    }
}

/// A person whom the provider has signed in.
#[derive(Debug, Clone)]
pub struct SignIn {
    /// The person.
    pub person: Person,
    /// All claims.
    pub claims: Claims,
    /// The algorithm that signed the token.
    pub algorithm: Algorithm,
    /// The provider's clock minus ours, in milliseconds.
    pub clock_ms: TimestampMs,
    /// The token itself: the provider takes it as a hint at logout.
    pub id_token: Secret,
}

/// Returns 43 random characters, which nobody can guess.
#[must_use]
pub fn random_text() -> String {
    CsrfToken::new_random_len(RANDOM_BYTES).into_secret()
}

#[derive(Debug, Serialize, Deserialize)]
struct AnyClaims(Map<String, Value>);

impl AdditionalClaims for AnyClaims {}

type Client = openidconnect::Client<
    EmptyAdditionalClaims,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    StandardErrorResponse<CoreErrorResponseType>,
    TokenAnswer,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

impl Providers {
    /// Begins a sign-in: returns the provider's address for the browser, and the secrets to keep until it comes back.
    ///
    /// # Errors
    /// The provider does not answer, or its configuration cannot be used.
    pub async fn begin(&self, connection: &Connection) -> Result<(Url, Attempt), OidcError> {
        self.begin_with(connection, None).await
    }

    /// Begins a sign-in as [`Providers::begin`] does, at whose page the person proves anew who they are, whatever session
    /// they have at the provider.
    ///
    /// # Errors
    /// The provider does not answer, or its configuration cannot be used.
    pub async fn begin_anew(&self, connection: &Connection) -> Result<(Url, Attempt), OidcError> {
        self.begin_with(connection, Some(CoreAuthPrompt::Login)).await
    }

    async fn begin_with(
        &self,
        connection: &Connection,
        prompt: Option<CoreAuthPrompt>,
    ) -> Result<(Url, Attempt), OidcError> {
        let known = self.known(&connection.issuer).await?;
        if !is_page(&connection.issuer, known.metadata.authorization_endpoint().url()) {
            let why = "its authorization endpoint is no https address";
            return Err(OidcError::Setup(why.to_owned()));
        }
        let client = client(connection, &known)?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let mut asking = client
            .authorize_url(
                CoreAuthenticationFlow::AuthorizationCode,
                || CsrfToken::new_random_len(RANDOM_BYTES),
                || Nonce::new_random_len(RANDOM_BYTES),
            )
            .add_scopes(connection.scopes.iter().cloned().map(Scope::new))
            .set_pkce_challenge(challenge);
        if let Some(prompt) = prompt {
            asking = asking.add_prompt(prompt);
        }
        let (url, state, nonce) = asking.url();
        let (state, nonce) = (state.into_secret(), nonce.secret().clone());
        Ok((url, Attempt { state, nonce, verifier: verifier.into_secret() }))
    }

    /// Ends a sign-in with what the browser brought back. The caller has found `attempt` by the state and has
    /// consumed it.
    ///
    /// # Errors
    /// The provider says no or does not answer, the answer is of another provider, or the token is not believed.
    pub async fn finish(
        &self,
        connection: &Connection,
        attempt: Attempt,
        back: &Return,
    ) -> Result<SignIn, OidcError> {
        let known = self.known(&connection.issuer).await?;
        check_issuer(&connection.issuer, &known, back.iss.as_deref())?;
        if let Some(code) = &back.error {
            let words = back.error_description.as_deref().unwrap_or_default();
            return Err(OidcError::Denied { code: shown(code), words: shown(words) });
        }
        let code =
            back.code.as_deref().filter(|code| !code.is_empty() && code.len() <= MAX_CODE_BYTES);
        let code = code.ok_or(OidcError::NoCode)?;
        let client = client(connection, &known)?;
        let caller = caller(self.transport.clone());
        let answer = client
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .map_err(|_| OidcError::Setup("it has no token endpoint".to_owned()))?
            .set_pkce_verifier(PkceCodeVerifier::new(attempt.verifier))
            .request_async(&caller)
            .await
            .map_err(no_token)?;
        let token = answer.id_token.clone();
        let token = token.ok_or_else(|| TokenRefused::Unreadable("there is none".to_owned()))?;
        let Verified { mut claims, algorithm, clock_ms } =
            self.prove(connection, &known, &token, &attempt.nonce).await?;
        let missing = ["email", "name"].into_iter().chain(connection.groups_claim.as_deref());
        if missing.into_iter().any(|name| !claims.has(name)) {
            let subject = claims.text("sub").ok_or(TokenRefused::NoSubject("sub"))?.to_owned();
            let access = answer.access_token().clone();
            // A provider without user information, or one that fails there, leaves the token's claims.
            if let Ok(asking) = client.user_info(access, Some(SubjectIdentifier::new(subject))) {
                let seen = Seen::default();
                let (issuer, client_id) = (connection.issuer.clone(), connection.client_id.clone());
                let (keys, nonce, now) =
                    (known.keys.clone(), attempt.nonce.clone(), self.clock.now_ms());
                let noted = seen.note_answers(caller, move |information| {
                    let (issuer, client_id, nonce) = (&issuer, &*client_id, &*nonce);
                    let expected = Expected { issuer, client_id, nonce, algorithm: None };
                    verify_information(information, &keys, &expected, now).ok()
                });
                match asking.request_async::<AnyClaims, _, CoreGenderClaim>(&noted).await {
                    Ok(more) => claims.add(seen.take().unwrap_or_else(|| all_claims(&more))),
                    Err(error) => {
                        let issuer = &connection.issuer;
                        tracing::info!(%issuer, %error, "the user information cannot be had");
                    }
                }
            }
        }
        let of = if connection.issuer.is_entra() { "oid" } else { "sub" };
        let person = claims.person(&connection.issuer).ok_or(TokenRefused::NoSubject(of))?;
        Ok(SignIn { person, claims, algorithm, clock_ms, id_token: Secret::new(&token) })
    }

    async fn prove(
        &self,
        connection: &Connection,
        known: &Known,
        token: &str,
        nonce: &str,
    ) -> Result<Verified, TokenRefused> {
        let Connection { issuer, client_id, algorithm, .. } = connection;
        let expected = Expected { issuer, client_id, nonce, algorithm: *algorithm };
        let now = self.clock.now_ms();
        match verify(token, &known.keys, &expected, now) {
            Err(TokenRefused::UnknownKey) => {}
            other => return other,
        }
        // The provider may have new keys since we asked.
        let Some(keys) = self.newer_keys(issuer, &known.keys).await else {
            return Err(TokenRefused::UnknownKey);
        };
        verify(token, &keys, &expected, now)
    }

    /// Returns the provider's address that ends its own session and then sends the browser to `back`. `None`: the
    /// provider has none, or does not answer.
    pub async fn logout(
        &self,
        connection: &Connection,
        id_token: Option<&Secret>,
        back: &Url,
    ) -> Option<Url> {
        let known = self.known(&connection.issuer).await.ok()?;
        let end = known.metadata.additional_metadata().end_session_endpoint.clone()?;
        if !is_page(&connection.issuer, end.url()) {
            tracing::info!(issuer = %connection.issuer, "its end-session endpoint is no https address");
            return None;
        }
        let mut request = LogoutRequest::from(end)
            .set_client_id(ClientId::new(connection.client_id.clone()))
            .set_post_logout_redirect_uri(PostLogoutRedirectUrl::from_url(back.clone()));
        let hint = id_token.and_then(|token| token.expose().parse().ok());
        if let Some(hint) = &hint {
            let hint: &openidconnect::core::CoreIdToken = hint;
            request = request.set_id_token_hint(hint);
        }
        Some(request.http_get_url())
    }
}

/// Returns whether a browser may be sent to an address of a provider: by https, or by http where the issuer is reached so.
fn is_page(issuer: &Issuer, url: &Url) -> bool {
    match url.scheme() {
        "https" => true,
        "http" => issuer.as_str().starts_with("http://"),
        _ => false,
    }
}

/// Checks whose answer it is (RFC 9207). A provider that announces the parameter must send it; one that does not may.
fn check_issuer(issuer: &Issuer, known: &Known, iss: Option<&str>) -> Result<(), OidcError> {
    let announced =
        known.metadata.additional_metadata().authorization_response_iss_parameter_supported;
    match iss {
        Some(iss) if iss == issuer.as_str() => Ok(()),
        None if !announced => Ok(()),
        Some(iss) => Err(OidcError::OtherIssuer(shown(iss))),
        None => Err(OidcError::OtherIssuer("it does not say which".to_owned())),
    }
}

fn client(connection: &Connection, known: &Known) -> Result<Client, OidcError> {
    let metadata = (*known.metadata).clone();
    let methods = metadata.token_endpoint_auth_methods_supported();
    let takes = |method: CoreClientAuthMethod| {
        // A provider that does not say takes Basic (OpenID Connect Discovery 1.0, section 3).
        methods.map_or(method == CoreClientAuthMethod::ClientSecretBasic, |methods| {
            methods.contains(&method)
        })
    };
    let auth = if takes(CoreClientAuthMethod::ClientSecretBasic) {
        AuthType::BasicAuth
    } else {
        AuthType::RequestBody
    };
    let secret = connection.client_secret.as_ref();
    let secret = secret.map(|secret| ClientSecret::new(secret.expose().to_owned()));
    let id = ClientId::new(connection.client_id.clone());
    let redirect = RedirectUrl::from_url(connection.redirect.clone());
    Ok(Client::from_provider_metadata(metadata, id, secret)
        .set_auth_type(auth)
        .set_redirect_uri(redirect))
}

fn all_claims(claims: &UserInfoClaims<AnyClaims, CoreGenderClaim>) -> Map<String, Value> {
    match serde_json::to_value(claims) {
        Ok(Value::Object(claims)) => {
            claims.into_iter().filter(|(_, value)| !value.is_null()).collect()
        }
        Ok(_) | Err(_) => Map::new(),
    }
}

fn no_token(error: CoreRequestTokenError<HttpError>) -> OidcError {
    match error {
        RequestTokenError::ServerResponse(said) => OidcError::Denied {
            code: shown(said.error().as_ref()),
            words: shown(said.error_description().map_or("", String::as_str)),
        },
        RequestTokenError::Request(error) => OidcError::Unreachable(error.to_string()),
        RequestTokenError::Parse(error, _) => {
            OidcError::Setup(format!("its token answer cannot be read at `{}`", error.path()))
        }
        RequestTokenError::Other(_) => OidcError::Setup("its token answer is empty".to_owned()),
    }
}

/// Returns a provider's words in a form that is safe to show.
fn shown(words: &str) -> String {
    words.chars().filter(|c| !c.is_control()).take(MAX_WORDS_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding security-3, low: a page of ours went wherever the provider's configuration said.
    #[test]
    fn a_browser_is_sent_to_web_pages_alone() {
        let may = |issuer: &str, url: &str| {
            let issuer = Issuer::parse(issuer).expect("an issuer");
            is_page(&issuer, &Url::parse(url).expect("a URL"))
        };
        let (https, http) = ("https://id.example.com", "http://127.0.0.1:9000");
        assert!(may(https, "https://id.example.com/end") && may(http, "http://127.0.0.1:9000/end"));
        for url in ["javascript:alert(1)", "data:text/html,x", "http://id.example.com/end"] {
            assert!(!may(https, url), "{url}");
        }
        assert!(!may(http, "javascript:alert(1)"));
    }
}
