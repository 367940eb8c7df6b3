//! The device flow (RFC 8628): a person types a code in at the provider's page, and we ask until they have.

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

/// What a sign-in by device needs until its end.
pub(crate) struct DeviceSignIn(StandardDeviceAuthorizationResponse);

/// What the provider says of a device code.
pub(crate) enum Asked {
    /// Its person is done.
    Done(Tokens),
    /// Not yet: ask again after this, not sooner.
    Later(Duration),
}

impl DeviceSignIn {
    /// What is sealed.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).expect("a device authorization response is JSON")
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        serde_json::from_slice(bytes).map(Self).map_err(|_| EnvelopeError::Refused)
    }

    /// What the person types in.
    pub(crate) fn user_code(&self) -> String {
        self.0.user_code().secret().clone()
    }

    /// Where, and an address that has the code in it, if there is one.
    pub(crate) fn verification(&self) -> (String, Option<String>) {
        let complete = self.0.verification_uri_complete().map(|uri| uri.secret().clone());
        (self.0.verification_uri().to_string(), complete)
    }

    pub(crate) fn expires_in(&self) -> Duration {
        self.0.expires_in()
    }

    /// How long to wait before each question.
    pub(crate) fn interval(&self) -> Duration {
        self.0.interval()
    }

    /// The same with a longer interval: a provider that says `slow_down` means it for all questions to come.
    pub(crate) fn slower(&self, interval: Duration) -> Result<Self, EnvelopeError> {
        let mut value = serde_json::to_value(&self.0).map_err(|_| EnvelopeError::Refused)?;
        value["interval"] = interval.as_secs().into();
        serde_json::from_value(value).map(Self).map_err(|_| EnvelopeError::Refused)
    }
}

impl OAuthClient {
    /// A code for a person.
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

    /// Asks once. A provider that does not answer is asked later.
    pub(crate) async fn ask_device(
        &self,
        sign_in: &DeviceSignIn,
        now: TimestampMs,
    ) -> Result<Asked, FlowError> {
        let client = self.inner(None)?;
        let http = caller(self.transport.clone());
        // The crate asks again and again, and sleeps between: its first sleep ends it here, since who asks next, and
        // where, is decided by rows.
        let (tell, told) = oneshot::channel();
        let tell = std::sync::Mutex::new(Some(tell));
        let sleep = |wait: Duration| {
            if let Some(tell) = tell.lock().ok().and_then(|mut tell| tell.take()) {
                // Who waits for it is below.
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
