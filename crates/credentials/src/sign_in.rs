//! The sign-ins that people start, from start to end.
//!
//! Nothing runs between a person's requests. In the device flow we poll the provider when someone looks at
//! the sign-in, as often as the provider allows, through any gateway.

use domain::{OrgId, SignInId, TimestampMs};
use llm_client::Secret;
use store::{NewSignIn, SignIn, SignInMethod, SignInStatus};

use crate::credentials::{Credentials, NewSecret, checked_name, checked_provider};
use crate::envelope::Row;
use crate::flow::code::CodeSignIn;
use crate::flow::device::{Asked, DeviceSignIn};
use crate::flow::{FlowError, OAuthClient};
use crate::material::{Material, Tokens};
use crate::settings::redirect;
use crate::{CredentialsError, MAX_REFRESH};

/// The longest time for a sign-in by browser, in milliseconds.
const CODE_LASTS_MS: TimestampMs = 15 * 60 * 1_000;
/// The longest time for a device code, in milliseconds.
const MAX_DEVICE_MS: TimestampMs = 60 * 60 * 1_000;
/// The version of a sign-in's secret, which is never replaced.
const VERSION: i64 = 0;
const MAX_CODE_BYTES: usize = 8 * 1024;

/// A request to start a sign-in.
#[derive(Debug, Clone)]
pub struct NewSignInRequest {
    /// The provider.
    pub provider: String,
    /// The flow.
    pub method: SignInMethod,
    /// The owner of the new credential; empty for the organisation.
    pub owner: String,
    /// The new credential's label. It replaces one with the same label.
    pub label: String,
    /// The address that the browser comes back to; if absent, the one in the settings.
    pub redirect_url: Option<String>,
}

/// The state of a sign-in, and the person's next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignInProgress {
    /// The sign-in's id.
    pub id: String,
    /// The provider.
    pub provider: String,
    /// The flow.
    pub method: SignInMethod,
    /// The state.
    pub state: SignInState,
    /// The time when the provider gives up.
    pub expires_ms: TimestampMs,
}

/// The state of a sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignInState {
    /// It waits for the person.
    Pending(NextStep),
    /// It succeeded and made this credential.
    Complete(String),
    /// It failed for this reason.
    Failed(String),
    /// It was not completed in time.
    Expired,
}

/// The person's next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// Open this address. The browser comes back with a code and a state, which complete the sign-in.
    Open {
        /// The address.
        url: String,
    },
    /// Enter a code at an address.
    Type {
        /// The code.
        user_code: String,
        /// The address.
        url: String,
        /// An address that contains the code.
        complete_url: Option<String>,
        /// The interval between looks, in milliseconds.
        interval_ms: u64,
    },
}

impl Credentials {
    /// Starts a sign-in.
    ///
    /// # Errors
    /// The provider is not set up for the method, does not answer or refuses our client, or too many sign-ins
    /// are open.
    pub async fn begin_sign_in(
        &self,
        org: OrgId,
        request: NewSignInRequest,
    ) -> Result<SignInProgress, CredentialsError> {
        checked_provider(&request.provider)?;
        checked_name("owner", &request.owner, true)?;
        checked_name("label", &request.label, false)?;
        let client = self.setups().client(org, &request.provider).await?;
        let key = self.vault().data_key(org).await?; // before the provider is contacted
        let missing = |missing| CredentialsError::NotConfigured {
            provider: request.provider.clone(),
            missing,
        };
        let now = self.now();
        let (bytes, next, lasts_ms) = match request.method {
            SignInMethod::Code => {
                client
                    .settings
                    .authorize_url
                    .as_ref()
                    .ok_or_else(|| missing("`oauth.authorizeUrl`"))?;
                let back = request.redirect_url.as_ref().or(client.settings.redirect_url.as_ref());
                let back = back.ok_or_else(|| missing("`oauth.redirectUrl`"))?;
                redirect("redirectUrl", back)?;
                let begun = client.begin_code(back).map_err(failed)?;
                (begun.to_bytes(), NextStep::Open { url: begun.url }, CODE_LASTS_MS)
            }
            SignInMethod::Device => {
                client.settings.device_url.as_ref().ok_or_else(|| missing("`oauth.deviceUrl`"))?;
                let begun = client.begin_device().await.map_err(failed)?;
                let lasts = i64::try_from(begun.expires_in().as_millis()).unwrap_or(MAX_DEVICE_MS);
                (begun.to_bytes(), to_type(&begun), lasts.min(MAX_DEVICE_MS))
            }
        };
        let id = String::from(SignInId::mint(&mut self.mint()));
        let sealed = key.seal(&Row { org, id: &id, version: VERSION }, &bytes);
        let NewSignInRequest { provider, method, owner, label, .. } = request;
        let expires_ms = now + lasts_ms;
        let new = NewSignIn {
            id: id.clone(),
            provider: provider.clone(),
            owner,
            label,
            method,
            sealed,
            expires_ms,
        };
        if !self.store().add_sign_in(org, new, now).await? {
            let message = "too many sign-ins wait for their people: remove some";
            return Err(CredentialsError::Full(message.to_owned()));
        }
        Ok(SignInProgress { id, provider, method, state: SignInState::Pending(next), expires_ms })
    }

    /// Returns the state of a sign-in. Polls the provider of a device flow if it is time.
    ///
    /// # Errors
    /// No sign-in has this id, or the store or a secret fails.
    pub async fn sign_in(
        &self,
        org: OrgId,
        id: SignInId,
    ) -> Result<SignInProgress, CredentialsError> {
        let found = self.find_sign_in(org, &id).await?;
        if found.method != SignInMethod::Device
            || found.status != SignInStatus::Pending
            || found.expires_ms <= self.now()
            || !self.store().take_sign_in(org, found.id.clone(), MAX_REFRESH).await?
        {
            return self.progress(org, found).await;
        }
        let this = self.clone();
        // Detached, so that it ends even if the caller leaves: the provider gives its tokens only once.
        tasks::detached(async move { this.ask(org, found).await }).await?;
        let found = self.find_sign_in(org, &id).await?;
        self.progress(org, found).await
    }

    /// Completes a sign-in by code with the data that the browser brought back.
    ///
    /// # Errors
    /// The state belongs to another sign-in, it has already ended, or the provider refuses the code, which
    /// ends it.
    pub async fn complete_sign_in(
        &self,
        org: OrgId,
        id: SignInId,
        code: Secret,
        state: &str,
    ) -> Result<SignInProgress, CredentialsError> {
        let found = self.find_sign_in(org, &id).await?;
        if found.method != SignInMethod::Code {
            let message = "a sign-in by device needs no code: look at it again instead";
            return Err(CredentialsError::Invalid(message.to_owned()));
        }
        match found.status {
            SignInStatus::Complete => return Err(CredentialsError::Ended("it is complete")),
            SignInStatus::Failed => return Err(CredentialsError::Ended("it has failed")),
            SignInStatus::Pending if found.expires_ms <= self.now() => {
                return Err(CredentialsError::Ended("it has expired"));
            }
            SignInStatus::Pending => {}
        }
        if code.expose().is_empty() || code.expose().len() > MAX_CODE_BYTES {
            return Err(CredentialsError::Invalid(format!(
                "a code has 1 to {MAX_CODE_BYTES} bytes"
            )));
        }
        let begun = CodeSignIn::from_bytes(&self.open(org, &found).await?)?;
        if !begun.is_state(state) {
            let message =
                "the state is not this sign-in's: the browser that came back is another's";
            return Err(CredentialsError::Invalid(message.to_owned()));
        }
        if !self.store().take_sign_in(org, found.id.clone(), MAX_REFRESH).await? {
            let message = "the sign-in is being completed already";
            return Err(CredentialsError::Conflict(message.to_owned()));
        }
        let this = self.clone();
        // Detached, so that it ends even if the caller leaves: a code works only once.
        tasks::detached(async move {
            let client = this.setups().client(org, &found.provider).await?;
            let got = client.end_code(begun, &code, this.now()).await;
            this.end(org, &found, &client, got).await
        })
        .await?;
        let found = self.find_sign_in(org, &id).await?;
        self.progress(org, found).await
    }

    /// Deletes a sign-in.
    ///
    /// # Errors
    /// No sign-in has this id.
    pub async fn remove_sign_in(&self, org: OrgId, id: SignInId) -> Result<(), CredentialsError> {
        let removed = self.store().remove_sign_in(org, id.into()).await;
        removed.map_err(CredentialsError::of("a sign-in of this id was"))
    }

    async fn find_sign_in(&self, org: OrgId, id: &SignInId) -> Result<SignIn, CredentialsError> {
        let found = self.store().sign_in(org, id.as_str().to_owned()).await;
        found.map_err(CredentialsError::of("a sign-in of this id was"))
    }

    async fn open(&self, org: OrgId, found: &SignIn) -> Result<Vec<u8>, CredentialsError> {
        self.vault().open(&Row { org, id: &found.id, version: VERSION }, &found.sealed).await
    }

    /// Polls the provider of a device sign-in once.
    async fn ask(&self, org: OrgId, found: SignIn) -> Result<(), CredentialsError> {
        let begun = DeviceSignIn::from_bytes(&self.open(org, &found).await?)?;
        let client = self.setups().client(org, &found.provider).await?;
        match client.ask_device(&begun, self.now()).await {
            Ok(Asked::Later(wait)) => {
                let sealed = if wait > begun.interval() {
                    let bytes = begun.slower(wait)?.to_bytes();
                    let key = self.vault().data_key(org).await?;
                    Some(key.seal(&Row { org, id: &found.id, version: VERSION }, &bytes))
                } else {
                    None
                };
                Ok(self.store().defer_sign_in(org, found.id, wait, sealed).await?)
            }
            Ok(Asked::Done(tokens)) => self.end(org, &found, &client, Ok(tokens)).await,
            Err(error) => match self.end(org, &found, &client, Err(error)).await {
                // The caller sees the failure in the sign-in's state.
                Err(CredentialsError::SignIn(_)) => Ok(()),
                ended => ended,
            },
        }
    }

    /// Ends a sign-in with the provider's answer.
    async fn end(
        &self,
        org: OrgId,
        found: &SignIn,
        client: &OAuthClient,
        got: Result<Tokens, FlowError>,
    ) -> Result<(), CredentialsError> {
        let now = self.now();
        let got = match got {
            Ok(tokens) => client.exchange(tokens, now).await,
            Err(error) => Err(error),
        };
        match got {
            Ok(tokens) => {
                let new = NewSecret {
                    owner: found.owner.clone(),
                    provider: found.provider.clone(),
                    label: found.label.clone(),
                    material: Material::OAuth(tokens),
                };
                self.keep(org, &new, Some((&found.id, &client.settings))).await.map(drop)
            }
            Err(FlowError::Unavailable(why)) => {
                let again = std::time::Duration::ZERO;
                self.store().defer_sign_in(org, found.id.clone(), again, None).await?;
                Err(CredentialsError::Unavailable(why))
            }
            Err(error) => {
                self.store().fail_sign_in(org, found.id.clone(), error.message()).await?;
                Err(failed(error))
            }
        }
    }

    async fn progress(
        &self,
        org: OrgId,
        found: SignIn,
    ) -> Result<SignInProgress, CredentialsError> {
        let state = match found.status {
            SignInStatus::Complete => {
                SignInState::Complete(found.credential.clone().unwrap_or_default())
            }
            SignInStatus::Failed => SignInState::Failed(found.message.clone().unwrap_or_default()),
            SignInStatus::Pending if found.expires_ms <= self.now() => SignInState::Expired,
            SignInStatus::Pending => {
                let bytes = self.open(org, &found).await?;
                SignInState::Pending(match found.method {
                    SignInMethod::Code => {
                        NextStep::Open { url: CodeSignIn::from_bytes(&bytes)?.url }
                    }
                    SignInMethod::Device => to_type(&DeviceSignIn::from_bytes(&bytes)?),
                })
            }
        };
        let SignIn { id, provider, method, expires_ms, .. } = found;
        Ok(SignInProgress { id, provider, method, state, expires_ms })
    }
}

fn to_type(begun: &DeviceSignIn) -> NextStep {
    let (url, complete_url) = begun.verification();
    let interval_ms = u64::try_from(begun.interval().as_millis()).unwrap_or(u64::MAX);
    NextStep::Type { user_code: begun.user_code(), url, complete_url, interval_ms }
}

fn failed(error: FlowError) -> CredentialsError {
    match error {
        FlowError::Unavailable(why) => CredentialsError::Unavailable(why),
        error @ (FlowError::Refused { .. } | FlowError::Unusable(_)) => {
            CredentialsError::SignIn(error.message())
        }
    }
}
