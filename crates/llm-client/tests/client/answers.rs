//! Successful answers.

use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::{StreamExt, stream};
use llm_client::{Route, Secret};
use llm_protocol::{FinishReason, LlmEvent, LlmRequest, Message, Protocol};

use crate::server::{BODY, END, HELLO, Server, client, collect, events, refuse};

pub(crate) fn hello() -> Vec<LlmEvent> {
    let id = || "text-0".to_owned();
    vec![
        LlmEvent::TextStart { id: id() },
        LlmEvent::TextDelta { id: id(), text: "Hello".to_owned() },
        LlmEvent::TextEnd { id: id(), provider_metadata: None },
        LlmEvent::StepFinish { reason: FinishReason::Stop, usage: None },
        LlmEvent::Finish { reason: FinishReason::Stop, usage: None },
    ]
}

#[tokio::test]
async fn exactly_the_given_bytes_are_sent_once_and_the_answer_is_streamed() {
    let mut server = Server::start(|| {
        let chunks = [HELLO, END].map(|text| Ok::<_, std::io::Error>(Bytes::from(text)));
        events(Body::from_stream(stream::iter(chunks)))
    })
    .await;
    server.endpoint = server
        .endpoint
        .with_api_key(Secret::new("sk-test"))
        .with_header("x-title", Secret::new("cloud"));
    let stream = server.stream(&client()).await.unwrap();
    assert_eq!(collect(stream).await, (hello(), None));
    let seen = server.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].path, "/v1/chat/completions");
    assert_eq!(seen[0].body, BODY);
    let header = |name: &str| seen[0].headers[name].to_str().unwrap();
    assert_eq!(header("authorization"), "Bearer sk-test");
    assert_eq!(header("x-title"), "cloud");
    assert_eq!(header("content-type"), "application/json");
    assert_eq!(header("accept"), "text/event-stream");
    // Finding llm 12: the request explicitly refuses compression.
    assert_eq!(header("accept-encoding"), "identity");
}

#[tokio::test]
async fn events_come_while_the_answer_goes_on() {
    let server = Server::start(|| {
        let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from(HELLO))]);
        events(Body::from_stream(first.chain(stream::pending())))
    })
    .await;
    let mut stream = server.stream(&client()).await.unwrap();
    let mut first = Vec::new();
    for _ in 0..2 {
        first.push(stream.next().await.unwrap().unwrap());
    }
    assert_eq!(first, hello()[..2]);
}

#[tokio::test]
async fn a_finished_answer_leaves_its_connection_for_the_next() {
    let server = Server::start(|| {
        // The end of the body comes later than the end of the answer.
        let chunks = stream::iter([HELLO, END, ""]).then(|text| async move {
            tokio::task::yield_now().await;
            Ok::<_, std::io::Error>(Bytes::from(text))
        });
        events(Body::from_stream(chunks))
    })
    .await;
    let client = client();
    for _ in 0..3 {
        let mut stream = server.stream(&client).await.unwrap();
        // Callers stop at the last event and drop the stream.
        while !matches!(stream.next().await.unwrap().unwrap(), LlmEvent::Finish { .. }) {}
    }
    let peers: std::collections::HashSet<_> = server.seen().iter().map(|seen| seen.peer).collect();
    assert_eq!((server.seen().len(), peers.len()), (3, 1));
}

#[tokio::test]
async fn dropping_the_stream_aborts_the_request() {
    struct OnDrop(Option<tokio::sync::oneshot::Sender<()>>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            let _nobody_waits = self.0.take().map(|sender| sender.send(()));
        }
    }
    let (sender, gone) = tokio::sync::oneshot::channel();
    let sender = std::sync::Arc::new(std::sync::Mutex::new(Some(sender)));
    let server = Server::start(move || {
        let guard = OnDrop(sender.lock().unwrap().take());
        let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from(HELLO))]);
        let forever = first.chain(stream::pending()).map(move |chunk| {
            let _held = &guard;
            chunk
        });
        events(Body::from_stream(forever))
    })
    .await;
    let mut stream = server.stream(&client()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("the server saw it").unwrap();
}

#[tokio::test]
async fn models_are_listed_in_either_form() {
    for body in
        [r#"{"object":"list","data":[{"id":"b"},{"id":"a"}]}"#, r#"[{"id":"b"},{"id":"a"}]"#]
    {
        let server = Server::start(move || refuse(200, &[], body)).await;
        assert_eq!(client().list_models(&server.endpoint).await.unwrap(), ["b", "a"]);
        assert_eq!(server.seen()[0].path, "/v1/models");
    }
}

// Finding conformance FEAT-0009: an answer as one value.
#[tokio::test]
async fn a_whole_answer_is_one_value() {
    const CALL: &str = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"read\",\"arguments\":\"{}\"}}]}}]}\n\n";
    let server = Server::start(|| events(Body::from(format!("{HELLO}{CALL}{END}")))).await;
    let route = Route::new(Protocol::OpenAiChat, "m", server.endpoint.clone());
    let request = LlmRequest::new("m", vec![Message::user("hi")]);
    let answer = client().on(route.clone()).answer(&request).await.unwrap();
    assert_eq!((answer.text().as_str(), answer.reason), ("Hello", FinishReason::ToolCalls));
    assert_eq!(answer.calls().map(|call| &*call.name).collect::<Vec<_>>(), ["read"]);
    assert!(
        serde_json::to_string(&answer).unwrap().starts_with(r#"{"message":{"role":"assistant""#)
    );
    // An incomplete answer is an error.
    let torn = Server::start(|| events(Body::from(HELLO))).await;
    let route = Route::new(Protocol::OpenAiChat, "m", torn.endpoint.clone());
    assert!(client().on(route).answer(&request).await.unwrap_err().is_retryable());
}
