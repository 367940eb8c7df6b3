//! As whom a request goes to its provider: with the credential that the organisation keeps for it, else with what the
//! process has. One that is kept and cannot be used is an error: another key would be another account's.

use credentials::{CredentialKind, CredentialsError, Found, OTHER_HOST};
use llm_client::{Auth, Client, LlmError, Route};
use llm_protocol::{ErrorReason, ProviderError, truncate};
use session_rules::TurnPlan;
use store::StoreError;
use tracing::warn;

use super::OrgModels;

/// Where a request goes, and as whom. Made for one request: it is not known for how long a credential is good.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) route: Route,
    pub(crate) as_whom: AsWhom,
    /// In place of the runtime's: for addresses that the operator has chosen.
    pub(crate) client: Option<Client>,
}

/// As whom a request is made, for who is told that the provider refused it.
#[derive(Debug)]
pub(crate) struct AsWhom {
    provider: String,
    whose: Whose,
}

/// Whose credential a request carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    /// The organisation's, by its id.
    Kept { id: String, kind: CredentialKind },
    /// The process's, or what a provider's settings hold.
    Process,
    /// Nobody's.
    Nobody,
}

/// Why there is no way. Nothing was sent.
#[derive(Debug)]
pub(crate) enum Blocked {
    /// Somebody has to set something up.
    Refused(LlmError),
    /// The database failed.
    Store(StoreError),
}

impl OrgModels {
    /// The way of a request that was decided on, as of now. One round trip.
    ///
    /// # Errors
    /// A setting is missing, or the organisation's credential cannot be used: both say what to do.
    pub(crate) async fn way(&self, plan: &TurnPlan) -> Result<Way, Blocked> {
        let provider = &plan.model.provider;
        let kept = match &self.kept {
            // API keys have no users yet: a session's turns are the organisation's.
            Some((credentials, org)) => credentials.auth(*org, None, provider).await,
            None => Ok(None),
        };
        let kept = kept.map_err(|error| unusable(provider, error))?;
        let (route, whose) = self.route(plan, kept.as_ref()).map_err(Blocked::Refused)?;
        let as_whom = AsWhom { provider: provider.clone(), whose };
        if self.is_configured(plan) {
            return Ok(Way { route, as_whom, client: self.configured_client() });
        }
        // Here, and not only where it is sent: a refusal is no failure of the network, which would be tried again.
        if let Some((credentials, _)) = &self.kept {
            let refused = |why: String| LlmError::unsent(ErrorReason::InvalidRequest, &why);
            credentials
                .check_destination(provider, &catalog::route_urls(&route))
                .map_err(|why| Blocked::Refused(refused(why)))?;
        }
        if let Some(kept) = &kept {
            self.check_binding(provider, kept, &route).map_err(Blocked::Refused)?;
        }
        Ok(Way { route, as_whom, client: None })
    }
}

impl OrgModels {
    /// A kept secret goes only to the hosts that it was entered for.
    fn check_binding(&self, provider: &str, kept: &Found, route: &Route) -> Result<(), LlmError> {
        if matches!(route.auth, Auth::SigV4(_)) {
            return Ok(()); // a signature is good for one request to one host, and the secret is not sent
        }
        let allowed =
            kept.binding.allows(&catalog::route_origins(route), !self.redirects(provider));
        allowed.map_err(|other| {
            warn!(provider, credential = kept.id, %other, "a credential is for another host");
            let again = match kept.kind {
                CredentialKind::OAuth => format!("sign in again (POST /platform/oauth/{provider})"),
                CredentialKind::ApiKey | CredentialKind::Aws => {
                    format!("enter it again (PATCH /platform/credential/{})", kept.id)
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
    /// The error of its request: where the credential was the reason, with whose it was and what to do.
    pub(crate) fn told(&self, mut error: LlmError) -> LlmError {
        if error.reason != ErrorReason::Authentication {
            return error;
        }
        let provider = &self.provider;
        let advice = match &self.whose {
            Whose::Kept { id, kind: CredentialKind::OAuth } => format!(
                "it was the organisation's sign-in {id}: sign in again (POST /platform/oauth/{provider})"
            ),
            Whose::Kept { id, kind: CredentialKind::ApiKey | CredentialKind::Aws } => format!(
                "it was the organisation's credential {id}: put another in its place (PATCH /platform/credential/{id})"
            ),
            Whose::Process => format!(
                "it was the key of the service or of the provider's settings: a credential for `{provider}` goes before it (POST /platform/credential)"
            ),
            Whose::Nobody => format!(
                "no credential is kept for `{provider}`: add one (POST /platform/credential)"
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

/// A credential that is kept and cannot be used.
fn unusable(provider: &str, error: CredentialsError) -> Blocked {
    if let CredentialsError::Store(error) = error {
        return Blocked::Store(error);
    }
    warn!(provider, %error, "an organisation's credential cannot be used");
    let message = if matches!(error, CredentialsError::Unreadable { .. }) {
        error.to_string() // which credential it is, and what to do
    } else if matches!(error, CredentialsError::NoSecretsKey) {
        format!(
            "the organisation's credential for `{provider}` cannot be opened: this worker was started without the secrets key; start it with the --secrets-key of the gateways"
        )
    } else {
        format!("the organisation's credential for `{provider}` cannot be used: {error}")
    };
    Blocked::Refused(LlmError::unsent(ErrorReason::Authentication, &message))
}

/// A provider that would refuse a request of nobody. `name`: the variable that its key is read from, if it is read.
pub(super) fn keyless(provider: &str, name: Option<&str>) -> LlmError {
    let or = name.map(|name| format!(", or start the service with {name}")).unwrap_or_default();
    let message = format!(
        "`{provider}` needs a key, and there is none: keep one for the organisation (POST /platform/credential){or}; `opencode-cloud models` lists what can be used"
    );
    LlmError::unsent(ErrorReason::Authentication, &message)
}

/// Whose it is, where it is not the organisation's.
pub(super) fn whose(route: &Route) -> Whose {
    let nothing = matches!(route.auth, Auth::None) && route.endpoint.api_key.is_none();
    if nothing { Whose::Nobody } else { Whose::Process }
}
