//! A credential's secret, and the text in which it is sealed.

use std::collections::BTreeMap;

use domain::TimestampMs;
use llm_client::{AwsAccess, Secret};
use serde_json::{Value, json};
use store::CredentialKind;

use crate::binding::Binding;
use crate::{EnvelopeError, ServiceAccount};

/// The shortest secret that shows a hint.
const MIN_HINTED_CHARS: usize = 16;
const HINT_CHARS: usize = 4;
/// The member of the sealed text that holds the binding.
const BINDING: &str = "boundTo";

/// A credential's secret. Its `Debug` shows none of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Material {
    /// A provider's API key.
    ApiKey(Secret),
    /// An access key of AWS.
    Aws(AwsAccess),
    /// Tokens of a sign-in.
    OAuth(Tokens),
    /// A Google service account's key. Stored and listed as an API key, because anyone who has it can use it.
    ServiceAccount(Box<ServiceAccount>),
}

/// Tokens of a sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// The access token.
    pub access: Secret,
    /// The end of the access token, if the provider gives it.
    pub expires_ms: Option<TimestampMs>,
    /// The refresh token.
    pub refresh: Option<Secret>,
    /// The token that the provider's API takes in place of the access token, if it needs another.
    pub session: Option<SessionToken>,
}

/// A token that an access token was exchanged for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionToken {
    /// The token.
    pub token: Secret,
    /// Its end, if the provider gives it.
    pub expires_ms: Option<TimestampMs>,
}

impl Tokens {
    /// Returns the token to send to the provider's API.
    pub(crate) fn bearer(&self) -> &Secret {
        self.session.as_ref().map_or(&self.access, |session| &session.token)
    }

    /// Returns the end of that token.
    pub(crate) fn bearer_expires_ms(&self) -> Option<TimestampMs> {
        self.session.as_ref().map_or(self.expires_ms, |session| session.expires_ms)
    }
}

impl Material {
    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> CredentialKind {
        match self {
            Self::ApiKey(_) | Self::ServiceAccount(_) => CredentialKind::ApiKey,
            Self::Aws(_) => CredentialKind::Aws,
            Self::OAuth(_) => CredentialKind::OAuth,
        }
    }

    /// Returns the last characters, so that people can tell several apart: of the id for AWS access keys and
    /// service accounts, none for tokens.
    pub(crate) fn hint(&self) -> String {
        let shown = match self {
            Self::ApiKey(key) => key.expose(),
            Self::Aws(access) => &access.access_key,
            Self::ServiceAccount(account) => account.private_key_id.as_deref().unwrap_or_default(),
            Self::OAuth(_) => "",
        };
        let count = shown.chars().count();
        let from = if count < MIN_HINTED_CHARS { count } else { count - HINT_CHARS };
        shown.chars().skip(from).collect()
    }

    /// Returns its own address settings, by the catalog's names.
    pub(crate) fn env(&self) -> BTreeMap<String, String> {
        let said = match self {
            Self::Aws(access) => Some(("AWS_REGION", access.region.clone())),
            Self::ServiceAccount(account) => {
                account.project_id.clone().map(|id| ("GOOGLE_VERTEX_PROJECT", id))
            }
            Self::ApiKey(_) | Self::OAuth(_) => None,
        };
        said.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    pub(crate) fn expires_ms(&self) -> Option<TimestampMs> {
        match self {
            Self::OAuth(tokens) => tokens.bearer_expires_ms(),
            Self::ApiKey(_) | Self::Aws(_) | Self::ServiceAccount(_) => None,
        }
    }

    /// Returns the text to seal, with the binding. Use it for nothing else.
    pub(crate) fn to_bytes(&self, binding: &Binding) -> Vec<u8> {
        let text = |secret: &Secret| secret.expose().to_owned();
        let mut value = match self {
            Self::ApiKey(key) => json!({ "key": text(key) }),
            Self::ServiceAccount(account) => json!({ "serviceAccount": account.to_json() }),
            Self::Aws(access) => json!({
                "accessKeyId": access.access_key,
                "secretAccessKey": text(&access.secret_key),
                "sessionToken": access.session_token.as_ref().map(text),
                "region": access.region,
                "service": access.service,
            }),
            Self::OAuth(tokens) => json!({
                "access": text(&tokens.access),
                "expires": tokens.expires_ms,
                "refresh": tokens.refresh.as_ref().map(text),
                "session": tokens.session.as_ref().map(|session| json!({
                    "token": text(&session.token),
                    "expires": session.expires_ms,
                })),
            }),
        };
        value[BINDING] = binding.to_json();
        value.to_string().into_bytes()
    }

    /// # Errors
    /// [`EnvelopeError::Refused`]: another build sealed it, in a form that this one does not know.
    pub(crate) fn from_bytes(
        kind: CredentialKind,
        bytes: &[u8],
    ) -> Result<(Self, Binding), EnvelopeError> {
        let value: Value = serde_json::from_slice(bytes).map_err(|_| EnvelopeError::Refused)?;
        let secret = |value: &Value| value.as_str().map(Secret::new).ok_or(EnvelopeError::Refused);
        let string =
            |value: &Value| value.as_str().map(str::to_owned).ok_or(EnvelopeError::Refused);
        let binding = Binding::of_json(&value[BINDING]);
        let material = match kind {
            CredentialKind::ApiKey => match value.get("serviceAccount") {
                None => Self::ApiKey(secret(&value["key"])?),
                Some(account) => {
                    let account = ServiceAccount::of_json(account);
                    Self::ServiceAccount(Box::new(account.map_err(|_| EnvelopeError::Refused)?))
                }
            },
            CredentialKind::Aws => Self::Aws(AwsAccess {
                access_key: string(&value["accessKeyId"])?,
                secret_key: secret(&value["secretAccessKey"])?,
                session_token: value["sessionToken"].as_str().map(Secret::new),
                region: string(&value["region"])?,
                service: string(&value["service"])?,
            }),
            CredentialKind::OAuth => Self::OAuth(Tokens {
                access: secret(&value["access"])?,
                expires_ms: value["expires"].as_i64(),
                refresh: value["refresh"].as_str().map(Secret::new),
                session: match value["session"].as_object() {
                    None => None,
                    Some(_) => Some(SessionToken {
                        token: secret(&value["session"]["token"])?,
                        expires_ms: value["session"]["expires"].as_i64(),
                    }),
                },
            }),
        };
        Ok((material, binding))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Material; 4] {
        let tokens = Tokens {
            access: Secret::new("access-token-0123456789"),
            expires_ms: Some(5),
            refresh: Some(Secret::new("refresh-token-0123456789")),
            session: None,
        };
        let session = SessionToken { token: Secret::new("session-token-0123"), expires_ms: None };
        [
            Material::ApiKey(Secret::new("sk-0123456789abcdef")),
            Material::Aws(AwsAccess {
                access_key: "AKIAIOSFODNN7EXAMPLE".into(),
                secret_key: Secret::new("wJalrXUtnFEMI/K7MDENG"),
                session_token: None,
                region: "eu-west-1".into(),
                service: "bedrock".into(),
            }),
            Material::OAuth(tokens.clone()),
            Material::OAuth(Tokens { session: Some(session), refresh: None, ..tokens }),
        ]
    }

    #[test]
    fn what_is_sealed_is_read_back_whole() {
        for material in all() {
            let mut binding = Binding::default();
            binding.destination.origins.insert("https://api.example.com".to_owned());
            let read = Material::from_bytes(material.kind(), &material.to_bytes(&binding));
            assert_eq!(read, Ok((material, binding)));
        }
        assert!(Material::from_bytes(CredentialKind::ApiKey, b"{}").is_err());
        assert!(Material::from_bytes(CredentialKind::OAuth, b"sk-1").is_err());
    }

    #[test]
    fn no_secret_is_shown_and_a_hint_is_four_characters_of_a_long_one() {
        let hints = all().map(|material| {
            let shown = format!("{material:?}");
            for secret in ["0123456789", "wJalr", "-token-"] {
                assert!(!shown.contains(secret), "{shown}");
            }
            material.hint()
        });
        assert_eq!(hints, ["cdef", "MPLE", "", ""]);
        assert_eq!(Material::ApiKey(Secret::new("short-secret")).hint(), "");
    }

    #[test]
    fn the_session_token_is_what_is_sent() {
        let [.., plain, exchanged] = all();
        let bearer = |material: &Material| match material {
            Material::OAuth(tokens) => tokens.bearer().expose().to_owned(),
            Material::ApiKey(_) | Material::Aws(_) | Material::ServiceAccount(_) => String::new(),
        };
        assert_eq!(bearer(&plain), "access-token-0123456789");
        assert_eq!(plain.expires_ms(), Some(5));
        assert_eq!(bearer(&exchanged), "session-token-0123");
        assert_eq!(exchanged.expires_ms(), None);
    }
}
