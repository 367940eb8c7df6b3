//! Google's service accounts: a key pair whose signature gets access tokens. Nothing rotates, so each process
//! gets its own tokens.
//!
//! Sources: <https://developers.google.com/identity/protocols/oauth2/service-account#httprest>, RFC 7523.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::{Clock, TimestampMs};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use llm_client::{LlmError, Secret, TokenSource, WireRequest};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use url::Url;

use crate::CredentialsError;
use crate::flow::{FlowError, Transport, refusal, send};
use crate::source::{MARGIN_MS, of};

/// The scope: all of Google Cloud's APIs. The account's roles limit it there.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// The longest lifetime that Google accepts, in seconds.
const LASTS_SECONDS: i64 = 3_600;
/// The assumed lifetime of a token without a stated one, in seconds.
const ASSUMED_SECONDS: i64 = 300;

/// A service account's key, as Google's console writes it. Its `Debug` shows no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    /// The account.
    pub client_email: String,
    /// The account's project.
    pub project_id: Option<String>,
    /// The id of the key.
    pub private_key_id: Option<String>,
    /// The address that gives tokens.
    pub token_uri: String,
    /// The key: PKCS #8, in PEM.
    private_key: Secret,
}

impl ServiceAccount {
    /// Reads a key file from Google's console.
    ///
    /// # Errors
    /// [`CredentialsError::Invalid`], which names the member but does not repeat it.
    pub fn read(file: &Value) -> Result<Self, CredentialsError> {
        let account = Self::of_json(file)?;
        account.key()?;
        Ok(account)
    }

    /// Reads a key file without parsing the key.
    pub(crate) fn of_json(file: &Value) -> Result<Self, CredentialsError> {
        let optional = |name: &str| file[name].as_str().map(str::to_owned);
        let missing = |name: &str| {
            let message = format!("`{name}` is missing in the service account's key");
            CredentialsError::Invalid(message)
        };
        let text = |name: &str| optional(name).ok_or_else(|| missing(name));
        if file["type"] != "service_account" {
            let message = "a service account's key is JSON with the `type` `service_account`";
            return Err(CredentialsError::Invalid(message.to_owned()));
        }
        Ok(Self {
            client_email: text("client_email")?,
            project_id: optional("project_id"),
            private_key_id: optional("private_key_id"),
            token_uri: text("token_uri")?,
            private_key: Secret::new(&text("private_key")?),
        })
    }

    /// Returns the key file's JSON, for the row.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "type": "service_account",
            "client_email": self.client_email,
            "project_id": self.project_id,
            "private_key_id": self.private_key_id,
            "token_uri": self.token_uri,
            "private_key": self.private_key.expose(),
        })
    }

    fn key(&self) -> Result<KeyPair, CredentialsError> {
        let unusable = || {
            let message = "`private_key` of the service account is no RSA key in PEM";
            CredentialsError::Invalid(message.to_owned())
        };
        let pem = self.private_key.expose().as_bytes();
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|_| unusable())?;
        KeyPair::from_pkcs8(der.secret_pkcs8_der()).map_err(|_| unusable())
    }

    /// Returns a signed request for a token, valid for an hour from `now`.
    fn assertion(&self, now: TimestampMs) -> Result<String, CredentialsError> {
        let issued = now.div_euclid(1_000);
        let mut header = json!({ "alg": "RS256", "typ": "JWT" });
        if let Some(id) = &self.private_key_id {
            header["kid"] = json!(id);
        }
        let claims = json!({
            "iss": self.client_email,
            "scope": SCOPE,
            "aud": self.token_uri,
            "iat": issued,
            "exp": issued + LASTS_SECONDS,
        });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let key = self.key()?;
        let mut signature = vec![0; key.public_modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .expect("a key that was read signs");
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// The access tokens of one version of a service account's key. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AccountSource {
    shared: Arc<Shared>,
}

struct Shared {
    version: i64,
    account: ServiceAccount,
    transport: Transport,
    clock: Arc<dyn Clock>,
    held: Mutex<Option<Held>>,
    /// Lets one task of this process fetch at a time. Holds the last failure and its time on the monotonic
    /// clock.
    turn: tokio::sync::Mutex<Option<(Duration, LlmError)>>,
}

struct Held {
    token: Secret,
    expires_ms: TimestampMs,
}

impl AccountSource {
    pub(crate) fn new(
        version: i64,
        account: ServiceAccount,
        transport: Transport,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (held, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { shared: Arc::new(Shared { version, account, transport, clock, held, turn }) }
    }

    /// Returns the version of the credential that it uses.
    pub(crate) fn version(&self) -> i64 {
        self.shared.version
    }

    /// Returns whether anyone except the caller holds it.
    pub(crate) fn is_used(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        // No foreign code runs under this lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn usable(&self) -> Option<Secret> {
        let now = self.clock.now_ms();
        let held = self.held();
        held.as_ref()
            .filter(|held| held.expires_ms - now > MARGIN_MS)
            .map(|held| held.token.clone())
    }

    async fn ask(&self) -> Result<Held, FlowError> {
        let unusable = |what: &str| FlowError::Unusable(what.to_owned());
        let now = self.clock.now_ms();
        let assertion =
            self.account.assertion(now).map_err(|error| unusable(&error.to_string()))?;
        let url = Url::parse(&self.account.token_uri)
            .map_err(|_| unusable("`token_uri` of the service account is no address"))?;
        let headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")),
            (ACCEPT, HeaderValue::from_static("application/json")),
        ]);
        let form = [("grant_type", GRANT), ("assertion", assertion.as_str())];
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = WireRequest { method: Method::POST, url, headers, body: body.into() };
        let (status, body) = send(&self.transport, request)
            .await
            .map_err(|error| FlowError::Unavailable(error.to_string()))?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |name: &str| body[name].as_str().unwrap_or_default();
        if !status.is_success() {
            let code = match text("error") {
                "" => status.as_str(),
                code => code,
            };
            return Err(refusal(code, text("error_description"), [assertion.as_str()]));
        }
        if text("access_token").is_empty() {
            return Err(unusable("the token endpoint of the service account gave no access token"));
        }
        let lasts = body["expires_in"].as_i64().unwrap_or(ASSUMED_SECONDS);
        let expires_ms = now.saturating_add(lasts.saturating_mul(1_000));
        Ok(Held { token: Secret::new(text("access_token")), expires_ms })
    }
}

#[async_trait::async_trait]
impl TokenSource for AccountSource {
    async fn token(&self) -> Result<Secret, LlmError> {
        let shared = &self.shared;
        if let Some(token) = shared.usable() {
            return Ok(token);
        }
        let arrived = shared.clock.monotonic();
        let mut failed = shared.turn.lock().await;
        if let Some(token) = shared.usable() {
            return Ok(token);
        }
        // A task that waited during a fetch takes its failure; fetching again would double the wait.
        if let Some((_, error)) = failed.as_ref().filter(|(at, _)| *at > arrived) {
            return Err(error.clone());
        }
        match shared.ask().await {
            Ok(held) => {
                let token = held.token.clone();
                *shared.held() = Some(held);
                Ok(token)
            }
            Err(error) => {
                let error = of(&error);
                *failed = Some((shared.clock.monotonic(), error.clone()));
                Err(error)
            }
        }
    }

    fn refused(&self, token: &Secret) {
        let mut held = self.shared.held();
        if held.as_ref().is_some_and(|held| held.token == *token) {
            *held = None;
        }
    }
}

impl fmt::Debug for AccountSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountSource")
            .field("account", &self.shared.account.client_email)
            .finish_non_exhaustive()
    }
}
