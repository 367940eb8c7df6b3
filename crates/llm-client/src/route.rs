//! A route: the model, its protocol, address and credentials.

use std::time::Duration;

use llm_protocol::{Dialect, Protocol};

use crate::auth::Auth;
use crate::endpoint::Endpoint;

/// Everything that this crate knows of a provider's model: protocol × endpoint × auth × dialect. The protocol
/// determines the framing.
#[derive(Clone, Debug)]
pub struct Route {
    /// The protocol of requests and answers.
    pub protocol: Protocol,
    /// The provider's own name for the model.
    pub model: String,
    /// The address.
    pub endpoint: Endpoint,
    /// The credentials.
    pub auth: Auth,
    /// The differences from the protocol's owner.
    pub dialect: Dialect,
    /// The longest silence before and within an answer. None: the client's own timeouts
    /// ([`Options`](crate::Options)). Reasoning models may be silent for minutes.
    pub silence: Option<Duration>,
}

impl Route {
    /// Makes a route to `model` in the plain protocol, with the endpoint's own key if it has one.
    #[must_use]
    pub fn new(protocol: Protocol, model: impl Into<String>, endpoint: Endpoint) -> Self {
        let (auth, dialect) = (Auth::None, Dialect::default());
        Self { protocol, model: model.into(), endpoint, auth, dialect, silence: None }
    }

    /// Sets credentials in place of the endpoint's key.
    #[must_use]
    pub fn with_auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// Sets the longest silence.
    #[must_use]
    pub fn with_silence(mut self, silence: Option<Duration>) -> Self {
        self.silence = silence;
        self
    }

    /// Sets the dialect.
    #[must_use]
    pub fn with_dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }
}
