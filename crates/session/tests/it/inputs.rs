//! When a prompt that arrives during work becomes part of it.

use anyhow::{Context, Result};
use domain::Delivery::{Queue, Steer};
use domain::DrainOutcome::Completed;
use domain::{PromptPart, SessionEvent};
use simulated_model::{Script, ScriptedCall};

use crate::tools::{calls, shell};
use crate::world::{Session, World};

/// The order of promotions (their texts) and turns.
async fn order(world: &World, session: &Session) -> Result<Vec<String>> {
    let line = |event: &SessionEvent| match event {
        SessionEvent::PromptPromoted(promoted) => {
            let PromptPart::Text { text, .. } = &promoted.parts[0];
            Some(text.clone())
        }
        SessionEvent::TurnStarted(_) => Some("(turn)".to_owned()),
        _ => None,
    };
    Ok(world.events(session).await?.iter().filter_map(|event| line(&event.event)).collect())
}

#[tokio::test]
async fn steers_join_at_the_next_boundary_and_queued_prompts_wait_for_the_end() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script {
        matches: "begin".into(),
        round: Some(0),
        gate: Some("begin".into()),
        tool_calls: vec![ScriptedCall {
            name: "glob".into(),
            arguments: serde_json::json!({"pattern": "*"}),
            id: None,
        }],
        ..Script::default()
    })?;
    world.prompt(&session, "begin").await?;
    let meanwhile = async {
        world.until_requests(1).await?;
        world.admit(&session, Queue, "say 1 words").await?;
        world.admit(&session, Steer, "say 2 words").await?;
        world.admit(&session, Queue, "say 3 words").await?;
        world.admit(&session, Steer, "say 4 words").await?;
        Ok::<_, anyhow::Error>(world.model().open_gate("begin")?)
    };
    let (outcomes, admitted) = tokio::join!(world.settle(&session), meanwhile);
    admitted?;
    assert_eq!(outcomes?, [Completed]);
    assert_eq!(
        order(&world, &session).await?,
        [
            "begin",
            "(turn)",
            "say 2 words",
            "say 4 words",
            "(turn)",
            "say 1 words",
            "(turn)",
            "say 3 words",
            "(turn)",
        ]
    );
    // The results of the running turn come before what joined it.
    let roles: Vec<_> = world.requests()?[1].iter().map(|m| m["role"].clone()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "user", "user"]);
    world.check().await
}

#[tokio::test]
async fn a_steer_that_arrives_during_the_last_turn_gets_a_turn_of_the_same_drain() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script {
        matches: "say 2 words".into(),
        gate: Some("hold".into()),
        ..Script::default()
    })?;
    world.prompt(&session, "say 2 words").await?;
    let meanwhile = async {
        world.until_requests(1).await?;
        world.prompt(&session, "say 3 words").await?;
        Ok::<_, anyhow::Error>(world.model().open_gate("hold")?)
    };
    let (outcomes, admitted) = tokio::join!(world.settle(&session), meanwhile);
    admitted?;
    assert_eq!(outcomes?, [Completed]);
    assert_eq!(world.answer(&session).await?, "w0 w1 w2");
    world.check().await
}

#[tokio::test]
async fn several_steers_are_promoted_together_in_the_order_of_their_admission() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    for n in 1..=5 {
        world.prompt(&session, &format!("say {n} words")).await?;
    }
    assert_eq!(world.settle(&session).await?, [Completed]);
    let told: Vec<_> = order(&world, &session).await?;
    let expected: Vec<_> = (1..=5).map(|n| format!("say {n} words")).collect();
    assert_eq!(told[..5], expected);
    assert_eq!(told[5..], ["(turn)"]);
    world.check().await
}

// Finding core-3 C2: all of an inbox was promoted by one write.
#[tokio::test]
async fn a_large_inbox_is_promoted_in_parts_before_one_turn() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    for n in 0..130 {
        world.prompt(&session, &format!("say {n} words")).await?;
    }
    for _ in 0..3 {
        world.prompt(&session, &format!("say 2 words {}", "y".repeat(500_000))).await?;
    }
    assert_eq!(world.settle(&session).await?, [Completed]);
    let told = order(&world, &session).await?;
    assert_eq!(told.len(), 134);
    let first: Vec<_> = (0..130).map(|n| format!("say {n} words")).collect();
    assert_eq!(told[..130], first);
    assert_eq!(told[133], "(turn)");
    // A write has one time, and each is an observation of the clock of its own.
    let mut writes: Vec<(i64, usize, usize)> = Vec::new();
    for event in world.events(&session).await? {
        let SessionEvent::PromptPromoted(promoted) = &event.event else { continue };
        let PromptPart::Text { text, .. } = &promoted.parts[0];
        match writes.last_mut().filter(|write| write.0 == event.time) {
            Some(write) => (write.1, write.2) = (write.1 + 1, write.2 + text.len()),
            None => writes.push((event.time, 1, text.len())),
        }
    }
    assert!(writes.len() >= 3, "{writes:?}");
    for (_, prompts, bytes) in &writes {
        assert!(*prompts <= 64 && *bytes <= 1 << 20, "{writes:?}");
    }
    world.check().await
}

#[tokio::test]
async fn the_last_allowed_step_answers_without_tools_and_a_prompt_starts_over() -> Result<()> {
    let world = World::with(|settings| settings.rules.max_steps = 2).await?;
    let session = world.session().await?;
    session.file("a.txt", "one\n")?;
    world.prompt(&session, "read a.txt then read a.txt then read a.txt").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let kinds = world.kinds(&session).await?;
    assert_eq!(kinds.iter().filter(|kind| **kind == "turn.started").count(), 2);
    assert_eq!(kinds.iter().filter(|kind| **kind == "notice.recorded").count(), 1);
    world.prompt(&session, "read a.txt").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.check().await
}

#[tokio::test]
async fn calls_of_the_last_allowed_step_are_settled_and_never_run() -> Result<()> {
    let world = World::with(|settings| settings.rules.max_steps = 1).await?;
    let session = world.session().await?;
    // Long after its calls the stream still goes on: they do not start beside it, either.
    world.script(Script {
        text: Some("I call anyway".into()),
        chunk_delay_ms: 40,
        ..calls("work", 0, vec![shell("echo 1 > ran")])
    })?;
    world.prompt(&session, "work").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(session.content("ran"), "");
    let events = world.events(&session).await?;
    let settled = events.iter().find_map(|event| match &event.event {
        SessionEvent::ToolSettled(settled) => Some(settled.clone()),
        _ => None,
    });
    let settled = settled.context("a result")?;
    assert_eq!(settled.outcome, domain::ToolOutcomeKind::Failed);
    assert!(settled.output.starts_with("Tools are not available"), "{}", settled.output);
    // The next prompt's request carries the call with its result.
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let last = world.requests()?.pop().context("a request")?;
    assert_eq!(last.iter().filter(|message| message["role"] == "tool").count(), 1);
    world.check().await
}
