//! Each protocol as its real client sees it: our own, which knows nothing of the simulated model.

use std::time::Duration;

use futures::StreamExt;
use llm_client::{Client as Llms, Endpoint, Llm, LlmError, Options as LlmOptions, Route};
use llm_protocol::{
    CachePolicy, ErrorReason, FinishReason, LlmEvent, LlmRequest, Message, Part, Protocol, RawJson,
    Role, SystemPart, TextPart, ToolCall, ToolDefinition, ToolResult, Usage,
};
use serde_json::{Value, json};
use simulated_model::Outcome;

use crate::{Client, start};

/// The protocols that sign their reasoning.
const SIGNED: [Protocol; 4] = [
    Protocol::OpenAiResponses,
    Protocol::AnthropicMessages,
    Protocol::Gemini,
    Protocol::BedrockConverse,
];

pub(crate) fn speak(client: &Client, protocol: Protocol) -> Llm {
    let endpoint = Endpoint::new(client.server.root_url());
    Llms::new(LlmOptions::default()).unwrap().on(Route::new(protocol, "sim:1", endpoint))
}

pub(crate) fn request(messages: Vec<Message>) -> LlmRequest {
    let mut request = LlmRequest::new("sim:1", messages);
    request.system = vec![SystemPart::text("Be brief.")];
    request.tools = ["read", "shell"].map(tool).into();
    request
}

fn tool(name: &str) -> ToolDefinition {
    let schema = r#"{"type":"object","properties":{"path":{"type":"string"}}}"#;
    ToolDefinition {
        name: name.to_owned(),
        description: "a tool".to_owned(),
        input_schema: RawJson::parse(schema).unwrap(),
    }
}

/// A whole answer: its message in a history, and its finish.
#[derive(Debug)]
pub(crate) struct Said {
    message: Message,
    pub(crate) finish: Option<(FinishReason, Option<Usage>)>,
    error: Option<LlmError>,
}

impl Said {
    pub(crate) fn text(&self) -> String {
        self.message.content.iter().filter_map(text_of).collect()
    }

    fn calls(&self) -> Vec<&ToolCall> {
        let calls = self.message.content.iter();
        calls
            .filter_map(|part| match part {
                Part::ToolCall(call) => Some(call),
                Part::Text(_) | Part::Reasoning(_) | Part::Media(_) | Part::ToolResult(_) => None,
            })
            .collect()
    }

    fn reasoning(&mut self) -> Option<&mut TextPart> {
        self.message.content.iter_mut().find_map(|part| match part {
            Part::Reasoning(part) => Some(part),
            Part::Text(_) | Part::Media(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
        })
    }

    fn usage(&self) -> Usage {
        self.finish.unwrap().1.unwrap()
    }

    /// Returns a result for each of its calls.
    fn results(&self) -> Message {
        let results = self.calls().into_iter().map(|call| {
            Part::ToolResult(ToolResult::text(&call.id, &call.name, format!("of {}", call.name)))
        });
        Message { role: Role::Tool, content: results.collect() }
    }
}

fn text_of(part: &Part) -> Option<&str> {
    match part {
        Part::Text(part) => Some(&part.text),
        Part::Reasoning(_) | Part::Media(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
    }
}

pub(crate) async fn ask(llm: &Llm, request: &LlmRequest) -> Result<Said, LlmError> {
    let mut stream = llm.stream(request).await?;
    let (mut content, mut finish, mut error) = (Vec::new(), None, None);
    let mut open = String::new();
    while let Some(event) = stream.next().await {
        match event {
            Err(problem) => error = Some(problem),
            Ok(LlmEvent::TextStart { .. } | LlmEvent::ReasoningStart { .. }) => open.clear(),
            Ok(LlmEvent::TextDelta { text, .. } | LlmEvent::ReasoningDelta { text, .. }) => {
                open.push_str(&text);
            }
            Ok(LlmEvent::TextEnd { provider_metadata, .. }) => {
                let text = std::mem::take(&mut open);
                content.push(Part::Text(TextPart { text, provider_metadata }));
            }
            Ok(LlmEvent::ReasoningEnd { provider_metadata, .. }) => {
                let text = std::mem::take(&mut open);
                content.push(Part::Reasoning(TextPart { text, provider_metadata }));
            }
            Ok(LlmEvent::ToolCall(call)) => content.push(Part::ToolCall(call)),
            Ok(LlmEvent::Finish { reason, usage }) => finish = Some((reason, usage)),
            Ok(
                LlmEvent::ToolInputStart { .. }
                | LlmEvent::ToolInputDelta { .. }
                | LlmEvent::ToolInputEnd { .. }
                | LlmEvent::ToolResult(_)
                | LlmEvent::StepFinish { .. },
            ) => {}
        }
    }
    Ok(Said { message: Message { role: Role::Assistant, content }, finish, error })
}

#[tokio::test]
async fn every_protocol_says_words_and_tells_its_usage() {
    let client = start().await;
    for (at, protocol) in Protocol::ALL.iter().enumerate() {
        let llm = speak(&client, *protocol);
        let request = request(vec![Message::user("say 3 words")]);
        let said = ask(&llm, &request).await.unwrap();
        assert_eq!(said.text(), "w0 w1 w2", "{protocol:?}");
        let (reason, usage) = said.finish.unwrap();
        assert_eq!(reason, FinishReason::Stop, "{protocol:?}");
        let record = &client.server.handle.requests()[at];
        assert_eq!((record.outcome, record.prompt.as_str()), (Outcome::Answered, "say 3 words"));
        let told = record.usage.unwrap();
        let usage = usage.unwrap();
        assert_eq!(
            (usage.input_tokens, usage.output_tokens, usage.total_tokens),
            (told.prompt_tokens, told.completion_tokens, told.total_tokens)
        );
        assert_eq!(usage.output_tokens, 2, "{protocol:?}");
    }
}

#[tokio::test]
async fn two_calls_at_once_come_back_with_their_results() {
    let client = start().await;
    for protocol in Protocol::ALL {
        let llm = speak(&client, *protocol);
        let prompt = "read a.txt and also run `ls`";
        let said = ask(&llm, &request(vec![Message::user(prompt)])).await.unwrap();
        let calls: Vec<_> =
            said.calls().iter().map(|call| (&*call.name, &*call.arguments)).collect();
        let expected = [("read", r#"{"path":"a.txt"}"#), ("shell", r#"{"command":"ls"}"#)];
        assert_eq!(calls, expected, "{protocol:?}");
        assert_eq!(said.finish.unwrap().0, FinishReason::ToolCalls, "{protocol:?}");
        let results = said.results();
        let next = request(vec![Message::user(prompt), said.message, results]);
        let said = ask(&llm, &next).await.unwrap();
        assert!(said.text().contains("read: of read"), "{protocol:?}: {}", said.text());
        assert!(said.text().contains("shell: of shell"), "{protocol:?}: {}", said.text());
        // Without the results, the newer protocols refuse like their owners.
        let Some(said) = next.messages.get(..2) else { panic!("there are three messages") };
        let open = request([said, &[Message::user("and?")]].concat());
        let answer = ask(&llm, &open).await;
        if *protocol == Protocol::OpenAiChat {
            assert!(answer.is_ok());
        } else {
            assert_eq!(answer.unwrap_err().reason, ErrorReason::InvalidRequest, "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn reasoning_goes_back_as_it_was_signed() {
    let client = start().await;
    client
        .put(json!([{ "match": "think", "round": 0, "reasoning": "First look. Then act.", "text": "Looking.",
            "tool_calls": [{ "name": "read", "arguments": { "path": "a.txt" } },
                           { "name": "read", "arguments": { "path": "b.txt" } }] }]))
        .await;
    for protocol in SIGNED {
        let llm = speak(&client, protocol);
        let prompt = Message::user("think");
        let mut said = ask(&llm, &request(vec![prompt.clone()])).await.unwrap();
        assert_eq!(said.usage().output_tokens, 18, "{protocol:?}");
        let results = said.results();
        let history =
            |said: &Said| request(vec![prompt.clone(), said.message.clone(), results.clone()]);
        let good = history(&said);
        let thought = said.reasoning().unwrap();
        assert_eq!(thought.text, "First look. Then act.", "{protocol:?}");
        let state: Value =
            serde_json::from_str(thought.provider_metadata.as_ref().unwrap().get()).unwrap();
        let members = state[protocol.state_key()].as_object().unwrap();
        let is_signature = |value: &&Value| value.as_str().is_some_and(|text| text.len() == 64);
        let signature = members.values().find(is_signature).unwrap().as_str().unwrap().to_owned();
        let next = ask(&llm, &good).await.unwrap();
        assert!(next.text().contains("of read"), "{protocol:?}: {}", next.text());
        let body = client.server.handle.requests().pop().unwrap().body.unwrap();
        assert!(body.contains(&signature), "{protocol:?}: {body}");

        // Changed text below the signature is a 400, and so is missing reasoning before the calls.
        thought.text.push('!');
        let changed = ask(&llm, &history(&said)).await.unwrap_err();
        let reasons = [ErrorReason::InvalidRequest, ErrorReason::StateRefused];
        assert!(reasons.contains(&changed.reason), "{protocol:?}: {changed:?}");
        said.message.content.retain(|part| !matches!(part, Part::Reasoning(_)));
        let missing = ask(&llm, &history(&said)).await.unwrap_err();
        assert_eq!(missing.status, Some(400), "{protocol:?}");
        assert!(missing.provider_message.contains("which is missing"), "{protocol:?}: {missing:?}");
    }
}

#[tokio::test]
async fn another_provider_gets_reasoning_as_text_and_no_signature() {
    let client = start().await;
    let calls = json!([{ "name": "read", "arguments": { "path": "a.txt" } }]);
    client
        .put(json!([{ "match": "think", "round": 0, "reasoning": "Hm.", "tool_calls": calls }]))
        .await;
    let (prompt, tail) = (Message::user("think"), Message::user("say 2 words"));
    for from in SIGNED {
        let said = ask(&speak(&client, from), &request(vec![prompt.clone()])).await.unwrap();
        let results = said.results();
        let history = request(vec![prompt.clone(), said.message, results, tail.clone()]);
        for to in Protocol::ALL.iter().filter(|to| **to != from) {
            let said = ask(&speak(&client, *to), &history).await;
            assert_eq!(said.unwrap().text(), "w0 w1", "{from:?} to {to:?}");
        }
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_gives_what_came_and_an_error() {
    let client = start().await;
    client.put(json!([{ "match": "say", "cut_after_chunks": 3 }])).await;
    for protocol in Protocol::ALL {
        let said =
            ask(&speak(&client, *protocol), &request(vec![Message::user("say 5 words")])).await;
        let said = said.unwrap();
        let error = said.error.unwrap();
        assert!(said.finish.is_none(), "{protocol:?}");
        assert!(matches!(error.reason, ErrorReason::Transport { .. }), "{protocol:?}: {error:?}");
    }
    let counts = client.wait_for(|counts| counts.cut == 5).await;
    assert_eq!((counts.answers_with_usage, counts.pending), (0, 0));
}

#[tokio::test]
async fn limits_and_overflows_are_told_in_the_words_of_each() {
    let client = start().await;
    client
        .put(json!([
            { "match": "busy", "status": 429, "retry_after_ms": 1500 },
            { "match": "long", "overflow": true },
            { "match": "broken", "status": 500 },
        ]))
        .await;
    for protocol in Protocol::ALL {
        let llm = speak(&client, *protocol);
        let fails = async |prompt: &str| {
            ask(&llm, &request(vec![Message::user(prompt)])).await.unwrap_err()
        };
        let busy = fails("busy").await;
        assert_eq!(busy.reason.name(), "rate-limit", "{protocol:?}");
        assert_eq!(busy.retry_after(), Some(Duration::from_millis(1500)), "{protocol:?}");
        assert_eq!(fails("long").await.reason, ErrorReason::ContextOverflow, "{protocol:?}");
        assert_eq!(fails("broken").await.reason.name(), "provider-internal", "{protocol:?}");
    }
}

#[tokio::test]
async fn caches_hold_what_was_marked_or_seen() {
    let client = start().await;
    for protocol in Protocol::ALL {
        let llm = speak(&client, *protocol);
        let mut first = request(vec![Message::user("say 1 word")]);
        first.cache = CachePolicy::Auto;
        let said = ask(&llm, &first).await.unwrap();
        let mut second = first.clone();
        second.messages.extend([said.message.clone(), Message::user("say 2 words")]);
        let (first, second) = (said.usage(), ask(&llm, &second).await.unwrap().usage());
        let has = |usage: Usage| (usage.cache_read_tokens > 0, usage.cache_write_tokens > 0);
        let expected = match protocol {
            Protocol::OpenAiChat => [(false, false), (false, false)],
            Protocol::AnthropicMessages | Protocol::BedrockConverse => {
                [(false, true), (true, true)]
            }
            Protocol::OpenAiResponses | Protocol::Gemini => [(false, false), (true, false)],
        };
        assert_eq!([has(first), has(second)], expected, "{protocol:?}");
        assert!(second.cache_read_tokens + second.cache_write_tokens <= second.input_tokens);
    }
}

#[tokio::test]
async fn arguments_that_are_no_json_are_told_as_each_can() {
    let client = start().await;
    let read = json!({ "name": "read", "arguments": { "path": "a" } });
    client.put(json!([{ "tool_calls": [read], "malformed_arguments": true }])).await;
    for protocol in Protocol::ALL {
        let said = ask(&speak(&client, *protocol), &request(vec![Message::user("x")])).await;
        if *protocol == Protocol::Gemini {
            // It reads the arguments itself, and a try again may have better ones.
            assert!(said.unwrap().error.unwrap().is_retryable());
        } else {
            let said = said.unwrap();
            assert_eq!(said.calls()[0].arguments, r#"{"path":"a""#, "{protocol:?}");
        }
    }
}
