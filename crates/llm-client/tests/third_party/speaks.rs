//! Answers of all kinds in each protocol, and the server's reading of our requests.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use llm_client::{Bounds, Llm, Tools};
use llm_protocol::{
    CachePolicy, FinishReason, Instructions, LlmEvent, LlmRequest, Media, Message, Part, Protocol,
    RawJson, SystemPart, ToolDefinition,
};
use serde_json::{Value, json};

use crate::world::{WAYS, answer, asks, reasoning, seen, server, text};

#[tokio::test]
async fn a_text_is_whole_and_counted() {
    let served = server().await;
    for way in WAYS {
        let events = answer(&way.to(&served), &asks("say hello")).await.unwrap();
        assert_eq!(text(&events), "Hello from elsewhere, ä漢🦀.", "{way:?}");
        let Some(LlmEvent::Finish { reason, usage: Some(usage) }) = events.last() else {
            panic!("{way:?}: {events:?}")
        };
        assert_eq!(*reason, FinishReason::Stop, "{way:?}");
        assert_eq!((usage.input_tokens, usage.output_tokens), (11, 5), "{way:?}");
    }
}

#[tokio::test]
async fn reasoning_is_told_apart_and_an_end_for_length_is_told() {
    let served = server().await;
    for way in WAYS {
        let llm = way.to(&served);
        let events = answer(&llm, &asks("think first")).await.unwrap();
        assert_eq!(text(&events), "Four.", "{way:?}");
        assert_eq!(reasoning(&events), "Two and two make four.", "{way:?}");
        let events = answer(&llm, &asks("be brief")).await.unwrap();
        assert_eq!(text(&events), "This answer is cut", "{way:?}");
        let Some(LlmEvent::Finish { reason, .. }) = events.last() else { panic!("{events:?}") };
        // OpenAI ends a cut answer with `response.incomplete`, this server with `response.completed`.
        let expected = match way.protocol(&served) {
            Protocol::OpenAiResponses => FinishReason::Stop,
            _ => FinishReason::Length,
        };
        assert_eq!(*reason, expected, "{way:?}");
    }
}

fn weather() -> Tools {
    let schema = r#"{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]}"#;
    let definition = ToolDefinition {
        name: "weather".into(),
        description: "Tells the weather.".into(),
        input_schema: RawJson::parse(schema).unwrap(),
    };
    Tools::new().with(definition, |arguments| async move {
        match arguments["city"].as_str() {
            Some("Paris") => Ok("21 degrees".to_owned()),
            other => Err(format!("no such city: {other:?}")),
        }
    })
}

/// Makes a request with the options under which real reasoning models want their thoughts back.
fn thinking(text: &str) -> LlmRequest {
    let mut request = asks(text);
    request.system = vec![SystemPart::text("You know the weather.")];
    request.cache = CachePolicy::Auto;
    let options = json!({
        "anthropic": { "thinking": { "type": "enabled", "budgetTokens": 1024 } },
        "openai": { "store": false, "include": ["reasoning.encrypted_content"] },
    });
    let Value::Object(options) = options else { unreachable!("an object") };
    request.provider_options = options;
    request
}

async fn run(llm: &Llm, request: LlmRequest) -> Vec<LlmEvent> {
    let events: Vec<_> = llm.run(request, weather(), Bounds::default()).collect().await;
    events.into_iter().map(Result::unwrap).collect()
}

/// Returns one key's values from each message of `role` that has it, in order.
fn each(seen: &Value, role: &str, key: &str) -> Vec<Value> {
    let messages = seen["messages"].as_array().unwrap().iter();
    let of_role = messages.filter(|message| message["role"] == role);
    of_role.filter_map(|message| message.get(key)).cloned().collect()
}

/// Returns a result as the server reads it: it knows no failure flag, and in Gemini a result is an object.
fn result(protocol: Protocol, text: &str, failed: bool) -> String {
    match (protocol, failed) {
        (Protocol::Gemini, false) => format!(r#"{{"name":"weather","content":"{text}"}}"#),
        (Protocol::Gemini, true) => json!({ "error": text }).to_string(),
        (Protocol::OpenAiChat | Protocol::OpenAiResponses, true) => format!("Error: {text}"),
        _ => text.to_owned(),
    }
}

#[tokio::test]
async fn calls_their_results_and_the_thought_before_them_go_there_and_back() {
    let served = server().await;
    for way in WAYS {
        let (llm, protocol) = (way.to(&served), way.protocol(&served));
        let mut request = thinking("How is the weather in Paris and Oslo?");
        if protocol == Protocol::BedrockConverse {
            request.cache = CachePolicy::None; // the server knows no marks among Bedrock's tools
        }
        let events = run(&llm, request).await;
        assert_eq!(reasoning(&events), "Two cities, two calls.", "{way:?}");
        let calls: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                LlmEvent::ToolCall(call) => Some(call.clone()),
                _ => None,
            })
            .collect();
        let ids: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["call_paris", "call_oslo"], "{way:?}");
        let inputs: Vec<Value> =
            calls.iter().map(|call| serde_json::from_str(&call.arguments).unwrap()).collect();
        let oslo = "Oslo \"north\"\n";
        assert_eq!(inputs, [json!({"city": "Paris", "days": 2}), json!({ "city": oslo })]);

        // The second answer repeats the request that the server saw.
        let after = events.iter().rposition(|event| matches!(event, LlmEvent::ToolResult(_)));
        let seen = seen(&events[after.unwrap()..]);
        let said: String =
            each(&seen, "assistant", "text").iter().map(|text| text.as_str().unwrap()).collect();
        // The server signs no thoughts in Bedrock's protocol, so they go back as text.
        let expected = match protocol {
            Protocol::BedrockConverse => "Two cities, two calls.Let me look.",
            _ => "Let me look.",
        };
        assert_eq!(said, expected, "{way:?}: {seen:#}");
        let called: Vec<_> = each(&seen, "assistant", "calls")
            .into_iter()
            .flat_map(|calls| calls.as_array().unwrap().clone())
            .collect();
        let expected = [
            json!({"id": "call_paris", "name": "weather", "input": inputs[0]}),
            json!({"id": "call_oslo", "name": "weather", "input": inputs[1]}),
        ];
        assert_eq!(called, expected, "{way:?}: {seen:#}");
        assert_eq!(each(&seen, "tool", "of"), ["call_paris", "call_oslo"], "{way:?}: {seen:#}");
        let missing = format!("no such city: {:?}", Some(oslo));
        let expected = [result(protocol, "21 degrees", false), result(protocol, &missing, true)];
        assert_eq!(each(&seen, "tool", "text"), expected, "{way:?}: {seen:#}");
    }
}

#[tokio::test]
async fn what_the_server_reads_is_what_was_said() {
    let served = server().await;
    let schema = json!({
        "type": "object",
        "properties": { "city": { "type": "string", "description": "Where \"it\" is" } },
        "required": ["city"],
    });
    for way in WAYS {
        let (llm, protocol) = (way.to(&served), way.protocol(&served));
        let image = Media {
            mime: "image/png".into(),
            data: "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==".into(),
            provider_metadata: None,
        };
        let mut request = LlmRequest::new(
            "",
            vec![
                Message::user("First: ä漢🦀\n\"quoted\""),
                Message::assistant(vec![Part::text("Noted.")]),
                Message {
                    content: vec![Part::text("And this?"), Part::Media(image)],
                    ..Message::user("")
                },
                Message::assistant(vec![Part::text("A dot.")]),
                Message::user("what do you see"),
            ],
        );
        request.system = vec![SystemPart::text("Be exact.")];
        request.tools = vec![ToolDefinition {
            name: "weather".into(),
            description: "Tells the weather.".into(),
            input_schema: RawJson::parse(schema.to_string()).unwrap(),
        }];
        request.generation.max_tokens = Some(77);
        request.generation.temperature = Some(0.5);
        let seen = seen(&answer(&llm, &request).await.unwrap());
        let instructions = if llm.route().dialect.instructions == Some(Instructions::Developer)
            && protocol == Protocol::OpenAiChat
        {
            "developer"
        } else {
            "system"
        };
        assert_eq!(each(&seen, instructions, "text"), ["Be exact."], "{way:?}: {seen:#}");
        let users: Vec<_> = each(&seen, "user", "text");
        // The server shows a message's other content only in chat.
        let looks =
            if protocol == Protocol::OpenAiChat { "And this?<image_url>" } else { "And this?" };
        assert_eq!(users, ["First: ä漢🦀\n\"quoted\"", looks, "what do you see"], "{way:?}");
        assert_eq!(each(&seen, "assistant", "text"), ["Noted.", "A dot."], "{way:?}");
        let tool = &seen["tools"][0];
        assert_eq!((&tool["name"], &tool["parameters"]), (&json!("weather"), &schema), "{way:?}");
        assert_eq!(tool["description"], "Tells the weather.", "{way:?}");
        let bound = if way.provider == "openai" && protocol == Protocol::OpenAiChat {
            &seen["max_tokens"] // it is `max_completion_tokens` there, which the server does not show
        } else {
            assert_eq!(seen["max_tokens"], 77, "{way:?}");
            &seen["temperature"]
        };
        assert!(bound.is_null() || bound == &json!(0.5), "{way:?}: {seen:#}");
        assert_eq!(seen["temperature"], 0.5, "{way:?}");
    }
}

#[tokio::test]
async fn a_search_that_the_provider_ran_is_a_call_with_its_result_and_goes_back_as_it_came() {
    let served = server().await;
    let ways = WAYS.into_iter().filter(|way| way.protocol(&served) == Protocol::OpenAiResponses);
    let mut tried = BTreeSet::new();
    for way in ways {
        let llm = way.to(&served);
        let request = thinking("search for it");
        let events = answer(&llm, &request).await.unwrap();
        assert_eq!(text(&events), "It is out.");
        let call = events.iter().find_map(|event| match event {
            LlmEvent::ToolCall(call) => Some(call.clone()),
            _ => None,
        });
        let call = call.unwrap();
        assert!(call.provider_executed, "{call:?}");
        let result = events.iter().find_map(|event| match event {
            LlmEvent::ToolResult(result) => Some(result.clone()),
            _ => None,
        });
        let result = result.unwrap();
        assert_eq!(result.id, call.id);
        let mut next = request.clone();
        next.messages.push(Message::assistant(vec![
            Part::ToolCall(call.clone()),
            Part::ToolResult(result),
            Part::text("It is out."),
        ]));
        next.messages.push(Message::user("what do you see"));
        let body: Value = serde_json::from_slice(&llm.encode(&next)).unwrap();
        let items = body["input"].as_array().unwrap();
        let back: Vec<_> = items.iter().filter(|item| item["type"] == "web_search_call").collect();
        assert_eq!(back.len(), 1, "{body:#}");
        let action = json!({"type": "search", "query": "rust 1.95"});
        assert_eq!((&back[0]["status"], &back[0]["action"]), (&json!("completed"), &action));
        let seen = seen(&answer(&llm, &next).await.unwrap());
        assert_eq!(each(&seen, "assistant", "text"), ["It is out."], "{seen:#}");
        tried.insert(way.provider);
    }
    assert_eq!(tried, BTreeSet::from(["azure", "openai"]));
}
