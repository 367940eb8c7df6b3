//! Providers that refuse reasoning that they have sealed themselves: the session goes on without it.

use anyhow::{Result, ensure};
use domain::AttemptOutcome::{Completed as Answered, Failed};
use domain::DrainOutcome::Completed;
use domain::{ErrorCode, SessionEvent};
use llm_protocol::Protocol;
use serde_json::{Value, json};

use crate::hosted::{anthropic_says, responses_message, world};

/// What no request may contain after it was refused.
const SEAL: &str = "c2VhbGVkIGJ5IGFub3RoZXIga2V5";

/// A session whose first answer has sealed reasoning, which is refused with the second prompt.
async fn goes_on(
    protocol: Protocol,
    thinks: &[Value],
    says: impl Fn(&str) -> Vec<Value>,
    refusal: Value,
) -> Result<()> {
    let (world, canned) = world(protocol).await?;
    let session = world.session().await?;
    let (refused, two, three) = ([refusal], says("Two."), says("Three."));
    canned.then(thinks);
    canned.then(&refused);
    canned.then(&two);
    canned.then(&three);
    for prompt in ["One?", "Two?", "Three?"] {
        world.prompt(&session, prompt).await?;
        assert_eq!(world.settle(&session).await?, [Completed], "{prompt}");
    }
    assert_eq!(world.answer(&session).await?, "Three.");
    let bodies = canned.bodies();
    let sealed: Vec<_> = bodies.iter().map(|body| body.contains(SEAL)).collect();
    assert_eq!(sealed, [false, true, false, false], "{bodies:#?}");
    ensure!(bodies[2].contains("One.") && bodies[2].contains("Two?"), "{}", bodies[2]);
    let mut ends = Vec::new();
    for recorded in world.events(&session).await? {
        if let SessionEvent::AttemptEnded(ended) = recorded.event {
            let is_known =
                |error: &domain::SessionError| error.code == ErrorCode::ProviderStateRefused;
            ends.push((ended.outcome, ended.error.as_ref().is_some_and(is_known)));
        }
    }
    assert_eq!(ends, [(Answered, false), (Failed, true), (Answered, false), (Answered, false)]);
    // Every body is rebuilt from rows.
    world.check_rows().await?;
    Ok(())
}

// Finding next report 23: each later prompt failed with the same refusal.
#[tokio::test]
async fn a_refused_signature_of_anthropics_is_left_out() -> Result<()> {
    let start = json!({"type": "thinking", "thinking": "", "signature": ""});
    let thought = json!({"type": "thinking_delta", "thinking": "hm"});
    let seal = json!({"type": "signature_delta", "signature": SEAL});
    let mut thinks = vec![
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 5}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": start}),
        json!({"type": "content_block_delta", "index": 0, "delta": thought}),
        json!({"type": "content_block_delta", "index": 0, "delta": seal}),
        json!({"type": "content_block_stop", "index": 0}),
    ];
    thinks.extend(anthropic_says("One.").into_iter().skip(1));
    let error = json!({
        "type": "invalid_request_error",
        "message": "messages.1.content.0: Invalid `signature` in `thinking` block",
    });
    let refusal = json!({"type": "error", "error": error});
    goes_on(Protocol::AnthropicMessages, &thinks, anthropic_says, refusal).await
}

// Finding next report 22: each later prompt failed with the same refusal.
#[tokio::test]
async fn refused_reasoning_of_openais_is_left_out() -> Result<()> {
    let item = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": SEAL, "summary": []});
    let mut thinks =
        vec![json!({"type": "response.output_item.done", "output_index": 0, "item": item})];
    thinks.extend(responses_message(1, "One."));
    let error = json!({
        "code": "invalid_encrypted_content",
        "message": "The encrypted content could not be verified.",
    });
    let refusal = json!({"type": "response.failed", "response": {"error": error}});
    let says = |text: &str| responses_message(0, text);
    goes_on(Protocol::OpenAiResponses, &thinks, says, refusal).await
}
