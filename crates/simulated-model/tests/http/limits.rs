//! Token limits, as each protocol's client sees them.

use llm_protocol::{ErrorReason, Generation, Message, Protocol};
use serde_json::json;
use simulated_model::{ALL_MODELS, Outcome, Script, TokenLimits};

use crate::protocols::{ask, request, speak};
use crate::start;

// Issue 11, point 3: the simulated model enforces limits like providers do.
#[tokio::test]
async fn prompts_above_a_limit_are_refused_in_every_protocol() {
    let client = start().await;
    let handle = &client.server.handle;
    let long = Message::user(format!("say 2 words\n{}", "x".repeat(40_000)));
    handle.set_limits([("sim:1", TokenLimits::context(5_000))]).unwrap();
    handle
        .script(Script { text: Some("spent".into()), times: Some(5), ..Script::default() })
        .unwrap();
    for protocol in Protocol::ALL {
        let llm = speak(&client, *protocol);
        let error = ask(&llm, &request(vec![long.clone()])).await.unwrap_err();
        assert_eq!(error.reason, ErrorReason::ContextOverflow, "{protocol:?}: {error:?}");
        let record = handle.requests().pop().unwrap();
        assert_eq!((record.status, record.outcome), (Some(400), Outcome::Refused));
        assert!(record.prompt.starts_with("say 2 words") && !record.scripted);
        let said = ask(&llm, &request(vec![Message::user("say 2 words")])).await.unwrap();
        assert_eq!(said.text(), "spent", "{protocol:?}: a refused request spends no script");
    }
    let other = [("else", TokenLimits::input(10)), (ALL_MODELS, TokenLimits::default())];
    handle.set_limits(other).unwrap();
    let said = ask(&speak(&client, Protocol::OpenAiChat), &request(vec![long])).await;
    assert!(said.is_ok(), "another model's limits are not its own");
}

#[tokio::test]
async fn the_allowed_answer_counts_where_providers_count_it() {
    let client = start().await;
    let (status, answer) =
        client.sim("PUT", "limits", &json!({ "*": { "context": 5_000, "input": 4_000 } })).await;
    assert_eq!((status, &answer["limits"]["*"]["input"]), (200, &json!(4_000)));
    for protocol in Protocol::ALL {
        let llm = speak(&client, *protocol);
        let mut asked = request(vec![Message::user(format!("say 2 words\n{}", "x".repeat(8_000)))]);
        asked.generation = Generation { max_tokens: Some(4_000), ..Generation::default() };
        let refused = ask(&llm, &asked).await.err().map(|error| error.reason);
        let counts = !matches!(protocol, Protocol::OpenAiResponses | Protocol::Gemini);
        assert_eq!(refused, counts.then_some(ErrorReason::ContextOverflow), "{protocol:?}");
        asked.generation.max_tokens = Some(1_000);
        assert!(ask(&llm, &asked).await.is_ok(), "{protocol:?}");
    }
    let (status, problem) = client.sim("PUT", "limits", &json!({ "*": 5 })).await;
    assert_eq!(status, 400, "{problem}");
    let (_, answer) = client.sim("DELETE", "limits", &json!(null)).await;
    assert_eq!(answer, json!({ "limits": {} }));
}

#[tokio::test]
async fn a_script_has_a_limit_and_a_usage_of_its_own() {
    let client = start().await;
    client
        .put(json!([
            { "match": "long", "input_limit": 1_000 },
            { "match": "null", "usage": null },
            { "match": "zero", "usage": {} },
        ]))
        .await;
    for protocol in Protocol::ALL {
        let llm = speak(&client, *protocol);
        let long = request(vec![Message::user(format!("long {}", "x".repeat(4_000)))]);
        let error = ask(&llm, &long).await.unwrap_err();
        assert_eq!(error.reason, ErrorReason::ContextOverflow, "{protocol:?}");
        assert!(ask(&llm, &request(vec![Message::user("long")])).await.is_ok(), "{protocol:?}");
        for prompt in ["null", "zero"] {
            let said = ask(&llm, &request(vec![Message::user(prompt)])).await.unwrap();
            // Gemini does not mark the last usage, so a client may treat the count as lost.
            let usage = said.finish.unwrap().1.filter(|usage| !usage.estimated);
            assert_eq!(usage.map_or(0, |usage| usage.input_tokens), 0, "{protocol:?}: {prompt}");
            assert_eq!(client.server.handle.requests().pop().unwrap().usage, None);
        }
    }
}
