//! Which model is spoken to, in which protocol, where and as whom.

use std::time::Duration;

use llm_protocol::{Dialect, Protocol};

use crate::auth::Auth;
use crate::endpoint::Endpoint;

/// All that a provider is to this crate: protocol × endpoint × auth; the framing is the protocol's.
#[derive(Clone, Debug)]
pub struct Route {
    /// How requests and answers are written.
    pub protocol: Protocol,
    /// The provider's own name for the model.
    pub model: String,
    /// Where it is.
    pub endpoint: Endpoint,
    /// How it knows us.
    pub auth: Auth,
    /// What it does otherwise than the protocol's owner.
    pub dialect: Dialect,
    /// How long it may say nothing, before its answer and within. None: the client's own times
    /// ([`Options`](crate::Options)). Models that reason may be silent for minutes.
    pub silence: Option<Duration>,
}

impl Route {
    /// A route to `model` in the protocol as its owner speaks it, with the endpoint's own key if it has one.
    #[must_use]
    pub fn new(protocol: Protocol, model: impl Into<String>, endpoint: Endpoint) -> Self {
        let (auth, dialect) = (Auth::None, Dialect::default());
        Self { protocol, model: model.into(), endpoint, auth, dialect, silence: None }
    }

    /// With other credentials than the endpoint's key.
    #[must_use]
    pub fn with_auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// With another time for which it may say nothing.
    #[must_use]
    pub fn with_silence(mut self, silence: Option<Duration>) -> Self {
        self.silence = silence;
        self
    }

    /// With what differs from the protocol.
    #[must_use]
    pub fn with_dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }
}
