//! The device flow (RFC 8628): a person enters a code on the provider's page, and we poll until they have.

use std::time::Duration;

use domain::TimestampMs;
use futures::future::{Either, select};
use llm_client::Secret;
use oauth2::{Scope, StandardDeviceAuthorizationResponse};
use tokio::sync::oneshot;

use super::http::caller;
use super::{FlowError, OAuthClient, tokens};
use crate::EnvelopeError;
use crate::material::Tokens;

/// The state of a sign-in by device.
pub(crate) struct DeviceSignIn(StandardDeviceAuthorizationResponse);

/// The provider's answer about a device code.
pub(crate) enum Asked {
    /// The person has finished.
    Done(Tokens),
    /// Not yet: poll again after this time, not sooner.
    Later(Duration),
}

impl DeviceSignIn {
    /// Returns the bytes to seal.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).expect("a device authorization response is JSON")
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        serde_json::from_slice(bytes).map(Self).map_err(|_| EnvelopeError::Refused)
    }

    /// Returns the code that the person enters.
    pub(crate) fn user_code(&self) -> String {
        self.0.user_code().secret().clone()
    }

    /// Returns the page's address, and an address that already contains the code, if there is one.
    pub(crate) fn verification(&self) -> (String, Option<String>) {
        let complete = self.0.verification_uri_complete().map(|uri| uri.secret().clone());
        (self.0.verification_uri().to_string(), complete)
    }

    pub(crate) fn expires_in(&self) -> Duration {
        self.0.expires_in()
    }

    /// Returns the wait before each poll.
    pub(crate) fn interval(&self) -> Duration {
        self.0.interval()
    }

    /// Returns a copy with a longer interval: after `slow_down`, the provider wants it for all later polls.
    pub(crate) fn slower(&self, interval: Duration) -> Result<Self, EnvelopeError> {
        let mut value = serde_json::to_value(&self.0).map_err(|_| EnvelopeError::Refused)?;
        value["interval"] = interval.as_secs().into();
        serde_json::from_value(value).map(Self).map_err(|_| EnvelopeError::Refused)
    }
}

impl OAuthClient {
    /// Gets a device code for a person.
    pub(crate) async fn begin_device(&self) -> Result<DeviceSignIn, FlowError> {
        let client = self.inner(None)?;
        let http = caller(self.transport.clone());
        let asking = client
            .exchange_device_code()
            .map_err(|_| FlowError::Unusable("`oauth.deviceUrl` is missing".to_owned()))?;
        let asking = asking.add_scopes(self.settings.scopes.iter().cloned().map(Scope::new));
        let answer = asking.request_async(&http).await;
        answer.map(DeviceSignIn).map_err(|error| self.error(error, &[]))
    }

    /// Polls once. If the provider does not answer, returns the next wait.
    pub(crate) async fn ask_device(
        &self,
        sign_in: &DeviceSignIn,
        now: TimestampMs,
    ) -> Result<Asked, FlowError> {
        let client = self.inner(None)?;
        let http = caller(self.transport.clone());
        // The crate polls and sleeps in a loop. Its first sleep ends the loop here, because rows decide which
        // process polls next.
        let (tell, told) = oneshot::channel();
        let tell = std::sync::Mutex::new(Some(tell));
        let sleep = |wait: Duration| {
            if let Some(tell) = tell.lock().ok().and_then(|mut tell| tell.take()) {
                // The receiver is below.
                let _ = tell.send(wait);
            }
            std::future::pending::<()>()
        };
        let asking =
            client.exchange_device_access_token(&sign_in.0).request_async(&http, sleep, None);
        match select(asking, told).await {
            Either::Left((Ok(answer), _)) => Ok(Asked::Done(tokens(&answer, now))),
            Either::Left((Err(error), _)) => {
                let code = Secret::new(sign_in.0.device_code().secret());
                Err(self.error(error, &[&code]))
            }
            Either::Right((wait, _)) => Ok(Asked::Later(wait.unwrap_or(sign_in.interval()))),
        }
    }
}
