//! The models that a server offers.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use llm_protocol::{Delivery, ErrorReason, Protocol};
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde::Deserialize;

use crate::auth::Auth;
use crate::client::{Client, now_unix_ms, redacted, refusal};
use crate::endpoint::Endpoint;
use crate::error::LlmError;
use crate::transport::WireRequest;

/// The longest time that [`Client::list_models`] takes, because a user waits for it.
pub const LIST_MODELS_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest list that is read, in bytes; OpenRouter's is about 0.5 MiB.
const MAX_LIST_BYTES: usize = 8 * 1024 * 1024;

/// A list of models. OpenAI wraps it in an object, Together does not.
#[derive(Deserialize)]
#[serde(untagged)]
enum ModelList {
    Wrapped { data: Vec<Model> },
    Bare(Vec<Model>),
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

impl Client {
    /// Returns the ids of the models that the server lists, in its order (`GET {base}/models`).
    ///
    /// # Errors
    /// The server does not answer within [`LIST_MODELS_TIMEOUT`], refuses, or its answer is not a list of
    /// models.
    pub async fn list_models(&self, endpoint: &Endpoint) -> Result<Vec<String>, LlmError> {
        let fetched =
            tokio::time::timeout(LIST_MODELS_TIMEOUT, Box::pin(self.fetch_models(endpoint)));
        let Ok(models) = fetched.await else {
            let waited = format!("no list of models within {LIST_MODELS_TIMEOUT:?}");
            return Err(LlmError::transport(Delivery::Ambiguous, &waited));
        };
        models
    }

    async fn fetch_models(&self, endpoint: &Endpoint) -> Result<Vec<String>, LlmError> {
        let (url, headers, body) = (endpoint.url("models")?, HeaderMap::new(), Bytes::new());
        let mut request = WireRequest { method: Method::GET, url, headers, body };
        let (auth, protocol, now) = (Auth::None, Protocol::OpenAiChat, now_unix_ms());
        let sent = auth.apply(self, protocol, endpoint, &mut request, now).await?;
        let redactor = &sent.redactor;
        let sent = self.transport.send(request).await;
        let mut response = sent.map_err(|error| redacted(redactor, error.into()))?;
        if !response.status.is_success() {
            return Err(refusal(redactor, response).await);
        }
        let invalid = |message: &str| {
            let reason = ErrorReason::InvalidOutput { incomplete_stream: false };
            redacted(redactor, LlmError::accepted(reason, message))
        };
        let mut bytes = Vec::new();
        while let Some(chunk) = response.body.next().await {
            let chunk = chunk.map_err(|error| redacted(redactor, error.into()))?;
            if bytes.len() + chunk.len() > MAX_LIST_BYTES {
                return Err(invalid(&format!("the list of models exceeds {MAX_LIST_BYTES} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        let models = match serde_json::from_slice(&bytes) {
            Ok(ModelList::Wrapped { data }) => data,
            Ok(ModelList::Bare(models)) => models,
            Err(_) => return Err(invalid("its list of models is not in OpenAI's form")),
        };
        Ok(models.into_iter().map(|model| model.id).collect())
    }
}
