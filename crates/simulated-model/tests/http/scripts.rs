use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::{Value, json};
use simulated_model::{Outcome, Script, ScriptError, ScriptedCall};

use crate::{PATIENCE, calls, events, parse_event, request, start, streamed};

#[tokio::test]
async fn a_script_is_used_as_often_as_it_says_then_the_next() {
    let client = start().await;
    client
        .put(json!([
            {"match": "plan", "times": 2, "text": "first"},
            {"match": "plan", "times": 1, "words": 2},
        ]))
        .await;
    let mut texts = Vec::new();
    for _ in 0..4 {
        texts.push(client.message("make a plan").await["content"].clone());
    }
    assert_eq!(texts[..3], [json!("first"), json!("first"), json!("w0 w1")]);
    assert!(texts[3].as_str().unwrap().contains("simulated model"), "{}", texts[3]);
    assert!(client.server.handle.scripts().is_empty());
}

#[tokio::test]
async fn a_script_may_name_its_round_and_calls_whatever_it_wants() {
    let client = start().await;
    let call = |name: &str, arguments| ScriptedCall {
        name: name.to_owned(),
        arguments,
        id: Some("call_1".to_owned()),
    };
    let handle = &client.server.handle;
    handle
        .script(Script {
            matches: "go".to_owned(),
            round: Some(0),
            reasoning: Some("hm".to_owned()),
            tool_calls: vec![call("no_such_tool", json!({"a": 1}))],
            ..Script::default()
        })
        .unwrap();
    let ends = Script {
        matches: "go".to_owned(),
        round: Some(1),
        text: Some("end".to_owned()),
        finish_reason: Some("length".to_owned()),
        ..Script::default()
    };
    handle.script(ends).unwrap();
    let mut body = request("go");
    let message = client.ask(&body).await["choices"][0]["message"].clone();
    assert_eq!(calls(&message), [("no_such_tool".to_owned(), json!({"a": 1}))]);
    assert_eq!(message["reasoning_content"], "hm");
    assert_eq!(message["tool_calls"][0]["id"], "call_1");
    crate::add_round(&mut body, &message, "unknown tool");
    let choice = client.ask(&body).await["choices"][0].clone();
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&json!("end"), &json!("length"))
    );
}

#[tokio::test]
async fn malformed_arguments_are_no_json() {
    let client = start().await;
    let read = json!({"name": "read", "arguments": {"path": "a"}});
    client.put(json!([{"tool_calls": [read], "malformed_arguments": true}])).await;
    let message = client.message("x").await;
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], r#"{"path":"a""#);
}

#[tokio::test]
async fn a_cut_stream_ends_after_its_chunks_without_a_finish() {
    let client = start().await;
    client.put(json!([{"match": "say", "times": 1, "cut_after_chunks": 3}])).await;
    let response = client.post(&streamed("say 5 words")).send().await.unwrap();
    let mut stream = response.bytes_stream();
    let (mut text, mut broken) = (String::new(), false);
    while let Some(part) = stream.next().await {
        match part {
            Ok(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
            Err(_) => broken = true,
        }
    }
    assert!(broken, "the client can tell a cut from an end");
    let got: Vec<_> = text.split_terminator("\n\n").map(parse_event).collect();
    assert_eq!(got.len(), 3);
    assert_eq!(got[2]["choices"][0]["delta"]["content"], " w1");
    let record = &client.server.handle.requests()[0];
    assert_eq!((record.outcome, record.usage, record.scripted), (Outcome::Cut, None, true));
    // The same server continues. A cut never comes after the finish.
    client.put(json!([{"match": "say", "times": 1, "cut_after_chunks": 99}])).await;
    let cut = client.post(&streamed("say 1 word")).send().await.unwrap().text().await;
    assert!(cut.is_err());
    let whole = client.post(&streamed("say 1 word")).send().await.unwrap().text().await;
    assert_eq!(events(&whole.unwrap()).len(), 4);
}

#[tokio::test]
async fn a_cut_may_come_in_an_unstreamed_body_or_before_the_headers() {
    let client = start().await;
    client
        .put(json!([
            {"match": "half", "cut_after_chunks": 1},
            {"match": "nothing", "cut_before_headers": true},
        ]))
        .await;
    let half = client.post(&request("half")).send().await.unwrap();
    assert_eq!(half.status(), 200);
    assert!(half.bytes().await.is_err());
    assert!(client.post(&request("nothing")).send().await.is_err());
    let counts = client.wait_for(|counts| counts.cut >= 2).await;
    assert_eq!((counts.cut, counts.pending, counts.answers_with_usage), (2, 0, 0));
}

#[tokio::test]
async fn a_429_says_when_to_retry() {
    let client = start().await;
    client
        .put(json!([
            {"match": "x", "times": 1, "status": 429, "retry_after": 2, "retry_after_ms": 1500},
            {"match": "x", "times": 1, "status": 503, "body": {"error": {"message": "later"}}},
            {"match": "x", "times": 1, "status": 500, "body": "<html>"},
        ]))
        .await;
    let response = client.post(&streamed("x")).send().await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "2");
    assert_eq!(response.headers()["retry-after-ms"], "1500");
    assert_eq!(response.headers()["x-simulated-model"], "true");
    assert_eq!(response.json::<Value>().await.unwrap()["error"]["type"], "rate_limit_error");
    let response = client.post(&streamed("x")).send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.json::<Value>().await.unwrap(), json!({"error": {"message": "later"}}));
    let response = client.post(&streamed("x")).send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.text().await.unwrap().as_str()),
        (500, "<html>")
    );
    assert_eq!(client.server.handle.counts().refused, 3);
}

#[tokio::test]
async fn a_gate_holds_requests_until_it_is_opened() {
    let client = start().await;
    client.put(json!([{"match": "say", "gate": "door"}])).await;
    let waiting = client.post(&request("say 1 word")).send();
    let opening = async {
        client.wait_for(|counts| counts.pending == 1).await;
        let (status, _) = client.sim("POST", "gates/door", &Value::Null).await;
        assert_eq!(status, 200);
    };
    let (answer, ()) = tokio::join!(waiting, opening);
    assert_eq!(answer.unwrap().status(), 200);
    // The gate stays open until it is closed.
    assert_eq!(client.message("say 1 word").await["content"], "w0");
    client.sim("DELETE", "gates/door", &Value::Null).await;
    let held = client.post(&request("say 1 word")).timeout(Duration::from_millis(50)).send().await;
    assert!(held.is_err_and(|error| error.is_timeout()));
}

#[tokio::test]
async fn a_gate_may_hold_a_stream_in_its_middle() {
    let client = start().await;
    client.put(json!([{"match": "say", "gate": "middle", "gate_after_chunks": 2}])).await;
    let response = client.post(&streamed("say 2 words")).send().await.unwrap();
    let mut stream = response.bytes_stream();
    let mut text = String::new();
    while text.matches("\n\n").count() < 2 {
        text.push_str(std::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap());
    }
    assert_eq!(text.matches("\n\n").count(), 2);
    client.server.handle.open_gate("middle").unwrap();
    while let Some(part) = stream.next().await {
        text.push_str(std::str::from_utf8(&part.unwrap()).unwrap());
    }
    assert_eq!(events(&text).len(), 5);
}

#[tokio::test]
async fn a_client_that_leaves_a_hanging_request_is_recorded() {
    let client = start().await;
    client
        .put(json!([
            {"match": "hang", "hang": true},
            {"match": "stall", "hang_after_chunks": 1},
        ]))
        .await;
    for body in [request("hang"), streamed("hang"), streamed("stall")] {
        let asking = async { client.post(&body).send().await.unwrap().bytes().await };
        tokio::select! {
            answer = asking => panic!("answered: {answer:?}"),
            _ = client.wait_for(|counts| counts.pending == 1) => {}
        }
        client.wait_for(|counts| counts.pending == 0).await;
    }
    let outcomes: Vec<_> =
        client.server.handle.requests().into_iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, [Outcome::ClientGone; 3]);
}

#[tokio::test]
async fn delays_are_kept() {
    let client = start().await;
    client.put(json!([{"delay_ms": 40, "chunk_delay_ms": 10}])).await;
    let asked = Instant::now();
    let response = client.post(&streamed("say 2 words")).send().await.unwrap();
    assert!(asked.elapsed() >= Duration::from_millis(40));
    assert_eq!(events(&response.text().await.unwrap()).len(), 5);
    assert!(asked.elapsed() >= Duration::from_millis(90), "five pauses between six events");
}

#[tokio::test]
async fn wrong_scripts_are_refused_and_change_nothing() {
    let client = start().await;
    client.put(json!({"scripts": [{"match": "a", "text": "kept"}]})).await;
    let (status, answer) =
        client.sim("PUT", "scripts", &json!([{"text": "b"}, {"status": 200}])).await;
    assert_eq!(status, 400);
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "simulated model: script 1: `status` is not an error status: give 400 to 599"
    );
    let (_, answer) = client.sim("PUT", "scripts", &json!([{"chunk_delay": 1}])).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("unknown field `chunk_delay`"));
    assert_eq!(client.message("a").await["content"], "kept");
    let (_, list) = client.sim("POST", "scripts", &json!([{"match": "c", "times": 3}])).await;
    assert_eq!(list, json!({"scripts": 2}));
    let (_, list) = client.sim("GET", "scripts", &Value::Null).await;
    assert_eq!(
        (&list["scripts"][0]["text"], &list["scripts"][1]["left"]),
        (&json!("kept"), &json!(3))
    );
    let (_, list) = client.sim("DELETE", "scripts", &Value::Null).await;
    assert_eq!(list, json!({"scripts": 0}));
    let twice = Script { text: Some(String::new()), words: Some(1), ..Script::default() };
    let refused = client.server.handle.script(twice);
    assert!(matches!(refused, Err(ScriptError::Invalid { index: 0, .. })));
}

#[tokio::test]
async fn shutdown_ends_what_hangs_and_frees_the_port() {
    let client = start().await;
    client.put(json!([{"hang": true}])).await;
    let (addr, handle) = (client.server.addr, client.server.handle.clone());
    let body = request("x");
    let asking = client.post(&body).send();
    let stopping = async {
        client.wait_for(|counts| counts.pending == 1).await;
    };
    let mut asking = std::pin::pin!(asking);
    tokio::select! {
        answer = &mut asking => panic!("answered: {answer:?}"),
        () = stopping => {}
    }
    let server = client.server;
    tokio::time::timeout(PATIENCE, server.shutdown()).await.unwrap();
    assert!(asking.await.is_err());
    assert_eq!(handle.requests()[0].outcome, Outcome::ClientGone);
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
}
