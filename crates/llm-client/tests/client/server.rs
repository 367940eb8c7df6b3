//! A tiny model server that each test scripts.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Request};
use axum::response::Response;
use futures::StreamExt;
use llm_client::{Client, Endpoint, LlmError, LlmStream, Options, Route};
use llm_protocol::{LlmEvent, Protocol};

pub(crate) const BODY: &[u8] = b"{\"model\": \"m\",  \"odd\":1.0}";
pub(crate) const HELLO: &str = r#"data: {"choices":[{"delta":{"content":"Hello"}}]}

"#;
pub(crate) const END: &str = r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}

data: [DONE]

"#;

/// One request as the server saw it.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) peer: SocketAddr,
}

pub(crate) struct Server {
    pub(crate) endpoint: Endpoint,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// Starts a server that answers every request with `answer`.
    pub(crate) async fn start<F>(answer: F) -> Self
    where
        F: Fn() -> Response + Clone + Send + Sync + 'static,
    {
        Self::start_slow(Duration::ZERO, answer).await
    }

    /// Starts a server that answers after `delay`.
    pub(crate) async fn start_slow<F>(delay: Duration, answer: F) -> Self
    where
        F: Fn() -> Response + Clone + Send + Sync + 'static,
    {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let handler = move |ConnectInfo(peer): ConnectInfo<SocketAddr>, request: Request<Body>| {
            let (answer, log) = (answer.clone(), Arc::clone(&log));
            async move {
                let (parts, body) = request.into_parts();
                let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
                let (path, headers) = (parts.uri.to_string(), parts.headers);
                log.lock().unwrap().push(Seen { path, headers, body, peer });
                tokio::time::sleep(delay).await;
                answer()
            }
        };
        let app = Router::new().fallback(handler);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::new(format!("http://{}", listener.local_addr().unwrap()));
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        spawn(async move { axum::serve(listener, service).await.unwrap() });
        Self { endpoint, seen }
    }

    /// Returns all requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) async fn stream(&self, client: &Client) -> Result<LlmStream, LlmError> {
        let route = Route::new(Protocol::OpenAiChat, "m", self.endpoint.clone());
        client.on(route).send(Bytes::from_static(BODY)).await
    }
}

#[expect(clippy::disallowed_methods, reason = "a test's server ends with its runtime")]
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

pub(crate) fn client() -> Client {
    Client::new(Options::default()).unwrap()
}

/// Makes an event-stream answer with this body.
pub(crate) fn events(body: Body) -> Response {
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

pub(crate) fn refuse(status: u16, headers: &[(&str, &str)], body: &'static str) -> Response {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Body::from(body)).unwrap()
}

/// Returns the events, and the error that ended them.
pub(crate) async fn collect(mut stream: LlmStream) -> (Vec<LlmEvent>, Option<LlmError>) {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(stream.next().await.is_none(), "nothing follows an error");
                return (events, Some(error));
            }
        }
    }
    (events, None)
}
