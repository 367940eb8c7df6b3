//! The providers and models that the tests call.

use futures::TryStreamExt as _;
use llm_client::providers::{self, Model, Setup};
use llm_client::{Auth, Client, Llm, LlmError, Options, Secret};
use llm_protocol::{LlmEvent, LlmRequest, Message, Protocol};
use serde_json::Value;

use crate::npm::{Served, serve};

/// The only key that the server accepts, in any provider's header.
const KEY: &str = "key-of-tests";

pub(crate) async fn server() -> Served {
    // Another test of the process may have installed it already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    serve("aimock", "@copilotkit/aimock", "server.mjs").await
}

/// One way to call the server: a provider's route, with its own paths at the server's address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) provider: &'static str,
    pub(crate) model: &'static str,
    shape: Option<&'static str>,
    path: &'static str,
}

const fn way(provider: &'static str, model: &'static str, path: &'static str) -> Way {
    Way { provider, model, shape: None, path }
}

/// Every protocol, with providers whose addresses the server knows.
pub(crate) const WAYS: [Way; 8] = [
    Way { shape: Some("completions"), ..way("openai", "gpt-5", "/v1") },
    way("openai", "gpt-5", "/v1"),
    way("anthropic", "claude-sonnet-4-5", "/v1"),
    way("google", "gemini-2.5-pro", "/v1beta"),
    way("amazon-bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", ""),
    way("azure", "gpt-5", "/openai/v1"),
    way(
        "google-vertex",
        "gemini-2.5-pro",
        "/v1/projects/p/locations/europe-west4/publishers/google",
    ),
    way("openrouter", "anthropic/claude-sonnet-4.5", "/api/v1"),
];

impl Way {
    pub(crate) fn to(self, served: &Served) -> Llm {
        self.with(served, KEY)
    }

    pub(crate) fn with(self, served: &Served, key: &str) -> Llm {
        let (auth, none) = (Auth::Key(Secret::new(key)), |_: &str| None);
        let model =
            Model { id: self.model, shape: self.shape, reasoning: true, ..Model::default() };
        let base_url = format!("{}{}", served.url, self.path);
        let setup = Setup { base_url: Some(&base_url), ..Setup::new(model, &none, &auth) };
        let route = providers::of(self.provider).unwrap().route(&setup).unwrap();
        Client::new(Options::default()).unwrap().on(route)
    }

    pub(crate) fn protocol(self, served: &Served) -> Protocol {
        self.to(served).route().protocol
    }
}

pub(crate) fn asks(text: &str) -> LlmRequest {
    LlmRequest::new("", vec![Message::user(text)])
}

pub(crate) async fn answer(llm: &Llm, request: &LlmRequest) -> Result<Vec<LlmEvent>, LlmError> {
    llm.stream(request).await?.try_collect().await
}

/// Returns the text of an answer, without its reasoning.
pub(crate) fn text(events: &[LlmEvent]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        LlmEvent::TextDelta { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

pub(crate) fn reasoning(events: &[LlmEvent]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        LlmEvent::ReasoningDelta { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Returns the request that the server says it saw.
pub(crate) fn seen(events: &[LlmEvent]) -> Value {
    let text = text(events);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
