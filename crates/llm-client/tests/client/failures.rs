//! Failures and their errors.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use futures::{StreamExt, stream};
use llm_client::retry::Schedule;
use llm_client::{Client, Endpoint, LlmError, Options, Route, Secret};
use llm_protocol::{Delivery, ErrorReason, FinishReason, LlmEvent, Protocol};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::answers::hello;
use crate::server::{BODY, END, HELLO, Server, client, collect, events, refuse, spawn};

const TRUNCATED: ErrorReason = ErrorReason::InvalidOutput { incomplete_stream: true };

fn lost(delivery: Delivery) -> ErrorReason {
    ErrorReason::Transport { delivery }
}

async fn refused(status: u16, headers: &'static [(&str, &str)], body: &'static str) -> LlmError {
    let server = Server::start(move || refuse(status, headers, body)).await;
    let error = server.stream(&client()).await.unwrap_err();
    assert_eq!(server.seen().len(), 1, "nothing is retried or followed");
    error
}

#[tokio::test]
async fn a_rate_limit_tells_its_wait() {
    let body = r#"{"error":{"message":"Slow down.","type":"requests"}}"#;
    let error = refused(429, &[("retry-after", "7"), ("x-request-id", "req_1")], body).await;
    assert_eq!(
        error,
        LlmError {
            reason: ErrorReason::RateLimit { retry_after_ms: Some(7000) },
            delivery: Delivery::Accepted,
            status: Some(429),
            provider_message: "Slow down.".to_owned(),
            request_id: Some("req_1".to_owned()),
            advice: None,
            host: None,
        }
    );
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    let text = error.to_string();
    assert!(
        text.contains("try again in 7 s") && text.contains("(status 429: Slow down.)"),
        "{text}"
    );
    let date = &[
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT"),
    ];
    assert_eq!(refused(429, date, "").await.retry_after(), Some(Duration::from_mins(1)));
    let millis = &[("retry-after", "1"), ("retry-after-ms", "120")];
    assert_eq!(refused(503, millis, "").await.retry_after(), Some(Duration::from_millis(120)));
}

#[tokio::test]
async fn a_providers_word_on_another_try_is_above_what_its_status_says() {
    let schedule = Schedule { base: Duration::from_secs(2), ..Schedule::default() };
    let delay = |error: &LlmError, failed| error.next_delay(&schedule, failed, 500);
    let two = Duration::from_secs(2);

    let error = refused(429, &[("x-should-retry", "false"), ("retry-after", "7")], "").await;
    assert_eq!(error.reason, ErrorReason::RateLimit { retry_after_ms: Some(7000) });
    assert_eq!((error.is_retryable(), delay(&error, 1)), (false, None));
    assert_eq!(delay(&refused(500, &[("x-should-retry", "false")], "").await, 1), None);

    let error = refused(400, &[("x-should-retry", "true")], "").await;
    assert!(!error.reason.is_retryable() && error.is_retryable(), "{error:?}");
    assert_eq!((delay(&error, 1), delay(&error, 4)), (Some(two), Some(two * 8)));
    assert_eq!(delay(&error, 5), None, "within the same budget");
    let waits = &[("x-should-retry", "true"), ("retry-after", "30")];
    assert_eq!(delay(&refused(400, waits, "").await, 1), Some(Duration::from_secs(30)));
    let days = &[("x-should-retry", "true"), ("retry-after", "86400")];
    assert_eq!(delay(&refused(400, days, "").await, 1), None, "nobody waits for a day");

    // Other values have no effect.
    let error = refused(500, &[("x-should-retry", "maybe")], "").await;
    assert_eq!((error.advice, delay(&error, 1)), (None, Some(two)));
    assert_eq!(delay(&refused(400, &[], "").await, 1), None);
}

#[tokio::test]
async fn a_refused_key_is_told_without_the_key() {
    let body = r#"{"error":{"message":"Incorrect API key provided: sk-secret-1.","code":"invalid_api_key"}}"#;
    let mut server = Server::start(move || refuse(401, &[], body)).await;
    server.endpoint = server.endpoint.with_api_key(Secret::new("sk-secret-1"));
    let error = server.stream(&client()).await.unwrap_err();
    assert_eq!(error.reason, ErrorReason::Authentication);
    assert_eq!(error.provider_message, "Incorrect API key provided: [redacted].");
    assert!(!error.reason.is_retryable());
    let error = client().list_models(&server.endpoint).await.unwrap_err();
    assert_eq!((error.reason, error.status), (ErrorReason::Authentication, Some(401)));
}

#[tokio::test]
async fn server_errors_and_redirects_are_one_request_each() {
    let error = refused(500, &[], "oops").await;
    assert_eq!(error.reason, ErrorReason::ProviderInternal { retry_after_ms: None });
    assert_eq!(error.provider_message, "oops");
    let error = refused(308, &[("location", "https://elsewhere/v1")], "").await;
    assert_eq!(error.reason, ErrorReason::InvalidRequest);
    assert!(error.provider_message.contains("redirects to https://elsewhere/v1"), "{error}");
}

#[tokio::test]
async fn a_success_that_is_no_stream_is_an_error() {
    let json = &[("content-type", "application/json; charset=utf-8")];
    let error = refused(200, json, r#"{"error":{"message":"no credit","code":402}}"#).await;
    assert_eq!((error.reason, error.provider_message.as_str()), (ErrorReason::Quota, "no credit"));
    let error = refused(200, &[("content-type", "text/html")], "<html>").await;
    assert_eq!(error.reason, ErrorReason::InvalidOutput { incomplete_stream: false });
}

/// Returns the text and the calls' names of an answer, and how it ended.
async fn read_answer(
    kind: &'static str,
    body: &'static str,
) -> (String, Vec<String>, Option<LlmError>) {
    let server = Server::start(move || refuse(200, &[("content-type", kind)], body)).await;
    let (events, error) = collect(server.stream(&client()).await.unwrap()).await;
    let (mut text, mut calls) = (String::new(), Vec::new());
    for event in events {
        if let LlmEvent::TextDelta { text: more, .. } = event {
            text += &more;
        } else if let LlmEvent::ToolCall(call) = event {
            calls.push(call.name);
        }
    }
    (text, calls, error)
}

// The public report big-AGI#681: servers that cannot stream send a whole answer, and nothing of it was shown.
#[tokio::test]
async fn a_whole_answer_in_place_of_a_stream_is_read() {
    let text = r#"{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"whole"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    let spread = "\n{\r\n \"choices\": [\n{\"message\": {\"content\": \"whole\"},\n \"finish_reason\": \"stop\"}]\n}\n";
    let calls = r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"read","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"glob","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    let stream = "data: {\"choices\":[{\"delta\":{\"content\":\"whole\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    for body in [text, spread, stream] {
        for kind in ["application/json", "application/json; charset=utf-8", "text/html"] {
            assert_eq!(
                read_answer(kind, body).await,
                ("whole".to_owned(), vec![], None),
                "{kind} {body}"
            );
        }
    }
    let called = read_answer("application/json", calls).await;
    assert_eq!(called, (String::new(), vec!["read".to_owned(), "glob".to_owned()], None));
    for body in ["{}", "[]", "", "hello there", r#"{"choices":[]}"#, r#"{"choices":[{"#] {
        let error = refused(200, &[("content-type", "application/json")], body).await;
        let expected = ErrorReason::InvalidOutput { incomplete_stream: false };
        assert_eq!(error.reason, expected, "{body}");
    }
}

// Seen beside next report 30: chat had this, Anthropic's protocol did not.
#[tokio::test]
async fn a_whole_message_in_place_of_a_stream_is_read() {
    let body = "\n{\"id\":\"msg_1\",\"type\":\"message\",\r\n\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"s\"},{\"type\":\"text\",\n\"text\":\"whole\"},{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"read\",\"input\":{\"n\": 1.0}}],\"stop_reason\":\"tool_use\",\"usage\":{\"input_tokens\":3,\"output_tokens\":2}}";
    let json = &[("content-type", "application/json")];
    let server = Server::start(move || refuse(200, json, body)).await;
    let route = Route::new(Protocol::AnthropicMessages, "m", server.endpoint.clone());
    let answer = client().on(route.clone()).send(Bytes::from_static(BODY)).await.unwrap();
    let answer = answer.collected().await.unwrap();
    assert_eq!((answer.text().as_str(), answer.reason), ("whole", FinishReason::ToolCalls));
    let calls: Vec<_> = answer.calls().map(|call| (&*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [("read", r#"{"n": 1.0}"#)]);
    assert_eq!(answer.usage.map(|usage| (usage.input_tokens, usage.output_tokens)), Some((3, 2)));
    let refused = r#"{"type":"error","error":{"type":"overloaded_error","message":"Busy"}}"#;
    let server = Server::start(move || refuse(200, json, refused)).await;
    let route = Route { endpoint: server.endpoint.clone(), ..route };
    let error = client().on(route).send(Bytes::from_static(BODY)).await.unwrap_err();
    assert_eq!(error.reason, ErrorReason::ProviderInternal { retry_after_ms: None });
}

// Finding next report 28: a wrong address was not named.
#[tokio::test]
async fn an_address_that_is_not_there_is_named() {
    let error = refused(404, &[], "Not Found").await;
    let address = "Not Found; asked at http://127.0.0.1:";
    assert!(error.provider_message.starts_with(address), "{error}");
    assert!(error.provider_message.ends_with("/v1/chat/completions"), "{error}");
    assert_eq!(refused(400, &[], "No").await.provider_message, "No");
}

#[tokio::test]
async fn a_huge_error_body_is_cut() {
    let error = refused(500, &[], Box::leak("x".repeat(1 << 20).into_boxed_str())).await;
    assert_eq!(error.provider_message.len(), 2048);
}

#[tokio::test]
async fn a_refused_connection_was_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::new(format!("http://{}", listener.local_addr().unwrap()));
    drop(listener);
    let body = Bytes::from_static(BODY);
    let error =
        client().on(Route::new(Protocol::OpenAiChat, "m", endpoint)).send(body).await.unwrap_err();
    assert_eq!(error.reason, lost(Delivery::NotSent));
    assert_eq!((error.delivery, error.status), (Delivery::NotSent, None));
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(error.to_string().contains("check the base URL"), "{error}");
}

// A newcomer read that "the model provider" cannot be reached, five times, and no host.
#[tokio::test]
async fn a_network_failure_names_the_host_and_nothing_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap();
    drop(listener);
    let endpoint = Endpoint::new(format!("http://{host}/hidden-path?key=hidden-key"));
    let body = Bytes::from_static(BODY);
    let error =
        client().on(Route::new(Protocol::OpenAiChat, "m", endpoint)).send(body).await.unwrap_err();
    let told = error.to_string();
    assert!(told.starts_with(&format!("{host} cannot be reached: ")), "{told}");
    assert!(error.event().message.starts_with(&host.to_string()), "{told}");
    for unwanted in ["hidden", "model provider", "error sending request", "client error"] {
        assert!(!told.contains(unwanted), "{told}");
    }
}

#[tokio::test]
async fn what_cannot_be_addressed_was_not_sent() {
    let body = Bytes::from_static(BODY);
    let endpoint = Endpoint::new("localhost:11434");
    let error =
        client().on(Route::new(Protocol::OpenAiChat, "m", endpoint)).send(body).await.unwrap_err();
    assert_eq!((error.reason, error.delivery), (ErrorReason::InvalidRequest, Delivery::NotSent));
}

#[tokio::test]
async fn a_connection_that_is_closed_after_the_request_is_ambiguous_and_not_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::new(format!("http://{}", listener.local_addr().unwrap()));
    let (count, mut counted) = tokio::sync::mpsc::unbounded_channel();
    spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let read = socket.read(&mut buffer).await.unwrap();
            count.send(read).unwrap();
        }
    });
    let body = Bytes::from_static(BODY);
    let error =
        client().on(Route::new(Protocol::OpenAiChat, "m", endpoint)).send(body).await.unwrap_err();
    assert_eq!(error.reason, lost(Delivery::Ambiguous));
    assert!(counted.recv().await.unwrap() > 0);
    assert!(counted.try_recv().is_err(), "one request");
}

#[tokio::test]
async fn a_slow_first_byte_is_ambiguous() {
    let server = Server::start_slow(Duration::from_secs(60), || events(Body::from(END))).await;
    let first_byte_timeout = Duration::from_millis(100);
    let client = Client::new(Options { first_byte_timeout, ..Options::default() }).unwrap();
    let start = Instant::now();
    let error = server.stream(&client).await.unwrap_err();
    assert_eq!(error.reason, lost(Delivery::Ambiguous));
    assert_eq!(error.provider_message, "no answer within 100ms");
    assert!(start.elapsed() < Duration::from_secs(50));
}

#[tokio::test]
async fn a_body_that_is_cut_gives_what_came_and_then_the_error() {
    let cut = Arc::new(Notify::new());
    let cut_here = Arc::clone(&cut);
    let server = Server::start(move || {
        let cut = Arc::clone(&cut_here);
        let broken = stream::once(async move {
            cut.notified().await;
            Err(std::io::Error::from(ErrorKind::BrokenPipe))
        });
        let first = stream::iter([Ok(Bytes::from(HELLO))]);
        events(Body::from_stream(first.chain(broken)))
    })
    .await;
    let mut stream = server.stream(&client()).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), hello()[0]);
    cut.notify_one();
    let (came, error) = collect(stream).await;
    let error = error.unwrap();
    assert_eq!(came, hello()[1..2]);
    assert_eq!((error.reason, error.status), (lost(Delivery::Accepted), Some(200)));
    assert_eq!(server.seen().len(), 1, "nothing is sent again");
}

#[tokio::test]
async fn a_body_that_stalls_gives_what_came_and_then_the_error() {
    let stalled = Server::start(move || {
        let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from(HELLO))]);
        events(Body::from_stream(first.chain(stream::pending())))
    })
    .await;
    let idle_timeout = Duration::from_secs(1);
    let client = Client::new(Options { idle_timeout, ..Options::default() }).unwrap();
    let (came, error) = collect(stalled.stream(&client).await.unwrap()).await;
    let error = error.unwrap();
    assert_eq!(came, hello()[..2]);
    assert_eq!(error.reason, lost(Delivery::Accepted));
    assert_eq!(error.provider_message, "nothing more came for 1s");
}

#[tokio::test]
async fn a_body_that_ends_early_is_incomplete() {
    let server = Server::start(|| events(Body::from(HELLO))).await;
    let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
    assert_eq!((came.as_slice(), error.unwrap().reason), (&hello()[..2], TRUNCATED));
    let server = Server::start(|| events(Body::empty())).await;
    let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
    assert_eq!((came.as_slice(), error.unwrap().reason), (&[][..], TRUNCATED));
}

#[tokio::test]
async fn an_error_in_the_stream_comes_after_what_was_said() {
    const BODY: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\ndata: {\"error\":{\"message\":\"overloaded\",\"code\":502}}\n\n";
    let server = Server::start(|| events(Body::from(BODY))).await;
    let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
    let error = error.unwrap();
    assert_eq!(came, hello()[..2]);
    assert_eq!(error.reason, ErrorReason::ProviderInternal { retry_after_ms: None });
    assert_eq!((error.status, error.provider_message.as_str()), (Some(200), "overloaded"));
}

#[tokio::test]
async fn an_endless_answer_is_stopped_at_its_bound() {
    let server = Server::start(|| {
        let endless = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(HELLO)));
        events(Body::from_stream(endless))
    })
    .await;
    let options = Options { max_response_bytes: 100_000, ..Options::default() };
    let client = Client::new(options).unwrap();
    let (_, error) = collect(server.stream(&client).await.unwrap()).await;
    let error = error.unwrap();
    assert_eq!(error.reason, ErrorReason::InvalidOutput { incomplete_stream: false });
    assert_eq!(error.provider_message, "the answer exceeds 100000 bytes");
}

const FINISHED: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

// Finding: report 30-a1 (openai/openai-node#2725).
#[tokio::test]
async fn a_last_event_without_its_empty_line_counts() {
    let last = FINISHED.trim_end();
    for end in [last, &*format!("{last}\n"), "data: [DONE]", "data: [DONE]\r\n"] {
        let body = format!("{HELLO}{end}");
        let server = Server::start(move || events(Body::from(body.clone()))).await;
        let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
        assert_eq!((came.len(), &came[..3], error), (5, &hello()[..3], None), "{end}");
    }
    // One that is cut in the middle, or whose connection breaks, is as torn as before.
    let half = format!("{HELLO}{}", &last[..last.len() - 1]);
    let server = Server::start(move || events(Body::from(half.clone()))).await;
    let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
    assert_eq!((came.as_slice(), error.unwrap().reason), (&hello()[..2], TRUNCATED));
    let server = Server::start(move || {
        let came = stream::iter([Ok(Bytes::from(format!("{HELLO}{last}")))]);
        let broken = stream::once(async {
            tokio::task::yield_now().await;
            Err(std::io::Error::from(ErrorKind::BrokenPipe))
        });
        events(Body::from_stream(came.chain(broken)))
    })
    .await;
    let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
    assert_eq!((came.as_slice(), error.unwrap().reason), (&hello()[..2], lost(Delivery::Accepted)));
}

// Finding: report 30-a2 (anomalyco/opencode#27365).
#[tokio::test]
async fn an_error_without_an_empty_line_before_it_is_told() {
    let error = r#"{"error":{"message":"stream_read_error","type":"upstream_error"}}"#;
    let body = format!("{}\ndata: {error}\n\n", HELLO.trim_end());
    let server = Server::start(move || events(Body::from(body.clone()))).await;
    let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
    let error = error.unwrap();
    assert_eq!((came.as_slice(), &*error.provider_message), (&hello()[..2], "stream_read_error"));
}

// Finding: report 30-a3 (ggml-org/llama.cpp#16109).
#[tokio::test]
async fn an_error_in_a_field_of_its_own_is_told() {
    let words = "the request exceeds the available context size. try increasing the context size or enable context shift";
    let error = format!(
        "error: {{\"code\":400,\"message\":\"{words}\",\"type\":\"invalid_request_error\"}}\n\n"
    );
    for body in [format!("{error}data: [DONE]\n\n"), error] {
        let server = Server::start(move || events(Body::from(body.clone()))).await;
        let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
        let error = error.unwrap();
        assert_eq!((came, error.reason), (vec![], ErrorReason::ContextOverflow));
        assert_eq!(error.provider_message, words);
    }
}

// Finding: report 30-a15 (nyroway/nyro#182).
#[tokio::test]
async fn a_whole_answer_of_any_protocol_and_type_is_read() {
    let chat = r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
    let message = r#"{"type":"message","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":1}}"#;
    let response = r#"{"object":"response","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}],"usage":{"input_tokens":3,"output_tokens":1}}"#;
    let frame = r#"{"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1}}"#;
    let list = "[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hi\"}]}}]},\r\n{\"candidates\":[{\"content\":{\"parts\":[]},\n\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":3,\"candidatesTokenCount\":1}}]";
    for (protocol, body) in [
        (Protocol::OpenAiChat, chat),
        (Protocol::AnthropicMessages, message),
        (Protocol::OpenAiResponses, response),
        (Protocol::Gemini, frame),
        (Protocol::Gemini, list),
    ] {
        for kind in ["application/json", "text/plain", "text/event-stream"] {
            let server = Server::start(move || refuse(200, &[("content-type", kind)], body)).await;
            let route = Route::new(protocol, "m", server.endpoint.clone());
            let answer = client().on(route).send(Bytes::from_static(BODY)).await.unwrap();
            let answer = answer.collected().await.unwrap();
            let usage = answer.usage.map(|usage| (usage.input_tokens, usage.output_tokens));
            assert_eq!(
                (answer.text().as_str(), answer.reason, usage),
                ("hi", FinishReason::Stop, Some((3, 1))),
                "{protocol:?} {kind} {body}"
            );
        }
    }
    let json = &[("content-type", "application/json")];
    let error = refused(200, json, r#"[{"error":{"code":503,"message":"Busy"}}]"#).await;
    assert_eq!(error.reason, ErrorReason::ProviderInternal { retry_after_ms: None });
}

// Finding: report 30-a10 (everruns/everruns#2280).
#[tokio::test]
async fn the_end_of_a_limit_in_a_header_is_waited_for() {
    const DATE: (&str, &str) = ("date", "Fri, 15 Jan 2027 08:00:00 GMT");
    const RESET: (&str, &str) = ("x-ratelimit-reset", "1800000045");
    let body = r#"{"error":{"message":"Rate limit exceeded: free-models-per-min. ","code":429,"metadata":{"headers":{"X-RateLimit-Limit":"20","X-RateLimit-Remaining":"0","X-RateLimit-Reset":"1800000045000"}}}}"#;
    let wait = Some(Duration::from_secs(45));
    assert_eq!(refused(429, &[DATE], body).await.retry_after(), wait);
    assert_eq!(refused(429, &[DATE, RESET], "").await.retry_after(), wait);
    // What is said about the wait itself is more exact.
    let seven = Some(Duration::from_secs(7));
    assert_eq!(refused(429, &[DATE, RESET, ("retry-after", "7")], "").await.retry_after(), seven);
    assert_eq!(refused(429, &[DATE, RESET], "Try again in 7s.").await.retry_after(), seven);
    let late = refused(429, &[DATE, ("x-ratelimit-reset", "1800001000")], "").await;
    assert_eq!(late.next_delay(&Schedule::default(), 1, 500), None);
    let frame = "data: {\"error\":{\"code\":429,\"message\":\"Slow\",\"metadata\":{\"headers\":{\"Retry-After\":\"7\"}}}}\n\n";
    let server = Server::start(move || events(Body::from(frame))).await;
    let (_, error) = collect(server.stream(&client()).await.unwrap()).await;
    assert_eq!(error.unwrap().retry_after(), seven);
}

// Finding llm 4: an answer torn after its finish reason keeps its text, and its usage is estimated.
#[tokio::test]
async fn a_torn_transfer_settles_with_an_estimated_usage() {
    let answers: [fn() -> Body; 2] = [
        || Body::from(format!("{HELLO}{FINISHED}")),
        || {
            let came = stream::iter([Ok(Bytes::from(format!("{HELLO}{FINISHED}")))]);
            // The first part is written while the body waits.
            let broken = stream::once(async {
                tokio::task::yield_now().await;
                Err(std::io::Error::from(ErrorKind::BrokenPipe))
            });
            Body::from_stream(came.chain(broken))
        },
    ];
    for answer in answers {
        let server = Server::start(move || events(answer())).await;
        let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
        assert_eq!(error, None);
        assert_eq!(came[..3], hello()[..3]);
        let Some(LlmEvent::Finish { usage: Some(usage), .. }) = came.last() else {
            panic!("{came:?}");
        };
        assert!(usage.estimated && usage.total_tokens == usage.input_tokens + 2, "{usage:?}");
        assert_eq!(usage.input_tokens, BODY.len().div_ceil(4) as u64);
    }
    // An answer that ends properly but reports no usage has none.
    let server = Server::start(|| events(Body::from(format!("{HELLO}{END}")))).await;
    assert_eq!(collect(server.stream(&client()).await.unwrap()).await, (hello(), None));
}

// Finding llm 5: the route sets the longest silence.
#[tokio::test]
async fn a_route_has_a_silence_of_its_own() {
    let stalled = Server::start(move || {
        let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from(HELLO))]);
        events(Body::from_stream(first.chain(stream::pending())))
    })
    .await;
    let silence = Some(Duration::from_millis(200));
    let route = Route::new(Protocol::OpenAiChat, "m", stalled.endpoint.clone());
    let llm = client().on(route.with_silence(silence));
    let (_, error) = collect(llm.send(Bytes::from_static(BODY)).await.unwrap()).await;
    let error = error.unwrap();
    assert_eq!(error.provider_message, "nothing more came for 200ms");
    assert!(error.may_be_charged(), "it is a paid retry");
    assert!(!refused(429, &[], "").await.may_be_charged());
}

// Finding llm 9: damage after good frames is retryable, and events before it in the same chunk are not lost.
#[tokio::test]
async fn damage_after_good_frames_is_retried() {
    let damaged = "data: {\"choices\":[{\"delta\":{\"cont\n\n";
    let server = Server::start(move || events(Body::from(format!("{HELLO}{damaged}")))).await;
    let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
    let error = error.unwrap();
    assert_eq!(came, hello()[..2]);
    assert!(error.is_retryable() && !error.to_string().contains("base URL"), "{error}");
    // A bad first frame means another protocol.
    let server = Server::start(move || events(Body::from(damaged))).await;
    let (_, error) = collect(server.stream(&client()).await.unwrap()).await;
    let error = error.unwrap();
    assert!(!error.is_retryable() && error.to_string().contains("base URL"), "{error}");
}

// Finding llm 12: an answer compressed against our request, and a JSON error with the media type of a stream.
#[tokio::test]
async fn compressed_answers_and_errors_without_frames_are_told() {
    let gzip = &[("content-encoding", "gzip"), ("content-type", "text/event-stream")];
    let error = refused(200, gzip, "\u{1f}\u{fffd}").await;
    assert!(!error.is_retryable() && error.provider_message.contains("gzip"), "{error}");
    let error = refused(401, gzip, "\u{1f}\u{fffd}").await;
    assert_eq!(error.reason, ErrorReason::Authentication);
    assert!(!error.provider_message.contains('\u{fffd}'), "{error}");
    let body = r#"{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}"#;
    for body in [body.to_owned(), format!("[{body}]")] {
        let server = Server::start(move || events(Body::from(body.clone()))).await;
        let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
        assert_eq!((came, error.unwrap().reason), (vec![], ErrorReason::ContextOverflow));
    }
}

// Finding scenarios F9: an unknown reason without any output is not a complete answer.
#[tokio::test]
async fn an_empty_answer_of_unknown_reason_is_none() {
    const NOVEL: &str =
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"novel\"}]}\n\ndata: [DONE]\n\n";
    let server = Server::start(|| events(Body::from(NOVEL))).await;
    let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
    assert_eq!((came, error.unwrap().reason), (vec![], TRUNCATED));
    let server = Server::start(|| events(Body::from(format!("{HELLO}{NOVEL}")))).await;
    let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
    assert_eq!((came.len(), error), (5, None));
    // A model that finishes properly without output is believed.
    let server = Server::start(|| events(Body::from(END))).await;
    let (came, error) = collect(server.stream(&client()).await.unwrap()).await;
    assert_eq!((came.len(), error), (2, None));
}
