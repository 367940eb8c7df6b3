//! A caller can define a provider of its own as a constant, without touching this crate.

use futures::TryStreamExt as _;
use llm_client::providers::{Model, Provider, Reach, Setup, SetupError, Spoken};
use llm_client::{Auth, Client, Options, Secret};
use llm_protocol::{Dialect, LlmEvent, LlmRequest, Message, Protocol};

/// A complete provider: a protocol with a difference, an address, and a header for its keys.
const ACME: Provider = Provider {
    id: "acme",
    npm: &["@acme/models"],
    url: Some("${ACME_HOST}/rest"),
    speaks: |model: &Model<'_>| {
        let max_tokens_field = Some("max_words".to_owned());
        Spoken {
            dialect: Dialect { max_tokens_field, ..Dialect::default() },
            ..Spoken::chat(model)
        }
    },
    reach: |setup: &Setup<'_>| -> Result<Reach, SetupError> {
        let mut reach = setup.at_its_url()?.with_key_in("x-acme", |key| format!("Acme {key}"));
        reach.endpoint.path = Some("talk/{model}".to_owned());
        Ok(reach)
    },
};

#[tokio::test]
async fn a_provider_of_one_s_own_is_streamed_through() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let app = axum::Router::new().fallback(
        move |uri: axum::http::Uri, headers: axum::http::HeaderMap, body: String| {
            let key = headers["x-acme"].to_str().unwrap().to_owned();
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            tell.send((uri.to_string(), key, body["max_words"].as_u64())).unwrap();
            let answer = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
            std::future::ready(([("content-type", "text/event-stream")], answer))
        },
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("http://{}", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "the test's own server ends with its runtime")]
    tokio::spawn(async move { axum::serve(listener, app).await });
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();

    let env = move |name: &str| (name == "ACME_HOST").then(|| host.clone());
    let auth = Auth::Key(Secret::new("acme-key"));
    let model = Model { id: "big model", ..Model::default() };
    let route = ACME.route(&Setup::new(model, &env, &auth)).unwrap();
    assert_eq!(route.protocol, Protocol::OpenAiChat);
    let mut request = LlmRequest::new("", vec![Message::user("hello")]);
    request.generation.max_tokens = Some(3);
    let llm = Client::new(Options::default()).unwrap().on(route);
    let events: Vec<LlmEvent> = llm.stream(&request).await.unwrap().try_collect().await.unwrap();
    assert!(matches!(events.last(), Some(LlmEvent::Finish { .. })), "{events:?}");
    let expected = ("/rest/talk/big%20model".to_owned(), "Acme acme-key".to_owned(), Some(3));
    assert_eq!(told.recv().await, Some(expected));
}
