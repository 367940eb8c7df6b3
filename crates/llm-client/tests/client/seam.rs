//! A simulated transport in place of the network.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode};
use futures::{StreamExt, stream};
use llm_client::{
    Client, Endpoint, Options, ProviderTransport, Route, TransportError, WireRequest, WireResponse,
};
use llm_protocol::{Delivery, ErrorReason, FinishReason, LlmEvent, Protocol};

use crate::answers::hello;
use crate::server::{BODY, END, HELLO, Server, client, collect, events};

/// Answers each request with the next script.
struct Scripted {
    scripts: Mutex<Vec<Vec<Result<Bytes, TransportError>>>>,
    sent: Mutex<Vec<WireRequest>>,
    /// Bodies do not end after their chunks.
    stays_open: bool,
}

#[async_trait::async_trait]
impl ProviderTransport for Scripted {
    async fn send(&self, request: WireRequest) -> Result<WireResponse, TransportError> {
        self.sent.lock().unwrap().push(request);
        let Some(script) = self.scripts.lock().unwrap().pop() else {
            let message = "no script is left".to_owned();
            return Err(TransportError { delivery: Delivery::NotSent, message });
        };
        let body = stream::iter(script);
        let body =
            if self.stays_open { body.chain(stream::pending()).boxed() } else { body.boxed() };
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
        stays_open: false,
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

/// Returns the events of an answer in one piece, and how long they took.
async fn hear(protocol: Protocol, body: String, stays_open: bool) -> (Vec<LlmEvent>, Duration) {
    let transport = Arc::new(Scripted {
        scripts: Mutex::new(vec![vec![Ok(Bytes::from(body))]]),
        sent: Mutex::default(),
        stays_open,
    });
    let client = Client::with_transport(transport, Options::default());
    let llm = client.on(Route::new(protocol, "m", Endpoint::new("http://simulated")));
    let begun = Instant::now();
    let (came, error) = collect(llm.send(Bytes::from_static(BODY)).await.unwrap()).await;
    assert_eq!(error, None, "{protocol:?}");
    (came, begun.elapsed())
}

// Finding reports 7: a whole answer whose server neither said so nor hung up kept its turn busy for minutes.
#[tokio::test]
async fn an_answer_that_has_stopped_ends_without_its_server() {
    let chat = format!("{HELLO}{}", END.split("data: [DONE]").next().unwrap());
    let counted = format!(
        "{HELLO}data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":1}}}}\n\n: ping\n\n"
    );
    let anthropic = concat!(
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n",
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}\n\n",
    );
    let gemini = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hello\"}]},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":5,\"candidatesTokenCount\":1}}\n\n";
    let answers = [
        (Protocol::OpenAiChat, chat),
        (Protocol::OpenAiChat, counted),
        (Protocol::AnthropicMessages, anthropic.to_owned()),
        (Protocol::Gemini, gemini.to_owned()),
    ];
    let heard = answers.into_iter().map(|(protocol, body)| async move {
        let (open, took) = hear(protocol, body.clone(), true).await;
        assert!(took < Duration::from_secs(20), "{protocol:?} {took:?}");
        // A close at the same place is whole too.
        let (closed, took) = hear(protocol, body, false).await;
        assert!(took < Duration::from_secs(2), "{protocol:?} {took:?}");
        assert_eq!(open, closed);
        let Some(LlmEvent::Finish { reason, usage }) = open.last() else { panic!("{open:?}") };
        assert_eq!((*reason, usage.is_some()), (FinishReason::Stop, true), "{protocol:?}");
    });
    futures::future::join_all(heard).await;
}

#[tokio::test]
async fn a_server_that_says_stop_with_each_piece_is_waited_for() {
    let piece = |text: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":\"stop\"}}]}}\n\n"
        )
    };
    let late = move |text: &str, after: u64| {
        let text = piece(text);
        async move {
            tokio::time::sleep(Duration::from_secs(after)).await;
            Ok::<_, std::io::Error>(Bytes::from(text))
        }
    };
    let server = Server::start(move || {
        let pieces = stream::iter([late("a", 0), late("b", 0), late("c", 6)]).then(|piece| piece);
        events(Body::from_stream(pieces))
    })
    .await;
    let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
    assert_eq!(error, None);
    let text = came.iter().filter_map(|event| {
        if let LlmEvent::TextDelta { text, .. } = event { Some(text.as_str()) } else { None }
    });
    assert_eq!(text.collect::<String>(), "abc");
}
