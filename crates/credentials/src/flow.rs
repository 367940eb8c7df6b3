//! The OAuth flows, over the `oauth2` crate, which follows RFC 6749, 7636 and 8628.

pub(crate) mod code;
pub(crate) mod device;
mod http;
pub(crate) mod session;

use std::sync::Arc;
use std::time::Duration;

use domain::TimestampMs;
use llm_client::{ProviderTransport, Secret};
use oauth2::basic::{BasicClient, BasicTokenResponse};
use oauth2::{
    AuthType, AuthUrl, ClientId, ClientSecret, DeviceAuthorizationUrl, EndpointMaybeSet,
    EndpointNotSet, EndpointSet, ErrorResponse, RedirectUrl, RefreshToken, RequestTokenError,
    TokenResponse, TokenUrl,
};

pub(crate) use self::http::send;
use self::http::{HttpError, caller};
use crate::material::Tokens;
use crate::settings::{ClientAuth, OAuthSettings};

/// The timeout of one request. A refresh makes at most two, and must end within its lease.
pub(crate) const HTTP_TIMEOUT: Duration = Duration::from_secs(10);
/// The most characters of a provider's message that are shown.
const MAX_WORDS_CHARS: usize = 300;
/// The shortest text that is redacted. A shorter one would match ordinary words.
const MIN_REDACTED_BYTES: usize = 8;

/// The transport of OAuth requests.
pub(crate) type Transport = Arc<dyn ProviderTransport>;

/// The reason why a provider's OAuth server gave no tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FlowError {
    /// It refused: its code (`invalid_grant`) and its message, without our secrets.
    Refused { code: String, words: String },
    /// It did not answer, or reported a temporary failure.
    Unavailable(String),
    /// Its answer is not OAuth, or the settings contain invalid addresses.
    Unusable(String),
}

impl FlowError {
    /// Returns whether the grant itself is over, so that only a new sign-in helps.
    pub(crate) fn ends_the_grant(&self) -> bool {
        // `bad_refresh_token` is GitHub's name for `invalid_grant`.
        matches!(self, Self::Refused { code, .. }
            if matches!(code.as_str(), "invalid_grant" | "bad_refresh_token"))
    }

    /// Returns the message for people.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Refused { code, words } if words.is_empty() => {
                format!("the provider says `{code}`")
            }
            Self::Refused { code, words } => format!("the provider says `{code}`: {words}"),
            Self::Unavailable(why) | Self::Unusable(why) => why.clone(),
        }
    }
}

/// An organisation's OAuth client at a provider.
pub(crate) struct OAuthClient {
    pub(crate) settings: OAuthSettings,
    pub(crate) secret: Option<Secret>,
    pub(crate) transport: Transport,
}

type Inner =
    BasicClient<EndpointMaybeSet, EndpointMaybeSet, EndpointNotSet, EndpointNotSet, EndpointSet>;

impl OAuthClient {
    fn inner(&self, redirect: Option<&str>) -> Result<Inner, FlowError> {
        fn url<T>(
            text: Option<&str>,
            parse: impl Fn(String) -> Result<T, url::ParseError>,
        ) -> Result<Option<T>, FlowError> {
            let parsed = text.map(|text| parse(text.to_owned())).transpose();
            parsed.map_err(|_| FlowError::Unusable("a URL of the settings is none".to_owned()))
        }
        let settings = &self.settings;
        let missing = || FlowError::Unusable("`oauth.tokenUrl` is missing".to_owned());
        let token = url(Some(&settings.token_url), TokenUrl::new)?.ok_or_else(missing)?;
        let mut client = BasicClient::new(ClientId::new(settings.client_id.clone()))
            .set_auth_type(match settings.client_auth {
                ClientAuth::Basic => AuthType::BasicAuth,
                ClientAuth::Post => AuthType::RequestBody,
            })
            .set_auth_uri_option(url(settings.authorize_url.as_deref(), AuthUrl::new)?)
            .set_device_authorization_url_option(url(
                settings.device_url.as_deref(),
                DeviceAuthorizationUrl::new,
            )?)
            .set_token_uri(token);
        if let Some(secret) = &self.secret {
            client = client.set_client_secret(ClientSecret::new(secret.expose().to_owned()));
        }
        if let Some(redirect) = url(redirect, RedirectUrl::new)? {
            client = client.set_redirect_uri(redirect);
        }
        Ok(client)
    }

    /// Gets the next access token for a refresh token. If the provider sends no new refresh token, the old
    /// one stays.
    pub(crate) async fn refresh(
        &self,
        refresh: &Secret,
        now: TimestampMs,
    ) -> Result<Tokens, FlowError> {
        let client = self.inner(None)?;
        let http = caller(self.transport.clone());
        let token = RefreshToken::new(refresh.expose().to_owned());
        let answer = client.exchange_refresh_token(&token).request_async(&http).await;
        let answer = answer.map_err(|error| self.error(error, &[refresh]))?;
        let tokens = tokens(&answer, now);
        Ok(Tokens { refresh: tokens.refresh.or_else(|| Some(refresh.clone())), ..tokens })
    }

    /// Converts the crate's error, without the parts of the answer that it may contain: those have tokens.
    fn error<T>(&self, error: RequestTokenError<HttpError, T>, secrets: &[&Secret]) -> FlowError
    where
        T: ErrorResponse + 'static,
    {
        match error {
            RequestTokenError::ServerResponse(said) => {
                // By the standard, every error response is `{error, error_description?}`.
                let said = serde_json::to_value(&said).unwrap_or_default();
                let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
                self.refusal(&text("error"), &text("error_description"), secrets)
            }
            RequestTokenError::Request(error) => FlowError::Unavailable(error.to_string()),
            RequestTokenError::Parse(..) => {
                FlowError::Unusable("the provider's answer is not OAuth's".to_owned())
            }
            RequestTokenError::Other(_) => {
                FlowError::Unusable("the provider's answer is empty, or a URL is none".to_owned())
            }
        }
    }

    fn refusal(&self, code: &str, words: &str, secrets: &[&Secret]) -> FlowError {
        refusal(code, words, secrets.iter().copied().chain(&self.secret).map(Secret::expose))
    }
}

/// Makes the error for a provider's refusal, without these secrets.
pub(crate) fn refusal<'a>(
    code: &str,
    words: &str,
    secrets: impl IntoIterator<Item = &'a str>,
) -> FlowError {
    let words = secrets
        .into_iter()
        .filter(|secret| secret.len() >= MIN_REDACTED_BYTES)
        .fold(words.to_owned(), |words, secret| words.replace(secret, "[redacted]"));
    FlowError::Refused { code: shown(code), words: shown(&words) }
}

/// Returns a provider's message in a form that is safe to show.
fn shown(words: &str) -> String {
    words.chars().filter(|c| !c.is_control()).take(MAX_WORDS_CHARS).collect()
}

fn tokens(answer: &BasicTokenResponse, now: TimestampMs) -> Tokens {
    let lasts =
        |time: Duration| now.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    Tokens {
        access: Secret::new(answer.access_token().secret()),
        expires_ms: answer.expires_in().map(lasts),
        refresh: answer.refresh_token().map(|token| Secret::new(token.secret())),
        session: None,
    }
}
