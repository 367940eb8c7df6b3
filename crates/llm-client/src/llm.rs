//! The entry point: a request in, the events of its answer out.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use llm_protocol::LlmRequest;

use crate::client::Client;
use crate::error::LlmError;
use crate::route::Route;
use crate::stream::LlmStream;

/// A model at the end of a route. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Llm {
    client: Client,
    route: Arc<Route>,
}

impl Client {
    /// Returns the model at the end of `route`.
    #[must_use]
    pub fn on(&self, route: Route) -> Llm {
        Llm { client: self.clone(), route: Arc::new(route) }
    }
}

impl Llm {
    /// Returns the route.
    #[must_use]
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Returns the exact body that [`Llm::stream`] sends. A request without a model is for the route's.
    #[must_use]
    pub fn encode(&self, request: &LlmRequest) -> Bytes {
        let mut request = Cow::Borrowed(request);
        if request.model.is_empty() {
            request.to_mut().model.clone_from(&self.route.model);
        }
        let mut body = self.route.protocol.encode_for(&request, &self.route.dialect);
        body.shrink_to_fit(); // frees the spare capacity: the body may wait for long, beside many others
        body.into()
    }

    /// Encodes the request, sends it once, and returns the answer's stream as soon as a successful answer
    /// begins. Dropping the future or the stream aborts the request.
    ///
    /// # Errors
    /// Those of [`Llm::send`].
    pub async fn stream(&self, request: &LlmRequest) -> Result<LlmStream, LlmError> {
        let model = if request.model.is_empty() { &self.route.model } else { &request.model };
        self.client.exchange(&self.route, model, self.encode(request)).await
    }

    /// Sends exactly `body`, which [`Llm::encode`] wrote, now or earlier.
    ///
    /// # Errors
    /// No answer came in time, or its status is not a success. The error says how far the request got, so the
    /// caller knows whether it may be charged. Nothing is retried here.
    pub async fn send(&self, body: Bytes) -> Result<LlmStream, LlmError> {
        self.client.exchange(&self.route, &self.route.model, body).await
    }
}
