//! A simulated transport in place of the network.

use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use futures::{StreamExt, stream};
use llm_client::{
    Client, Endpoint, Options, ProviderTransport, Route, TransportError, WireRequest, WireResponse,
};
use llm_protocol::{Delivery, ErrorReason, Protocol};

use crate::answers::hello;
use crate::server::{BODY, END, HELLO, collect};

/// Answers each request with the next script.
struct Scripted {
    scripts: Mutex<Vec<Vec<Result<Bytes, TransportError>>>>,
    sent: Mutex<Vec<WireRequest>>,
}

#[async_trait::async_trait]
impl ProviderTransport for Scripted {
    async fn send(&self, request: WireRequest) -> Result<WireResponse, TransportError> {
        self.sent.lock().unwrap().push(request);
        let Some(script) = self.scripts.lock().unwrap().pop() else {
            let message = "no script is left".to_owned();
            return Err(TransportError { delivery: Delivery::NotSent, message });
        };
        let body = stream::iter(script).boxed();
        Ok(WireResponse { status: StatusCode::OK, headers: HeaderMap::new(), body })
    }
}

#[tokio::test]
async fn a_simulation_stands_in_for_the_network() {
    let lost = || TransportError { delivery: Delivery::Accepted, message: "reset".to_owned() };
    let chunks = |texts: &[&'static str]| -> Vec<Result<Bytes, TransportError>> {
        texts.iter().map(|text| Ok(Bytes::from(*text))).collect()
    };
    let mut cut = chunks(&[HELLO]);
    cut.push(Err(lost()));
    let mut cut_after_the_end = chunks(&[HELLO, END.split("data: [DONE]").next().unwrap()]);
    cut_after_the_end.push(Err(lost()));
    let transport = Arc::new(Scripted {
        scripts: Mutex::new(vec![cut_after_the_end, cut, chunks(&[HELLO, END])]),
        sent: Mutex::default(),
    });
    let client = Client::with_transport(transport.clone(), Options::default());
    let endpoint = Endpoint::new("http://simulated");
    let llm = client.on(Route::new(Protocol::OpenAiChat, "m", endpoint));
    let stream = || llm.send(Bytes::from_static(BODY));

    assert_eq!(collect(stream().await.unwrap()).await, (hello(), None));
    let (came, error) = collect(stream().await.unwrap()).await;
    assert_eq!(came, hello()[..2]);
    assert_eq!(error.unwrap().reason, ErrorReason::Transport { delivery: Delivery::Accepted });
    // A connection that breaks after a whole answer loses only the usage.
    let (came, error) = collect(stream().await.unwrap()).await;
    assert_eq!((&came[..3], error), (&hello()[..3], None));
    let error = stream().await.unwrap_err();
    assert_eq!(error.delivery, Delivery::NotSent);
    let sent = transport.sent.lock().unwrap();
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|request| request.body == BODY));
}
