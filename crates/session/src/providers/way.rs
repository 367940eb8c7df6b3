//! Chooses the credential of a request to its provider: the organisation's own, otherwise the process's. A stored
//! credential that cannot be used is an error, because another key would belong to another account.

use credentials::{CredentialKind, CredentialsError, Found, OTHER_HOST};
use llm_client::{Auth, Client, LlmError, Route};
use llm_protocol::{ErrorReason, ProviderError, truncate};
use session_rules::TurnPlan;
use store::StoreError;
use tracing::warn;

use super::OrgModels;

/// The route and the credential of one request. Not reusable: nobody knows how long the credential is valid.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) route: Route,
    pub(crate) as_whom: AsWhom,
    /// The client to use instead of the runtime's, for addresses that the operator has chosen.
    pub(crate) client: Option<Client>,
}

/// The origin of a request's credential, for the error message if the provider refuses it.
#[derive(Debug)]
pub(crate) struct AsWhom {
    provider: String,
    whose: Whose,
}

/// The owner of a request's credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    /// The organisation, with the credential's id.
    Kept { id: String, kind: CredentialKind },
    /// The process, or a provider's settings.
    Process,
    /// Nobody.
    Nobody,
}

/// The reason why there is no way. Nothing was sent.
#[derive(Debug)]
pub(crate) enum Blocked {
    /// Somebody has to set something up.
    Refused(LlmError),
    /// The database failed.
    Store(StoreError),
}

impl OrgModels {
    /// Returns the current way of a planned request. Takes one or two round trips.
    ///
    /// # Errors
    /// When a setting is missing, or the organisation's credential cannot be used. Both say what to do.
    pub(crate) async fn way(&self, plan: &TurnPlan) -> Result<Way, Blocked> {
        let provider = &plan.model.provider;
        let kept = match &self.kept {
            // API keys have no users yet, so a session's turns are the organisation's.
            Some((credentials, org)) => credentials.auth(*org, None, provider).await,
            None => Ok(None),
        };
        let kept = kept.map_err(|error| unusable("credential", provider, error))?;
        // Settings do not affect the requests to a provider that was configured by hand.
        let opened = if self.is_configured(plan) { None } else { self.opened(provider).await? };
        let route = self.route(plan, kept.as_ref(), opened.as_ref());
        let (route, whose) = route.map_err(Blocked::Refused)?;
        let as_whom = AsWhom { provider: provider.clone(), whose };
        if self.is_configured(plan) {
            return Ok(Way { route, as_whom, client: self.configured_client() });
        }
        // Checked here as well as at sending: a refusal must not count as a network error, which would be retried.
        if let Some((credentials, _)) = &self.kept {
            let refused = |why: String| LlmError::unsent(ErrorReason::InvalidRequest, &why);
            credentials
                .check_destination(provider, &catalog::route_urls(&route))
                .map_err(|why| Blocked::Refused(refused(why)))?;
        }
        if let Some(kept) = &kept {
            self.check_binding(provider, kept, &route).map_err(Blocked::Refused)?;
        }
        if let Some(opened) = &opened {
            self.check_hidden(provider, opened, &route).map_err(Blocked::Refused)?;
        }
        Ok(Way { route, as_whom, client: None })
    }
}

impl OrgModels {
    /// Refuses to send a stored secret to hosts that it was not entered for.
    fn check_binding(&self, provider: &str, kept: &Found, route: &Route) -> Result<(), LlmError> {
        if matches!(route.auth, Auth::SigV4(_)) {
            return Ok(()); // a signature is valid for one request to one host, and the secret is not sent
        }
        let allowed =
            kept.binding.allows(&catalog::route_origins(route), !self.redirects(provider));
        allowed.map_err(|other| {
            warn!(provider, credential = kept.id, %other, "a credential is for another host");
            let again = match kept.kind {
                CredentialKind::OAuth => {
                    format!("sign in again (opencode-cloud credential login {provider})")
                }
                CredentialKind::ApiKey | CredentialKind::Aws => {
                    format!("enter it again (`opencode-cloud credential add {provider}`, or /connect in the released client)")
                }
            };
            let message = format!(
                "the organisation's credential {} for `{provider}` is not sent ({OTHER_HOST}): {other}; if \
                 that is right, {again}",
                kept.id
            );
            LlmError::unsent(ErrorReason::Authentication, &message)
        })
    }
}

impl AsWhom {
    /// Returns the error of its request. If the credential was refused, it says whose it was and what to do.
    pub(crate) fn told(&self, mut error: LlmError) -> LlmError {
        if error.reason != ErrorReason::Authentication {
            return error;
        }
        let provider = &self.provider;
        let advice = match &self.whose {
            Whose::Kept { id, kind: CredentialKind::OAuth } => format!(
                "it was the organisation's sign-in {id}: sign in again (opencode-cloud credential login {provider})"
            ),
            Whose::Kept { id, kind: CredentialKind::ApiKey | CredentialKind::Aws } => format!(
                "it was the organisation's credential {id}: add another (`opencode-cloud credential add {provider}`, or /connect in the released client)"
            ),
            Whose::Process => format!(
                "it was the key of the service or of the provider's settings: a credential for `{provider}` goes before it (`opencode-cloud credential add {provider}`, or /connect in the released client)"
            ),
            Whose::Nobody => format!(
                "no credential is kept for `{provider}`: add one (`opencode-cloud credential add {provider}`, or /connect in the released client)"
            ),
        };
        let said = truncate(
            &error.provider_message,
            ProviderError::MAX_MESSAGE_BYTES.saturating_sub(advice.len() + 2),
        );
        error.provider_message = if said.is_empty() { advice } else { format!("{said}; {advice}") };
        error
    }
}

/// Returns the error for a stored secret that cannot be used: a `credential`, or `hidden settings`.
pub(super) fn unusable(secret: &str, provider: &str, error: CredentialsError) -> Blocked {
    if let CredentialsError::Store(error) = error {
        return Blocked::Store(error);
    }
    warn!(provider, %error, "an organisation's {secret} cannot be used");
    let message = if matches!(error, CredentialsError::Unreadable { .. }) {
        error.to_string() // names the credential, and says what to do
    } else if matches!(error, CredentialsError::NoSecretsKey) {
        format!(
            "the organisation's {secret} for `{provider}` cannot be opened: this worker was started without the secrets key; start it with the --secrets-key of the gateways"
        )
    } else {
        format!("the organisation's {secret} for `{provider}` cannot be used: {error}")
    };
    Blocked::Refused(LlmError::unsent(ErrorReason::Authentication, &message))
}

/// Returns the error of a provider that refuses requests without a key. `name` is the variable of its key, if that is
/// read.
pub(super) fn keyless(provider: &str, name: Option<&str>) -> LlmError {
    let or = name.map(|name| format!(", or start the service with {name}")).unwrap_or_default();
    let message = format!(
        "`{provider}` needs a key, and there is none: keep one for the organisation (`opencode-cloud credential add {provider}`, or /connect in the released client){or}; `opencode-cloud models` lists what can be used"
    );
    LlmError::unsent(ErrorReason::Authentication, &message)
}

/// Returns the owner of a credential that is not the organisation's.
pub(super) fn whose(route: &Route) -> Whose {
    let nothing = matches!(route.auth, Auth::None) && route.endpoint.api_key.is_none();
    if nothing { Whose::Nobody } else { Whose::Process }
}
