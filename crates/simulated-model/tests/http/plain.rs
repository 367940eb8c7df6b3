use serde_json::{Value, json};

use crate::{add_round, calls, events, request, start, streamed, user};

#[tokio::test]
async fn each_plain_request_is_its_tool_call() {
    let client = start().await;
    let cases = [
        ("list the files", "glob", json!({"pattern": "*"})),
        ("\"List the files in src.\"", "glob", json!({"pattern": "src/*"})),
        ("read Cargo.toml!", "read", json!({"path": "Cargo.toml"})),
        ("run cargo test", "shell", json!({"command": "cargo test"})),
        ("create a.txt containing hi", "write", json!({"path": "a.txt", "content": "hi"})),
        ("edit a replacing x with y", "edit", json!({"path": "a", "old": "x", "new": "y"})),
        ("search for TODO", "grep", json!({"pattern": "TODO"})),
    ];
    for (prompt, tool, arguments) in cases {
        let answer = client.ask(&request(prompt)).await;
        let choice = &answer["choices"][0];
        assert_eq!(calls(&choice["message"]), [(tool.to_owned(), arguments)], "{prompt}");
        assert_eq!(choice["finish_reason"], "tool_calls");
        assert_eq!((&answer["model"], &answer["created"]), (&json!("simulated"), &json!(0)));
        assert_eq!(answer["system_fingerprint"], "simulated");
    }
}

#[tokio::test]
async fn words_are_streamed_one_delta_each_with_usage_last() {
    let client = start().await;
    let body = streamed("say 3 words");
    let response = client.post(&body).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-simulated-model"], "true");
    let events = events(&response.text().await.unwrap());
    let deltas: Vec<_> = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(deltas, ["", "w0", " w1", " w2"]);
    assert_eq!(events[4]["choices"][0]["finish_reason"], "stop");
    let prompt = serde_json::to_vec(&body).unwrap().len().div_ceil(4);
    assert_eq!(events[5]["choices"], json!([]));
    assert_eq!(
        events[5]["usage"],
        json!({"prompt_tokens": prompt, "completion_tokens": 2, "total_tokens": prompt + 2})
    );
    assert_eq!(events.len(), 6);
}

#[tokio::test]
async fn a_streamed_tool_call_joins_to_the_unstreamed_one() {
    let client = start().await;
    let prompt = "create é.txt containing \"quoted\" and é";
    let whole = client.message(prompt).await;
    let stream = client.post(&streamed(prompt)).send().await.unwrap().text().await.unwrap();
    let (mut name, mut arguments, mut fragments) = (String::new(), String::new(), 0);
    for event in events(&stream) {
        let function = &event["choices"][0]["delta"]["tool_calls"][0]["function"];
        name.push_str(function["name"].as_str().unwrap_or_default());
        arguments.push_str(function["arguments"].as_str().unwrap_or_default());
        fragments += u32::from(function["arguments"].as_str().is_some_and(|part| !part.is_empty()));
    }
    assert!(fragments >= 2);
    let arguments: Value = serde_json::from_str(&arguments).unwrap();
    assert_eq!(calls(&whole), [(name, arguments)]);
}

#[tokio::test]
async fn steps_follow_the_tool_rounds() {
    let client = start().await;
    let mut body = request("create a.txt containing hi then run cat a.txt then say 3 words");
    let first = client.ask(&body).await["choices"][0]["message"].clone();
    assert_eq!(calls(&first)[0].0, "write");
    add_round(&mut body, &first, "wrote a.txt");
    // Neither a system message nor a notice hides the prompt.
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "system", "content": "the date has changed"}));
    messages.push(user("<notice>run something else</notice>"));
    let second = client.ask(&body).await["choices"][0]["message"].clone();
    assert_eq!(calls(&second), [("shell".to_owned(), json!({"command": "cat a.txt"}))]);
    add_round(&mut body, &second, "hi");
    let third = client.ask(&body).await["choices"][0].clone();
    assert_eq!(third["message"]["content"], "w0 w1 w2");
    assert_eq!(third["finish_reason"], "stop");
}

#[tokio::test]
async fn parallel_calls_come_at_once_and_their_results_are_quoted() {
    let client = start().await;
    let mut body = request("read a.txt and also list the files");
    let message = client.ask(&body).await["choices"][0]["message"].clone();
    let made: Vec<_> = calls(&message).into_iter().map(|(name, _)| name).collect();
    assert_eq!(made, ["read", "glob"]);
    assert_ne!(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);
    let result = "é".repeat(300);
    add_round(&mut body, &message, &result);
    let last = client.ask(&body).await["choices"][0]["message"]["content"].clone();
    let quoted = format!("{} …", "é".repeat(200));
    let expected = format!("Done, says the simulated model.\n\nread: {quoted}\n\nglob: {quoted}");
    assert_eq!(last, expected);
}

#[tokio::test]
async fn fix_the_failing_test_looks_runs_and_tells_that_it_is_simulated() {
    let client = start().await;
    let mut body = request("\"fix the failing test\"");
    for (command, result) in
        [("ls", "Cargo.toml\nsrc"), ("cargo test 2>&1 | tail -n 40", "1 failed")]
    {
        let message = client.ask(&body).await["choices"][0]["message"].clone();
        assert_eq!(calls(&message), [("shell".to_owned(), json!({ "command": command }))]);
        add_round(&mut body, &message, result);
    }
    let message = client.ask(&body).await["choices"][0]["message"].clone();
    assert_eq!(calls(&message), []);
    let text = message["content"].as_str().unwrap();
    assert!(text.contains("cannot fix code") && text.contains("1 failed"), "{text}");
}

#[tokio::test]
async fn only_offered_tools_are_called_and_tool_choice_none_is_obeyed() {
    let client = start().await;
    let mut without = request("read a.txt");
    without["tools"] = json!([]);
    let mut forbidden = request("read a.txt");
    forbidden["tool_choice"] = json!("none");
    let mut other = request("read a.txt");
    other["tool_choice"] = json!({"type": "function", "function": {"name": "shell"}});
    for body in [without, forbidden, other] {
        let choice = client.ask(&body).await["choices"][0].clone();
        assert_eq!(calls(&choice["message"]), [], "{body}");
        assert_eq!(choice["finish_reason"], "stop");
        assert!(choice["message"]["content"].as_str().unwrap().contains("`read`"));
    }
}

#[tokio::test]
async fn the_same_body_has_the_same_answer_and_another_has_other_ids() {
    let client = start().await;
    let mut answers = Vec::new();
    for prompt in ["run ls", "run ls", "run ls -l"] {
        let response = client.post(&streamed(prompt)).send().await.unwrap();
        answers.push(response.text().await.unwrap());
    }
    assert_eq!(answers[0], answers[1]);
    assert_ne!(events(&answers[0])[0]["id"], events(&answers[2])[0]["id"]);
}

#[tokio::test]
async fn other_text_is_told_what_it_is_and_what_it_understands() {
    let client = start().await;
    let message = client.message("what is the meaning of life?").await;
    let text = message["content"].as_str().unwrap();
    assert!(text.contains("simulated model") && text.contains("say N words"), "{text}");
}

#[tokio::test]
async fn models_health_and_unknown_routes_are_labelled() {
    let client = start().await;
    let get = async |path: &str| {
        let url = format!("{}{path}", client.server.root_url());
        let response = client.http.get(url).send().await.unwrap();
        assert_eq!(response.headers()["x-simulated-model"], "true");
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let model = json!({"id": "simulated", "object": "model", "created": 0,
        "owned_by": "opencode-cloud (simulated)"});
    let models = json!({"object": "list", "data": [model]});
    assert_eq!(get("/v1/models").await, (200, models.clone()));
    assert_eq!(get("/models").await, (200, models));
    assert_eq!(get("/healthz").await.0, 200);
    assert_eq!(get("/v1/nothing").await.0, 404);
}

#[tokio::test]
async fn a_bad_body_is_refused_in_the_protocols_shape() {
    let client = start().await;
    for body in [json!({}), json!({"messages": []}), json!({"messages": "x"})] {
        let response = client.post(&body).send().await.unwrap();
        assert_eq!(response.status(), 400);
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["error"]["type"], "invalid_request_error");
    }
    assert_eq!(client.server.handle.counts().refused, 3);
}
